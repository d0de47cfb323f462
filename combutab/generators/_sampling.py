"""Rows that a fitted generator draws: ``sample`` and ``sample_from``, whatever makes them."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Generic

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from combutab.core.device import guard_forks
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.generators._relations import Columns
from combutab.generators._rules import Rules
from combutab.generators.completion import DrawnRows
from combutab.generators.conditions import (
    read_conditions,
    read_each,
    warn_of_others,
    write_each,
    write_others,
)
from combutab.generators.constraints import read_columns, refuse_broken
from combutab.generators.sampling import (
    NetworkT,
    RowWriter,
    Sampler,
    check_arguments,
    fall_short,
)
from combutab.generators.shares import draw_shares, given_values, read_shares
from combutab.preprocessing import (
    IdentifierColumn,
    ModeEncoder,
    as_pandas,
    parquet_parts,
    put_cells,
)


class Sampling(Generic[NetworkT]):
    """A fitted generator whose rows a network of the given class makes."""

    random_state: Any

    # what fit leaves
    encoder_: ModeEncoder
    rules_: Rules  # what the constraints have come to
    n_features_in_: int
    feature_names_in_: np.ndarray  # where all names are strings
    _states: list[dict[str, np.ndarray]]  # of the network that makes rows, by member
    _seed: int
    _n_sampled: int  # calls of sample without a random state
    _made_sampler: tuple[Any, torch.device, Sampler[NetworkT]] | None = None
    _beside: Sequence[pd.DataFrame] = ()  # rows that those drawn are added to

    # ---- hooks -------------------------------------------------------------------------------

    @abstractmethod
    def _find_device(self) -> torch.device:
        """The device to compute on."""

    @abstractmethod
    def _make_sampler(self, device: torch.device) -> Sampler[NetworkT]:
        """Make the sampler of the fitted states."""

    def _advice_on_rare_rows(self) -> str:
        """A further way to find rows that meet conditions, for the error about rare ones."""
        return ""

    def _set_encoder(self, encoder: ModeEncoder, rules: Rules) -> None:
        self.encoder_, self.rules_, self.n_features_in_ = encoder, rules, len(rules.names)
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_[: self.n_features_in_]

    # ---- sample --------------------------------------------------------------------------------

    def sample(
        self,
        n: int | None = None,
        condition_column: Any = None,
        condition_value: Any = None,
        *,
        conditions: Mapping[Any, Any] | None = None,
        seed_data: Any = None,
        balance: Any = None,
        shares: Mapping[Any, Mapping[Any, float]] | None = None,
        random_state: Any = None,
        on_shortfall: str = "error",
        max_tries: int = 100,
        out: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Sample synthetic rows, optionally with conditions, shares of values or balanced classes.

        Parameters
        ----------
        n : int, optional
            Number of rows. With ``seed_data`` it is the number of these rows.
        condition_column, condition_value
            One condition, as in the ``ctgan`` package. A mapping as the second argument is used as
            ``conditions``.
        conditions : mapping, optional
            Conditions that all rows meet: column -> value, or a list of allowed values; for
            continuous columns also a range ``(low, high)``, with None for an open end; None for a
            missing value. A value of a continuous column is written into the rows with the nearest
            values: those that have it, or one row in a hundred if fewer have it. In a list of such
            values each is as frequent as the numbers around it (in the same bin or mode), not as
            the value itself. In a column where only some numbers are rounded, a range without a
            rounded number has rows with other numbers.
        seed_data : DataFrame, optional
            Rows with some of the columns; the other columns are sampled, and so are missing cells.
            Unlike in ``sample_from``, values that the generator never samples are kept, with a
            warning. For such a number (for example, the extreme of a single row), the other columns
            are sampled as for the nearest number. For such a category they are sampled as if it
            were not given.
        balance : column, optional
            A discrete column whose values all get the same number of rows. A missing value counts
            as a value. Rare values have no rows, and neither have values that constraints and
            conditions do not allow. If n is not a multiple, the first values get one more row. The
            same as equal ``shares`` of all values.
        shares : mapping, optional
            Column -> {value: share of the rows}, of one column or several, such as
            ``{"churn": {"yes": 0.3, "no": 0.7}}``. The numbers of rows are exact, by largest
            remainders. Shares are from 0 to 1. If those of a column add up to less than 1, the
            column's other values get the rest, in the generator's own proportions; if they add up
            to 1, other values do not occur.
            Instead of a value, a key can be None for a missing value, a tuple of several values of
            a discrete column, or a range ``(low, high)`` of a continuous column, as in
            ``conditions``. A number at which one range ends and the next begins belongs to
            the next.
            Shares of several columns are combined by raking (iterative proportional fitting) of at
            least 5,000 rows that are sampled first: values occur together as in these rows, as far
            as the shares allow. Combinations that occur in none of these rows are not sampled.
        random_state : int, RandomState, Generator or None
            Seed. None continues the random numbers of the fit, so that the same calls after the
            same fit return the same rows.
        on_shortfall : {"error", "return"}, default="error"
            What to do if fewer than n rows that meet the conditions are found: raise an error that
            contains them, or return them with a warning.
        max_tries : int, default=100
            Largest number of candidate rows, as a multiple of n (of 5,000 if n is less), from which
            those that meet the conditions are kept.
        out : path, optional
            A Parquet file, or a URI such as ``"s3://bucket/rows.parquet"``, to which the rows are
            written in parts, with the memory of about 65,000 rows. They are the same rows as
            without it. With conditions, ``balance`` or ``shares``, all rows are sampled before they
            are decoded; they then take 4 bytes per number and 8 bytes per category or mode. The
            file appears when it is complete; after an error or Ctrl-C there is none.

        Returns
        -------
        DataFrame with the columns and dtypes of the fitted table, or an array if that was one;
        None with ``out``. A categorical dtype has only the categories that ``min_frequency`` rows
        have, because the unused ones would show which categories are rare. With
        ``min_frequency=1`` it has all.

        Raises
        ------
        ValueError
            If a condition or share cannot be met (there is no such column or value), if rows cannot
            be balanced by the column, or if the shares of several columns cannot be met together:
            the error names the values that are never drawn with each other.
        ShortfallError
            If rows that meet the conditions are too rare. It is a ValueError whose ``rows`` are
            those that were found.
        OSError
            If ``out`` cannot be written: no such folder, a read-only one, a full disk.
        """
        check_is_fitted(self)
        check_arguments(self, "sample", n=n, on_shortfall=on_shortfall, max_tries=max_tries)
        if seed_data is not None:
            if n is not None and hasattr(seed_data, "__len__") and n != len(seed_data):
                raise ValueError(
                    f"{n=} does not fit seed_data, which has {len(seed_data)} rows; leave n out"
                )
            others = (condition_column, condition_value, conditions, balance, shares, out)
            if any(each is not None for each in others):
                raise ValueError(
                    "seed_data cannot be combined with conditions, balance, shares or out; put "
                    "conditions into columns of seed_data, and write the returned rows to a file"
                )
            return self._sample_each(seed_data, random_state, on_shortfall, max_tries, nearest=True)
        if n is None:
            raise ValueError("n must be a whole number of rows, got None; give it, or seed_data")
        if condition_column is not None and conditions is not None:
            raise ValueError(
                f"conditions are given twice: {condition_column!r} and {conditions!r}; put all "
                "into conditions"
            )
        if isinstance(condition_column, Mapping):
            conditions = condition_column
        elif condition_column is not None:
            conditions = {condition_column: condition_value}
        elif condition_value is not None:
            raise ValueError(f"condition_value={condition_value!r} needs a condition_column")
        for given in (conditions, shares):
            self.rules_.refuse_unknown(list(given) if isinstance(given, Mapping) else [])
        if isinstance(conditions, Mapping):
            conditions = {
                name: self.rules_.forms.read_condition(name, value)
                for name, value in conditions.items()
            }
        if isinstance(shares, Mapping):
            shares = {
                name: self.rules_.forms.read_shares(name, parts) for name, parts in shares.items()
            }
        wanted = read_conditions(self.encoder_, {} if conditions is None else conditions)
        ordered = read_shares(self.encoder_, shares, balance, wanted, self.rules_)
        n = int(n)
        self.rules_.refuse_more(n, wanted)
        with nullcontext() if out is None else parquet_parts(out) as file:
            writer, table = None if file is None else RowWriter(self.rules_, file), None
            if writer is not None and not wanted and not ordered:
                return self.stream_rows(writer, n, random_state)
            key = self.sample_key(random_state)
            sampler, asked = self.sampler(), [each.column for each in wanted]
            fixed = [*wanted, *given_values(ordered)]
            search = sampler.search(fixed, [part for each in ordered for part in each.conditions])
            if search is not None:
                for rows in self._beside:
                    search.take_columns(read_columns(self.rules_.forms.read(rows)))
            if not ordered:
                values, codes, n_made = sampler.draw(n, wanted, key, max_tries, search)
            else:
                asked += [each.column for each in ordered]
                drawn = draw_shares(sampler, n, ordered, wanted, key, max_tries, search)
                values, codes, n_made = drawn
            lacking = len(codes) < n
            if writer is not None and not (lacking and on_shortfall == "error"):
                writer.write_all(values, codes, fixed)
            else:
                table = self.rules_.forms.write(self.rules_.decode(values, codes, fixed))
            if lacking:
                why = "" if search is None else f": {search.explain()}"
                fall_short(
                    f"only {len(codes)} of {n_made} rows met the conditions {asked}"
                    f"{' and the constraints' if search else ''}, {n} were asked for{why}",
                    table,
                    on_shortfall,
                    f"; ask for fewer, relax the conditions, or raise {max_tries=}"
                    f"{self._advice_on_rare_rows()}",
                )
        return table

    def sample_from(
        self,
        conditions: Any,
        *,
        random_state: Any = None,
        on_shortfall: str = "error",
        max_tries: int = 100,
    ) -> Any:
        """Sample one row for each row of conditions (conditional sampling).

        Parameters
        ----------
        conditions : DataFrame of pandas or polars
            Some columns of the fitted table, with values as in ``sample``. A missing value is no
            condition.
        random_state, on_shortfall, max_tries
            As in ``sample``.

        Returns
        -------
        DataFrame with the order and index of ``conditions``, or an array if the fitted table was
        one. With ``on_shortfall="return"``, rows that were not found are left out.

        Raises
        ------
        ValueError, ShortfallError
            As in ``sample``.
        """
        check_is_fitted(self)
        check_arguments(self, "sample_from", on_shortfall=on_shortfall, max_tries=max_tries)
        return self._sample_each(conditions, random_state, on_shortfall, max_tries, nearest=False)

    def _sample_each(
        self, conditions: Any, random_state: Any, on_shortfall: str, max_tries: int, nearest: bool
    ) -> Any:
        """Draw a row for each of conditions; see `read_each` for ``nearest``."""
        conditions = as_pandas(conditions)
        if not isinstance(conditions, pd.DataFrame):
            name = "seed_data" if nearest else "conditions"
            raise ValueError(f"{name} must be a DataFrame, got {type(conditions).__name__}")
        self.rules_.refuse_unknown(list(conditions))
        conditions = self.rules_.forms.read(conditions)
        patterns, which, others = read_each(self.encoder_, conditions, nearest)
        key, sampler, rules = self.sample_key(random_state), self.sampler(), self.rules_
        written, identified = dict(others), False  # missing identifiers beside given ones are new
        for name, given in others.items():
            if isinstance(coder := rules.coders[name], IdentifierColumn):
                column = given.astype(object).reindex(range(len(conditions)))
                written[name] = put_cells(column, column.isna().to_numpy(), coder.beside(column))
                identified = True
        if rules:
            parts = [read_columns(conditions)]
            refuse_broken(rules.constraints, rules.names, parts, "conditions", partial=True)
            rules.refuse_more_each(conditions)
            patterns = rules.restrict_each(patterns)

        def write(rows: np.ndarray, made: DrawnRows) -> Any:
            table = self.encoder_.decode(made.values, made.codes)
            write_each(table, patterns, which[rows])
            return write_others(table, written, rows) if written else table

        values, codes, missed = sampler.draw_each(patterns, which, key, max_tries)
        made = DrawnRows(values, codes, missed)
        if (search := sampler.search(kept=identified)) is not None:

            def draw(rows: np.ndarray, own_key: int, attempt: int) -> DrawnRows:
                return DrawnRows(*sampler.draw_each(patterns, which[rows], own_key, max_tries))

            def complete(rows: np.ndarray, made: DrawnRows) -> tuple[Columns, np.ndarray]:
                return rules.complete_each(write(rows, made), conditions, rows), made.codes

            drawn = np.flatnonzero(~missed)
            reserved = np.zeros((len(missed), search.n_unique), dtype=bool)
            if search.n_unique and len(drawn):
                there = {
                    name: cells.notna().to_numpy()[drawn] for name, cells in conditions.items()
                }
                reserved[drawn] = search.reserve(complete(drawn, made[drawn])[0], there)
            made = search.redraw(made, draw, complete, key, max_tries, reserved)
        missed = made.missed
        kept = np.flatnonzero(~missed)
        table = write(kept, made[kept])
        if rules:
            table = rules.put(table, rules.complete_each(table, conditions, kept))
        if others:
            warn_of_others(others)
        table = rules.forms.write(table)
        if isinstance(table, pd.DataFrame):
            table = table.set_index(conditions.index[~missed])
        if missed.any():
            first = conditions.iloc[int(missed.argmax())].dropna().to_dict()
            fall_short(
                f"{missed.sum()} of {len(missed)} rows of conditions could not be met, the first "
                f"{first}{'' if search is None else f': {search.explain()}'}",
                table,
                on_shortfall,
                f"; relax these conditions, or raise {max_tries=}{self._advice_on_rare_rows()}",
            )
        return table

    def sample_key(self, random_state: Any) -> int:
        """The key of the next draw; without a random state, that of the fit's own numbers."""
        if random_state is not None:
            return fold_in(seed_from(random_state), Stream.SAMPLE)
        self._n_sampled += 1
        return fold_in(self._seed, Stream.SAMPLE, self._n_sampled - 1)

    def sampler(self) -> Sampler[NetworkT]:
        """Return the sampler, with the network that was learned, made once for a device."""
        guard_forks()
        device = self._find_device()
        made = self._made_sampler
        if made is None or made[0] is not self._states or made[1] != device:
            made = self._made_sampler = (self._states, device, self._make_sampler(device))
        return made[2]

    def stream_rows(self, writer: RowWriter, n: int, random_state: Any = None) -> None:
        """Write the n rows that ``sample`` draws without conditions, part by part."""
        writer.write_stream(self.sampler().stream(n, self.sample_key(random_state)))

    @property
    def _rules(self) -> dict[str, Any]:
        """What a file has of the constraints beside the parameter."""
        return self.rules_.to_dict()

    def __getstate__(self) -> dict[str, Any]:
        held: Any = super().__getstate__()
        state = dict(held)
        state.pop("_made_sampler", None)  # a copy makes its own
        return state

    def set_random_state(self, random_state: Any) -> None:
        """Set the random state of the next call of ``sample`` without one.

        Before ``fit`` it sets the parameter ``random_state``, as in the ``ctgan`` package.
        """
        if not self.__sklearn_is_fitted__():
            self.random_state = random_state
            return
        self._seed, self._n_sampled = seed_from(random_state), 0

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_states")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
