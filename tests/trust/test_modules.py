"""A user's own activation modules in stacks: as in a plain torch network of one member."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from torch import nn
from torch.nn import functional as F

from combutab import CTGAN, TVAE, MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.activations import ProxyNorm
from combutab.nn import (
    Member,
    MLPSpec,
    StackedCritic,
    StackedGenerator,
    StackedMLP,
    gradient_penalty,
)
from tests.trust.own_modules import (
    FEWER,
    OWN,
    WIDTH,
    Frozen,
    Mixed,
    Normed,
    Reduced,
    Softmax,
    inside,
    table,
    without_width,
)

HIDDEN = (WIDTH, WIDTH)


class Plain(nn.Module):
    """The network of one member as torch's users write it."""

    def __init__(self, net: StackedMLP, i: int, factory, dtype=torch.float64):
        super().__init__()
        self.linears = nn.ModuleList()
        for layer in net.linears:
            linear = nn.Linear(layer.weight.shape[1], layer.weight.shape[2], dtype=dtype)
            with torch.no_grad():
                linear.weight.copy_(layer.weight[i].T)
                linear.bias.copy_(layer.bias[i, 0])
            self.linears.append(linear)
        self.acts = nn.ModuleList(factory(WIDTH).to(dtype) for _ in HIDDEN)
        state = {k: v.clone() for k, v in net.member_state(i).items()}
        self.names = {}
        for layer, act in enumerate(self.acts):
            tensors = [("p_", *x) for x in act.named_parameters()]
            tensors += [("b_", *x) for x in act.named_buffers()]
            for kind, name, tensor in tensors:
                keys = [f"activations.{layer}.{kind}{n}" for n in (name, name.replace(".", "_"))]
                path, _, own = name.rpartition(".")
                self.names[keys[0] if keys[0] in state else keys[1]] = act.get_submodule(path), own
                with torch.no_grad():
                    tensor.copy_(state[keys[0] if keys[0] in state else keys[1]])

    def forward(self, x):
        for linear, act in zip(self.linears, self.acts, strict=False):
            x = act(linear(x))
        return self.linears[-1](x)


def _objective(weights):
    return lambda raw: (raw * weights).sum()


def _check(factory, specs, rows, valid=None):
    """One training step and one prediction of each member, beside its plain network's."""
    net = StackedMLP(
        MLPSpec(3, HIDDEN, 2),
        [Member(seed, spec) for seed, spec in enumerate(specs)],
        dtype=torch.float64,
    )
    generator = torch.Generator().manual_seed(1)
    m = len(specs)
    x = torch.randn(m, rows, 3, generator=generator, dtype=torch.float64)
    weights = torch.randn(m, rows, 2, generator=generator, dtype=torch.float64)
    if valid is not None:
        weights *= valid.unsqueeze(-1)
    mine = [i for i, spec in enumerate(specs) if spec is factory]
    plains = {i: Plain(net, i, factory) for i in mine}
    net.gradients(x, _objective(weights), valid=valid)
    for i, plain in plains.items():
        n = rows if valid is None else int(valid[i].sum())
        if n:
            out = plain(x[i, :n])
            of = [p for p in plain.parameters() if p.requires_grad]
            grads = torch.autograd.grad((out * weights[i, :n]).sum(), of, allow_unused=True)
            expected = dict(zip(map(id, of), grads, strict=True))
        else:
            expected = {}
        for key, layer in enumerate(plain.linears):
            got = net.flat.gradient_of(net.linears[key], "weight")[i].T
            _same(got, expected.get(id(layer.weight)))
            _same(
                net.flat.gradient_of(net.linears[key], "bias")[i, 0], expected.get(id(layer.bias))
            )
        found = {slot.name: slot for slot in net.flat.slots if slot.start <= i < slot.stop}
        state = net.member_state(i)
        for name, (owner, own) in plain.names.items():
            tensor = getattr(owner, own)
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                slot = found[name]
                got = net.flat.grads[i, slot.columns].view(slot.tail)
                _same(got, expected.get(id(tensor)))
            else:  # a buffer after the step, or a frozen parameter
                _same(state[name], tensor)
        plain.eval()
    net.eval()
    new = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    predicted = net.predict(new, None, 4)  # in two parts
    with torch.no_grad():
        for i, plain in plains.items():
            _same(predicted[i], plain(new))


def _same(got, expected):
    expected = torch.zeros_like(got) if expected is None else expected
    torch.testing.assert_close(got, expected.to(got.dtype).reshape(got.shape), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("layout", "name"),
    [(layout, name) for layout in ("alone", "two") for name in FEWER]
    + [("among others", name) for name in OWN],
)
def test_a_module_does_what_it_does_in_a_plain_network(layout, name):
    factory = OWN[name]
    specs = {
        "alone": [factory],
        "two": [factory, factory],
        "among others": ["combu", factory, factory, "prelu"],
    }[layout]
    _check(factory, specs, rows=6)


