"""PrivateSynthesizer: a generator of tables whose fit is differentially private."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from combutab._model_files import Loadable, Saved, loadable
from combutab.core.device import Precision, resolve_device
from combutab.core.files import kind, number, whole
from combutab.core.html import FittedHTML
from combutab.core.parameters import (
    COUNT,
    POSITIVE,
    RANDOM_STATE,
    SHARE,
    DeclaredParameters,
    parameter,
)
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.text import counted, list_names
from combutab.generators._base import check_constraints
from combutab.generators._imputing import Imputing
from combutab.generators._learned_columns import LearnedColumns, order_relations
from combutab.generators._rules import Rules
from combutab.generators._sampling import Sampling
from combutab.generators._training import make_spans
from combutab.generators.constraints import Constraint, Coordinates, FixedCombinations
from combutab.generators.private._domain import (
    SURE,
    Coder,
    PublicFacts,
    finish_column,
    is_discrete,
    learn_bounds,
    learn_categories,
    parse_dates,
    plan_columns,
    refuse_unlearnable,
    refuse_unreadable,
    row_codes,
)
from combutab.generators.private._mechanisms import (
    Ledger,
    PrivateRows,
    bound_rows,
    epsilon_of,
    release_counts,
)
from combutab.generators.private._mixture import (
    Marginal,
    MixtureFit,
    MixtureTable,
    View,
    coarser_views,
    expected_noise,
)
from combutab.generators.sampling import FREE, DirectSampler, Sampler
from combutab.preprocessing import (
    ColumnForm,
    ModeEncoder,
    Table,
    TableSchema,
    given_numbers,
)

_MOST_EPSILON = 100
_COUNTING = 0.02  # of the budget, for the number of rows
_ONE_WAY = 0.15  # of the rest, for the columns' own counts
_CHOOSING = 0.1  # of the budget of pairs, for choosing them
_ROUNDS = 30  # about, of measuring pairs
_PAIRS_PER_COLUMN = 8  # that the budget is planned for; less noisy ones where fewer are needed
_ALL_ROUNDS = 10  # whose steps are taken where all pairs are measured at once
_LITTLE_NOISE = 0.25  # L1 norm by rows, mean over pairs, up to which all pairs are measured
_MAX_CELLS = 2**14  # of a pair that is measured
_START_STEPS, _LAST_STEPS = 100, 500
_REFUSED = {  # what other generators do
    "fit_parquet": "read the file, and use fit(pandas.read_parquet(path))",
    "fit_resample": "it would return the rows of the table, which are not private; fit a table "
    "with the classes as a column, and use sample(n, balance=column)",
}
_FITTED = {
    "n_iter_": whole(),
    "n_features_in_": whole(1),
    "_seed": whole(0, 2**64),
    "_n_sampled": whole(0, 2**62),
    "n_rows_": whole(1),
    "epsilon_": number(),
    "delta_": number(),
    "_ledger": kind(dict),
    "_rules": kind(dict),
}


@dataclass(frozen=True)
class _PrivateTable:
    """Private columns, the public facts about them, and the ledger of their budget."""

    schema: TableSchema
    columns: Sequence[pd.Series]
    facts: PublicFacts
    max_rows: int  # of one person
    forms: Sequence[ColumnForm]
    ledger: Ledger


@loadable
@dataclass(eq=False, repr=False)
class PrivateSynthesizer(
    FittedHTML, Sampling[Any], DeclaredParameters, BaseEstimator, Imputing, Loadable
):
    """Synthetic rows of a table with differential privacy.

    ``fit`` is (epsilon, delta)-differentially private for adding or removing one row, or all rows
    of one person. It measures counts with noise: first of the values of each column, then of pairs
    of columns. All pairs are measured if the noise allows it; otherwise pairs are selected
    privately where the error of the generator is largest. A mixture of product distributions is
    fitted to these counts. Sampled rows, imputed cells and the file depend only on the noisy
    counts, and cost no additional budget.

    The names and dtypes of the columns, the categories of a dtype, and the parameters are treated
    as public. Bounds and categories that are computed from the table are not public. Pass bounds
    and categories that are known without the table, or let ``fit`` estimate them within the
    budget.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy budget, at most 100. It bounds what an attacker who knows all other rows can learn
        about one person: a guess of 50 % increases to at most exp(epsilon) / (1 + exp(epsilon)),
        which is 73 % with epsilon=1.
    delta : float, default=1e-6
        Probability with which the guarantee may fail. Choose it well below one over the number of
        people.
    bounds : mapping, optional
        Column -> (low, high), for numbers, dates or durations. Values beyond are clipped. Columns
        of ``datetime.date`` or ``datetime.datetime`` objects need bounds of these. More than two
        values are the edges of the bins: of whole numbers, (0, 18, 120) are the bins 0 to 17 and 18
        to 120.
    categories : mapping, optional
        Column -> list of its values. Rows with other values are counted together, and these values
        are not sampled. The categories of a pandas ``Categorical`` are treated as public, too. Use
        this dtype only if its list was made without the table; ``astype("category")`` takes it from
        the rows.
    decimals : mapping, optional
        Column of floats -> number of decimals of sampled values. By default they are not rounded.
    learn_domain : float, default=0.1
        Share of the budget for estimating bounds and categories that are not given (values that
        enough rows have). ``fit`` warns if more than 5 % of the rows have numbers outside of the
        estimated bounds and the noise cannot explain it, or if the noise hides all numbers. With
        0, it raises an error if any are missing.
    max_rows_per_person : int, default=1
        With ``fit(..., person=)``: maximum number of rows used per person. Other rows are dropped
        at random. The noise grows with it.
    identifiers : sequence, default=()
        Columns that identify rows. They are not learned. Sampled rows have new values, counted from
        1.
    constraints : sequence of Constraint, optional
        Constraints that all rows meet, as for `TabFlow`. They must be public knowledge, because
        ``fit`` does not check them on the table. `FixedCombinations` and `Coordinates` are not
        possible, because they are learned from rows.
    n_bins : int, default=32
        Maximum number of bins per numeric column. There are fewer if the noise requires it.
    n_components : int, default=1000
        Number of product distributions in the mixture.
    learning_rate : float, default=0.1
        Learning rate of Adam.
    epochs : int, default=30
        Number of Adam steps after each round of measurements; 10 times this number if all pairs are
        measured at once.
    verbose : bool, default=False
        Whether to print a line per round.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the initial mixture and of sampling. It does not determine the noise, which comes
        from the operating system and is not stored: two fits differ for the same random state.
    device : str or torch.device, default="auto"
        Device. Only the CPU is supported.

    Attributes
    ----------
    epsilon_, delta_ : float
        The guarantee for the fit and everything computed from it.
    ledger_ : DataFrame
        One row per step that read rows: step, columns, mechanism, sensitivity, scale, rho, delta,
        and the epsilon of all steps so far.
    n_rows_ : int
        Number of rows of the table, with noise. ``sample()`` returns as many rows.
    history_ : DataFrame
        Loss after each round: squared error in units of the variance of the noise.
    encoder_ : ModeEncoder
        Fitted encoding of the table's columns.
    n_iter_ : int
        Number of rounds.
    n_features_in_ : int
        Number of columns seen in ``fit``.

    Notes
    -----
    Budgets add up: two fits on the same table spend the sum of both epsilons and both deltas,
    whatever the parameters. So do other releases of the same table. Error messages about the table
    (for example, that it is empty or a number is infinite) are not private: do not publish them.
    Dtypes are treated as public; for example, integers with a missing value become floats.

    References
    ----------
    Dwork et al. (2006), "Calibrating noise to sensitivity in private data analysis"; McKenna et al.
    (2022), "AIM: an adaptive and iterative mechanism for differentially private synthetic data";
    Liu, Vietri and Wu (2021), "Iterative methods for private synthetic data".

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from combutab import PrivateSynthesizer
    >>> X = pd.DataFrame({"age": np.arange(2000) % 90, "member": np.arange(2000) % 3 == 0})
    >>> model = PrivateSynthesizer(epsilon=1.0, bounds={"age": (0, 120)}, epochs=5).fit(X)
    >>> bool(model.epsilon_ <= 1.0), model.sample(5).shape
    (True, (5, 2))
    """

    # NOTE[DIFF]: AIM fits a graphical model and always selects pairs, as they are. Ours measures
    # them at coarser resolutions too, which compete by the same score: of many cells most are
    # noise. Where there is little noise, nothing is spent on selection.
    epsilon: float = parameter(1.0, Interval(Real, 0, _MOST_EPSILON, closed="right"))
    delta: float = parameter(1e-6, Interval(Real, 0, 1e-3, closed="right"))
    _: KW_ONLY
    bounds: Mapping[Any, Sequence[Any]] | None = parameter(None, Mapping, None)
    categories: Mapping[Any, Sequence[Any]] | None = parameter(None, Mapping, None)
    decimals: Mapping[Any, int] | None = parameter(None, Mapping, None)
    learn_domain: float = parameter(0.1, SHARE)
    max_rows_per_person: int = parameter(1, COUNT)
    identifiers: Sequence[Any] = parameter((), list, tuple)
    constraints: Sequence[Constraint] | None = parameter(None, list, tuple, None)
    n_bins: int = parameter(32, Interval(Integral, 2, None, closed="left"))
    n_components: int = parameter(1000, COUNT)
    learning_rate: float = parameter(0.1, POSITIVE)
    epochs: int = parameter(30, COUNT)
    verbose: bool = parameter(False, "verbose")
    random_state: Any = parameter(None, *RANDOM_STATE)
    device: str | torch.device = parameter("auto", str, torch.device)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any = None, *, person: Any = None, discrete_columns: Any = "auto"
    ) -> Self:
        """Learn the distribution of a table, within the privacy budget.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
        y : Ignored
        person : column or array of shape (n_rows,), optional
            The person whom each row belongs to. All rows of a person are protected together. A
            column of X gets new values, like ``identifiers``. By default each row is another
            person.
        discrete_columns : "auto" or list, default="auto"
            Numeric columns to treat as categories.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            - If a parameter or the table cannot be used. No budget is spent.
            - If the noise would hide the table: the number of rows must be at least 8 standard
              deviations of the noise in the counts of a column, so that two bins can exceed it.
              This is first checked for the maximum number of rows that ``delta`` allows, without
              spending, and then for the noisy number of rows, which takes 2 % of the budget.
            - If ``delta`` is not below one over the noisy number of rows.
            - If no value of a column whose categories are estimated has enough rows, and its dtype
              cannot have missing values. The budget of earlier steps is spent.
        ImportError
            If OpenDP is not installed (``pip install opendp``).
        """
        self._check()
        # also by a fit that failed after it
        spent = (self.epsilon_, self.delta_) if hasattr(self, "epsilon_") else None
        self.__dict__.pop("_states", None)
        table = Table(X)
        schema, columns = TableSchema.of(table), table.columns()
        identifiers = list(self.identifiers)
        persons = self._persons(person, schema, columns, identifiers)
        facts = PublicFacts(
            self.bounds or {},
            self.categories or {},
            self.decimals or {},
            identifiers,
            [] if isinstance(discrete_columns, str) else list(discrete_columns),
        )
        columns, forms = parse_dates(schema, columns, facts)
        coders = plan_columns(schema, columns, facts)
        refuse_unlearnable(schema, columns, coders, facts, self.learn_domain > 0)
        if all(coder is not None and coder.is_identifier for coder in coders):
            raise ValueError("all columns are identifiers; there is nothing to learn")
        order_relations(self.constraints or (), LearnedColumns(schema.keys))  # refuses circles
        refuse_unreadable(schema, columns, coders, facts)
        if spent is not None:
            epsilon, delta = self.epsilon + spent[0], self.delta + spent[1]
            warnings.warn(
                f"this generator was fitted before, with epsilon={spent[0]:.3g}. If the tables "
                f"share rows or persons, privacy budgets add up: epsilon={epsilon:.3g}, "
                f"delta={delta:.3g} or more with this fit",
                stacklevel=3,  # beyond the decorator
            )
        max_rows = 1 if persons is None else int(self.max_rows_per_person)
        if persons is not None:
            rows = bound_rows(persons, max_rows)
            columns = [column.iloc[rows] for column in columns]
        with torch.enable_grad():
            self._fit(schema, columns, coders, facts, max_rows, forms)
        return self

    def _check(self) -> None:
        if isinstance(self.epsilon, bool):
            raise ValueError(
                f"epsilon must be a number, got {self.epsilon}; give a budget such as 1.0"
            )
        resolve_device("cpu" if self.device == "auto" else self.device)
        check_constraints(self.constraints)
        for constraint in self.constraints or ():
            if isinstance(constraint, FixedCombinations | Coordinates):
                raise ValueError(
                    f"{constraint!r} would be learned from rows without noise; leave it out"
                )

    def _persons(
        self, person: Any, schema: TableSchema, columns: Sequence[pd.Series], identifiers: list[Any]
    ) -> np.ndarray | None:
        """Number the person of each row; the column of people is added to the identifiers."""
        if person is None:
            if self.max_rows_per_person != 1:
                raise ValueError(
                    f"max_rows_per_person={self.max_rows_per_person} needs fit(X, person=...), "
                    "the column or array that tells whom each row belongs to"
                )
            return None
        if isinstance(person, str) or np.ndim(person) == 0:
            j = schema.position(person)
            values: Any = columns[j]
            identifiers += [schema.keys[j]] * (schema.keys[j] not in identifiers)
        else:
            values = np.asarray(person)
            if values.shape != (len(columns[0]),):
                raise ValueError(
                    f"person has the shape {values.shape}, and X {len(columns[0])} rows; give one "
                    "value for each row, or the name of a column"
                )
        codes, _ = pd.factorize(values)
        if (codes < 0).any():
            raise ValueError("person is missing in some rows; leave these rows out")
        return codes

    # ---- what reads rows: through mechanisms only ----------------------------------------------

    def _fit(
        self,
        schema: TableSchema,
        columns: Sequence[pd.Series],
        public_coders: Sequence[Coder | None],
        facts: PublicFacts,
        max_rows: int,
        forms: Sequence[ColumnForm],
    ) -> None:
        learned = [j for j, c in enumerate(public_coders) if c is None or not c.is_identifier]
        unknown = [j for j, coder in enumerate(public_coders) if coder is None]
        discrete = [j for j in unknown if is_discrete(columns[j], schema.keys[j], facts)]
        ledger = Ledger(self.epsilon, self.delta, self.delta / 2 if discrete else 0.0)
        table = _PrivateTable(schema, columns, facts, max_rows, forms, ledger)
        n_rows = self._count_rows(table, learned, len(unknown))
        coders = self._learn_domain(table, public_coders, discrete, n_rows)
        codes = [row_codes(coders[j], columns[j], schema.label(j)) for j in learned]
        counts, variances = self._measure_columns(table, coders, learned, codes)
        learned_coders = [coders[j] for j in learned]
        n_ordered = [len(c.code_weights) if c.is_continuous else 0 for c in learned_coders]
        levels = coarser_views(counts, n_ordered)
        views = [view for level in levels for view in level]
        self._seed, self._n_sampled = seed_from(self.random_state), 0
        fit = MixtureFit(
            counts,
            variances,
            views,
            _combine_n_rows(n_rows, counts, variances),
            n_components=int(self.n_components),
            learning_rate=float(self.learning_rate),
            key=fold_in(self._seed, Stream.WEIGHTS),
        )
        rows = PrivateRows(
            np.stack([view.groups[codes[view.column]] for view in views], axis=1),
            [view.n_groups for view in views],
            [schema.keys[learned[view.column]] for view in views],
            max_rows,
            ledger,
        )
        losses = self._measure_pairs(fit, rows, _pairs_of(levels))
        self._set_fitted(table, coders, fit, losses)

    def _count_rows(
        self, table: _PrivateTable, learned: Sequence[int], n_unknown: int
    ) -> tuple[float, float]:
        """Measure the number of rows; returns it with the standard deviation of its noise.

        Raises ValueError if the budget is too small, before and after it is spent on the number.
        """
        ledger, max_rows = table.ledger, table.max_rows
        names = [table.schema.keys[j] for j in learned]
        self._check_budget(ledger, names, n_unknown, max_rows)
        exact = np.array([len(table.columns[0])])
        options: dict[str, Any] = {"max_rows": max_rows, "step": "rows", "columns": []}
        n_rows, noise = release_counts(exact, _COUNTING * ledger.rho, ledger, **options)
        self.epsilon_, self.delta_ = ledger.spent()
        self._check_budget(ledger, names, n_unknown, max_rows, float(n_rows[0]))
        # the budget, not the sum of the steps, whose number depends on noise
        self.epsilon_, self.delta_ = float(self.epsilon), float(self.delta)
        return float(n_rows[0]), noise

    def _learn_domain(
        self,
        table: _PrivateTable,
        coders: Sequence[Coder | None],
        discrete: Sequence[int],
        n_rows: tuple[float, float],
    ) -> list[Coder]:
        """Learn the categories of discrete columns and the bounds of others, if not public."""
        ledger, max_rows = table.ledger, table.max_rows
        n_unknown = sum(coder is None for coder in coders)
        rho = self.learn_domain * ledger.rho_left / max(1, n_unknown)
        all_coders: list[Coder] = []
        for j, coder in enumerate(coders):
            name, label, column = table.schema.keys[j], table.schema.label(j), table.columns[j]
            if coder is not None:
                all_coders.append(coder)
            elif j in discrete:
                delta = ledger.threshold_delta / len(discrete)
                all_coders.append(
                    learn_categories(column, label, name, rho, delta, ledger, max_rows)
                )
            else:
                bounds = learn_bounds(column, label, name, rho, ledger, max_rows, n_rows)
                decimals = table.facts.decimals.get(name)
                all_coders.append(given_numbers(column.dtype, label, bounds, 256, decimals))
        return all_coders

    def _measure_columns(
        self,
        table: _PrivateTable,
        coders: list[Coder],
        learned: Sequence[int],
        codes: list[np.ndarray],
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Measure the counts of the learned columns; returns them and the variances of their noise.

        ``coders`` and ``codes`` become those of the columns with light bins joined.
        """
        names = [table.schema.keys[j] for j in learned]
        sizes = [coders[j].size for j in learned]
        rows = PrivateRows(np.stack(codes, axis=1), sizes, names, table.max_rows, table.ledger)
        rho = (_ONE_WAY if len(learned) > 1 else 1.0) * table.ledger.rho_left / len(learned)
        counts, variances = [], []
        for k, (j, name) in enumerate(zip(learned, names, strict=True)):
            noisy, scale = rows.measure([k], rho, "column")
            has_bins = name in table.facts.bounds and len(table.facts.bounds[name]) > 2
            coders[j], new_codes = finish_column(
                coders[j], noisy, scale, int(self.n_bins), has_bins
            )
            size = coders[j].size
            counts.append(np.bincount(new_codes, noisy, size))
            variances.append(np.bincount(new_codes, minlength=size) * scale**2)
            codes[k] = new_codes[codes[k]]
        return counts, variances

    def _measure_pairs(
        self, fit: MixtureFit, rows: PrivateRows, candidates: list[tuple[int, int]]
    ) -> list[float]:
        """Measure pairs of columns, all or some; returns the loss of the fit after each round."""
        ledger = rows.ledger
        losses = [fit.train((), _START_STEPS)]
        if not candidates:
            return losses
        budgets = self._budgets_of_all(fit, rows, candidates)
        if budgets is not None:
            marginals = [
                Marginal(pair, *rows.measure(pair, min(rho, ledger.rho_left), "pair"))
                for pair, rho in budgets.items()
            ]
            losses.append(fit.train(marginals, _ALL_ROUNDS * int(self.epochs)))
        else:
            marginals = self._measure_selected(fit, rows, candidates, losses)
        losses.append(fit.train(marginals, _LAST_STEPS, decay=True))
        return losses

    def _budgets_of_all(
        self, fit: MixtureFit, rows: PrivateRows, candidates: list[tuple[int, int]]
    ) -> dict[tuple[int, int], float] | None:
        """What to spend on each pair of columns, for the least noise; None where it is too much."""
        n_cells, views = {}, fit.views
        for a, b in candidates:
            if max(a, b) < len(fit.sizes):  # the columns as they are
                n_cells[a, b] = views[a].n_groups * views[b].n_groups
        if len(n_cells) < len({_columns_of(pair, views) for pair in candidates}):
            return None
        # the sum of n / sqrt(rho) is least where rho is proportional to n^(2/3)
        total = sum(n ** (2 / 3) for n in n_cells.values())
        budgets = {p: rows.ledger.rho_left * n ** (2 / 3) / total for p, n in n_cells.items()}
        noise = [
            expected_noise(rows.max_rows / math.sqrt(2 * rho), n_cells[pair])
            for pair, rho in budgets.items()
        ]
        return budgets if np.mean(noise) <= _LITTLE_NOISE * fit.n_rows else None

    def _measure_selected(
        self,
        fit: MixtureFit,
        rows: PrivateRows,
        candidates: list[tuple[int, int]],
        losses: list[float],
    ) -> list[Marginal]:
        """Measure pairs of columns in rounds, those that the mixture errs most on, as AIM does."""
        n_columns, ledger, views = len(fit.sizes), rows.ledger, fit.views
        marginals: list[Marginal] = []
        planned = _PAIRS_PER_COLUMN * n_columns
        n_distinct = n_columns * (n_columns - 1) // 2
        at_once = min(-(-planned // _ROUNDS), n_distinct)
        rho = ledger.rho_left / planned
        is_last = False
        while not is_last:
            is_last = ledger.rho_left < 2 * at_once * rho
            if is_last:
                rho = ledger.rho_left / at_once
            scale = rows.max_rows / math.sqrt(2 * (1 - _CHOOSING) * rho)
            before = dict(zip(candidates, fit.expect(candidates), strict=True))
            chosen: list[tuple[int, int]] = []
            chosen_columns: set[tuple[int, int]] = set()
            for _ in range(at_once):
                free = [p for p in candidates if _columns_of(p, views) not in chosen_columns]
                penalties = [expected_noise(scale, before[p].size) for p in free]
                best = rows.choose(
                    free, [before[p] for p in free], _CHOOSING * rho, "choice", None, penalties
                )
                chosen.append(free[best])
                chosen_columns.add(_columns_of(free[best], views))
            for pair in chosen:
                counts, pair_scale = rows.measure(pair, (1 - _CHOOSING) * rho, "pair")
                marginals.append(Marginal(pair, counts, pair_scale))
            losses.append(fit.train(marginals, int(self.epochs)))
            after = fit.expect(chosen)
            small = [
                np.abs(a - before[p]).sum() <= expected_noise(scale, a.size)
                for a, p in zip(after, chosen, strict=True)
            ]
            if self.verbose:
                print(
                    f"round {len(losses) - 1}: {len(chosen)} pairs, noise of {scale:.1f} rows, "
                    f"{1 - ledger.rho_left / ledger.rho:.0%} of the budget",
                    flush=True,
                )
            if sum(small) > len(small) / 2:  # the remaining errors are below the noise
                rho *= 4
        return marginals

    def _check_budget(
        self,
        ledger: Ledger,
        names: Sequence[Any],
        n_open: int,
        max_rows: int,
        n_rows: float | None = None,
    ) -> None:
        """Refuse a budget whose noise hides the rows: two bins must exceed it.

        If the number of rows is not measured yet, it is the largest number that delta allows.
        """
        n, max_n_rows = len(names), 1 / self.delta
        if n_rows is not None and n_rows >= max_n_rows:
            raise ValueError(
                f"delta={self.delta:g} must be well below one divided by the number of rows, about "
                f"{n_rows:,.0f} (counted with noise): it would allow publishing a whole row. Use "
                f"delta={10.0 ** math.floor(math.log10(0.1 / n_rows)):g} or less. "
                f"{_spent_on_rows(ledger)}"
            )
        domain = self.learn_domain if n_open else 0.0
        shares = [(1 - domain) * (_ONE_WAY if n > 1 else 1.0) / n]
        shares += [domain / n_open] if n_open else []
        noise = max_rows / math.sqrt(2 * min(shares) * (1 - _COUNTING) * ledger.rho)
        needed = 2 * SURE * noise
        if needed <= (max_n_rows if n_rows is None else n_rows):
            return
        unsure = max_rows / math.sqrt(2 * _COUNTING * ledger.rho)  # of a number with noise
        n_rows_known = max_n_rows if n_rows is None else max(n_rows, unsure)
        factor = ((needed + 2 * unsure) / n_rows_known) ** 2
        enough = epsilon_of(factor * ledger.rho, ledger.delta - ledger.threshold_delta)
        ways = [f"epsilon={_rounded_up(enough):g} or more"] * (enough <= _MOST_EPSILON)
        ways += [f"at most {counted(int(n / factor), 'column')}"] * (n / factor >= 1)
        ways += ["a smaller max_rows_per_person"] * (max_rows > 1)
        first = list_names(names, 3)
        hidden = "any one sample" if max_rows == 1 else "the rows of any one person"
        rows = f"delta={self.delta:g} is for fewer than {max_n_rows:,.0f} rows"
        if n_rows is not None:
            rows = f"there are about {max(0.0, n_rows):,.0f} (counted with noise)"
        raise ValueError(
            f"epsilon={self.epsilon:g} is too small for {counted(n, 'column')} ({first}): the "
            f"noise that hides {hidden} in a column's counts has a standard deviation of "
            f"{noise:,.0f} rows, which needs a table of at least {needed:,.0f} rows, and {rows}. "
            f"Use {', or '.join(ways) or 'more rows'}. "
            f"{'Nothing was spent' if n_rows is None else _spent_on_rows(ledger)}"
        )

    # ---- results of noisy counts ---------------------------------------------------------------

    def _set_fitted(
        self,
        table: _PrivateTable,
        coders: Sequence[Coder],
        fit: MixtureFit,
        losses: Sequence[float],
    ) -> None:
        """Set the learned encoder and mixture, and the ledger."""
        identifiers = [coder for coder in coders if coder.is_identifier]
        schema = _text_no_wider(table.schema, coders).wide_enough(identifiers)
        encoder = ModeEncoder.of_columns(schema, coders)
        self._set_encoder(encoder, Rules(self.constraints or (), encoder, forms=table.forms))
        learned = [j for j, coder in enumerate(coders) if not coder.is_identifier]
        with torch.no_grad():
            parts = dict(zip(learned, fit.probabilities().split(fit.sizes, -1), strict=True))
        probabilities = torch.cat(
            [parts[span.column] for span in encoder.layout_.spans]
            or [torch.zeros(fit.n_components, 0)],
            -1,
        )
        self._states = [{"probabilities": _allowed_only(probabilities, encoder).numpy()}]
        self.history_ = pd.DataFrame(
            {"member": 0, "epoch": np.arange(1, len(losses) + 1), "loss": losses}
        )
        self.n_iter_, self.n_rows_ = len(losses), max(1, round(fit.n_rows))
        frame = table.ledger.to_frame()
        frame["columns"] = [list(names) for names in frame["columns"]]
        self._ledger = {str(name): column.tolist() for name, column in frame.items()}

    @property
    def ledger_(self) -> pd.DataFrame:
        """One row per step that read rows, with the epsilon of all steps so far."""
        check_is_fitted(self)
        return pd.DataFrame(self._ledger)

    def sample(self, n: int | None = None, *args: Any, **options: Any) -> Any:
        """Sample synthetic rows, with the arguments of `TabFlow.sample`.

        The default number of rows is the noisy number of rows of the table. Sampling costs no
        privacy budget, for any number of rows. Rows of one call are balanced: values and pairs of
        values occur about as often as the model expects, with less sampling error than independent
        rows. The distribution of each row is that of the model. Rows are not balanced if conditions
        allow several values of a column (a list or a range).
        """
        if n is None and options.get("seed_data") is None:
            check_is_fitted(self)
            n = self.n_rows_
        return super().sample(n, *args, **options)

    if not TYPE_CHECKING:  # or it would allow any name

        def __getattr__(self, name: str) -> Any:
            if name in _REFUSED:
                raise AttributeError(f"{type(self).__name__} has no {name}: {_REFUSED[name]}")
            return super().__getattribute__(name)

    def _find_device(self) -> torch.device:
        return torch.device("cpu")

    def _make_sampler(self, device: torch.device) -> Sampler[Any]:
        spans = make_spans(self.encoder_.layout_, device, Precision("float32"))
        table = MixtureTable(torch.from_numpy(self._states[0]["probabilities"]))
        sampler: DirectSampler[Any] = DirectSampler(
            self.encoder_,
            table if spans.n_spans else None,
            spans,
            lambda network, spans, request: network.draw(spans, request),
        )
        sampler.rules = self.rules_
        return sampler

    # ---- files and words -----------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted generator to one file (safetensors with JSON in its header).

        The file has the privacy guarantee of the fit, because everything in it follows from the
        noisy counts and from public facts: the parameters, the names and dtypes of the columns,
        noisy counts of categories and bins, the mixture, the noisy number of rows, and the ledger.
        It contains neither the noise nor a random state of the noise.
        """
        super().save(path)

    def _to_save(self) -> tuple[Iterable[str], dict[str, Any]]:
        return _FITTED, {}

    def _restore(self, saved: Saved) -> None:
        self._check()
        encoder = self._restore_fitted(saved, _FITTED, self.constraints)
        state = self._states[0]
        width = sum(encoder.layout_.sizes)
        table = state.get("probabilities", np.zeros(()))
        if len(self._states) > 1 or len(state) > 1 or table.ndim != 2:
            raise ValueError("a mixture has one array, the probabilities of its components")
        if table.shape[1] != width or not len(table) or table.dtype != np.float32:
            raise ValueError(
                f"the probabilities are {table.dtype}{list(table.shape)}, the columns need {width}"
            )
        if (table < 0).any():
            raise ValueError("probabilities must not be negative")
        if len({len(column) for column in self._ledger.values()}) > 1:
            raise ValueError("the columns of the ledger are of several lengths")
        free = np.full(1, FREE)
        encoder.decode(*self._sampler().generate(1, free, free, 0))

    def _fit_facts(self) -> dict[str, str]:
        return {
            "privacy": f"({self.epsilon_:.3g}, {self.delta_:.3g})-differentially private",
            "rows, with noise": f"{self.n_rows_:,}",
            "trained": f"{self.n_iter_:,} rounds",
        }

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        parameters = super().__repr__(N_CHAR_MAX)
        if not self.__sklearn_is_fitted__():
            return parameters
        return f"{parameters}  # fitted: epsilon={self.epsilon_:.3g}, delta={self.delta_:.3g}"


def _text_no_wider(schema: TableSchema, coders: Sequence[Coder]) -> TableSchema:
    """The schema of an array of text as wide as the known categories, not as the longest text."""
    dtype = schema.array_dtype
    if dtype is None or dtype.kind not in "US":
        return schema
    categories = [value for c in coders if c.categories is not None for value in c.keys]
    width = max((len(value) for value in categories), default=1)
    return replace(schema, array_dtype=np.dtype(f"{dtype.kind}{max(1, width)}"))


def _combine_n_rows(
    n_rows: tuple[float, float], counts: Sequence[np.ndarray], variances: Sequence[np.ndarray]
) -> float:
    """Combine the measured number of rows with the sums of columns, for the least noise."""
    totals = np.array([n_rows[0], *(column_counts.sum() for column_counts in counts)])
    weights = 1 / np.array([n_rows[1] ** 2, *(variance.sum() for variance in variances)])
    return float(max(1.0, (totals * weights).sum() / weights.sum()))


def _spent_on_rows(ledger: Ledger) -> str:
    return (
        "Only the number of rows was measured, which has spent "
        f"epsilon={_rounded_up(ledger.spent()[0]):g}"
    )


def _pairs_of(levels: Sequence[Sequence[View]]) -> list[tuple[int, int]]:
    """Pairs of views of one level that are not too large, each table of counts once."""
    pairs: dict[tuple[int, int, int, int], tuple[int, int]] = {}
    first = 0
    for level in levels:
        for i, one in enumerate(level):
            for j in range(i + 1, len(level)):
                sizes = one.n_groups, level[j].n_groups
                if math.prod(sizes) <= _MAX_CELLS and min(sizes) > 1:
                    pairs.setdefault((i, j, *sizes), (first + i, first + j))
        first += len(level)
    return list(pairs.values())


def _columns_of(pair: tuple[int, int], views: Sequence[View]) -> tuple[int, int]:
    return views[pair[0]].column, views[pair[1]].column


def _allowed_only(table: torch.Tensor, encoder: ModeEncoder) -> torch.Tensor:
    """The probabilities of codes that rows may have; those of the others are spread over them."""
    parts = [part.clone() for part in table.split(list(encoder.layout_.sizes), -1)]
    for span, code in encoder.layout_.suppressed:
        if parts[span].shape[1] > 1:
            parts[span][:, code] = 0.0
        parts[span] /= parts[span].sum(-1, keepdim=True).clamp_min(1e-30)
    return torch.cat(parts, -1) if parts else table


def _rounded_up(value: float) -> float:
    """Round up to two digits.

    >>> _rounded_up(0.1234), _rounded_up(0.07), _rounded_up(19.5)
    (0.13, 0.07, 20.0)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit - 1e-9) * unit, 12)
