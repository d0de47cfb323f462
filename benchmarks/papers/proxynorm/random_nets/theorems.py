"""Theorems 2 and 3 of the Proxy Normalization paper, checked channel by channel.

Theorem 2: instance normalisation leaves P1 = P2 = P4 = 0 and P3 = 1, whatever came before. Theorem
3: what ProxyNorm gives has P1 = 0 and P = 1 if what it is given is standard normal; other
distributions of mean 0 and variance 1 show what happens where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy import stats

from benchmarks.papers.proxynorm.random_nets.nets import SPREAD, TERMS, Net
from combutab.activations import ProxyNorm
from combutab.evaluation import power_decomposition

CONSTRAINTS = pd.Series({"P": 1.0, "P1": 0.0, "P2": 0.0, "P3": 1.0, "P4": 0.0})  # Theorem 2
CHECKED = {2: TERMS, 3: ["P1", "P"]}  # terms by theorem
PHIS = ("relu", "elu", "gelu", "swish", "tanh", "combu")
N_PROXY = 256  # ProxyNorm's default
LAWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "normal": stats.norm.ppf,
    "uniform": stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)).ppf,
    "Laplace": stats.laplace(scale=np.sqrt(0.5)).ppf,
}


def theorem2(
    net: Net, draw: int, *, dtype: torch.dtype, eps: float, norm: str = "IN"
) -> dict[str, float]:
    """Find how far each term is from the theorem's, at most over depths and channels."""
    network, X = net.build(norm, draw, dtype=dtype, eps=eps)
    power = power_decomposition(network, X, dim=1, per_channel=True, batch_size=len(X))
    return (power[TERMS] - CONSTRAINTS).abs().max(skipna=False).to_dict()


@torch.no_grad()
def theorem3(
    phi: str, law: str, draw: int, *, n_points: int, n_proxy: int, width: int = 16
) -> dict[str, float]:
    """Find how far P1 is from 0 and P from 1 in what ProxyNorm gives, at most over channels.

    The channels differ in gamma and beta; each is given the same ``n_points`` points, uniform in
    probability under the law and of mean 0 and variance 1. ``n_proxy`` is ProxyNorm's n_samples,
    which matters where phi's moments have no closed form.
    """
    points = LAWS[law]((np.arange(n_points) + 0.5) / n_points)
    points = torch.from_numpy((points - points.mean()) / points.std())
    step = ProxyNorm(phi, width, eps=0.0, proxy_params=False, n_samples=n_proxy).double()
    generator = torch.Generator().manual_seed(draw)
    gamma, beta = torch.randn(2, width, generator=generator, dtype=torch.float64) * SPREAD
    step.gamma.copy_(1 + gamma)
    step.beta.copy_(beta)
    y = points.unsqueeze(1).expand(-1, width)
    power = power_decomposition(step, y, layers="-", per_channel=True, batch_size=n_points)
    return {"P1": float(power["P1"].max()), "P": float((power["P"] - 1).abs().max())}


def cases(net: Net, n_points: int) -> dict[tuple[int, str], Callable[[int], dict[str, float]]]:
    """Name all cases of Theorems 2 (on ``net``) and 3: what gives each term's error in a draw."""
    found = {
        (2, f"{name}, eps {eps:g}"): partial(theorem2, net, dtype=dtype, eps=eps)
        for name, dtype, eps in (("float64", torch.float64, 0.0), ("float32", torch.float32, 1e-6))
    }
    for phi in PHIS:
        for law, n_proxy in [*((law, N_PROXY) for law in LAWS), ("normal", n_points)]:
            case = f"{phi}, {law}" + f", proxy of {n_proxy}" * (n_proxy != N_PROXY)
            found[3, case] = partial(theorem3, phi, law, n_points=n_points, n_proxy=n_proxy)
    return found
