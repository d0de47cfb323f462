"""Rows that a fitted generator draws: ``sample`` and ``sample_from``, whatever makes them."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Generic, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from combutab._model_files import Saved
from combutab.core.device import guard_forks
from combutab.core.files import Field, check_fields
from combutab.core.parameters import table_tags
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.generators._relations import Columns
from combutab.generators._rules import Rules
from combutab.generators.completion import DrawnRows, report_shortfall
from combutab.generators.conditions import (
    Condition,
    read_conditions,
    read_each,
    warn_of_others,
    write_each,
    write_others,
)
from combutab.generators.constraints import Constraint, refuse_broken
from combutab.generators.sampling import (
    NetworkT,
    RowWriter,
    Sampler,
    check_arguments,
)
from combutab.generators.shares import ColumnShares, draw_shares, given_values, read_shares
from combutab.preprocessing import (
    ModeEncoder,
    Table,
    as_pandas,
    parquet_parts,
    put_cells,
)


class Request(NamedTuple):
    """A request for rows in the encoder's terms."""

    n: int
    conditions: Sequence[Condition]
    shares: Sequence[ColumnShares]


def _merge_conditions(column: Any, value: Any, conditions: Any) -> Any:
    """The conditions of a call with one condition, or with several."""
    if column is None:
        if value is not None:
            raise ValueError(f"condition_value={value!r} needs a condition_column")
        return conditions
    if conditions is not None:
        raise ValueError(
            f"conditions are given twice: {column!r} and {conditions!r}; put all into conditions"
        )
    return column if isinstance(column, Mapping) else {column: value}


