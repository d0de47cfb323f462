"""A user's own activation modules in stacks: as in a plain torch network of one member."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from combutab import CTGAN, TVAE, MLPClassifier, MLPRegressor
from combutab.nn import (
    Member,
    MLPSpec,
    StackedCritic,
    StackedGenerator,
    StackedMLP,
    gradient_penalty,
)
from tests.short import BUDGET
from tests.trust.own_modules import (
    FEWER,
    NAMED,
    OWN,
    WIDTH,
    Mixed,
    Reduced,
    inside,
    table,
    without_width,
)

HIDDEN = (WIDTH, WIDTH)
TRIED = OWN if BUDGET > 1 else FEWER


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
    [(layout, name) for layout in ("alone", "two") for name in NAMED]
    + [("among others", name) for name in TRIED],
)
def test_modules_compute_as_in_a_plain_network(layout, name):
    factory = OWN[name]
    specs = {
        "alone": [factory],
        "two": [factory, factory],
        "among others": ["combu", factory, factory, "prelu"],
    }[layout]
    _check(factory, specs, rows=6)


@pytest.mark.parametrize("name", [n for n in FEWER if "atch" not in n])  # which one row has none of
def test_a_batch_of_one_row(name):
    _check(OWN[name], [OWN[name]] * 2, rows=1)


@pytest.mark.parametrize("name", ["batch norm", "reassigned", "softmax over dim 1", "additive"])
def test_modules_never_see_padding_rows(name):
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
    [(StackedGenerator, name) for name in NAMED] + [(StackedCritic, name) for name in TRIED],
)
def test_generators_train_modules_unchanged(cls, name):
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
def test_unsupported_modules_are_refused_with_the_reason(name, fit):
    factory, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason):
        fit(factory)


def test_proxy_norm_keeps_members_apart():
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
