"""A mixture of product distributions, fitted to noisy counts; it never reads rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from combutab.core.device import limit_threads, network_threads, training_flops
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
    """A mixture of K product distributions that is fitted to noisy counts.

    p(x) is the mean over components k of the products over columns j of softmax(logits)[k, j, x_j].
    The counts of all pairs of codes are then one matrix product of the components' probabilities,
    and Adam fits them to the noisy counts by squared errors, weighted by the inverse variance of
    the noise.

    Parameters
    ----------
    counts : sequence of ndarray, (size of the column,)
        Noisy counts of the codes of each column, from which the components are initialised.
    variances : sequence of ndarray
        Variances of their noise.
    views : sequence of View
        Views whose pairs are counted; the first ones are the columns themselves.
    n_rows : float
    n_components : int
    learning_rate : float
    key : int
        Key of the random initial components.

    References
    ----------
    Liu, Vietri and Wu (2021), "Iterative methods for private synthetic data: unifying framework and
    new methods"; Aydore et al. (2021), "Differentially private query release through adaptive
    projection".
    """

    # NOTE[DIFF]: in Liu et al., a network computes the logits of the components from noise. Here
    # they are free parameters, which fit the same counts in fewer steps.
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
        self.sizes, self.views, self.n_rows = (
            [len(column_counts) for column_counts in counts],
            list(views),
            n_rows,
        )
        self.n_components, self.learning_rate = n_components, learning_rate
        shares = [
            np.maximum(column_counts, 0.5) / np.maximum(column_counts, 0.5).sum()
            for column_counts in counts
        ]
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
        """Probabilities of all codes in each component, (K, sum of sizes)."""
        return torch.cat([part.softmax(-1) for part in self.logits.split(self.sizes, -1)], -1)

    def _of_views(self, probabilities: Tensor) -> Tensor:
        return torch.cat([probabilities, probabilities @ self._into], -1)

    def _span(self, view: int) -> slice:
        return slice(int(self.view_starts[view]), int(self.view_starts[view + 1]))

    @torch.no_grad()
    def expect(self, pairs: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """Expected counts of pairs of views."""
        view_probabilities = self._of_views(self.probabilities())
        scale = self.n_rows / self.n_components
        by_first: dict[int, list[int]] = {}
        for a, b in pairs:
            by_first.setdefault(a, []).append(b)
        expected: dict[tuple[int, int], np.ndarray] = {}
        for a, partners in by_first.items():
            joined = torch.cat([view_probabilities[:, self._span(b)] for b in partners], -1)
            sizes = [self.views[b].n_groups for b in partners]
            for b, part in zip(
                partners,
                ((view_probabilities[:, self._span(a)].T @ joined) * scale).split(sizes, -1),
                strict=True,
            ):
                expected[a, b] = part.double().numpy()
        return [expected[pair] for pair in pairs]

    def train(self, marginals: Sequence[Marginal], n_steps: int, *, decay: bool = False) -> float:
        """Fit all noisy counts; returns the loss per cell, about 1 if only noise remains."""
        smallest = min(
            [float(self._variances.min()), *((m.scale / self.n_rows) ** 2 for m in marginals)]
        )
        weight = torch.from_numpy(smallest / self._variances).float()
        blocks = [*self._blocks(marginals, smallest)]
        n_cells = len(self._one) + sum(targets.numel() for _, _, targets, _ in blocks)
        flops = training_flops(self.n_components, n_cells)
        with limit_threads(network_threads(flops), lasting=True):
            return self._train(blocks, weight, smallest, n_cells, n_steps, decay=decay)

    def _train(
        self,
        blocks: Sequence[tuple[int, Tensor, Tensor, Tensor]],
        weight: Tensor,
        smallest: float,
        n_cells: int,
        n_steps: int,
        *,
        decay: bool,
    ) -> float:
        loss = torch.zeros(())
        factors = [1 - step / n_steps if decay else 1 for step in range(n_steps)]
        table = [[self.learning_rate * factor] for factor in factors]
        for rates in self.optimizer.place_rates(table, [0.0]):
            probabilities = self.probabilities()
            view_probabilities = self._of_views(probabilities)
            loss = (weight * (probabilities.mean(0) - self._one).square()).sum()
            for view, index, targets, weights in blocks:
                predicted = (
                    view_probabilities[:, self._span(view)].T
                    @ view_probabilities[:, index]
                    / self.n_components
                )
                loss = loss + (weights * (predicted - targets).square()).sum()
            (slope,) = torch.autograd.grad(loss / (smallest * n_cells), self.logits)
            self.optimizer.step(self.logits.detach()[None], slope[None], [0], rates)
        return float(loss.detach()) / (smallest * n_cells)

    def _blocks(
        self, marginals: Sequence[Marginal], smallest: float
    ) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """The marginals of each first view, concatenated: one matrix product each."""
        by_first: dict[int, list[Marginal]] = {}
        for marginal in marginals:
            by_first.setdefault(marginal.views[0], []).append(marginal)
        for view, block in by_first.items():
            index = torch.cat([torch.arange(*_ends(self._span(m.views[1]))) for m in block])
            targets = np.concatenate([m.counts for m in block], axis=1) / self.n_rows
            weights = np.concatenate(
                [np.full(m.counts.shape[1], smallest / (m.scale / self.n_rows) ** 2) for m in block]
            )
            yield view, index, torch.from_numpy(targets).float(), torch.from_numpy(weights).float()


_SPREAD = 0.1  # standard deviation of the initial logits of the components


def _ends(span: slice) -> tuple[int, int]:
    return span.start, span.stop


# ---- Rows of a fitted mixture --------------------------------------------------------------------


class MixtureTable:
    """The components' probabilities, (K, sum of sizes), in the order of the rows' spans."""

    members = (None,)  # a single one

    def __init__(self, probabilities: Tensor) -> None:
        self.probabilities = probabilities

    def draw(self, spans: RowSpans, request: RowRequest) -> Samples:
        """Draw the requested rows, exactly from the mixture given the known codes.

        First a component is drawn by its probability given the known or allowed codes, then each
        other code from that component. Positions within bins are uniform. Components are drawn by
        stratified sampling: rows without conditions have each component about equally often.

        Rows with the same known codes are balanced: see `balance`. Rows with sets of allowed codes
        are not balanced, since some are rejected and replaced later. Rows that are completed are
        independent, so that imputations vary correctly.
        """
        table, sizes = self.probabilities, list(spans.sizes)
        balanced = request.values is None and not request.allowed
        n_candidates = _n_candidates(request.n_rows) if balanced and sizes else 1
        n, allowed = request.n_rows, dict(request.allowed)
        codes = torch.full((1, n, len(sizes)), -1, dtype=torch.int64)
        if request.codes is not None:
            codes = request.codes.clone()
        given_codes, column_probabilities = codes[0], [*table.split(sizes, -1)]
        components = self._components(
            column_probabilities, given_codes, allowed, request, n_candidates
        )
        u = uniforms(request.keys_for(Stream.CODES), n_candidates, n, len(sizes), device=_CPU)[0]
        candidates = given_codes.repeat(n_candidates, 1, 1)
        for i, part in enumerate(column_probabilities):
            rows = torch.nonzero(given_codes[:, i] < 0)[:, 0]
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
        positions = (
            uniforms(request.keys_for(Stream.VALUES), n, spans.n_values, device=_CPU) * 2 - 1
        )
        values = torch.where(values.isnan(), positions.to(values.dtype), values)
        return Samples(values, codes, torch.ones(1, n, dtype=torch.float64))

    def _components(
        self,
        column_probabilities: Sequence[Tensor],
        given_codes: Tensor,
        allowed: Mapping[int, Sequence[int]],
        request: RowRequest,
        n_draws: int = 1,
    ) -> Tensor:
        """Draw components for each row by their posterior probability, (n_draws, n)."""
        n, k = len(given_codes), len(self.probabilities)
        keys = request.keys_for(Stream.ORDER)
        order, within = uniforms(keys, n_draws, n, 2, device=_CPU)[0].unbind(-1)
        # each draw has one stratum of [0, 1) per row, in random order, unless rows are completed
        u = (order.argsort(-1) + within) / n if request.values is None else within
        log = torch.zeros(n, k, dtype=torch.float64)
        for i, part in enumerate(column_probabilities):
            is_given = given_codes[:, i] >= 0
            if is_given.any():
                log[is_given] += part.T.double().clamp_min(1e-30).log()[given_codes[is_given, i]]
            if i in allowed:
                share = part[:, list(allowed[i])].double().sum(-1).clamp_min(1e-30).log()
                log[~is_given] += share
        cumulative = log.softmax(-1).cumsum(-1)
        return torch.stack([_invert(cumulative, draw) for draw in u])


def _invert(cumulative: Tensor, u: Tensor) -> Tensor:
    """Positions drawn by uniform numbers, (n,), from cumulative shares, (n, size), of any total."""
    total = cumulative[:, -1]
    target = torch.minimum(u.double() * total, total * (1 - 1e-12))
    positions = torch.searchsorted(cumulative.contiguous(), target[:, None], right=True)[:, 0]
    return positions.clamp_(max=cumulative.shape[1] - 1)


# ---- Rows whose counts of columns and pairs are close to their expectation -----------------------

_N_CANDIDATES = (8, 32)  # of each row
_MOST_CANDIDATES = 2**18  # of all rows, unless the minimum per row is more
_MOST_PAIRS = 500  # that are balanced; a random sample if there are more
_MOST_CELLS = 2**14  # of a pair that is balanced
_AT_ONCE = 16  # rows whose candidates are compared with the same counts


def _n_candidates(n_rows: int) -> int:
    """Candidates per row, a power of two: more for few rows, whose counts vary more.

    >>> [_n_candidates(n) for n in (1, 2, 5_000, 10_000, 100_000)]
    [1, 32, 32, 16, 8]
    """
    fewest, largest = _N_CANDIDATES
    if n_rows < 2:
        return 1
    return min(largest, max(fewest, 2 ** int(math.log2(_MOST_CANDIDATES / n_rows))))


def balance(candidates: np.ndarray, sizes: Sequence[int], key: int) -> np.ndarray:
    """Keep one candidate of each row, so that counts of columns and pairs vary less.

    Candidates compete in pairs. From each pair the candidate is kept that brings the counts of the
    kept ones closer to those of the others, so the kept ones have about the counts of all
    candidates, which are many more than the rows. The first choice is a coin toss, and the opposite
    toss would reverse all choices: each candidate is kept with the same probability, whatever the
    others are. So a row has exactly the distribution of its candidates. Rows are in random order.

    Parameters
    ----------
    candidates : ndarray of int, (2**k, n, n_columns)
    sizes : sequence of int
        Number of codes of each column.
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
    # NOTE[DIFF]: a self-balancing walk chooses at random, with probabilities from the difference
    # of the counts. Ours always takes the better one, which has no proven bound, but is unbiased
    # by the same symmetry.
    rng = np.random.default_rng(key)
    cells, n_cells = _cells(candidates, sizes, rng)
    n = candidates.shape[1]
    survivors = np.arange(len(candidates))[:, None].repeat(n, 1)  # of each row, (candidates, n)
    while len(survivors) > 1:
        # how much more often a cell is among the chosen candidates than among the others
        excess = np.zeros(n_cells, dtype=np.int64)
        chosen = np.empty((len(survivors) // 2, n), dtype=np.int64)
        coins = rng.integers(0, 2, chosen.shape, dtype=np.int64)
        for half, start in itertools.product(range(len(chosen)), range(0, n, _AT_ONCE)):
            rows = np.arange(start, min(n, start + _AT_ONCE))
            first_cells, second_cells = (cells[survivors[2 * half + i, rows], rows] for i in (0, 1))
            worse = excess[first_cells].sum(-1) - excess[second_cells].sum(-1)
            second = np.where(worse == 0, coins[half, rows], worse > 0).astype(np.int64)
            chosen[half, rows] = survivors[2 * half + second, rows]
            signs = (1 - 2 * second)[:, None].repeat(cells.shape[-1], 1)
            np.add.at(excess, first_cells, signs)
            np.add.at(excess, second_cells, -signs)
        survivors = chosen
    chosen_rows: np.ndarray = candidates[survivors[0], np.arange(n)][rng.permutation(n)]
    return chosen_rows


def _cells(
    codes: np.ndarray, sizes: Sequence[int], rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """The cells of rows in columns and in pairs of columns, and the number of all cells."""
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
    cells = np.concatenate([codes, codes[..., a] * widths[b] + codes[..., b]], -1)
    firsts = np.cumsum([0, *sizes, *(widths[a] * widths[b])])
    return cells + firsts[:-1], int(firsts[-1])


# ---- Columns at coarser resolutions --------------------------------------------------------------

_LEVELS = (12, 5)  # groups of a column, at most


def coarser_views(counts: Sequence[np.ndarray], ordered: Sequence[int]) -> list[list[View]]:
    """The columns themselves, then at coarser resolutions, one list each.

    Neighbouring codes of a numeric column form groups of about equal weight. Other columns keep
    their frequent codes, and all others are one group. ``ordered`` is the number of ordered codes
    of each column, which come first. Counts are noisy.

    >>> _, coarse, coarsest = coarser_views([np.ones(20), np.arange(6)], [20, 0])
    >>> [(view.column, view.n_groups) for view in coarse + coarsest]
    [(0, 12), (1, 6), (0, 5), (1, 5)]
    """
    levels = [[View(j, np.arange(len(column_counts))) for j, column_counts in enumerate(counts)]]
    for n_groups in _LEVELS:
        views = []
        for j, column_counts in enumerate(counts):
            weight = np.maximum(column_counts, 0.0) + 1e-9
            n = ordered[j]
            if len(column_counts) <= n_groups:
                groups = np.arange(len(column_counts))
            elif n:
                n_missing = len(column_counts) - n  # a missing value
                middle = (np.cumsum(weight[:n]) - weight[:n] / 2) / weight[:n].sum()
                some = np.minimum(
                    (middle * (n_groups - n_missing)).astype(int), n_groups - n_missing - 1
                )
                groups = np.r_[some, n_groups - n_missing + np.arange(n_missing)]
                groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
            else:
                groups = np.full(len(column_counts), n_groups - 1)
                groups[np.argsort(-weight, kind="stable")[: n_groups - 1]] = np.arange(n_groups - 1)
            views.append(View(j, groups))
        levels.append(views)
    return levels


def expected_noise(scale: float, n_cells: int) -> float:
    """The mean L1 norm of Gaussian noise."""
    return math.sqrt(2 / math.pi) * scale * n_cells
