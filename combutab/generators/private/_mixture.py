"""A mixture of product distributions, fitted to noisy counts: nothing here reads rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from combutab.core.rng import Stream, normals, uniforms
from combutab.generators.sampling import RowRequest, Samples, choose_points
from combutab.nn import RowSpans
from combutab.training import OptimizerConfig, RowOptimizer

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class View:
    """A column at some resolution: ``groups``, (size of the column,), has the group of each code.

    >>> View(3, np.array([0, 0, 1])).n_groups
    2
    """

    column: int
    groups: np.ndarray

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1


@dataclass(frozen=True, eq=False)
class Marginal:
    """Noisy counts of two views' groups, and the standard deviation of the noise."""

    views: tuple[int, int]
    counts: np.ndarray
    scale: float


class MixtureFit:
    """A mixture of K product distributions on its way to noisy counts.

    p(x) is the mean over components k of the products over columns j of softmax(logits)[k, j, x_j].
    The counts of all pairs of codes are then one matrix product of the components' probabilities,
    and Adam brings them to the noisy ones: by squared errors, weighted by the noise's inverse
    variance.

    Parameters
    ----------
    counts : sequence of ndarray, (size of the column,)
        Noisy counts of each column's codes, where the components begin.
    variances : sequence of ndarray
        Of their noise.
    views : sequence of View
        What pairs are counted in; the first are the columns as they are.
    n_rows : float
    n_components : int
    learning_rate : float
    key : int
        Draws where the components begin.

    References
    ----------
    Liu, Vietri and Wu (2021), "Iterative methods for private synthetic data: unifying framework and
    new methods"; Aydore et al. (2021), "Differentially private query release through adaptive
    projection".
    """

    # NOTE[DIFF]: Liu et al. make the components' logits by a network from noise. They are free
    # here: they fit the same counts in fewer steps.
    def __init__(
        self,
        counts: Sequence[np.ndarray],
        variances: Sequence[np.ndarray],
        views: Sequence[View],
        n_rows: float,
        *,
        n_components: int,
        learning_rate: float,
        key: int,
    ) -> None:
        self.sizes, self.views, self.n_rows = [len(each) for each in counts], list(views), n_rows
        self.n_components, self.learning_rate = n_components, learning_rate
        shares = [np.maximum(each, 0.5) / np.maximum(each, 0.5).sum() for each in counts]
        start = torch.from_numpy(np.log(np.concatenate(shares))).float()
        noise = normals([key], n_components, sum(self.sizes), device=_CPU)[0].float()
        self.logits = (start + _SPREAD * noise).requires_grad_()
        self.optimizer = RowOptimizer(OptimizerConfig(beta_2=0.99), self.logits.detach()[None], 0)
        self.starts = np.cumsum([0, *self.sizes])
        self.view_starts = np.cumsum([0, *(view.n_groups for view in views)])
        into = np.zeros((int(self.starts[-1]), int(self.view_starts[-1])), dtype=np.float32)
        for view, first in zip(self.views, self.view_starts, strict=False):
            at = self.starts[view.column]
            into[at + np.arange(len(view.groups)), first + view.groups] = 1
        self._into = torch.from_numpy(into[:, self.starts[-1] :])  # of the views beyond the columns
        self._one = torch.from_numpy(np.concatenate(counts) / n_rows).float()
        self._variances = np.concatenate(variances) / n_rows**2

    def probabilities(self) -> Tensor:
        """Those of each component, (K, sum of sizes)."""
        return torch.cat([part.softmax(-1) for part in self.logits.split(self.sizes, -1)], -1)

    def _of_views(self, probabilities: Tensor) -> Tensor:
        return torch.cat([probabilities, probabilities @ self._into], -1)

    def _span(self, view: int) -> slice:
        return slice(int(self.view_starts[view]), int(self.view_starts[view + 1]))

    @torch.no_grad()
    def expect(self, pairs: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """The counts that the mixture gives for pairs of views."""
        own = self._of_views(self.probabilities())
        scale = self.n_rows / self.n_components
        by_first: dict[int, list[int]] = {}
        for a, b in pairs:
            by_first.setdefault(a, []).append(b)
        found: dict[tuple[int, int], np.ndarray] = {}
        for a, others in by_first.items():
            joined = torch.cat([own[:, self._span(b)] for b in others], -1)
            sizes = [self.views[b].n_groups for b in others]
            for b, part in zip(
                others, ((own[:, self._span(a)].T @ joined) * scale).split(sizes, -1), strict=True
            ):
                found[a, b] = part.double().numpy()
        return [found[pair] for pair in pairs]

    def train(self, marginals: Sequence[Marginal], n_steps: int, *, decay: bool = False) -> float:
        """Fit all noisy counts; returns the loss per cell, about 1 where the noise is all."""
        least = min(
            [float(self._variances.min()), *((m.scale / self.n_rows) ** 2 for m in marginals)]
        )
        weight = torch.from_numpy(least / self._variances).float()
        blocks = [*self._blocks(marginals, least)]
        n_cells = len(self._one) + sum(targets.numel() for _, _, targets, _ in blocks)
        loss = torch.zeros(())
        for step in range(n_steps):
            rate = self.learning_rate * (1 - step / n_steps if decay else 1)
            probabilities = self.probabilities()
            own = self._of_views(probabilities)
            loss = (weight * (probabilities.mean(0) - self._one).square()).sum()
            for view, index, targets, weights in blocks:
                found = own[:, self._span(view)].T @ own[:, index] / self.n_components
                loss = loss + (weights * (found - targets).square()).sum()
            (slope,) = torch.autograd.grad(loss / (least * n_cells), self.logits)
            self.optimizer.step(self.logits.detach()[None], slope[None], [0], [rate], [0.0])
        return float(loss.detach()) / (least * n_cells)

    def _blocks(
        self, marginals: Sequence[Marginal], least: float
    ) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """The marginals of each first view, side by side: a matrix product each."""
        by_first: dict[int, list[Marginal]] = {}
        for each in marginals:
            by_first.setdefault(each.views[0], []).append(each)
        for view, own in by_first.items():
            index = torch.cat([torch.arange(*_ends(self._span(m.views[1]))) for m in own])
            targets = np.concatenate([m.counts for m in own], axis=1) / self.n_rows
            weights = np.concatenate(
                [np.full(m.counts.shape[1], least / (m.scale / self.n_rows) ** 2) for m in own]
            )
            yield view, index, torch.from_numpy(targets).float(), torch.from_numpy(weights).float()


_SPREAD = 0.1  # standard deviation of the components' logits, where they begin


def _ends(span: slice) -> tuple[int, int]:
    return span.start, span.stop


# ---- Rows of a fitted mixture --------------------------------------------------------------------


class MixtureTable:
    """The components' probabilities, (K, sum of sizes), in the order of the rows' spans."""

    members = (None,)  # a single one

    def __init__(self, probabilities: Tensor) -> None:
        self.probabilities = probabilities

    def draw(self, spans: RowSpans, request: RowRequest) -> Samples:
        """Draw rows as they are asked for, exactly from the mixture given what is known.

        First a component, by its probability given the codes that are known or allowed; then each
        other code from that component; places within bins are uniform. Components are drawn by
        stratified sampling: rows that nothing is asked of have each about equally often.

        Rows that are all asked for the same codes are balanced: see `balance`. Rows of which
        several codes are allowed are not, since some are rejected later and others take their
        place. Rows that are completed are independent, so that imputations vary as they should.
        """
        table, sizes = self.probabilities, list(spans.sizes)
        balanced = request.values is None and not request.allowed
        n_candidates = _n_candidates(request.n_rows) if balanced and sizes else 1
        n, allowed = request.n_rows, dict(request.allowed)
        codes = torch.full((1, n, len(sizes)), -1, dtype=torch.int64)
        if request.codes is not None:
            codes = request.codes.clone()
        given, own = codes[0], [*table.split(sizes, -1)]
        components = self._components(own, given, allowed, request, n_candidates)
        u = uniforms(request.keys_for(Stream.CODES), n_candidates, n, len(sizes), device=_CPU)[0]
        candidates = given.repeat(n_candidates, 1, 1)
        for i, part in enumerate(own):
            rows = torch.nonzero(given[:, i] < 0)[:, 0]
            if i in allowed:
                only = torch.zeros(sizes[i])
                only[list(allowed[i])] = 1
                part = part * only + 1e-30 * only
            cumulative = part.double().cumsum(-1)
            for c, component in enumerate(components):  # one by one, to save memory
                candidates[c, rows, i] = _invert(cumulative[component[rows]], u[c, rows, i])
        if n_candidates > 1:
            key = request.keys_for(Stream.BALANCED_ROWS)[0]
            candidates = torch.from_numpy(balance(candidates.numpy(), sizes, key))[None]
        codes = candidates
        values = torch.full((1, n, spans.n_values), torch.nan)
        if request.values is not None:
            values = request.values.clone()
        if request.points:
            values = choose_points(request, codes, values, spans)
        places = uniforms(request.keys_for(Stream.VALUES), n, spans.n_values, device=_CPU) * 2 - 1
        values = torch.where(values.isnan(), places.to(values.dtype), values)
        return Samples(values, codes, torch.ones(1, n, dtype=torch.float64))

    def _components(
        self,
        own: Sequence[Tensor],
        given: Tensor,
        allowed: Mapping[int, Sequence[int]],
        request: RowRequest,
        n_draws: int = 1,
    ) -> Tensor:
        """Draw components for each row by their posterior probability, (n_draws, n)."""
        n, k = len(given), len(self.probabilities)
        keys = request.keys_for(Stream.ORDER)
        order, within = uniforms(keys, n_draws, n, 2, device=_CPU)[0].unbind(-1)
        # in each draw a stratum of [0, 1) for each row, in random order; none for rows to complete
        u = (order.argsort(-1) + within) / n if request.values is None else within
        log = torch.zeros(n, k, dtype=torch.float64)
        for i, part in enumerate(own):
            known = given[:, i] >= 0
            if known.any():
                log[known] += part.T.double().clamp_min(1e-30).log()[given[known, i]]
            if i in allowed:
                share = part[:, list(allowed[i])].double().sum(-1).clamp_min(1e-30).log()
                log[~known] += share
        cumulative = log.softmax(-1).cumsum(-1)
        return torch.stack([_invert(cumulative, each) for each in u])


def _invert(cumulative: Tensor, u: Tensor) -> Tensor:
    """Positions drawn by uniforms, (n,), from cumulative shares, (n, size), of any total."""
    total = cumulative[:, -1]
    target = torch.minimum(u.double() * total, total * (1 - 1e-12))
    found = torch.searchsorted(cumulative.contiguous(), target[:, None], right=True)[:, 0]
    return found.clamp_(max=cumulative.shape[1] - 1)


# ---- Rows that have the counts of pairs about as often as they are expected ----------------------

_N_CANDIDATES = (8, 32)  # of each row
_MOST_CANDIDATES = 2**18  # of all rows, where that is more than the least of each
_MOST_PAIRS = 500  # that are balanced; of more, as many drawn at random
_MOST_CELLS = 2**14  # of a pair that is balanced
_AT_ONCE = 16  # rows whose candidates are compared with the same counts


def _n_candidates(n_rows: int) -> int:
    """How many of each row, a power of two: more of few rows, whose counts vary more.

    >>> [_n_candidates(n) for n in (1, 2, 5_000, 10_000, 100_000)]
    [1, 32, 32, 16, 8]
    """
    least, most = _N_CANDIDATES
    if n_rows < 2:
        return 1
    return min(most, max(least, 2 ** int(math.log2(_MOST_CANDIDATES / n_rows))))


def balance(candidates: np.ndarray, sizes: Sequence[int], key: int) -> np.ndarray:
    """Keep one candidate of each row, so that counts of columns and pairs vary less.

    Candidates compete in pairs. Of each pair the one is kept that brings the counts of those kept
    nearer to those of the others: so the kept ones have about the counts of all candidates, of
    which there are many more than rows. The first choice is a coin's, and the other coin would turn
    all choices round: each candidate is kept with the same probability, whatever the others are.
    So a row has the distribution of its candidates, exactly. Rows come in random order.

    Parameters
    ----------
    candidates : ndarray of int, (2**k, n, n_columns)
    sizes : sequence of int
        How many codes each column has.
    key : int

    Returns
    -------
    ndarray of int, (n, n_columns)

    References
    ----------
    Alweiss, Liu and Sawhney (2021), "Discrepancy minimization via a self-balancing walk"; Dwivedi
    and Mackey (2021), "Kernel thinning", for halving.

    Examples
    --------
    >>> candidates = np.random.default_rng(0).integers(0, 2, (8, 1000, 2))
    >>> rows = balance(candidates, [2, 2], key=0)
    >>> cells = np.bincount(rows @ [2, 1])
    >>> bool(np.abs(cells - 250).max() < 20)
    True
    """
    # NOTE[DIFF]: a self-balancing walk chooses at random, by how far the counts differ. Ours takes
    # the better one always, which has no proven bound, but is unbiased by the same symmetry.
    rng = np.random.default_rng(key)
    cells, n_cells = _cells(candidates, sizes, rng)
    n = candidates.shape[1]
    kept = np.arange(len(candidates))[:, None].repeat(n, 1)  # of each row, (candidates, n)
    while len(kept) > 1:
        # how much more often a cell is among the kept than among the others
        excess = np.zeros(n_cells, dtype=np.int64)
        chosen = np.empty((len(kept) // 2, n), dtype=np.int64)
        coins = rng.integers(0, 2, chosen.shape, dtype=np.int64)
        for half, start in itertools.product(range(len(chosen)), range(0, n, _AT_ONCE)):
            rows = np.arange(start, min(n, start + _AT_ONCE))
            one, other = (cells[kept[2 * half + i, rows], rows] for i in (0, 1))
            worse = excess[one].sum(-1) - excess[other].sum(-1)
            second = np.where(worse == 0, coins[half, rows], worse > 0).astype(np.int64)
            chosen[half, rows] = kept[2 * half + second, rows]
            signs = (1 - 2 * second)[:, None].repeat(cells.shape[-1], 1)
            np.add.at(excess, one, signs)
            np.add.at(excess, other, -signs)
        kept = chosen
    found: np.ndarray = candidates[kept[0], np.arange(n)][rng.permutation(n)]
    return found


def _cells(
    codes: np.ndarray, sizes: Sequence[int], rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Numbers of the cells that rows are in: of each column, and of pairs; and how many exist."""
    pairs = np.array(
        [
            pair
            for pair in itertools.combinations(range(len(sizes)), 2)
            if math.prod(sizes[j] for j in pair) <= _MOST_CELLS
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
    if len(pairs) > _MOST_PAIRS:
        pairs = pairs[rng.choice(len(pairs), _MOST_PAIRS, replace=False)]
    widths = np.array(sizes, dtype=np.int64)
    a, b = pairs.T
    own = np.concatenate([codes, codes[..., a] * widths[b] + codes[..., b]], -1)
    firsts = np.cumsum([0, *sizes, *(widths[a] * widths[b])])
    return own + firsts[:-1], int(firsts[-1])


# ---- Columns at coarser resolutions --------------------------------------------------------------

_LEVELS = (12, 5)  # groups of a column, at most


def coarser_views(counts: Sequence[np.ndarray], ordered: Sequence[int]) -> list[list[View]]:
    """The columns as they are, then at coarser and coarser resolutions, a list each.

    Neighbouring codes of a column of numbers make groups of about equal weight; of other columns
    the frequent codes stay and the rest is one group. ``ordered`` is how many codes of each column,
    from the first, are in order; counts are noisy.

    >>> _, coarse, coarsest = coarser_views([np.ones(20), np.arange(6)], [20, 0])
    >>> [(view.column, view.n_groups) for view in coarse + coarsest]
    [(0, 12), (1, 6), (0, 5), (1, 5)]
    """
    levels = [[View(j, np.arange(len(each))) for j, each in enumerate(counts)]]
    for n_groups in _LEVELS:
        own = []
        for j, each in enumerate(counts):
            weight = np.maximum(each, 0.0) + 1e-9
            n = ordered[j]
            if len(each) <= n_groups:
                groups = np.arange(len(each))
            elif n:
                beside = len(each) - n  # a missing value
                middle = (np.cumsum(weight[:n]) - weight[:n] / 2) / weight[:n].sum()
                some = np.minimum((middle * (n_groups - beside)).astype(int), n_groups - beside - 1)
                groups = np.r_[some, n_groups - beside + np.arange(beside)]
                groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
            else:
                groups = np.full(len(each), n_groups - 1)
                groups[np.argsort(-weight, kind="stable")[: n_groups - 1]] = np.arange(n_groups - 1)
            own.append(View(j, groups))
        levels.append(own)
    return levels


def expected_noise(scale: float, n_cells: int) -> float:
    """The mean L1 norm of Gaussian noise."""
    return math.sqrt(2 / math.pi) * scale * n_cells
