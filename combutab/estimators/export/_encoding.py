"""A fitted table encoder as a torch module: scales, missing values and one-hot columns."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from combutab.preprocessing import TableEncoder

# Wichura's AS 241, PPND16, from the highest power to the lowest: the numerator and denominator of
# the middle, those of the tails.
_PPND16 = (
    (
        2509.0809287301226727,
        5226.4952788528545610,
        7.74545014278341407640e-4,
        1.05075007164441684e-9,
    ),
    (33430.575583588128105, 28729.085735721942674, 0.0227238449892691845833, 5.4759380849953449e-4),
    (67265.770927008700853, 39307.895800092710610, 0.241780725177450611770, 0.0151986665636164572),
    (45921.953931549871457, 21213.794301586595867, 1.27045825245236838258, 0.148103976427480075),
    (13731.693765509461125, 5394.1960214247511077, 3.64784832476320460504, 0.689767334985100005),
    (1971.5909503065514427, 687.18700749205790830, 5.76949722146069140550, 1.67638483018380385),
    (133.14166789178437745, 42.313330701600911252, 4.63033784615654529590, 2.05319162663775882),
    (3.3871328727963666080, 1.0, 1.42343711074968357734, 1.0),
)
_EDGE = 1e-7  # of TableEncoder's quantiles
_BLOCK = 32  # knots that are looked through at a time


class TableEncoding(nn.Module):
    """What ``TableEncoder.encode`` makes of a table's numbers and codes, with torch's operations.

    Parameters
    ----------
    encoder : TableEncoder
        A fitted one.

    Shape
    -----
    numbers : (n, n_numeric) float64, codes : (n, n_categorical) int64, as ``TableEncoder.read``
    gives them -> (n, n_dense) float32 and (n, n_coded) int64

    >>> encoder = TableEncoder().fit([[1.0], [3.0]])
    >>> encoding = TableEncoding(encoder)
    >>> encoding(torch.tensor([[3.0], [torch.nan]], dtype=torch.float64), None)[0]
    tensor([[1.],
            [0.]])
    """

    def __init__(self, encoder: TableEncoder) -> None:
        super().__init__()
        scaler = encoder.numeric_scaler_
        self.method, self.limit, self.n_numeric = scaler.method, scaler.limit, scaler.n_columns
        # two values of such a column may differ by more than float64 holds
        unit = np.where(scaler.scale > 1e290, 2.0**-10, 1.0)
        arrays = {
            "unit": unit,
            "centre": scaler.centre * unit,
            "scale": scaler.scale * unit,
            "fill": np.clip(scaler.fill, -scaler.limit, scaler.limit),
            "constant": scaler.constant,
            "unscaled": scaler.unscaled,
            "indicated": np.flatnonzero(scaler.missing),
            "knots": scaler.knots,
            "blocks": _blocks(scaler.knots),
            # of each knot, which is the first of those that equal it
            "first": np.array([np.searchsorted(knots, knots) for knots in scaler.knots.T]).T,
        }
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(array)))
        maps = encoder.category_maps_
        self.onehot = [(i, each.width) for i, each in enumerate(maps) if each.onehot]
        self.coded = [i for i, each in enumerate(maps) if not each.onehot]

    def forward(self, numbers: Tensor, codes: Tensor | None) -> tuple[Tensor, Tensor]:
        parts = [self._scaled(numbers)] if self.n_numeric else []
        if len(self.get_buffer("indicated")):
            parts.append(torch.isnan(numbers)[:, self.get_buffer("indicated")].float())
        if codes is not None:
            for i, width in self.onehot:
                places = torch.arange(width, device=codes.device)
                parts.append((codes[:, i : i + 1] == places).float())
        if codes is None:
            return torch.cat(parts, 1), numbers[:, :0].long()
        dense = torch.cat(parts, 1) if parts else codes[:, :0].float()
        own = [codes[:, i : i + 1] for i in self.coded]
        return dense, torch.cat(own, 1) if own else codes[:, :0]

    def _scaled(self, numbers: Tensor) -> Tensor:
        missing = torch.isnan(numbers)
        x = torch.where(missing, 0.0, numbers)  # NaN would spread over the gradient
        unscaled, constant = self.get_buffer("unscaled"), self.get_buffer("constant")
        if self.method == "quantile":
            x = torch.where(unscaled | constant, x, self._normal_score(x))
        elif self.method != "none":
            x = (x * self.get_buffer("unit") - self.get_buffer("centre")) / self.get_buffer("scale")
        if self.method == "robust":
            cut = torch.clamp(x, -1e15, 1e15)
            x = torch.where(unscaled, x, cut / torch.sqrt(1 + (cut / 3) ** 2))
        x = torch.clamp(x, -self.limit, self.limit)
        x = torch.where(constant, 0.0, x)
        return torch.where(missing, self.get_buffer("fill"), x).float()

    def _normal_score(self, x: Tensor) -> Tensor:
        knots, last = self.get_buffer("knots"), len(self.get_buffer("knots")) - 1
        x = torch.minimum(torch.maximum(x, knots[0]), knots[-1])
        below = self._last_not_above(x)
        low, high = knots.gather(0, below), knots.gather(0, torch.clamp(below + 1, max=last))
        share = (x - low) / torch.where(high > low, high - low, 1.0)
        first = self.get_buffer("first").gather(0, below)
        # a value that several knots have gets their middle
        level = torch.where(x == low, (below + first).double() / 2, below + share) / last
        return normal_quantile(torch.clamp(level, _EDGE, 1 - _EDGE))

    def _last_not_above(self, x: Tensor) -> Tensor:
        """The last knot that is not above x, (n, n_numeric); ONNX has no search for it."""
        blocks, rows = self.get_buffer("blocks"), x.unsqueeze(1)
        block = (blocks[:, 0] <= rows).sum(1) - 1
        own = blocks.gather(0, block.unsqueeze(1).expand(-1, _BLOCK, -1))
        return block * _BLOCK + (own <= rows).sum(1) - 1


def normal_quantile(p: Tensor) -> Tensor:
    """Quantiles of the normal distribution, for p in [1e-7, 1 - 1e-7], to float64's precision.

    References
    ----------
    Wichura (1988), "Algorithm AS 241: the percentage points of the normal distribution".

    >>> normal_quantile(torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64))
    tensor([-1.9600,  0.0000,  1.9600], dtype=torch.float64)
    """
    # ONNX has neither this nor the inverse of erf
    q = p - 0.5
    tail = torch.sqrt(-torch.log(torch.minimum(p, 1 - p))) - 1.6
    x = torch.stack([0.180625 - q * q, tail]).unsqueeze(1)  # (2, 1, *p.shape)
    highest, *others = (
        torch.tensor(each, dtype=p.dtype, device=p.device).view(2, 2, *[1] * p.ndim)
        for each in _PPND16
    )
    value = highest
    for each in others:
        value = value * x + each
    middle, outer = value[:, 0] / value[:, 1]
    return torch.where(q.abs() <= 0.425, q * middle, torch.where(q < 0, -outer, outer))


def _blocks(knots: np.ndarray) -> np.ndarray:
    """Knots (n_knots, n_columns) -> (n_blocks, _BLOCK, n_columns), filled up with infinity."""
    lacking = -len(knots) % _BLOCK
    whole = np.concatenate([knots, np.full((lacking, knots.shape[1]), np.inf)])
    return whole.reshape(len(whole) // _BLOCK, _BLOCK, knots.shape[1])
