"""The networks of the estimators, M of them at a time: multilayer perceptrons and TabM."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.core.files import choice, kind, number, optional, several, whole
from combutab.nn._layers import (
    INITIALISATIONS,
    NORMALIZATIONS,
    Generators,
    HeadLinear,
    HeadOutputs,
    StackedEmbedding,
    StackedLinear,
    StackedNorm,
    draw_float64,
    draw_uniform,
    make_hidden,
)
from combutab.nn._network import (
    ChainNetwork,
    Member,
    NetworkSpec,
    check_proxy_norm,
    weight_generators,
)

# ---- Inputs: from encoded columns of a table to inputs of the first layer ------------------------

NUMERIC_EMBEDDINGS = ("none", "pbld", "piecewise-linear")
"""Names of the embeddings of numbers."""


@dataclass(frozen=True)
class NumericEmbedding:
    """The embedding of each number: its kind, its width, its frequencies or bins.

    ``"pbld"`` is (x, W cos(2 pi f x + p) + b) a column, with learned frequencies f, drawn from
    N(0, frequency_scale^2), phases p, and W and b, in all ``dim`` numbers. ``"piecewise-linear"``
    is a learned linear map plus W e(x), where e has for each of ``n_bins`` bins the share of it
    that lies below x.

    References
    ----------
    Gorishniy et al. (2022), "On embeddings for numerical features in tabular deep learning";
    Holzmueller et al. (2024), "Better by default", section 3, for PBLD; Gorishniy et al. (2024),
    "TabM", for the piecewise-linear one.
    """

    kind: str = "none"
    dim: int = 4
    n_frequencies: int = 16
    frequency_scale: float = 0.1
    n_bins: int = 48

    @property
    def width(self) -> int:
        """Numbers that a column becomes."""
        return 1 if self.kind == "none" else self.dim

    @property
    def n_parts(self) -> int:
        """Numbers that it becomes on the way: cosines, or shares of bins."""
        return {"none": 1, "pbld": self.n_frequencies}.get(self.kind, self.n_bins)

    def array_shapes(self, n_columns: int) -> dict[str, tuple[int, ...]]:
        """Shapes of a member's learned arrays, by name."""
        if self.kind == "none" or not n_columns:
            return {}
        k, d = self.n_parts, n_columns
        if self.kind == "pbld":
            n_mapped = self.dim - 1
            shapes = {"frequency": (d, k), "phase": (d, k)}
            return shapes | {"weight": (d, k, n_mapped), "bias": (d, n_mapped)}
        return {"slope": (d, self.dim), "weight": (d, k, self.dim), "bias": (d, self.dim)}