@pytest.mark.parametrize("name", [n for n in FEWER if "atch" not in n])  # which one row has none of
@pytest.mark.parametrize("n_members", [1, 2])
def test_a_batch_of_one_row(name, n_members):
    _check(OWN[name], [OWN[name]] * n_members, rows=1)


@pytest.mark.parametrize("name", ["batch norm", "reassigned", "softmax over dim 1", "additive"])
def test_places_without_a_row_are_not_shown_to_a_module(name):
    valid = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    _check(OWN[name], [OWN[name]] * 3, rows=4, valid=valid)


# ---- generators' networks -----------------------------------------------------------------------


def _chain_gradients(cls, factory):
    """What a step of a generator or a critic leaves, the critic's with its penalty."""
    members = [Member(i, factory) for i in range(2)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    if cls is StackedGenerator:
        net = StackedGenerator(4, (WIDTH,), 3, members, normalization="batch", dtype=torch.float64)
        net.flat.backward(net.training_pass()(x).square().sum())
        return net
    net = StackedCritic(4, (WIDTH, WIDTH), members, pac=1, dropout=0.5, dtype=torch.float64)
    masks = net.mask_maker().draw([1, 2], 12)
    scores = net.training_pass()(x, [mask[:, :6] for mask in masks])
    mix = torch.full((2, 6), 0.5, dtype=torch.float64)
    penalty = gradient_penalty(net, x, x + 2, mix, [mask[:, 6:] for mask in masks])
    net.flat.backward(scores.square().sum() + penalty.sum())
    return net


@pytest.mark.parametrize(
    ("cls", "name"),
    [(StackedGenerator, name) for name in FEWER] + [(StackedCritic, name) for name in OWN],
)
def test_the_chains_of_generators_train_the_module_as_it_is(cls, name):
    made = []
    for factory in (OWN[name], inside(OWN[name])):
        try:
            made.append(_chain_gradients(cls, factory))
        except RuntimeError as error:  # not differentiable twice: estimators refuse it before
            made.append(str(error))
    if isinstance(made[1], str):
        assert made[0] == made[1]
        return
    torch.testing.assert_close(made[0].flat.grads, made[1].flat.grads, rtol=1e-9, atol=1e-9)
    buffers = (net.flat_buffers.values for net in made)
    torch.testing.assert_close(*buffers, rtol=1e-9, atol=1e-9)


# ---- Estimators and generators of a user's own modules: what they learn, draw and predict -------

NET = {
    "hidden_layer_sizes": (8, 8),
    "max_iter": 6,
    "n_iter_no_change": np.inf,
    "batch_size": 16,
    "learning_rate_init": 1e-2,
    "dropout": 0.0,
    "random_state": 0,
    "precision": "float64",
}


@pytest.mark.parametrize("name", ["batch norm", "reassigned", "counted", "mixed", "nn.PReLU"])
def test_members_of_an_ensemble_are_those_trained_alone(name):
    X, y = table()
    alone = MLPRegressor(activation=OWN[name], **NET).fit(X, y)
    three = MLPRegressor(activation=OWN[name], n_members=3, **NET).fit(X, y)
    for key, value in alone.network().member_state(0).items():
        torch.testing.assert_close(
            three.network().member_state(0)[key], value, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("name", ["batch norm", "subclass of ReLU", "softmax over dim 1"])
def test_a_stacked_search_is_scikit_learns(name):
    X, y = table()
    net = MLPRegressor(activation=OWN[name], **NET)
    grid = {"learning_rate_init": [1e-3, 1e-2], "dropout": [0.0, 0.2]}
    stacked = StackedGridSearchCV(net, grid, cv=2).fit(X, y)
    plain = GridSearchCV(net, grid, cv=2).fit(X, y)
    np.testing.assert_allclose(
        stacked.cv_results_["mean_test_score"],
        plain.cv_results_["mean_test_score"],
        rtol=1e-6,
    )


def test_a_frozen_parameter_stays():
    X, y = table()
    net = MLPRegressor(activation=Frozen, n_members=2, **NET).fit(X, y)
    for i in range(2):
        state = net.network().member_state(i)
        expected = torch.linspace(0.5, 2, 8).double()
        assert torch.equal(state["activations.0.p_scale"], expected)
        assert not torch.equal(state["activations.0.p_shift"], torch.zeros(8).double())


# ---- random numbers -----------------------------------------------------------------------------


class Drops(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return F.dropout(torch.relu(x * self.weight), 0.3, self.training)


@pytest.mark.parametrize(
    "activation", [Drops, lambda w: nn.RReLU(), lambda w: nn.AlphaDropout(0.2)]
)
def test_a_module_that_draws_follows_random_state(activation):
    X, y = table()
    params = NET | {"random_state": 5}
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    one = MLPRegressor(activation=activation, **params).fit(X, y)
    torch.manual_seed(123)  # nothing of the caller's matters
    two = MLPRegressor(activation=activation, **params).fit(X, y)
    torch.set_rng_state(before[0])
    three = MLPRegressor(activation=activation, **(params | {"random_state": 6})).fit(X, y)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert not np.allclose(one.predict(X), three.predict(X))
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    stacked = MLPRegressor(activation=activation, n_members=2, **params).fit(X, y)
    for key, value in one.network().member_state(0).items():
        got = stacked.network().member_state(0)[key]
        torch.testing.assert_close(got, value, rtol=1e-6, atol=1e-8)


def test_other_threads_draws_do_not_repeat():
    """Making activations once set the global generator for a moment, which others drew from."""
    drawn, stop = [], threading.Event()

    def draw():
        while not stop.is_set():
            drawn.append(float(torch.rand((), dtype=torch.float64)))

    thread = threading.Thread(target=draw)
    thread.start()
    n_made = 0
    while n_made < 100 or len(drawn) < 100:  # whenever the other thread has its turns
        StackedMLP(MLPSpec(2, (4, 4), 1), [Member(0, "combu-random"), Member(0, Drops)])
        n_made += 1
    stop.set()
    thread.join()
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("activation", ["prelu", "pelu", "combu-random", Mixed, Normed])
def test_threads_may_predict_with_one_network(activation):
    net = MLPRegressor(activation=activation, n_members=2, **NET).fit(*table())
    X, _ = table(400)
    parts = [X[i : i + 40 + i % 7] for i in range(0, 360, 3)]
    expected = [net.predict(part) for part in parts]
    with ThreadPoolExecutor(8) as pool:
        for got, right in zip(pool.map(net.predict, parts), expected, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5)


# ---- A user's own activation modules that cannot be honoured are refused with the reason --------


class AcrossRows(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class ByChance(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, training=True)


class Kept(nn.Module):
    """A tensor that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(())

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return x - self.mean


class Late(nn.Module):
    def forward(self, x):
        if not hasattr(self, "seen"):
            self.register_buffer("seen", torch.zeros(()))
        return torch.relu(x)


class Detached(nn.Module):
    def forward(self, x):
        return x.detach()


class Doubles(nn.Module):
    def forward(self, x):
        return x.double()


_ONE = Mixed(8)

REFUSED = {
    "across rows": (without_width(AcrossRows), "depends on the rows"),
    "softmax over rows": (lambda width: nn.Softmax(dim=0), "depends on the rows"),
    "by chance": (without_width(ByChance), "chance"),
    "a tensor as it is": (without_width(Kept), "register_buffer"),
    "a late buffer": (without_width(Late), "buffers"),
    "another type": (without_width(Doubles), "float64"),
    "a whole module again": (lambda width: _ONE, "fresh"),
    "another width": (lambda width: nn.Linear(width, width + 1), "keeps the shape"),
    "not differentiable": (without_width(Detached), "differentiated"),
    "fails": (lambda width: nn.Conv2d(3, 3, 3), "fails"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize(
    "fit",
    [
        lambda a: MLPRegressor(activation=a, hidden_layer_sizes=(8,)).fit(*table()),
        lambda a: MLPClassifier(activation=a, hidden_layer_sizes=(8,)).fit(
            table()[0], table()[0][:, 0] > 3
        ),
        lambda a: CTGAN(activation=a, generator_dim=(8,), discriminator_dim=(8,)).fit(table()[0]),
        lambda a: TVAE(activation=a, compress_dims=(8,), decompress_dims=(8,)).fit(table()[0]),
    ],
    ids=["regressor", "classifier", "CTGAN", "TVAE"],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(name, fit):
    factory, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason):
        fit(factory)


class RowMean(nn.Module):
    """Unit-wise to the eye of a list of names."""

    def forward(self, x):
        return torch.relu(x - x.mean(-1, keepdim=True))


@pytest.mark.parametrize(
    "factory", [Normed, *(without_width(cls) for cls in (RowMean, ByChance, Softmax))]
)
def test_proxy_norm_refuses_what_is_not_unit_wise(factory):
    with pytest.raises(ValueError, match="unit-wise"):
        ProxyNorm(factory, 8)


def test_proxy_norm_of_a_users_module_is_one_members():
    """A parameter that is reduced over the width once mixed the members of a stack."""
    shape = MLPSpec(3, (WIDTH, WIDTH), 2, normalization="layer", proxy_norm=True)
    members = [Member(seed, Reduced) for seed in range(3)]
    nets = [
        StackedMLP(shape, part, dtype=torch.float64) for part in (members, *([m] for m in members))
    ]
    x = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    together = nets[0](x.expand(3, -1, -1))
    for i, alone in enumerate(nets[1:]):
        torch.testing.assert_close(together[i], alone(x)[0], rtol=1e-9, atol=1e-9)


def test_a_proxy_norm_takes_the_moments_of_a_subclass_from_its_forward():
    """The closed form is the base class's."""
    norm = ProxyNorm(lambda width: OWN["subclass of ReLU"](width), 4, eps=0.0)
    y = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0))
    z = norm(y.expand(-1, 4))
    assert z.mean().abs() < 0.02
    assert abs(z.var() - 1) < 0.03
