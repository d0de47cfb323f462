"""Kernels in given memory against the plain operations under autograd; which modules have one."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from combutab.activations import (
    ACTIVATIONS,
    PLN,
    PLS,
    CombU,
    LayerAct,
    NLReLU,
    ProxyNorm,
    Swish,
    make_activation,
)
from combutab.activations.kernels import Memory, Standardize, kernel_of, run

MEMBERS, ROWS, WIDTH = 3, 5, 10
MIXED = {"tanh": 0.3, "prelu": 0.3, "gelu": 0.2, "pelu": 0.2}
MAKERS = {
    **{name: make for name, make in ACTIVATIONS.items() if kernel_of(make(WIDTH)) is not None},
    "nlrelu-2": lambda width: NLReLU(2.0),
    "swish-2": lambda width: Swish(2.0),
    "celu-2": lambda width: nn.CELU(2.0),
    "softplus-2": lambda width: nn.Softplus(2.0),
    "gelu-tanh": lambda width: nn.GELU("tanh"),
    "mixed": partial(CombU, ratios=MIXED),
    "mixed-random": partial(CombU, ratios=MIXED, assignment="random"),
    "groups": partial(PLN, norm_size=[3, 3, 4]),
    "pls-1": partial(PLS, norm_size=1),
    **{
        f"proxy-{name}": partial(ProxyNorm, name)
        for name in ("relu", "prelu", "gelu", "combu", "combu-random")
    },
    "proxy-unscaled": partial(ProxyNorm, "relu", scale=False),
    "proxy-mixed": partial(ProxyNorm, partial(CombU, ratios=MIXED)),
    "proxy-mixed-random": partial(
        ProxyNorm, partial(CombU, ratios=MIXED, assignment="random"), proxy_params=False
    ),
}


class Given:
    """Real memory: what is kept stays, what is for work is lost between calls."""

    def __init__(self, dtype):
        self.dtype, self.memory = dtype, {}

    def __call__(self, name, *shape):
        if (name, shape) not in self.memory:
            self.memory[name, shape] = torch.full(shape, torch.nan, dtype=self.dtype)
        return self.memory[name, shape]

    def next_call(self):
        for (name, _), memory in self.memory.items():
            if not name.startswith("kept."):
                memory.fill_(torch.nan)


def stacked(name, dtype):
    """A module whose parameters and buffers are those of some members, off their first values."""
    generator = torch.Generator().manual_seed(1)
    modules = [MAKERS[name](WIDTH).to(dtype) for _ in range(MEMBERS)]
    bound = copy.deepcopy(modules[0])
    for kind in ("_parameters", "_buffers"):
        for path, owner in bound.named_modules():
            for key, value in getattr(owner, kind).items():
                if value is None:
                    continue
                each = [getattr(m.get_submodule(path), kind)[key].detach() for m in modules]
                value = torch.stack(each).unsqueeze(1)
                if value.is_floating_point():
                    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64)
                    value = (value + 0.3 * noise.to(dtype)).requires_grad_()
                getattr(owner, kind)[key] = value
    return bound


def inputs(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(MEMBERS, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    return (x + 0.1 * x.sign()).to(dtype)


def vectors_of(module):
    return [v.detach() for v in module.vectors()] if hasattr(module, "vectors") else []


def reference(kernel, x, vectors, grad):
    """The result and the gradients by plain operations, of what has gradients."""
    leaves = [x.clone().requires_grad_()]
    leaves += [v.clone().requires_grad_(v.is_floating_point()) for v in vectors]
    y = kernel.forward(leaves[0], leaves[1:], Memory())
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(y, wanted, grad, allow_unused=True))
    return y.detach(), [next(found) if leaf.requires_grad else None for leaf in leaves]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("in_place", [False, True])
def test_given_memory_agrees_with_autograd(name, dtype, in_place):
    module = stacked(name, dtype)
    kernel, vectors = kernel_of(module), vectors_of(module)
    assert len(vectors) == kernel.n_vectors
    x, grad = inputs(dtype), inputs(dtype, 1)
    expected, (expected_in, *expected_by) = reference(kernel, x, vectors, grad)
    given = Given(dtype)
    memory = Memory(given, "kept.")
    given_x, given_grad = x.clone(), grad.clone()
    out = given_x if in_place and not kernel.keeps_input else torch.full_like(x, torch.nan)
    y = kernel.forward(given_x, vectors, memory, out)
    assert y is out
    given.next_call()
    out = given_grad if in_place else torch.full_like(grad, torch.nan)
    before = y.clone()
    grad_in, by = kernel.backward(
        given_x if kernel.keeps_input else None,
        y if kernel.keeps_output else None,
        given_grad,
        vectors,
        memory,
        out,
    )
    assert grad_in is out
    torch.testing.assert_close(y, before, rtol=0, atol=0)  # its owner may still need it
    if not in_place:
        torch.testing.assert_close(given_x, x, rtol=0, atol=0)
        torch.testing.assert_close(given_grad, grad, rtol=0, atol=0)
    close = dict.fromkeys(("rtol", "atol"), 1e-10 if dtype == torch.float64 else 1e-4)
    torch.testing.assert_close(y, expected, **close)
    torch.testing.assert_close(grad_in, expected_in, **close)
    assert len(by) == len(vectors)
    for ours, theirs, vector in zip(by, expected_by, vectors, strict=True):
        if theirs is not None:
            assert ours.shape == vector.shape
            torch.testing.assert_close(ours, theirs, **close)


PARTS = [name for name in MAKERS if kernel_of(MAKERS[name](WIDTH)).unitwise]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PARTS)
def test_results_may_be_parts_of_wider_rows(name, dtype):
    module = MAKERS[name](WIDTH).to(dtype)
    kernel = kernel_of(module)
    vectors = [v.detach() for v in module.vectors()] if kernel.n_vectors else []
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, WIDTH, generator=generator, dtype=dtype)
    grad = torch.randn(2, 8, WIDTH, generator=generator, dtype=dtype)
    rooms, wide = [Memory(), Memory()], torch.full((2, 8, 2, 40), 7.0, dtype=dtype)
    y = kernel.forward(x, vectors, rooms[0], torch.empty_like(x))
    given, onward = wide[..., 0, 5 : 5 + WIDTH], wide[..., 1, 2 : 2 + WIDTH].copy_(grad)
    kernel.forward(x, vectors, rooms[1], given)
    torch.testing.assert_close(given, y)
    expected, _ = kernel.backward(x, y, grad, vectors, rooms[0], torch.empty_like(grad))
    kernel.backward(x, given, onward, vectors, rooms[1], onward)
    torch.testing.assert_close(onward, expected)
    given.fill_(7.0)
    onward.fill_(7.0)
    assert (wide == 7).all()


@pytest.mark.parametrize("name", MAKERS)
def test_stacked_members_equal_single_modules(name):
    module = stacked(name, torch.float64)
    kernel, vectors = kernel_of(module), vectors_of(module)
    x = inputs(torch.float64)
    together = kernel.forward(x, vectors, Memory(Given(torch.float64)), torch.empty_like(x))
    for m in range(MEMBERS):
        alone = run(kernel, x[m], *(v[m, 0] for v in vectors))
        torch.testing.assert_close(together[m], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_alike_modules_have_equal_kernels(name):
    one, other = (kernel_of(MAKERS[name](WIDTH)) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)


def test_proxy_norm_of_some_layers_at_once():
    """Scale and shift of alike layers are computed together, their parameters stacked."""
    layers = [stacked("proxy-mixed", torch.float64) for _ in range(2)]
    together = copy.deepcopy(layers[0])
    for path, owner in together.named_modules():
        for key in owner._parameters:
            each = [layer.get_submodule(path)._parameters[key] for layer in layers]
            owner._parameters[key] = torch.stack([each[0], 2 * each[1]])
            with torch.no_grad():
                each[1].mul_(2)
    for vectors, *alone in zip(
        together.vectors(), *(layer.vectors() for layer in layers), strict=True
    ):
        torch.testing.assert_close(vectors, torch.stack(alone), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 20, 40, 80])
@pytest.mark.parametrize("center", [True, False])
def test_groups_of_any_size_are_served(size, center):
    kernel, x, grad = Standardize(size, 80, 1e-5, center), *torch.randn(2, 3, 4, 80).double()
    groups = x.clone().requires_grad_()
    n = groups.unflatten(-1, (-1, size))
    n = n - n.mean(-1, keepdim=True) if center else n
    expected = (n / (n.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(-2)
    (expected_grad,) = torch.autograd.grad(expected, groups, grad)
    given = Given(torch.float64)
    memory = Memory(given, "kept.")
    y = kernel.forward(x, (), memory, x)
    given.next_call()
    kernel.backward(None, y, grad, (), memory, grad)
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(grad, expected_grad, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["relu", "nlrelu", "combu", "combu-random"])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_stays_where_it_is(name, value):
    kernel = kernel_of(module := make_activation(name, 8))
    x = torch.linspace(-2, 2, 8).repeat(2, 1)
    clean = run(kernel, x, *vectors_of(module))
    x[0, 3] = value
    leaf = x.clone().requires_grad_()
    y = run(kernel, leaf, *vectors_of(module))
    y.sum().backward()
    others = torch.arange(16).view(2, 8) != 3
    torch.testing.assert_close(y[others], clean[others])
    assert leaf.grad[others].isfinite().all()


def test_a_subclass_or_a_hook_has_no_kernel():
    class Mine(CombU):
        pass

    hooked = CombU(8)
    hooked.parts[0].register_forward_hook(lambda module, inputs, out: out + 1)
    assert kernel_of(Mine(8)) is None
    assert kernel_of(hooked) is None
    torch.testing.assert_close(hooked(torch.ones(8))[:4], torch.full((4,), 2.0))
    assert kernel_of(LayerAct(lambda n: 0.5 + torch.atan(n) / torch.pi)) is None
    assert kernel_of(ProxyNorm(lambda width: nn.LeakyReLU(-0.1), 8)) is None
    assert kernel_of(CombU(8, dim=1)) is None


def test_derivative_at_zero_agrees_across_modes():
    for name in ("relu", "nlrelu", "combu", "combu-random"):
        module = make_activation(name, 8)
        x = torch.zeros(8, requires_grad=True)
        (grad,) = torch.autograd.grad(module(x).sum(), x)
        (graph,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        func = torch.func.grad(lambda x, module=module: module(x).sum())(x.detach())
        assert grad.tolist() == graph.tolist() == func.tolist()
