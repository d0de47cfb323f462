"""CombU's shares, learned by gradient or given by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations import CombU, make_activation

PARTS = ("relu", "elu", "nlrelu")  # CombU's
_SHARPNESS = 10.0  # of the softmax: a hundred steps of Adam are to decide a unit
_STEPS = 10  # after which that of the softmax of training has grown by as much again


class LearnedUnits(nn.Module):
    """Each unit's activation is one of several, which one is learned.

    In training a unit is the mean of its parts by a softmax, which sharpens from step to step; or,
    ``straight``, the likeliest part alone, with the softmax's gradient. Outside training it is the
    likeliest part: so the validation rows see what `hardened` keeps.

    Shape
    -----
    (..., width) -> (..., width).
    """

    n_steps: Tensor

    def __init__(self, width: int, parts: Sequence[str], *, straight: bool) -> None:
        super().__init__()
        self.width, self.names, self.straight = width, tuple(parts), straight
        self.parts = nn.ModuleList(make_activation(name, width) for name in parts)
        # near equal: a tie would give all units the first part
        self.logits = nn.Parameter(0.01 * torch.randn(width, len(parts)))
        self.register_buffer("n_steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        values = torch.stack([part(x) for part in self.parts], -1)
        return (values * self._weights().to(x.dtype)).sum(-1)

    def _weights(self) -> Tensor:  # (width, parts)
        hard = F.one_hot(self.logits.argmax(-1), len(self.names)).to(self.logits.dtype)
        if not self.training:
            return hard
        if self.straight:
            soft = (_SHARPNESS * self.logits).softmax(-1)
            return hard + soft - soft.detach()
        sharpness = _SHARPNESS * (1.0 + self.n_steps / _STEPS)
        self.n_steps += 1
        return (sharpness * self.logits).softmax(-1)

    def counts(self) -> dict[str, int]:
        """Units of each part."""
        return counts(self.logits.argmax(-1), self.names)

    def hardened(self) -> CombU:
        """The same as a `CombU`: exact counts, its kernel, and ProxyNorm where that is wanted."""
        return combu_of(self.logits.argmax(-1), self.names)


def counts(choice: Tensor, names: Sequence[str]) -> dict[str, int]:
    """Units of each part, of what `combu_of` is made of.

    >>> counts(torch.tensor([0, 2, 2]), ("relu", "elu", "nlrelu"))
    {'relu': 1, 'elu': 0, 'nlrelu': 2}
    """
    found = torch.bincount(choice, minlength=len(names)).tolist()
    return dict(zip(names, found, strict=True))


def combu_of(choice: Tensor, names: Sequence[str]) -> CombU:
    """A `CombU` whose unit j has the activation ``names[choice[j]]``."""
    units = {name: n for name, n in counts(choice, names).items() if n}
    combined = CombU(
        len(choice), {name: n / len(choice) for name, n in units.items()}, assignment="random"
    )
    place = torch.tensor([list(units).index(name) if name in units else -1 for name in names])
    assert combined.partition is not None
    combined.partition.copy_(place[choice])
    return combined


class Learning:
    """Makes `LearnedUnits` for layers of any width; ``layers``, by width, are those it made last.

    Layers are told apart by their widths, which are to differ.
    """

    def __init__(self, parts: Sequence[str] = PARTS, *, straight: bool = False) -> None:
        self.parts, self.straight = tuple(parts), straight
        self.layers: dict[int, LearnedUnits] = {}

    def __call__(self, width: int) -> LearnedUnits:
        made = LearnedUnits(width, self.parts, straight=self.straight)
        self.layers[width] = made
        return made

    def counts(self) -> dict[int, dict[str, int]]:
        """Units of each part by the width of the layer, of the network that was built last."""
        return {width: layer.counts() for width, layer in self.layers.items()}


class ByLayer:
    """Makes `CombU` with shares that depend on the layer, which its width tells."""

    def __init__(self, shares: Mapping[int, Mapping[str, float]]) -> None:
        self.shares = {width: dict(own) for width, own in shares.items()}

    def __call__(self, width: int) -> CombU:
        return CombU(width, self.shares[width])
