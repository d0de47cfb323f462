"""The matrix products of one member's written-out step, into memory given.

By oneDNN where that is quicker, which follows from shapes alone. It allocates
its results and copies a strided left factor; both together cost less than MKL's products do.
Measured on two Zen 5 cores in us, MKL and oneDNN with the copy: 500 x 389 (strided) times 389 x
256 517 and 256, its weights' gradient 531 and 329; 98 outputs of 645 inputs, columns first, 396
and 264, and their weights' gradient 397 and 248.
"""

from __future__ import annotations

import torch
from torch import Tensor

from combutab.nn._one_dnn import ENOUGH, ENOUGH_TRANSPOSED, linear, serves


def affine(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """x @ weight + bias, (n, k), (k, m), (m,) -> (n, m)."""
    if out.numel() * x.shape[1] >= ENOUGH and serves(x):
        return out.copy_(linear(x, weight.t(), bias))
    return torch.addmm(bias, x, weight, out=out)


def affine_columns(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """As ``affine``, the result's columns first, (m, n)."""
    # oneDNN takes a thousand times as long where its right factor is a part of wider rows
    if out.numel() * x.shape[1] >= ENOUGH and x.is_contiguous() and serves(x):
        return torch.add(linear(weight.t(), x, None), bias.unsqueeze(1), out=out)
    return torch.addmm(bias.unsqueeze(1), weight.t(), x.t(), out=out)


def product(x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """x @ weight, (n, k), (k, m) -> (n, m)."""
    if out.numel() * x.shape[1] >= ENOUGH and serves(x):
        return out.copy_(linear(x, weight.t(), None))
    return torch.mm(x, weight, out=out)


def add_product(x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Add x @ weight to ``out``, which may be a part of wider rows."""
    if out.numel() * x.shape[1] >= ENOUGH and serves(x):
        return out.add_(linear(x, weight.t(), None))
    return out.addmm_(x, weight)


def weight_gradient(x: Tensor, grad: Tensor, out: Tensor) -> Tensor:
    """x' @ grad, (n, k), (n, m) -> (k, m)."""
    size = out.numel() * len(x)
    if size >= ENOUGH and grad.t().is_contiguous() and x.is_contiguous() and serves(x):
        return out.copy_(linear(grad.t(), x.t(), None).t())
    if size >= ENOUGH_TRANSPOSED and grad.is_contiguous() and serves(x):
        return out.copy_(linear(x.t(), grad.t(), None))
    return torch.mm(x.t(), grad, out=out)
