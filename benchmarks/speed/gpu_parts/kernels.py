"""Activations at the memory's speed? Gigabytes a second beside those of a copy.

An activation that reads its input and writes its output once moves two tensors forward, and three
backward: the gradient and one tensor that was kept are read, a gradient is written. These are the
bytes that must move; what else a way moves counts as its waste.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.speed.gpu_parts.timing import Line, Run, difference, median_phases
from benchmarks.speed.peers import IndexedCombU
from combutab.activations import PLN, CombU, LASiLU, ProxyNorm

SHAPE, QUICK_SHAPE, CHECKED_ROWS = (65_536, 1024), (64, 32), 1000
TARGET = 0.7  # of the copy's bandwidth
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
ACTIVATIONS: dict[str, Callable[[int], nn.Module]] = {
    "CombU": CombU,
    "PLN-8": partial(PLN, norm_size=8),
    "LA-SiLU": lambda width: LASiLU(),
    "ProxyNorm(ReLU)": partial(ProxyNorm, "relu"),
    "ProxyNorm(CombU)": partial(ProxyNorm, "combu"),
}


def measure(device: torch.device, quick: bool) -> Iterator[Line]:
    """Lines for each activation, in float32 and bfloat16."""
    shape = QUICK_SHAPE if quick else SHAPE
    generator = torch.Generator(device).manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        x, grad = (
            torch.randn(shape, device=device, generator=generator).to(dtype) for _ in range(2)
        )
        n_bytes = x.numel() * x.element_size()
        seconds = median_phases({"copy": _copy(x)}, device, 3 if quick else 30)["copy"][0]
        peak = 2 * n_bytes / seconds
        name = str(dtype).removeprefix("torch.")
        yield Line("kernels", f"copy, {name}", "torch", peak / 1e9, "GB/s")
        for activation in ACTIVATIONS:
            modules = ways(activation, shape[1], device, "eager" if quick else "inductor")
            wrong = {way: differs(module, x, grad) for way, module in modules.items()}
            runs = {way: _there_and_back(module, x, grad) for way, module in modules.items()}
            medians = median_phases(runs, device, 3 if quick else 30)
            for way, both in medians.items():
                for direction, tensors, time in zip(
                    ("forward", "backward", "both"), (2, 3, 5), (*both, sum(both)), strict=True
                ):
                    rate = tensors * n_bytes / time
                    yield Line(
                        "kernels", f"{activation}, {name}, {direction}", way, rate / 1e9, "GB/s",
                        share=rate / peak, target=TARGET, difference=wrong[way],
                        tolerance=TOLERANCES[dtype],
                        note=f"{time * 1e6:.0f} us, {tensors * n_bytes / 1e6:.1f} MB must move",
                    ).judged()  # fmt: skip


def ways(name: str, width: int, device: torch.device, compiler: str) -> dict[str, nn.Module]:
    """The same activation, computed in each way."""
    module = ACTIVATIONS[name](width).to(device)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # ProxyNorm's parameters, off their starting values
        for parameter in module.parameters():
            noise = torch.rand(parameter.shape, generator=generator)
            parameter.add_(0.2 * noise.to(device))
    found: dict[str, nn.Module] = {"plain": module}
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend=compiler)
    found["torch.compile"] = compiled
    if name == "CombU":
        found["the paper's, indexed"] = IndexedCombU(width).to(device)
    return found


def _copy(x: Tensor) -> Run:
    target = torch.empty_like(x)

    def run(mark: Callable[[], None]) -> None:
        target.copy_(x)
        mark()

    return run


def _there_and_back(module: nn.Module, x: Tensor, grad: Tensor) -> Run:
    x = x.detach().requires_grad_()
    inputs = [x, *module.parameters()]

    def run(mark: Callable[[], None]) -> None:
        out = module(x)
        mark()
        torch.autograd.grad(out, inputs, grad)
        mark()

    return run


def differs(module: nn.Module, x: Tensor, grad: Tensor) -> float:
    """How far output and gradients are from the plain ones in float64 on the CPU."""
    x, grad = x[:CHECKED_ROWS].detach().requires_grad_(), grad[:CHECKED_ROWS]
    plain = getattr(module, "_orig_mod", module)
    exact = copy.deepcopy(plain).cpu().double()
    if isinstance(exact, IndexedCombU):
        found, expected = [module(x)], [exact(x.detach().cpu().double())]
        return max(map(difference, found, expected))
    there = x.detach().cpu().double().requires_grad_()
    found = _all(module, x, grad)
    expected = _all(exact, there, grad.cpu().double())
    return max(map(difference, found, expected))


def _all(module: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor]:
    """The output, its gradient by x, and those by all parameters in one vector."""
    out = module(x)
    by_x, *others = torch.autograd.grad(out, [x, *module.parameters()], grad)
    return [out, by_x, *([torch.cat(others)] if others else [])]
