"""The power of a network's channels: where it lies, and how linear the activations are."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd
from torch import Tensor, nn

from combutab.evaluation._activation_stats import (
    ACTIVATION_KINDS,
    NORM_KINDS,
    Layers,
    UnitMoments,
    as_samples,
    by_unit,
    check_found,
    choose_modules,
    feature_axis,
    observe_pass,
    open_model,
)

At = Literal["input", "output"]
TERMS = ("P1", "P2", "P3", "P4")


def power_decomposition(
    model: Any,
    X: Any,
    *,
    layers: Layers = None,
    at: At | None = None,
    dim: int | None = None,
    per_channel: bool = False,
    batch_size: int = 256,
) -> pd.DataFrame:
    """Split the mean square of each layer's values into four terms, Eq. (5).

    Over inputs x, positions and channels c, with mean ``m`` and standard deviation ``s`` over the
    positions of one input and channel: ``P1 = E_x[m]^2`` is constant over the data, ``P2 =
    Var_x[m]`` varies between inputs, ``P3 = E_x[s]^2`` and ``P4 = Var_x[s]`` within inputs. They
    sum to ``P = E_x[m^2 + s^2]``, the mean square. P1 near P says that channels have collapsed to
    constants; P2 and P4 near 0 that the inputs look alike.

    Parameters
    ----------
    model, X
        As in `activation_stats`.
    layers : str, list of str, module class(es), optional
        Names of ``named_modules()``, or kinds. By default what the normalisation layers give, and
        of a network without any, what its activations are given.
    at : {"output", "input"}, optional
        Which side of the layers; by default "output" where there is a normalisation or layers are
        named.
    dim : int, optional
        The axis of the channels (features): 1 for convolutions, -1 for the last. Needed where
        there are further axes, the positions; without them P3 and P4 are 0.
    per_channel : bool, default=False
        One row a channel, instead of their mean.
    batch_size : int, default=256
        Rows that are looked at together. The result depends on it by rounding alone, unless the
        network itself looks at the batch: for batch normalisation with the statistics of all
        rows use ``track_running_stats=False`` and ``batch_size=len(X)``.

    Returns
    -------
    DataFrame, one row a member and layer (and channel)
        ``member``, of an ensemble; ``depth``, from 1, in the order of the first pass; ``layer``;
        ``channel`` or ``n_channels``; ``P``, ``P1``, ``P2``, ``P3``, ``P4``.

    Raises
    ------
    TypeError, ValueError
        As in `activation_stats`.

    Notes
    -----
    The paper's y is normalised without scale and shift. A normalisation with ``affine=True`` gives
    what it calls y with a tilde.

    References
    ----------
    "Proxy-normalizing activations to match batch normalization while removing batch dependence",
    Eq. (5), Theorems 1 and 2, Figure 2.

    Examples
    --------
    >>> import torch
    >>> norm = nn.LayerNorm(2, elementwise_affine=False, eps=0.0)
    >>> power_decomposition(norm, torch.tensor([[0.0, 2.0], [1.0, 5.0], [3.0, 1.0]])).round(3)
       member  depth layer  n_channels    P     P1     P2   P3   P4
    0       0      1     -           2  1.0  0.111  0.889  0.0  0.0
    """
    if at not in (None, "input", "output"):
        raise ValueError(f"at must be 'input' or 'output', got {at!r}")
    opened = open_model(model, X, batch_size)
    hooked = choose_modules(opened, layers, NORM_KINDS)
    if not hooked:
        hooked, at = choose_modules(opened, None, ACTIVATION_KINDS), at or "input"
    check_found(hooked, "normalisation or activation")
    found: dict[str, _Power] = {}

    def see(name: str, _: nn.Module, given: Tensor, gives: Tensor) -> None:
        values = given if at == "input" else gives
        axis = feature_axis(opened.network, name, dim)
        units = by_unit(values, name, axis, members=bool(opened.members))
        found.setdefault(name, _Power()).add(units)

    for arguments in opened.batches:
        observe_pass(opened.network, arguments, hooked, see)
    return _depth_table({name: power.terms() for name, power in found.items()}, per_channel)


def channelwise_linearity(
    model: Any,
    X: Any,
    *,
    layers: Layers = None,
    dim: int | None = None,
    per_channel: bool = False,
    batch_size: int = 256,
) -> pd.DataFrame:
    """Measure how far activations are from linear in each channel, ``P(z - z~) / P(z)``.

    ``z`` is what an activation gives and ``z~ = lambda_c y`` its best linear fit in channel c from
    what it is given, over all inputs and positions (Eqs. 20 and 21). 0 means that the layer adds
    no nonlinearity: on these data it could be left out.

    Parameters
    ----------
    model, X, dim, per_channel, batch_size
        As in `power_decomposition`.
    layers : str, list of str, module class(es), optional
        Names of ``named_modules()``, or kinds; by default the activations, as in
        `activation_stats`.

    Returns
    -------
    DataFrame, one row a member and layer (and channel)
        ``member``, ``depth``, ``layer``, ``channel`` or ``n_channels``; ``nonlinearity``, from 0 to
        1, of a layer over the powers of all its channels (NaN where z is 0 throughout); ``P``, the
        mean square of z.

    Raises
    ------
    TypeError, ValueError
        As in `power_decomposition`, or a layer gives other units than it is given.

    References
    ----------
    "Proxy-normalizing activations to match batch normalization while removing batch dependence",
    appendices B.2.1 and D.3, Figure 5 (right).

    Examples
    --------
    >>> import torch
    >>> X = torch.tensor([[1.0, 1.0], [-1.0, 2.0]])
    >>> channelwise_linearity(nn.ReLU(), X, per_channel=True)
       member  depth layer  channel  nonlinearity    P
    0       0      1     -        0           0.5  0.5
    1       0      1     -        1           0.0  2.5
    """
    opened = open_model(model, X, batch_size)
    hooked = choose_modules(opened, layers, ACTIVATION_KINDS)
    check_found(hooked, "activation")
    found: dict[str, _Products] = {}

    def see(name: str, _: nn.Module, given: Tensor, gives: Tensor) -> None:
        if given.shape != gives.shape:
            raise ValueError(
                f"layer {name!r} makes {tuple(gives.shape)} of {tuple(given.shape)}: no fit of its "
                "channels; choose others by layers="
            )
        members = bool(opened.members)
        axis = feature_axis(opened.network, name, dim)
        y, z = (by_unit(values, name, axis, members=members) for values in (given, gives))
        found.setdefault(name, _Products()).add(y, z)

    for arguments in opened.batches:
        observe_pass(opened.network, arguments, hooked, see)
    table = _depth_table({name: sums.terms() for name, sums in found.items()}, per_channel)
    table.insert(len(table.columns) - 2, "nonlinearity", table["residual"] / table["P"])
    return table.drop(columns="residual")


class _Power:
    """Sums over the batches for one layer."""

    def __init__(self) -> None:
        self.means, self.sds, self.squares = UnitMoments(), UnitMoments(), UnitMoments()

    def add(self, values: Tensor) -> None:
        """Take in a batch, (members, rows, channels, positions)."""
        means = values.mean(-1, keepdim=True)
        self.means.add(means.squeeze(-1))
        self.sds.add((values - means).square().mean(-1).sqrt())  # std() is slow on few positions
        self.squares.add(values.square().mean(-1))

    def terms(self) -> dict[str, Tensor]:
        """Each (members, channels)."""
        # ProxyNorm Eq. (5)
        return {
            "P": self.squares.mean,
            "P1": self.means.mean.square(),
            "P2": self.means.variance,
            "P3": self.sds.mean.square(),
            "P4": self.sds.variance,
        }


class _Products:
    """Sums over the batches for one activation."""

    def __init__(self) -> None:
        self.yy, self.yz, self.zz = UnitMoments(), UnitMoments(), UnitMoments()

    def add(self, y: Tensor, z: Tensor) -> None:
        """Take in a batch, each (members, rows, channels, positions)."""
        for sums, product in ((self.yy, y * y), (self.yz, y * z), (self.zz, z * z)):
            sums.add(as_samples(product))

    def terms(self) -> dict[str, Tensor]:
        """Each (members, channels)."""
        yy, yz, zz = self.yy.mean, self.yz.mean, self.zz.mean
        # ProxyNorm Eq. (21): lambda = E[y z] / E[y^2], and 0 where y is
        explained = (yz.square() / yy).nan_to_num(0.0)
        return {"residual": (zz - explained).clamp_min(0), "P": zz}


def _depth_table(found: dict[str, dict[str, Tensor]], per_channel: bool) -> pd.DataFrame:
    if not found:
        raise ValueError("X gave no rows to the layers")
    tables = []
    for depth, (name, terms) in enumerate(found.items(), 1):
        n_members, n_channels = next(iter(terms.values())).shape
        for member in range(n_members):
            where = {"member": member, "depth": depth, "layer": name}
            values = {term: each[member].cpu().numpy() for term, each in terms.items()}
            if per_channel:
                tables.append(pd.DataFrame({**where, "channel": range(n_channels), **values}))
            else:
                means = {term: each.mean() for term, each in values.items()}
                tables.append(pd.DataFrame([{**where, "n_channels": n_channels, **means}]))
    return pd.concat(tables, ignore_index=True)
