"""A user's own activation modules in stacks: as in a plain torch network of one member."""

import pytest
import torch
from torch import nn

from combutab.nn import (
    Member,
    MLPSpec,
    StackedCritic,
    StackedGenerator,
    StackedMLP,
    gradient_penalty,
)
from tests.trust.own_modules import FEWER, OWN, WIDTH, Additive, inside

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


@pytest.mark.parametrize("normalization", ["batch", "layer", "rms", "group", "none"])
@pytest.mark.parametrize("spec", ["relu", "prelu", "pelu", Additive, "la-silu"])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_step_has_autograds_gradients_in_small_batches(normalization, spec, rows):
    shape = MLPSpec(3, HIDDEN, 2, normalization=normalization)
    members = [Member(seed, spec) for seed in (0, 1)]
    nets = [StackedMLP(shape, members, dtype=torch.float64) for _ in range(2)]
    x = torch.randn(2, rows, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def objective(raw):
        return raw.square().sum() + raw.sum()

    nets[0].gradients(x, objective)
    nets[1].flat.backward(objective(nets[1](x)))
    _same(nets[0].flat.grads, nets[1].flat.grads)
    _same(nets[0].flat_buffers.values, nets[1].flat_buffers.values)


# ---- generators' networks -----------------------------------------------------------------------


def _chain_gradients(cls, factory):
    """What a step of a generator or a critic leaves, the critic's with its penalty."""
    members = [Member(i, factory) for i in range(2)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    if cls is StackedGenerator:
        net = StackedGenerator(4, 0, 3, (WIDTH,), members, dtype=torch.float64)
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


def test_the_networks_of_generators_do_what_the_module_does():
    factory = OWN["subclass of LeakyReLU"]
    for net, inputs in (
        (StackedGenerator(4, 0, 3, (WIDTH,), [Member(0, factory)] * 2, normalization="none"), 4),
        (StackedCritic(4, (WIDTH,), [Member(0, factory)] * 2, pac=1), 4),
    ):
        x = torch.randn(2, 5, inputs, generator=torch.Generator().manual_seed(0))
        h = net.linears[0](x)
        h = torch.stack([factory(WIDTH)(h[i]) for i in range(2)])
        h = torch.cat([x, h], -1) if net.residual else h
        expected = net.linears[1](h)
        expected = expected if net.residual else expected.squeeze(-1)
        torch.testing.assert_close(net(x), expected)