class PeriodicEmbedding(nn.Module):
    """PBLD embeddings of M members: each number, and linear maps of its cosines.

    Shape
    -----
    (M, batch, n_columns) -> (M, batch, n_columns * dim)

    >>> embedding = PeriodicEmbedding(3, NumericEmbedding("pbld"), [torch.Generator()])
    >>> embedding.float()(torch.zeros(1, 5, 3)).shape
    torch.Size([1, 5, 12])
    """

    def __init__(
        self,
        n_columns: int,
        settings: NumericEmbedding,
        generators: Generators,
        frequency_scales: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        k, n_mapped = settings.n_frequencies, settings.dim - 1

        def uniform(bound: float, *shape: int) -> Tensor:
            return torch.stack([draw_uniform(g, bound, *shape) for g in generators])

        draws = [draw_float64(torch.randn, g, n_columns, k) for g in generators]
        scales = torch.tensor(frequency_scales, dtype=torch.float64) * settings.frequency_scale
        self.frequency = nn.Parameter(torch.stack(draws).mul_(scales[:, None, None]))
        self.phase = nn.Parameter(uniform(math.pi, n_columns, k))
        self.weight = nn.Parameter(uniform(1 / math.sqrt(k), n_columns, k, n_mapped))
        self.bias = nn.Parameter(uniform(1 / math.sqrt(k), n_columns, n_mapped))

    def forward(self, x: Tensor) -> Tensor:
        columns = x.transpose(1, 2).unsqueeze(-1)  # (M, n_columns, batch, 1)
        frequency = (2 * math.pi * self.frequency).unsqueeze(2)
        waves = torch.cos(torch.addcmul(self.phase.unsqueeze(2), columns, frequency))
        mapped = torch.baddbmm(
            self.bias.flatten(0, 1).unsqueeze(1), waves.flatten(0, 1), self.weight.flatten(0, 1)
        )
        mapped = mapped.unflatten(0, self.bias.shape[:2])  # (M, n_columns, batch, dim - 1)
        return torch.cat([columns, mapped], -1).transpose(1, 2).flatten(2)


class PiecewiseLinearEmbedding(nn.Module):
    """Piecewise-linear embeddings of M members: of each number a function with kinks at bin edges.

    It is x a + b + W e(x), where e_t(x) = (x - l_t) / (u_t - l_t) in bin t, from l_t to u_t, below
    it 0 and above it 1; the outermost bins go on. W is 0 at first. A bin of no width is always 0.

    Parameters
    ----------
    edges : Tensor, (M, n_columns, n_bins + 1)
        Edges of each column's bins, in increasing order.
    dim : int
    generators : sequence of torch.Generator
        One per member.

    Shape
    -----
    (M, batch, n_columns) -> (M, batch, n_columns * dim)

    References
    ----------
    Gorishniy et al. (2022), "On embeddings for numerical features in tabular deep learning", Eq. 1;
    version B: Gorishniy et al. (2024), "TabM".

    >>> edges = torch.linspace(-1, 1, 5).expand(1, 3, 5)
    >>> PiecewiseLinearEmbedding(edges, 2, [torch.Generator()]).float()(torch.zeros(1, 7, 3)).shape
    torch.Size([1, 7, 6])
    """

    def __init__(
        self,
        edges: Tensor,
        dim: int,
        generators: Generators,
    ) -> None:
        super().__init__()
        n_columns, n_bins = edges.shape[1], edges.shape[2] - 1
        draws = [draw_uniform(g, 1.0, 2, n_columns, dim) for g in generators]
        slope, bias = torch.stack(draws, 1).div_(math.sqrt(dim))
        self.slope, self.bias = nn.Parameter(slope), nn.Parameter(bias)
        zeros = torch.zeros(len(generators), n_columns, n_bins, dim)
        self.weight = nn.Parameter(zeros)
        self.edges: Tensor
        self.register_buffer("edges", edges.clone())

    def forward(self, x: Tensor) -> Tensor:
        columns = x.transpose(1, 2).unsqueeze(-1)  # (M, n_columns, batch, 1)
        shares = self._shares(columns).flatten(0, 1)
        linear = torch.addcmul(self.bias.unsqueeze(2), columns, self.slope.unsqueeze(2))
        embedded = torch.baddbmm(linear.flatten(0, 1), shares, self.weight.flatten(0, 1))
        return embedded.unflatten(0, self.bias.shape[:2]).transpose(1, 2).flatten(2)

    def _shares(self, columns: Tensor) -> Tensor:  # (M, n_columns, batch, n_bins)
        low, width = self.edges[..., :-1], torch.diff(self.edges, dim=-1)
        wide = width > torch.finfo(width.dtype).tiny
        index = torch.arange(low.shape[-1], device=low.device)
        last = index == torch.where(wide, index, -1).amax(-1, keepdim=True)
        lower = torch.zeros_like(low).masked_fill_(wide & (index == 0), -torch.inf)
        upper = wide.to(low.dtype).masked_fill_(wide & last, torch.inf)
        # x - l first: of numbers that are near it is exact
        shares = (columns - low.unsqueeze(2)) / torch.where(wide, width, 1.0).unsqueeze(2)
        return torch.minimum(torch.maximum(shares, lower.unsqueeze(2)), upper.unsqueeze(2))


class StackedInputs(nn.Module):
    """Input modules of M members: embeddings of codes, and numbers with or without embeddings.

    A network also accepts another module with the same signature, whose parameters have a leading
    member axis. A module for several heads repeats each row once per head.

    Parameters
    ----------
    cardinalities : sequence of int
        Numbers of codes of the columns with codes; each has an embedding.
    embedding_dim : int
        Dimension of these embeddings, or the cardinality if it is smaller.
    generators : sequence of torch.Generator
        Random generator of each member.
    n_numeric : int, default=0
        Number of columns of numbers, which are the first dense columns.
    numeric : NumericEmbedding, optional
        Embedding of the numbers.
    n_scaled : int, default=0
        Number of inputs of the first layer if each is multiplied by a learned factor, which starts
        at 1; 0 for no factors.
    bins : sequence of Tensor or None, optional
        Edges of the bins of each member, (n_numeric, n_bins + 1), for piecewise-linear embeddings.
        By default they are set when a state is loaded.
    ordered : sequence of int, optional
        Number of codes, from 1 on, of each column with codes that are in an order; by default none.
    frequency_scales : sequence of float, optional
        Factor of each member's initial frequencies, or one for all.

    Shape
    -----
    dense : (M, batch, n_dense), codes : (M, batch, n_codes) int64 -> (M, batch, n_inputs)

    Examples
    --------
    >>> inputs = StackedInputs([5], 2, [torch.Generator().manual_seed(0)])
    >>> inputs.float()(torch.zeros(1, 3, 4), torch.ones(1, 3, 1, dtype=torch.int64)).shape
    torch.Size([1, 3, 6])
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        embedding_dim: int,
        generators: Generators,
        *,
        n_numeric: int = 0,
        numeric: NumericEmbedding | None = None,
        n_scaled: int = 0,
        bins: Sequence[Tensor | None] | None = None,
        ordered: Sequence[int] = (),
        frequency_scales: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(
            StackedEmbedding(cardinality, min(embedding_dim, cardinality), generators, n_ordered)
            for cardinality, n_ordered in itertools.zip_longest(cardinalities, ordered, fillvalue=0)
        )
        self.n_numeric = n_numeric
        self.numeric: nn.Module | None = None
        self.scale: nn.Parameter | None = None
        settings = numeric or NumericEmbedding()
        if settings.kind == "pbld" and n_numeric:
            self.numeric = PeriodicEmbedding(n_numeric, settings, generators, frequency_scales)
        elif settings.kind == "piecewise-linear" and n_numeric:
            none = torch.zeros(n_numeric, settings.n_bins + 1)
            edges = [
                none if member_bins is None else member_bins
                for member_bins in bins or [None] * len(generators)
            ]
            self.numeric = PiecewiseLinearEmbedding(torch.stack(edges), settings.dim, generators)
        if n_scaled:
            self.scale = nn.Parameter(torch.ones(len(generators), 1, n_scaled))
        # 0 for the inputs that a member ignores, (M, 1, n_inputs); their weights are 0, too
        self.mask: Tensor | None = None

    def forward(self, dense: Tensor, codes: Tensor | None = None) -> Tensor:
        parts = [dense]
        if self.numeric is not None:
            parts = [self.numeric(dense[..., : self.n_numeric]), dense[..., self.n_numeric :]]
        if codes is not None:
            parts += [table(codes[..., i]) for i, table in enumerate(self.embeddings)]
        x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        x = x if self.scale is None else x * self.scale
        return x if self.mask is None else x * self.mask


# ---- Perceptrons ---------------------------------------------------------------------------------

_N_POINTS = 5  # rows between which a unit's zero lies at first


@dataclass(frozen=True)
class MLPSpec(NetworkSpec, kind="mlp"):
    """Specification of multilayer perceptrons: widths, normalisation, embeddings, initialisation.

    ``cardinalities`` are the numbers of codes of the columns with integer codes. Each of them has
    an embedding of dimension ``embedding_dim``, or of its cardinality if that is smaller. Of some
    columns the first codes from 1 on are in an order; ``ordered`` are their numbers. The first
    ``n_numeric`` of the ``n_dense`` other columns are numbers, which can have embeddings, too.
    """

    n_dense: int
    hidden: tuple[int, ...]
    n_outputs: int
    cardinalities: tuple[int, ...] = ()
    embedding_dim: int = 8
    normalization: str = "none"
    proxy_norm: bool = False
    init: str = "torch"
    n_numeric: int = 0
    numeric_embedding: str = "none"
    numeric_embedding_dim: int = 4
    n_frequencies: int = 16
    frequency_scale: float = 0.1
    scale_inputs: bool = False
    n_bins: int = 48
    ordered: tuple[int, ...] = ()
    n_heads = 1

    fields = {
        "n_dense": whole(),
        "hidden": several(whole(1)),
        "n_outputs": whole(1),
        "cardinalities": several(whole(1)),
        "embedding_dim": whole(1),
        "normalization": choice(*NORMALIZATIONS),
        "proxy_norm": kind(bool),
        "init": choice(*INITIALISATIONS),
        "n_numeric": whole(),
        "numeric_embedding": choice(*NUMERIC_EMBEDDINGS),
        "numeric_embedding_dim": whole(2),
        "n_frequencies": whole(1),
        "frequency_scale": number(),
        "scale_inputs": kind(bool),
        "n_bins": whole(1),
        "ordered": optional(several(whole())),
    }

    def __post_init__(self) -> None:
        check_proxy_norm(self.proxy_norm, self.normalization)
        if self.n_numeric > self.n_dense:
            raise ValueError(f"{self.n_numeric} of {self.n_dense} dense columns cannot be numbers")
        if self.ordered and not (
            len(self.ordered) == len(self.cardinalities)
            and all(map(operator.lt, self.ordered, self.cardinalities))
        ):
            raise ValueError(f"{self.ordered} cannot be in order of {self.cardinalities} codes")

    @property
    def numeric(self) -> NumericEmbedding:
        """Embedding of the numbers."""
        return NumericEmbedding(
            self.numeric_embedding,
            self.numeric_embedding_dim,
            self.n_frequencies,
            self.frequency_scale,
            self.n_bins,
        )

    @property
    def needs_rows(self) -> bool:
        return self.init == "data"

    @property
    def n_inputs(self) -> int:
        """Number of inputs of the first linear layer: dense columns and embeddings."""
        return sum(self.input_widths)

    @property
    def input_widths(self) -> tuple[int, ...]:
        """Number of these inputs for each column."""
        numbers = [self.numeric.width] * self.n_numeric
        embedded = [min(self.embedding_dim, c) for c in self.cardinalities]
        return (*numbers, *[1] * (self.n_dense - self.n_numeric), *embedded)

    def input_positions(self, columns: Sequence[int]) -> list[int]:
        """Inputs of the first linear layer that some columns have."""
        widths = self.input_widths
        ends = list(itertools.accumulate(widths))
        return [i for j in columns for i in range(ends[j] - widths[j], ends[j])]

    @property
    def peak_units(self) -> int:
        """Number of units of the widest layer, including cosines or bins of the numbers."""
        return max(*self.widths, self.n_numeric * self.numeric.n_parts)

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Number of units of each layer of one head, including inputs and outputs."""
        return (self.n_inputs, *self.hidden, self.n_outputs)

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer, inputs and outputs included."""
        return self.head_widths

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a member's weights, biases and embeddings."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (n_in, n_out) in enumerate(itertools.pairwise(self.head_widths)):
            shapes |= {f"linears.{i}.weight": (n_in, n_out), f"linears.{i}.bias": (1, n_out)}
        for i, n in enumerate(self.cardinalities):
            shapes[f"inputs.embeddings.{i}.weight"] = (n, min(self.embedding_dim, n))
        for name, shape in self.numeric.array_shapes(self.n_numeric).items():
            shapes[f"inputs.numeric.{name}"] = shape
        if self.scale_inputs:
            shapes["inputs.scale"] = (1, self.n_inputs)
        return shapes

    def make_linears(self, generators: Generators) -> list[StackedLinear]:
        """Make the linear layers of a stack with random initial weights."""
        return [
            StackedLinear(n_in, n_out, generators, init=self.init)
            for n_in, n_out in itertools.pairwise(self.widths)
        ]

    def build(
        self,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> StackedMLP:
        """A stack of these members, sorted so that those of one activation are neighbours."""
        return StackedMLP(self, members, dtype=dtype, device=device)


class StackedMLP(ChainNetwork):
    """M multilayer perceptrons of the same shape, computed as one batched network.

    Each hidden layer is linear, normalisation, activation, dropout; the last layer is linear.
    Members must be sorted by activation.

    Parameters
    ----------
    spec : MLPSpec
        Settings that all members share.
    members : sequence of Member
        Settings of each member.
    dtype : torch.dtype, default=torch.float32
    device : torch.device or str, default="cpu"
        Dtype and device of the parameters.

    Shape
    -----
    dense : (M, batch, n_dense), codes : (M, batch, n_codes) int64 -> (M, batch, n_outputs)

    Examples
    --------
    >>> spec = MLPSpec(n_dense=4, hidden=(16, 16), n_outputs=3)
    >>> net = StackedMLP(spec, [Member(0, "relu"), Member(1, "combu")])
    >>> net(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(
        self,
        spec: MLPSpec,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        seeds = [member.seed for member in members]
        generators = weight_generators(members, seeds)
        super().__init__(
            members,
            StackedInputs(
                spec.cardinalities,
                spec.embedding_dim,
                generators,
                n_numeric=spec.n_numeric,
                numeric=spec.numeric,
                n_scaled=spec.n_inputs if spec.scale_inputs else 0,
                bins=[member.bins for member in members],
                ordered=spec.ordered,
                frequency_scales=[member.frequency_scale for member in members],
            ),
            spec.make_linears(generators),
            *make_hidden(
                spec.hidden,
                [member.activation for member in members],
                seeds,
                normalization=spec.normalization,
                proxy_norm=spec.proxy_norm,
            ),
            n_heads=spec.n_heads,
            dtype=dtype,
            device=device,
        )
        self.spec = spec

    @torch.no_grad()
    def start_from(
        self, dense: Tensor, codes: Tensor | None, seeds: Sequence[int], members: Sequence[int]
    ) -> None:
        generators = [torch.Generator().manual_seed(seed >> 1) for seed in seeds]

        def uniform(*shape: int) -> Tensor:
            return torch.stack([draw_float64(torch.rand, g, *shape) for g in generators])

        n = dense.shape[1]
        self.train(False)
        x = self.inputs(dense, codes)
        for i, linear in enumerate(self.linears):
            assert isinstance(linear, StackedLinear)
            shape = (_N_POINTS, linear.weight.shape[2])
            points = (uniform(*shape) * n).long().clamp_(max=n - 1).to(x.device)
            shares = -torch.log1p(-uniform(*shape))  # uniform over the simplex
            shares = (shares / shares.sum(1, keepdim=True)).to(x)
            linear.fit_to(x, points, shares, members)
            if i < len(self.norms):
                x = linear(x)
                norm = self.norms[i]
                x = norm(x, None) if isinstance(norm, StackedNorm) else norm(x)
                x = self.activations[i](x, None)
        self.train(True)

    @torch.no_grad()
    def ignore_inputs(self, i: int, columns: Sequence[int], codes: Sequence[Tensor]) -> None:
        inputs, linear = self.inputs, self.linears[0]
        assert isinstance(inputs, StackedInputs)
        assert isinstance(linear, StackedLinear)
        for table, unseen in zip(inputs.embeddings, codes, strict=True):
            assert isinstance(table, StackedEmbedding)
            table.weight[i, unseen] = 0.0
        if columns:
            positions = self.spec.input_positions(columns)
            if inputs.mask is None:
                inputs.mask = linear.weight.new_ones(len(self.members), 1, self.spec.n_inputs)
            inputs.mask[i, :, positions] = 0.0
            linear.weight[i, positions] = 0.0

    def select(self, keep: Sequence[int]) -> None:
        """Keep only these members (increasing positions)."""
        super().select(keep)
        if isinstance(self.inputs, StackedInputs) and self.inputs.mask is not None:
            self.inputs.mask = self.inputs.mask[list(keep)]


# ---- TabM: perceptrons with many heads, whose weights differ by factors of rank one --------------


@dataclass(frozen=True)
class TabMSpec(MLPSpec, kind="tabm"):
    """Specification of TabM: perceptrons with ``n_heads`` heads, and all parameters of ``MLPSpec``.

    Every linear layer except the last is ((x * r) W) * s + b, where W is shared and each head has
    its own r, s and b. Each head has its own last layer. Only the first r is initialised randomly,
    so that the heads scale the inputs differently. The network is a ``StackedMLP`` with raw outputs
    of shape (M, batch * n_heads, n_outputs).

    References
    ----------
    Gorishniy et al. (2024), "TabM: Advancing tabular deep learning with parameter-efficient
    ensembling", section 3.3 (arXiv 2410.24210).

    >>> net = TabMSpec(4, (16, 16), 3, n_heads=8).build([Member(0, "relu")])
    >>> net(torch.zeros(1, 5, 4)).shape
    torch.Size([1, 40, 3])
    """

    n_heads: int = 32

    fields = {**MLPSpec.fields, "n_heads": whole(1)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ValueError("heads share hidden layers: hidden_layer_sizes must name one at least")
        if self.needs_rows:
            raise ValueError(
                f"init={self.init!r} scales each unit by the rows that it sees, which differ by "
                "head, while its weights do not; use 'torch', 'kaiming', 'xavier', 'lecun' or 'ntk'"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of units of each layer of all heads, including inputs and outputs."""
        return tuple(self.n_heads * width for width in self.head_widths)

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a member's weights, biases, embeddings and factors."""
        k, shapes = self.n_heads, super().array_shapes()
        pairs = list(itertools.pairwise(self.head_widths))
        for i, (n_in, n_out) in enumerate(pairs[:-1]):
            shapes |= {f"linears.{i}.{name}": (k, n_out) for name in ("bias", "s")}
            shapes[f"linears.{i}.r"] = (k, n_in)
        n_in, n_out = pairs[-1]
        last = f"linears.{len(pairs) - 1}"
        return shapes | {f"{last}.weight": (k, n_in, n_out), f"{last}.bias": (k, n_out)}

    def make_linears(self, generators: Generators) -> list[StackedLinear]:
        k, pairs = self.n_heads, list(itertools.pairwise(self.head_widths))
        layers: list[StackedLinear] = [
            HeadLinear(
                *pair,
                k,
                generators,
                r=None if i else _first_factors(self, generators),
                init=self.init,
            )
            for i, pair in enumerate(pairs[:-1])
        ]
        return [*layers, HeadOutputs(*pairs[-1], k, generators, init=self.init)]


def _first_factors(spec: MLPSpec, generators: Generators) -> Tensor:
    """Draw what heads multiply the inputs by, (M, n_heads, n_inputs).

    It is N(0, 1), one number a column of the table, where numbers are embedded, else -1 or 1.
    """
    # NOTE[DIFF]: each one-hot column has its own factor; the paper's code has one factor for all
    # one-hot columns of a categorical column. A row has only one of them.
    widths = torch.tensor(spec.input_widths)
    embedded = spec.n_numeric > 0 and spec.numeric_embedding != "none"
    drawn = []
    for generator in generators:
        draws = draw_float64(torch.randn, generator, spec.n_heads, len(widths))
        drawn.append(draws if embedded else draws.sign())
    return torch.stack(drawn).repeat_interleave(widths, 2)