class Sampling(Generic[NetworkT]):
    """A fitted generator whose rows a network of the given class makes."""

    random_state: Any

    # what fit leaves
    encoder_: ModeEncoder
    rules_: Rules  # the constraints in the encoder's terms
    history_: pd.DataFrame
    n_features_in_: int
    feature_names_in_: np.ndarray  # where all names are strings
    _states: list[dict[str, np.ndarray]]  # of the network that makes rows, by member
    _seed: int
    _n_sampled: int  # calls of sample without a random state
    _cached_sampler: tuple[Any, torch.device, Sampler[NetworkT]] | None = None
    _existing_rows: Sequence[pd.DataFrame] = ()  # rows that sampled rows are added to

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

    def _restore_fitted(
        self, saved: Saved, fields: Mapping[str, Field], constraints: Sequence[Constraint] | None
    ) -> ModeEncoder:
        """Set the fields, the states and the encoder of a file; returns the encoder."""
        check_fields(saved.fitted, fields, "what was fitted")
        rules = saved.fitted.pop("_rules")
        for name, value in saved.fitted.items():
            setattr(self, name, value)
        # it may be empty
        self.history_ = saved.history.astype({"member": np.int64, "epoch": np.int64})
        arrays, self._states = saved.arrays()
        encoder = ModeEncoder.from_state(arrays, saved.header["encoder"])
        self._set_encoder(encoder, Rules.restore(constraints or (), encoder, rules))
        return encoder

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
            excluded = (condition_column, condition_value, conditions, balance, shares, out)
            if any(argument is not None for argument in excluded):
                raise ValueError(
                    "seed_data cannot be combined with conditions, balance, shares or out; put "
                    "conditions into columns of seed_data, and write the returned rows to a file"
                )
            return self._sample_each(seed_data, random_state, on_shortfall, max_tries, nearest=True)
        if n is None:
            raise ValueError("n must be a whole number of rows, got None; give it, or seed_data")
        conditions = _merge_conditions(condition_column, condition_value, conditions)
        request = self._read_request(int(n), conditions, shares, balance)
        with nullcontext() if out is None else parquet_parts(out) as file:
            if file is None:
                return self._draw_request(request, random_state, on_shortfall, max_tries)
            writer = RowWriter(self.rules_, file)
            if request.conditions or request.shares:
                self._draw_request(request, random_state, on_shortfall, max_tries, writer)
            else:
                self._stream_rows(writer, request.n, random_state)
        return None

    def _read_request(self, n: int, conditions: Any, shares: Any, balance: Any) -> Request:
        """Check conditions and shares, and express them in the encoder's terms."""
        rules = self.rules_
        for mapping in (conditions, shares):
            rules.refuse_unknown(list(mapping) if isinstance(mapping, Mapping) else [])
        if isinstance(conditions, Mapping):
            conditions = {
                name: rules.forms.read_condition(name, value) for name, value in conditions.items()
            }
        if isinstance(shares, Mapping):
            shares = {name: rules.forms.read_shares(name, parts) for name, parts in shares.items()}
        read = read_conditions(self.encoder_, {} if conditions is None else conditions)
        column_shares = read_shares(self.encoder_, shares, balance, read, rules)
        rules.refuse_more(n, read)
        return Request(n, read, column_shares)

    def _draw_request(
        self,
        request: Request,
        random_state: Any,
        on_shortfall: str,
        max_tries: int,
        writer: RowWriter | None = None,
    ) -> Any:
        """Draw the rows of a request; returns them as a table, or writes them."""
        n, conditions, shares = request.n, request.conditions, request.shares
        key, sampler = self._sample_key(random_state), self._sampler()
        fixed = [*conditions, *given_values(shares)]
        groups = [group for column in shares for group in column.conditions]
        completion = sampler.completion(fixed, groups)
        if completion is not None:
            for rows in self._existing_rows:
                completion.use_columns(Table(self.rules_.forms.read(rows)).columns_by_name())
        if shares:
            drawn = draw_shares(sampler, n, shares, conditions, key, max_tries, completion)
        else:
            drawn = sampler.draw(n, conditions, key, max_tries, completion)
        values, codes, n_tried = drawn
        is_short, table = len(codes) < n, None
        if writer is not None and not (is_short and on_shortfall == "error"):
            writer.write_all(values, codes, fixed)
        else:
            table = self.rules_.forms.write(self.rules_.decode(values, codes, fixed))
        if is_short:
            columns = [c.column for c in conditions] + [c.column for c in shares]
            requirements = f"the conditions {columns}{' and the constraints' if completion else ''}"
            report_shortfall(
                f"only {len(codes)} of {n_tried} rows met {requirements}, {n} were asked for",
                completion,
                f"ask for fewer, relax the conditions, or raise {max_tries=}"
                f"{self._advice_on_rare_rows()}",
                table,
                on_shortfall,
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
        """Draw a row for each row of conditions; see `read_each` for ``nearest``."""
        conditions = as_pandas(conditions)
        if not isinstance(conditions, pd.DataFrame):
            name = "seed_data" if nearest else "conditions"
            raise ValueError(f"{name} must be a DataFrame, got {type(conditions).__name__}")
        rules = self.rules_
        rules.refuse_unknown(list(conditions))
        conditions = rules.forms.read(conditions)
        patterns, which, unsampled = read_each(self.encoder_, conditions, nearest)
        key, sampler = self._sample_key(random_state), self._sampler()
        written, has_identifiers = dict(unsampled), False
        for name, cells in unsampled.items():
            coder = rules.coders[name]
            if coder.is_identifier:
                column = cells.astype(object).reindex(range(len(conditions)))
                new = coder.make_for_missing(column)  # for rows without one
                written[name] = put_cells(column, column.isna().to_numpy(), new)
                has_identifiers = True
        if rules:
            parts = [Table(conditions).columns_by_name()]
            refuse_broken(rules.constraints, rules.names, parts, "conditions", partial=True)
            rules.refuse_more_each(conditions)
            patterns = rules.restrict_each(patterns)

        def draw(rows: np.ndarray, draw_key: int, attempt: int) -> DrawnRows:
            return sampler.draw_each(patterns, which[rows], draw_key, max_tries)

        def decode(rows: np.ndarray, drawn: DrawnRows) -> Any:
            table = self.encoder_.decode(drawn.values, drawn.codes)
            write_each(table, patterns, which[rows])
            return write_others(table, written, rows) if written else table

        def finish(rows: np.ndarray, drawn: DrawnRows) -> tuple[Columns, np.ndarray]:
            return rules.complete_each(decode(rows, drawn), conditions, rows), drawn.codes

        drawn = draw(np.arange(len(which)), key, 0)
        completion = sampler.completion(compares_identifiers=has_identifiers)
        if completion is not None:
            rows = np.flatnonzero(~drawn.missed)
            reserved = np.zeros((len(which), completion.n_unique), dtype=bool)
            if completion.n_unique and len(rows):
                fixed = {name: cells.notna().to_numpy()[rows] for name, cells in conditions.items()}
                reserved[rows] = completion.reserve(finish(rows, drawn[rows])[0], fixed)
            drawn = completion.complete(drawn, draw, finish, key, max_tries, reserved)
        rows = np.flatnonzero(~drawn.missed)
        table = decode(rows, drawn[rows])
        if rules:
            table = rules.put(table, rules.complete_each(table, conditions, rows))
        if unsampled:
            warn_of_others(unsampled)
        table = rules.forms.write(table)
        if isinstance(table, pd.DataFrame):
            table = table.set_index(conditions.index[rows])
        if drawn.missed.any():
            first = conditions.iloc[int(drawn.missed.argmax())].dropna().to_dict()
            n_missed = int(drawn.missed.sum())
            report_shortfall(
                f"{n_missed} of {len(which)} rows of conditions could not be met, the first "
                f"{first}",
                completion,
                f"relax these conditions, or raise {max_tries=}{self._advice_on_rare_rows()}",
                table,
                on_shortfall,
            )
        return table

    def _sample_key(self, random_state: Any) -> int:
        """The key of the next draw; without a random state, that of the fit's own numbers."""
        if random_state is not None:
            return fold_in(seed_from(random_state), Stream.SAMPLE)
        self._n_sampled += 1
        return fold_in(self._seed, Stream.SAMPLE, self._n_sampled - 1)

    def _sampler(self) -> Sampler[NetworkT]:
        """Return the sampler of the learned network; it is cached for a device."""
        guard_forks()
        device = self._find_device()
        cached = self._cached_sampler
        if cached is None or cached[0] is not self._states or cached[1] != device:
            cached = self._cached_sampler = (self._states, device, self._make_sampler(device))
        return cached[2]

    def _stream_rows(self, writer: RowWriter, n: int, random_state: Any = None) -> None:
        """Write the n rows that ``sample`` draws without conditions, part by part."""
        writer.write_stream(self._sampler().stream(n, self._sample_key(random_state)))

    @property
    def _rules(self) -> dict[str, Any]:
        """The learned parts of the constraints, for a file."""
        return self.rules_.to_dict()

    def __getstate__(self) -> dict[str, Any]:
        parent_state: Any = super().__getstate__()
        state = dict(parent_state)
        state.pop("_cached_sampler", None)  # a copy makes its own
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
        return table_tags(super().__sklearn_tags__())  # type: ignore[misc]


def start_sampling(model: Sampling[NetworkT]) -> tuple[Sampler[NetworkT], int]:
    """The sampler of a fitted generator, and the key of its next draw."""
    return model._sampler(), model._sample_key(None)
