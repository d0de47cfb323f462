"""The base of all generators: fitting a table, sampling rows, files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils.validation import check_is_fitted

from combutab._model_files import Loadable, Saved, check_layers, check_state, decode, encode
from combutab.core.device import Precision, resolve_device
from combutab.core.fields import check_fields, choice, whole
from combutab.core.html import FittedHTML
from combutab.core.rng import seed_from
from combutab.core.tasks import CallbackSupport, fit_task
from combutab.generators._contract import check_tries, fit_generators
from combutab.generators._imputing import Imputing
from combutab.generators._parquet import ParquetSource
from combutab.generators._records import ENDS, NetworkT, fall_short, make_spans
from combutab.generators._resampling import Resampling
from combutab.generators.conditions import (
    read_conditions,
    read_each,
    write_each,
    write_others,
    write_points,
)
from combutab.generators.sampling import FREE, RowWriter, draw_balanced
from combutab.preprocessing import Paths, parquet_parts

# ---- A fitted generator as a file, and back ------------------------------------------------------

_FITTED = {
    "n_iter_": whole(),
    "n_features_in_": whole(1),
    "_seed": whole(0, 2**64),
    "_n_sampled": whole(0, 2**62),
    "_n_rows": whole(),
    "_ended": choice(*ENDS),
}


# ---- The base of all generators: fitting a table, sampling rows, and conditions on them ----------


class BaseGenerator(
    FittedHTML,
    CallbackSupport,
    BaseEstimator,
    Imputing[NetworkT],
    Resampling[NetworkT],
    Loadable,
):
    """A `Generator` that fits and samples as an estimator of scikit-learn."""

    # ---- fit ---------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        discrete_columns: Any = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn the distribution of a table.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
            Columns may be of numbers, text, categories, truth values, dates or durations, with
            missing values.
        y : list, optional
            ``discrete_columns``, in the ``ctgan`` package's way. A target, an array or Series as
            long as the table, is ignored.
        discrete_columns : "auto" or list, default="auto"
            Names (positions for an array) of the discrete columns; "auto" takes all that are not of
            numbers or dates.
        checkpoint : path, optional
            A file that the training is written to every half minute and at its end, also by
            Ctrl-C. If it is there, training goes on where it stood, to the same result as in one
            go; with more ``epochs``, it goes on for these. It holds the parameters, the weights of
            all networks with the optimisers' moments, the losses, and a SHA-256 of the encoded
            table; no values.

        Warns
        -----
        UserWarning
            Of columns of identifiers; of columns of which more than a tenth of the rows have values
            that fewer rows than ``min_frequency`` have; and of columns whose values are kept though
            most of them are there once.

        Returns
        -------
        self
            After Ctrl-C, with a warning, the model that its last whole epoch left.

        Raises
        ------
        ValueError
            If a parameter or the table cannot be used (it has fewer rows than ``min_frequency``,
            say, or a discrete column without a value that as many rows have), or training diverged.
        KeyboardInterrupt
            If Ctrl-C came before an epoch was done; the model is not fitted then.

        Notes
        -----
        Processes of ``torchrun`` share a fit as those of ``MLPClassifier`` do: the members or else,
        of TVAE and TabFlow without batch normalisation, the rows of each batch. CTGAN's steps
        are of whole batches: it takes ``n_members`` of at least as many as there are processes.
        All end with the same model, bit for bit; it differs from that of one process by the
        rounding of sums, which training amplifies.
        """
        self._check()
        columns = _discrete_columns(X, y, discrete_columns)
        fit_generators([self], X, columns, checkpoint, partial(fit_task, self, X))
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_parquet(
        self,
        path: Paths,
        *,
        columns: Sequence[str] | None = None,
        discrete_columns: Any = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        memory_limit: int | str = "1GB",
        filesystem: Any = None,
    ) -> Self:
        """Learn the distribution of a table in Parquet files, which memory need not hold.

        It learns what `fit` learns of the DataFrame that pandas reads, to the same rows, whatever
        the limit is. Columns are learned one after another, each read whole: some 50 bytes a row,
        and 200 for each distinct text. Then rows are encoded part by part, to eight bytes a number
        and four a discrete value, in memory or in a temporary file; training takes some 20 bytes a
        row and member beside them, and CTGAN 50 a row and eight a discrete value more.

        Parameters
        ----------
        path : path, or sequence of paths
            A Parquet file, a folder (all ``*.parquet`` in it and in its folders; those that are
            named ``column=value`` are columns too), a pattern (``"sales/2024-*.parquet"``), a URI
            (``"s3://bucket/folder"``), or several of these. All files have the same columns.
        columns : sequence of str, optional
            Those to learn; by default all.
        discrete_columns, checkpoint
            As in `fit`.
        memory_limit : int or str, default="1GB"
            Memory that the fit may take beside what the process has already: bytes, or text such
            as ``"500MB"`` or ``"2GiB"``. Encoded rows that do not fit in it are kept in a temporary
            file; what the system keeps of that file in memory, while there is room, does not
            count, nor does the memory of a GPU, which holds all encoded rows.
        filesystem : FileSystem of pyarrow or fsspec, optional
            What the paths are on, where a URI does not say it.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            Without pyarrow (``pip install 'combutab[parquet]'``).
        FileNotFoundError
            If there is no such file, or none in the folder or of the pattern.
        ValueError
            As `fit` does; if a file cannot be read or has other columns than the first: it names
            the file; and if the limit is too small for a column, or for the training: it says how
            much is needed.
        OSError
            If the temporary file finds no room.
        KeyboardInterrupt
            As `fit` does.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np, pandas as pd
        >>> from combutab import TVAE
        >>> X = pd.DataFrame({"x": np.arange(200.0), "kind": ["a", "b"] * 100})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     X.to_parquet(f"{folder}/table.parquet", row_group_size=50)
        ...     model = TVAE(epochs=1, random_state=0).fit_parquet(folder)
        >>> model.sample(3).shape
        (3, 2)
        """
        self._check()
        source = ParquetSource(path, columns, memory_limit, filesystem)
        fit_generators([self], source, discrete_columns, checkpoint, partial(fit_task, self))
        return self

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
        random_state: Any = None,
        on_shortfall: str = "error",
        max_tries: int = 100,
        out: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Draw rows from the learned distribution.

        Parameters
        ----------
        n : int, optional
            Rows; those of ``seed_data`` where that is given.
        condition_column, condition_value
            One condition, in the ``ctgan`` package's way; a mapping as the second argument is taken
            for ``conditions``.
        conditions : mapping, optional
            Column -> value, or list of values any of which will do; or ``(low, high)`` for
            continuous columns, None for an open end; None for a missing value. All rows meet them.
            A value of a continuous column is written into the rows whose own values are nearest to
            it: those that have it, or one row in a hundred where fewer have it. Of a list of such
            values each is as frequent as the numbers around it (those of its bin or mode) are, not
            as the value itself. Where only some numbers of a column are rounded, rows that meet a
            range which holds no rounded number have others.
        seed_data : DataFrame, optional
            Some columns of rows whose others are drawn: as ``sample_from`` does, but that all
            values are kept, with a warning: beside a number that rows are never made with (a
            single row's extreme, say) the others are drawn as beside the nearest, beside such a
            category as if it were not given.
        balance : column, optional
            Of a discrete column: each of its values gets as many rows, the missing one too, and
            the first ones one more where n is no multiple. Rare values have none.
        random_state : int, RandomState, Generator or None
            None goes on with the fit's own random numbers, so that the same calls after the same
            fit give the same rows.
        on_shortfall : {"error", "return"}, default="error"
            What to do with fewer than n rows that meet the conditions: raise an error that has
            them, or return them with a warning.
        max_tries : int, default=100
            Rows made, of which those that meet the conditions are kept: about so many times n at
            most, or times 5,000 where n is less.
        out : path, optional
            A Parquet file, or a URI such as ``"s3://bucket/rows.parquet"``, that the rows are
            written to part by part, the same rows as without it: n rows take the memory of some
            65,000. With conditions or ``balance`` they are all drawn before they are decoded, and
            take four bytes a number and eight a category or mode until then. The file is at its
            place once it is whole: after an error or Ctrl-C nothing is left.

        Returns
        -------
        DataFrame with the columns and dtypes of the fitted table, or an array if that was one;
        None with ``out``. A categorical dtype has the categories that ``min_frequency`` rows have:
        unused ones too would tell that those it lacks are rare. With ``min_frequency=1`` it has
        all.

        Raises
        ------
        ValueError
            If a condition cannot be met (there is no such column or value), or rows cannot be
            balanced by the column.
        ShortfallError
            If rows that meet the conditions are too rare; a ValueError, whose ``rows`` are those
            that were found.
        OSError
            If ``out`` cannot be written: no such folder, a read-only one, a full disk.
        """
        check_is_fitted(self)
        check_tries(on_shortfall, max_tries)
        if seed_data is not None:
            others = (condition_column, condition_value, conditions, balance, out)
            self._check_seeded(n, seed_data, others)
            return self._sample_each(seed_data, random_state, on_shortfall, max_tries, nearest=True)
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 0:
            instead = "; give it, or seed_data" if n is None else ""
            raise ValueError(f"n must be a whole number of rows, got {n!r}{instead}")
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
        wanted = read_conditions(self.encoder_, {} if conditions is None else conditions)
        n = int(n)
        with nullcontext() if out is None else parquet_parts(out) as file:
            writer, table = None if file is None else RowWriter(self.encoder_, file), None
            if writer is not None and not wanted and balance is None:
                return self.stream_rows(writer, n, random_state)
            key = self.sample_key(random_state)
            sampler, asked = self.sampler(), [each.column for each in wanted]
            if balance is None:
                values, codes, n_made = sampler.draw(n, wanted, key, max_tries)
            else:
                asked.append(balance)
                drawn = draw_balanced(sampler, n, balance, wanted, key, max_tries)
                values, codes, n_made = drawn
            lacking = len(codes) < n
            if writer is not None and not (lacking and on_shortfall == "error"):
                writer.write_all(values, codes, wanted)
            else:
                table = self.encoder_.decode(values, codes)
                write_points(table, wanted)
            if lacking:
                fall_short(
                    f"only {len(codes)} of {n_made} rows met the conditions {asked}, {n} were "
                    "asked for",
                    table,
                    on_shortfall,
                    f"; ask for fewer, relax the conditions, or raise {max_tries=}"
                    f"{self._of_rare_rows()}",
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
        """Draw one row for each row of conditions.

        Parameters
        ----------
        conditions : DataFrame of pandas or polars
            Columns are columns of the fitted table, with values as ``sample`` takes them; a missing
            value leaves one free.
        random_state, on_shortfall, max_tries
            As of ``sample``.

        Returns
        -------
        DataFrame with the order and index of ``conditions``; an array if the fitted table was one.
        Rows that were not found are not in it.

        Raises
        ------
        ValueError, ShortfallError
            As ``sample`` does.
        """
        check_is_fitted(self)
        check_tries(on_shortfall, max_tries)
        return self._sample_each(conditions, random_state, on_shortfall, max_tries, nearest=False)

    def _sample_each(
        self, conditions: Any, random_state: Any, on_shortfall: str, max_tries: int, nearest: bool
    ) -> Any:
        """Draw a row for each of conditions; see `read_each` for ``nearest``."""
        if hasattr(conditions, "to_pandas"):  # of polars
            conditions = conditions.to_pandas()
        if not isinstance(conditions, pd.DataFrame):
            name = "seed_data" if nearest else "conditions"
            raise ValueError(f"{name} must be a DataFrame, got {type(conditions).__name__}")
        patterns, which, others = read_each(self.encoder_, conditions, nearest)
        key = self.sample_key(random_state)
        values, codes, missed = self.sampler().draw_each(patterns, which, key, max_tries)
        table = self.encoder_.decode(values[~missed], codes[~missed])
        write_each(table, patterns, which[~missed])
        if others:
            table = write_others(table, others, np.flatnonzero(~missed))
        if isinstance(table, pd.DataFrame):
            table = table.set_index(conditions.index[~missed])
        if missed.any():
            first = conditions.iloc[int(missed.argmax())].dropna().to_dict()
            fall_short(
                f"{missed.sum()} of {len(missed)} rows of conditions could not be met, the first "
                f"{first}",
                table,
                on_shortfall,
                f"; relax these conditions, or raise {max_tries=}{self._of_rare_rows()}",
            )
        return table

    def _check_seeded(self, n: Any, seed_data: Any, others: tuple[Any, ...]) -> None:
        """Check that rows asked for by seed_data are not asked for in another way too."""
        n_rows = len(seed_data) if hasattr(seed_data, "__len__") else n
        if n is not None and n != n_rows:
            raise ValueError(f"{n=} does not fit seed_data, which has {n_rows} rows; leave n out")
        if any(each is not None for each in others):
            raise ValueError(
                "seed_data is given with conditions, balance or out; put what the former ask for "
                "into columns of seed_data, and write what is returned"
            )

    def set_random_state(self, random_state: Any) -> None:
        """Set what the next call of ``sample`` without a random state begins with.

        Before ``fit`` it sets the parameter ``random_state``, as in the ``ctgan`` package.
        """
        if not self.__sklearn_is_fitted__():
            self.random_state = random_state
            return
        self._seed, self._n_sampled = seed_from(random_state), 0

    def set_device(self, device: str | torch.device) -> None:
        """Set the parameter ``device``: where the next call of ``sample`` or ``fit`` computes."""
        resolve_device(device)
        self.device = device

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_made_sampler", None)  # a copy makes its own
        return state

    # ---- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted generator to one file (safetensors with JSON in its header).

        The file holds no row of the table, and no value that fewer rows than ``min_frequency``
        have: it holds the parameters; the number of rows; names and dtypes of the columns; of
        discrete columns the values that as many rows have, with their counts, and how many rows
        have other ones; of continuous ones the modes or bins (shares, means and standard
        deviations, each of as many rows), decimals, which share of the numbers is written how
        finely, and bounds that as many rows share or others further out; of identifiers where new
        ones begin; the losses by epoch, and weights, which have learned from all rows. It loads on
        any device. A failure leaves no half-written file.

        Raises
        ------
        ValueError
            If a parameter cannot be written without code (a custom activation, say).
        """
        super().save(path)

    def _to_save(self) -> tuple[Iterable[str], dict[str, Any]]:
        return _FITTED, {"shape": encode(dataclasses.asdict(self._shape), "shape")}

    def _restore(self, saved: Saved) -> None:
        """Take over what a file has, once its parts are known to belong together."""
        check_fields(saved.fitted, _FITTED, "what was fitted")
        for name, value in saved.fitted.items():
            setattr(self, name, value)
        self._shape = shape = self._make_shape().read(decode(saved.header["shape"]))
        # it may be empty
        self.history_ = saved.history.astype({"member": np.int64, "epoch": np.int64})
        if shape.n_members != saved.header["n_members"]:
            raise ValueError(
                f"its header asks for {shape.n_members} networks, and for "
                f"{saved.header['n_members']}"
            )
        arrays, self._states = saved.arrays()
        self.encoder_ = encoder = self._encoder_class.from_state(arrays, saved.header["encoder"])
        if self.n_features_in_ != encoder.n_features_in_:
            raise ValueError(
                f"n_features_in_ is {self.n_features_in_}, its encoder has {encoder.n_features_in_}"
            )
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_
        # before networks are made, which a header may want of any size
        spans = make_spans(encoder.layout_, torch.device("cpu"), Precision(shape.precision))
        if spans.n_spans:
            layers = shape.linear_shapes(spans)
            for state in self._states:
                check_layers(state, layers)
        elif any(self._states):
            raise ValueError("it has weights, but no column that is not constant")
        sampler = self.sampler()
        if sampler.network is not None:
            for i, state in enumerate(self._states):
                check_state(state, sampler.network.member_state(i))
        free = np.full(1, FREE)
        encoder.decode(*sampler.generate(1, free, free, 0))

    # ---- about it ------------------------------------------------------------------------------

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters, and of a fitted generator in a comment what it has learned from."""
        made = super().__repr__(N_CHAR_MAX)
        return (
            f"{made}  # fitted: {self._table()}, {self._trained()}"
            if self.__sklearn_is_fitted__()
            else made
        )

    def _fit_facts(self) -> dict[str, str]:
        networks = f"{len(self._states)}"
        return {"networks": networks, "learned from": self._table(), "trained": self._trained()}

    @property
    def loss_values(self) -> pd.DataFrame:
        """The losses of the first member, as the ``ctgan`` package has them: epochs from 0."""
        check_is_fitted(self)
        first = self.history_[self.history_["member"] == 0]
        losses = first[[n for n in first if not str(n).startswith(("member", "validation"))]]
        losses = losses.assign(epoch=losses["epoch"] - 1)
        return losses.rename(columns=lambda name: name.replace("_", " ").title()).reset_index(
            drop=True
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _discrete_columns(X: Any, y: Any, discrete_columns: Any) -> Any:
    """The discrete columns of ``fit(X, y, discrete_columns=...)``."""
    given = not (isinstance(discrete_columns, str) and discrete_columns == "auto")
    if y is None or _is_target(X, y):
        return discrete_columns
    if given:
        raise ValueError(
            f"the discrete columns are given twice: {y!r} and discrete_columns={discrete_columns!r}"
        )
    return y


def _is_target(X: Any, y: Any) -> bool:
    """An array or Series as long as the table, of anything but names of its columns."""
    if not hasattr(y, "__array__") or isinstance(y, pd.Index):
        return False
    values = np.asarray(y)
    if values.ndim != 1 or not hasattr(X, "__len__") or len(values) != len(X):
        return values.ndim != 1
    names = {name for name in getattr(X, "columns", ()) if isinstance(name, str)}
    return not (len(names) and set(values.tolist()) <= names)
