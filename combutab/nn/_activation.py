"""A check that an activation can be honoured, before any work on data."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from combutab.activations.kernels import is_known
from combutab.core.rng import SeededDraws
from combutab.nn._layers import ActivationSpec, build_activation


def check_activation(
    spec: ActivationSpec, width: int, *, proxy_norm: bool = False, twice: bool = False
) -> None:
    """Check that a stack can train and predict with an activation, else raise an error.

    Parameters
    ----------
    spec : str or callable
        Activation. Custom modules are tested with rows of shape (8, width), in training and in
        evaluation mode.
    width : int
        Number of units.
    proxy_norm : bool, default=False
        Whether it will be wrapped in ProxyNorm.
    twice : bool, default=False
        Whether it must be twice differentiable, as for the gradient penalty of a critic.

    Raises
    ------
    ValueError
        If the module fails, changes the shape or the dtype, cannot be differentiated, makes the
        prediction of a row depend on other rows or on chance, has tensors that are neither
        parameters nor buffers, or was returned by an earlier call.
    TypeError
        If ``spec`` is neither a name nor a callable that returns a module.
    """
    try:
        module = build_activation(spec, width, proxy_norm=proxy_norm)
    except TypeError as error:
        raise TypeError(
            f"activation must be a name or a callable width -> nn.Module, got {spec!r} ({error})"
        ) from error
    if is_known(module):
        return
    tensors = [*module.parameters(), *module.buffers()]
    if tensors and module is build_activation(spec, width, proxy_norm=proxy_norm):
        raise ValueError(
            f"activation={spec!r} returned one module with tensors twice; it must make a fresh one "
            "for every layer and network, such as lambda width: MyActivation(width)"
        )
    x = torch.randn(8, width, generator=torch.Generator().manual_seed(0))
    _check_training(spec, module, x, twice)
    _check_prediction(spec, module.eval(), x)


def _check_training(spec: ActivationSpec, module: nn.Module, x: Tensor, twice: bool) -> None:
    scale = torch.ones(x.shape[1], requires_grad=True)
    x = x.clone().requires_grad_()
    before = _tensors_of(module)
    y = _try(spec, module, x * scale, "in training")
    if not y.requires_grad:
        raise ValueError(f"activation={spec!r} cannot be differentiated")
    after = _tensors_of(module)
    changed = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    if changed:
        raise ValueError(
            f"activation={spec!r}: its call made, dropped, reshaped or changed {changed}, which "
            "would not be kept with the best weights; register all that it keeps as buffers "
            "(register_buffer) at construction, in their shapes"
        )
    if twice:
        try:
            (slope,) = torch.autograd.grad((y * scale).sum(), x, create_graph=True)
            slope.square().sum().backward()
        except RuntimeError as error:
            raise ValueError(
                f"{spec!r} cannot be differentiated twice ({error}), which the gradient "
                "penalty of CTGAN's critic needs; write its backward pass in differentiable "
                "operations, or take TVAE"
            ) from error


def _check_prediction(spec: ActivationSpec, module: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        y = _try(spec, module, x.clone(), "in evaluation mode")
        again = _try(spec, module, x.clone(), "in evaluation mode", seed=1)
        alone = torch.cat(
            [_try(spec, module, x[i : i + 1].clone(), "of one row") for i in range(8)]
        )
    if not torch.equal(y, again) and not torch.allclose(y, again, equal_nan=True):
        raise ValueError(
            f"activation={spec!r} gives other results for the same rows in evaluation mode, so "
            "that predictions would be a matter of chance; let it draw in training mode alone "
            "(self.training)"
        )
    if not torch.allclose(y, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise ValueError(
            f"activation={spec!r}: what it makes of a row in evaluation mode depends on the rows "
            "beside it, so that a prediction would depend on which others are asked for; it is "
            "given (rows, width): work along the last axis (dim=-1), or keep statistics of the "
            "training rows in buffers"
        )


def _try(spec: ActivationSpec, module: nn.Module, x: Tensor, when: str, seed: int = 0) -> Tensor:
    try:
        with SeededDraws(lambda: seed):
            y = module(x)
    except Exception as error:
        raise ValueError(
            f"activation={spec!r} fails {when} on an input of shape {tuple(x.shape)}, "
            f"(rows, width): {error}"
        ) from error
    if not isinstance(y, Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        result = (
            f"{tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else f"{type(y).__name__}"
        )
        raise ValueError(
            f"an activation keeps the shape and the type; {spec!r} made {result} of "
            f"{tuple(x.shape)} of {x.dtype}"
        )
    return y


def _tensors_of(module: nn.Module) -> dict[str, object]:
    """The shapes of buffers; the identity and values of tensors that are plain attributes."""
    tensors: dict[str, object] = {name: t.shape for name, t in module.named_buffers()}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor):
                tensors[f"{path}.{name}".lstrip(".")] = id(value), repr(value.tolist())
    return tensors
