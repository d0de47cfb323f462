"""The base of all generators: parameters, hooks, fit, sample and files."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.utils._param_validation import (
    Interval,
    RealNotInt,
    StrOptions,
)
from sklearn.utils.validation import _num_samples, check_is_fitted

from combutab._model_files import (
    Checkpoint,
    Loadable,
    Saved,
    check_layers,
    check_state,
    loadable_classes,
    model_header,
)
from combutab.core.device import (
    PRECISIONS,
    Precision,
    guard_forks,
    max_threads,
    resolve_device,
)
from combutab.core.files import check_parameters, choice, kind, whole
from combutab.core.html import FittedHTML
from combutab.core.memory import available_memory
from combutab.core.parameters import (
    COUNT,
    INFINITE,
    POSITIVE,
    RANDOM_STATE,
    DeclaredParameters,
    parameter,
)
from combutab.core.rng import Stream, fold_in, random_permutations, seed_from
from combutab.core.state import unpack
from combutab.core.tasks import (
    CallbackSupport,
    CallbackTask,
    check_callbacks,
    fit_task,
    has_callbacks,
)
from combutab.core.text import parse_seconds
from combutab.core.world import Ranks, broadcast, current, plain_parameters, sharing
from combutab.generators._imputing import Imputing
from combutab.generators._learned_columns import SEARCHED_ROWS, LearnedColumns, TableForms, row_step
from combutab.generators._parquet import ParquetSource
from combutab.generators._resampling import Resampling
from combutab.generators._rules import Rules
from combutab.generators._sampling import Sampling
from combutab.generators._training import (
    ENDS,
    MAX_ROWS,
    GeneratorPlan,
    GeneratorResult,
    GeneratorStack,
    Rates,
    TableRows,
    Training,
    check_rows_shared,
    make_spans,
    share,
)
from combutab.generators.constraints import CONSTRAINTS, Constraint, Coordinates, refuse_broken
from combutab.generators.sampling import (
    FREE,
    NetworkT,
    RowRequest,
    Sampler,
    Samples,
)
from combutab.nn import (
    NORMALIZATIONS,
    ActivationSpec,
    Member,
    RowSpans,
    check_activation,
    check_proxy_norm,
)
from combutab.preprocessing import (
    ColumnForm,
    ModeEncoder,
    Paths,
    Table,
    as_numpy,
    as_pandas,
    find_forms,
    rows_needed,
)
from combutab.training import Callback, FitTasks, ProgressBar, train, uninterrupted

# ---- The parameters that generators share, and what each may be ----------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class SharedParameters(DeclaredParameters):
    """The parameters that all generators have, keyword-only.

    Members of one stack may differ in their activation and in parameters that concern their rates.
    Parameters that concern the run may differ when a training continues from a checkpoint.
    """

    activation: ActivationSpec = parameter("combu", str, callable)
    normalization: str = parameter("none", StrOptions(set(NORMALIZATIONS)))
    proxy_norm: bool = parameter(False, "boolean")
    early_stopping: Any = parameter(False, "boolean")
    validation_fraction: float = parameter(0.1, Interval(Real, 0, 1, closed="neither"))
    n_iter_no_change: float = parameter(50, COUNT, INFINITE)
    max_time: float | str | None = parameter(None, None, str, POSITIVE, concerns="run")
    n_members: int = parameter(1, COUNT)
    min_frequency: float = parameter(5, COUNT, Interval(RealNotInt, 0, 1, closed="neither"))
    identifiers: Any = parameter("auto", list, tuple, StrOptions({"auto"}), None)
    fake: dict[Any, str] | None = parameter(None, dict, None)
    constraints: Sequence[Constraint] | None = parameter(None, list, tuple, None)
    random_state: Any = parameter(None, *RANDOM_STATE)
    device: str | torch.device = parameter("auto", str, torch.device)
    precision: str = parameter("float32", StrOptions(set(PRECISIONS)))
    callbacks: Any = parameter(None, list, tuple, None)


def check_constraints(constraints: Sequence[Constraint] | None) -> None:
    """Refuse objects that are not constraints."""
    for constraint in constraints or ():
        if not isinstance(constraint, Constraint):
            raise ValueError(
                f"constraints must be {', '.join(CONSTRAINTS)} objects of combutab.generators, "
                f"got {constraint!r}; read_constraints reads a file"
            )


# ---- The base of all generators -----------------------------------------------------------------


class DivergedError(ValueError):
    """A loss became infinite or not a number."""


@dataclass(frozen=True)
class TrainingTable:
    """An encoded table, and all that a training of it follows from.

    If all columns are constant there are no rows to train on.
    """

    seed: int
    encoder: ModeEncoder
    rules: Rules
    spans: RowSpans
    n_rows: int
    rows: TableRows | None = None
    held_out: TableRows | None = None  # for early stopping


@contextmanager
def _shared_fit(models: Sequence[BaseGenerator[Any]]) -> Iterator[None]:
    """Begin a fit of models, which ranks may share; a fit that fails leaves them unfitted."""
    guard_forks()
    for model in models:
        model.__dict__.pop("_states", None)
    with sharing(lambda: f"{type(models[0]).__name__} {[*map(plain_parameters, models)]}"):
        yield


_FITTED = {
    "n_iter_": whole(),
    "n_features_in_": whole(1),
    "_seed": whole(0, 2**64),
    "_n_sampled": whole(0, 2**62),
    "_n_rows": whole(),
    "_ended": choice(*ENDS),
    "_rules": kind(dict),
}
# For each member: of the weights (gradients, moments, scratch, the best and the last ones), of a
# batch's activations (forward, backward and masks), and of a row at both ends of its networks.
NETWORK_COPIES, _STEP_COPIES, _ROW_COPIES = 10, 6, 4
_LEAST_COPIES = 5  # the weights, their gradients, two moments of Adam's, and the best weights
_ORDER_BYTES = 24  # a row and member: places, sorted


class BaseGenerator(
    FittedHTML,
    Sampling[NetworkT],
    CallbackSupport,
    BaseEstimator,
    SharedParameters,
    Imputing,
    Resampling,
    Loadable,
    Generic[NetworkT],
):
    """A generator of tables, whose rows a network of the given class makes.

    A subclass declares the parameters below, defines the abstract methods, and is registered by
    `loadable`.
    """

    # positional parameters, whose order differs between the classes
    batch_size: Any
    epochs: Any
    verbose: bool
    enable_gpu: bool

    # what fit leaves
    n_iter_: int
    _as_fitted: Self  # unfitted, with the parameters as they were: those of the network's shape
    _n_rows: int  # of the table
    _ended: str = "epochs"

    _sampler_class: ClassVar[type[Sampler[Any]]] = Sampler
    _conditional: ClassVar[bool] = False  # the network takes a category for each row
    _learns_repetitions: ClassVar[bool] = False  # see `find_repetitions`
    _needs_second_derivative: ClassVar[bool] = False  # of activations, in training
    _advice_on_many_categories: ClassVar[str] = ""  # what else can be done about them

    # ---- hooks -------------------------------------------------------------------------------

    def _all_widths(self) -> list[tuple[int, ...]]:
        """The hidden widths of each network."""
        all_widths = []
        for name in self._parameters_of("width"):
            widths = list(getattr(self, name))
            if any(not isinstance(w, Integral) or isinstance(w, bool) or w < 1 for w in widths):
                raise ValueError(
                    f"{name} must hold whole numbers of at least 1, got {getattr(self, name)!r}"
                )
            all_widths.append(tuple(map(int, widths)))
        return all_widths

    @abstractmethod
    def _rates(self) -> dict[str, Rates]:
        """Return the rates of each network that has an optimiser; callbacks get the first."""

    @abstractmethod
    def _linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, int]]:
        """The shapes of a member's weights by name, for the network that makes rows."""

    @abstractmethod
    def _build(self, spans: RowSpans, members: Sequence[Member]) -> NetworkT:
        """Build the network that makes rows; its weights are set afterwards."""

    @abstractmethod
    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> Training[NetworkT]:
        """Build the training of all networks."""

    @abstractmethod
    def _draw(self, network: NetworkT, spans: RowSpans, request: RowRequest) -> Samples:
        """Draw rows with allowed codes by the network."""

    def _n_epochs(self, n_rows: int) -> int:
        """The largest number of epochs of a training on this number of rows."""
        return int(self.epochs)

    def _n_batch(self, n_rows: int) -> int:
        """The batch size for a table of this number of rows."""
        return int(min(self.batch_size, n_rows))

    def _patience(self, n_rows: int) -> float:
        """Number of epochs without improvement after which a training stops."""
        return self.n_iter_no_change

    def _stops_early(self, n_rows: int) -> bool:
        """Whether rows of a table of this size are held out for early stopping."""
        return bool(self.early_stopping)

    def _n_weights(self, spans: RowSpans) -> int:
        """Count the weights of all networks of a member, about."""
        return sum(map(math.prod, self._linear_shapes(spans).values()))

    def _training_bytes(
        self, spans: RowSpans, n_rows: int, n_members: int, n_copies: int = NETWORK_COPIES
    ) -> int:
        """Estimate the memory that training takes in addition to the encoded rows.

        ``n_copies`` is how often the weights are held.
        """
        size, stops = spans.dtype.itemsize, self._stops_early(n_rows)
        n = max(self._n_batch(n_rows), MAX_ROWS if stops else 0)
        units = sum(map(sum, self._all_widths())) + _ROW_COPIES * spans.width
        of_member = size * (n_copies * self._n_weights(spans) + _STEP_COPIES * n * units)
        # the order of the rows, and which of them are held out
        rows = _ORDER_BYTES * (n_members + stops)
        if size > 4:  # a copy of the values
            rows += size * spans.n_values
        return n_members * of_member + n_rows * rows

    def _make_encoder(self, discrete_columns: Any, random_state: int) -> ModeEncoder:
        """Make the unfitted encoder of the table."""
        return ModeEncoder(
            discrete_columns=discrete_columns,
            min_frequency=self.min_frequency,
            identifiers=self.identifiers,
            fake=self.fake,
            random_state=random_state,
            n_jobs=max_threads(),
        )

    def _fit_encoder(self, encoder: ModeEncoder, X: Any) -> ModeEncoder:
        """Learn the columns of a table."""
        return X.fit(encoder) if isinstance(X, ParquetSource) else encoder.fit(X)

    def _check(self) -> None:
        """Check what scikit-learn's validation cannot see, before any work on the data."""
        self._find_device()
        parse_seconds(self.max_time)
        widths = {width for widths in self._all_widths() for width in widths}
        for width in widths if self.activation != "original" else ():
            check_activation(
                self.activation,
                width,
                proxy_norm=self.proxy_norm,
                twice=self._needs_second_derivative,
            )
        check_proxy_norm(self.proxy_norm, self.normalization)
        check_constraints(self.constraints)
        check_callbacks(self.callbacks)

    def _find_device(self) -> torch.device:
        return resolve_device(self.device if self.enable_gpu else "cpu")

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
            Columns may hold numbers, text, categories, booleans, dates or durations, with
            missing values.
        y : list, optional
            ``discrete_columns``, in the ``ctgan`` package's way. A target, an array or Series as
            long as the table, is ignored.
        discrete_columns : "auto" or list, default="auto"
            Names (positions for an array) of the discrete columns; "auto" takes all that are not of
            numbers or dates.
        checkpoint : path, optional
            File to which the state of the training is written every half minute and at its end,
            also after Ctrl-C. If the file exists, the training continues from it, with the same
            result as without an interruption, and for more epochs if ``epochs`` is larger. It
            contains the parameters, the weights of all networks with the optimizers' moments, the
            losses, and a SHA-256 of the encoded table, but no values of the table.

        Warns
        -----
        UserWarning
            If a column contains identifiers, if more than a tenth of a column's rows have values
            that occur in fewer rows than ``min_frequency``, or if a column's values are kept
            although most of them occur once.

        Returns
        -------
        self
            The fitted generator. After Ctrl-C it is that of the last complete epoch, with a
            warning.

        Raises
        ------
        ValueError
            If a parameter or the table cannot be used (for example, fewer rows than
            ``min_frequency``, or a discrete column without a value that as many rows have), if rows
            violate a constraint, or if training diverged.
        KeyboardInterrupt
            If Ctrl-C was pressed before the first epoch was complete; the model is then not fitted.

        Notes
        -----
        Processes of ``torchrun`` share a fit as in ``MLPClassifier``. They divide the members
        between them, or, for TVAE and TabFlow without batch normalisation, the rows of each batch.
        CTGAN needs whole batches, and therefore ``n_members`` of at least the number of processes.
        All processes end with the same model, bit for bit. It differs from that of one process by
        the rounding of sums, which training amplifies.
        """
        self._check()
        return self._fit(X, _discrete_columns(X, y, discrete_columns), checkpoint, X)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_parquet(
        self,
        path: Paths,
        *,
        columns: str | Sequence[str] | None = None,
        discrete_columns: Any = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        memory_limit: int | str = "1GB",
        filesystem: Any = None,
    ) -> Self:
        """Learn the distribution of a table in Parquet files that may be larger than memory.

        The result, and the sampled rows, are those of `fit` on the DataFrame that pandas reads,
        independent of the memory limit. The columns are learned one after another. A column takes
        about 50 bytes per row, and 200 bytes per distinct text. Then the rows are encoded in parts,
        with 8 bytes per number and 4 bytes per discrete value, in memory or in a temporary file.
        Training takes about 20 bytes more per row and member. CTGAN needs another 50 bytes per row
        and 8 bytes per discrete value.

        Parameters
        ----------
        path : path, or sequence of paths
            A Parquet file, a folder (all ``*.parquet`` files in it and its subfolders; subfolders
            named ``column=value`` add this column), a pattern (``"sales/2024-*.parquet"``), a URI
            (``"s3://bucket/folder"``), or several of these. All files have the same columns.
        columns : str or sequence of str, optional
            Columns to learn; by default all.
        discrete_columns, checkpoint
            As in `fit`.
        memory_limit : int or str, default="1GB"
            Memory that the fit may use in addition to that of the process so far: bytes, or text
            such as ``"500MB"`` or ``"2GiB"``. If the encoded rows do not fit, they are stored in a
            temporary file. The system's cache of this file does not count. Neither does the memory
            of a GPU, which holds all encoded rows.
        filesystem : FileSystem of pyarrow or fsspec, optional
            File system of the paths, if it does not follow from a URI.

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If pyarrow is not installed (``pip install pyarrow``).
        FileNotFoundError
            If there is no such file, or no Parquet file in the folder or with the pattern.
        ValueError
            As in `fit`; if a file cannot be read or has other columns than the first (the message
            names it); or if the memory limit is too small (the message has the required memory).
        OSError
            If there is no space for the temporary file.
        KeyboardInterrupt
            As in `fit`.

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
        return self._fit(source, discrete_columns, checkpoint)

    # ---- the steps of a fit ------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        discrete_columns: Any,
        checkpoint: str | os.PathLike[str] | None,
        *callback_data: Any,
    ) -> Self:
        """Fit a checked model; callbacks of scikit-learn receive ``callback_data``."""
        with _shared_fit([self]):
            deadline = time.perf_counter() + parse_seconds(self.max_time)
            path = broadcast(checkpoint)
            file = None if path is None else Checkpoint(path, self, free=self._parameters_of("run"))
            seed = seed_from(self.random_state) if file is None else file.seed
            table = self._encode_table(X, discrete_columns, seed, self.n_members)
            n_epochs = 0 if table.rows is None else self._n_epochs(len(table.rows))
            with fit_task(self, *callback_data, n_parts=n_epochs) as task:
                results = self._train(table, self._plan_members(seed), deadline, file, task)
                self._set_fitted(table, results)
        return self

    def _encode_table(
        self, X: Any, discrete_columns: Any, seed: int, n_members: int
    ) -> TrainingTable:
        """Learn the encoder and the constraints of a table, and encode its rows."""
        X, forms = self._read_forms(as_numpy(X), discrete_columns)
        learned, X = self._plan_columns(X, discrete_columns)
        encoder = self._make_encoder(discrete_columns, fold_in(seed, Stream.ENCODER) >> 32)
        encoder = self._fit_encoder(encoder, X)
        rules = Rules(self.constraints or (), encoder, learned, forms)
        for message in encoder.describe_suppressed():
            warnings.warn(message, stacklevel=5)
        spans = make_spans(encoder.layout_, self._find_device(), Precision(self.precision))
        self._check_memory(encoder, spans, len(X), n_members)
        table = TrainingTable(seed, encoder, rules, spans, len(X))
        if not spans.width:  # all columns are constant: nothing to learn
            return table
        if isinstance(X, ParquetSource):
            encoded = X.encode(encoder, self._training_bytes(spans, len(X), n_members))
        else:
            encoded = encoder.encode(X)
        n_needed = rows_needed(self.min_frequency, len(X))
        if any(isinstance(constraint, Coordinates) for constraint in rules.constraints):
            spread = X.spread(SEARCHED_ROWS) if isinstance(X, ParquetSource) else None
            rules.learn_places(spread or Table(X).columns_by_name(), n_needed)
        for message in rules.learn_combinations(encoded.codes, n_needed):
            warnings.warn(message, stacklevel=5)
        rows = TableRows.on(spans.device, encoded, spans.dtype)
        rows, held_out = self._split_validation(rows, seed)
        return replace(table, rows=rows, held_out=held_out)

    def _read_forms(self, X: Any, discrete_columns: Any) -> tuple[Any, tuple[ColumnForm, ...]]:
        """A table with its dates, times and decimals as such, and the forms that it has them in.

        Columns that are listed as discrete or as identifiers, and those of constraints, stay as
        they are.
        """
        table = X if isinstance(X, ParquetSource) else as_pandas(X)
        if not isinstance(table, ParquetSource | pd.DataFrame):
            return X, ()
        excluded: list[Any] = []
        for names in (discrete_columns, self.identifiers, self.fake):
            excluded += names if isinstance(names, list | tuple | dict) else ()
        for constraint in self.constraints or ():
            excluded += constraint.find_columns(list(table))
        forms = find_forms(table, excluded)
        if not forms:
            return X, ()
        if isinstance(table, ParquetSource):
            return table.parse(forms), forms
        return TableForms(list(table), forms).read(table), forms

    def _plan_columns(self, X: Any, discrete_columns: Any) -> tuple[LearnedColumns | None, Any]:
        """Plan the columns that are learned in addition to those of a table, and add them to it.

        Raises ValueError if rows violate a constraint.
        """
        constraints, learns = self.constraints or (), self._learns_repetitions
        if not constraints and not learns:
            return None, X
        if isinstance(X, ParquetSource):
            rows = X.spread(SEARCHED_ROWS) if learns else None
            learned = LearnedColumns.plan(constraints, X.header(), discrete_columns, searched=rows)
            if constraints:
                X.refuse_broken(constraints)
            return learned, X.extend(learned)
        try:
            columns, X = Table(X).columns_by_name(), as_pandas(X)
        except ValueError:
            if constraints:
                raise
            return None, X  # the encoder's error is more helpful
        array_dtype = None if isinstance(X, pd.DataFrame) else np.asarray(X).dtype
        searched = None
        if learns:
            step = row_step(len(next(iter(columns.values()), ())), SEARCHED_ROWS)
            searched = {name: column.iloc[::step] for name, column in columns.items()}
        learned = LearnedColumns.plan(constraints, columns, discrete_columns, array_dtype, searched)
        if constraints:
            refuse_broken(constraints, learned.names, [columns], "the table")
        return learned, learned.extend(X)

    def _check_memory(
        self, encoder: ModeEncoder, spans: RowSpans, n_rows: int, n_members: int
    ) -> None:
        """Refuse a training that needs more memory than is available; the error has the cause."""
        needed = self._training_bytes(spans, n_rows, n_members, _LEAST_COPIES)
        if spans.device.type == "cuda":
            available: float = torch.cuda.get_device_properties(spans.device).total_memory
        else:
            available = available_memory()
        if needed <= available:
            return
        sizes = encoder.layout_.sizes  # in ascending order
        if spans.width and sizes[-1] >= spans.width / 2:
            name = encoder.schema_.label(encoder.layout_.spans[-1].column)
            cause, column = f"{name} has {sizes[-1]:,} categories", "the column"
        else:
            cause, column = f"the table has {spans.width:,} categories and bins", "columns"
        weights = n_members * self._n_weights(spans)
        raise ValueError(
            f"{cause}: the networks would have {weights:,} weights, and their training needs about "
            f"{needed / 2**30:,.1f} GiB of memory, of which {available / 2**30:,.1f} GiB are "
            f"available; leave {column} out, or raise min_frequency"
            f"{self._advice_on_many_categories}"
        )

    def _split_validation(self, rows: TableRows, seed: int) -> tuple[TableRows, TableRows | None]:
        """Split the rows into those to train on, and those for early stopping, if any."""
        if not self._stops_early(len(rows)):
            return rows, None
        n_held_out = min(MAX_ROWS, math.ceil(self.validation_fraction * len(rows)))
        if n_held_out < 2 or n_held_out >= len(rows):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} of {len(rows)} rows leaves "
                f"{len(rows) - n_held_out} training rows and {n_held_out} validation rows, and at "
                "least 1 and 2 are needed; change it, or set early_stopping=False"
            )
        order = random_permutations([fold_in(seed, Stream.HELD_OUT)], [len(rows)])[0]
        order = order.to(rows.codes.device)
        held_out = rows[order[:n_held_out]]
        return rows.keep(order[n_held_out:].sort().values), held_out

    def _stack_key(self) -> Any:
        """A key that is equal for the members of one stack; see `fit_stack`."""
        if not isinstance(self.random_state, Integral):
            return id(self)  # encoders would draw different numbers
        common = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.get_params(deep=False).items()
            if name not in ("activation", "n_members", *self._parameters_of("rate"))
        }
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # all of an array
            return f"{type(self)} {common}"

    def _plan_members(self, seed: int) -> list[GeneratorPlan]:
        """Plan the training of each member."""
        seeds = [fold_in(seed, Stream.MEMBER, i) for i in range(self.n_members)]
        return [GeneratorPlan(Member(s, self.activation), self._rates()) for s in seeds]

    def _train(
        self,
        table: TrainingTable,
        plans: Sequence[GeneratorPlan],
        deadline: float,
        file: Checkpoint | None = None,
        task: CallbackTask | None = None,
    ) -> list[GeneratorResult]:
        """Train a stack of members until a time of ``time.perf_counter`` at the latest."""
        rows = table.rows
        if rows is None:
            return [GeneratorResult({}) for _ in plans]
        callbacks: list[Callback] = list(self.callbacks or ())
        if self.verbose:
            callbacks.insert(0, ProgressBar(type(self).__name__, estimate=True))
        if task is not None and has_callbacks(self):
            callbacks.append(FitTasks(task))
        if file is not None:
            file.begin("", (rows.values, rows.codes))

        def train_members(plans: Sequence[GeneratorPlan]) -> list[GeneratorResult]:
            stack = self._make_stack(table, rows, plans, file)
            seconds = deadline - time.perf_counter()
            results = train(stack, self._n_epochs(len(rows)), callbacks, seconds)
            if file is not None and not stack.diverged.all():
                file.write()
            return results

        world = current()
        if not isinstance(world, Ranks):
            return train_members(plans)
        by_member = not callbacks and file is None
        return share(world, train_members, rows, plans, by_member=by_member)

    def _make_stack(
        self,
        table: TrainingTable,
        rows: TableRows,
        plans: Sequence[GeneratorPlan],
        file: Checkpoint | None,
    ) -> GeneratorStack:
        """Build the networks of members, and the measure for early stopping."""
        training = self._training(rows, table.spans, plans)
        if isinstance(current(), Ranks):
            check_rows_shared(training, type(self).__name__)
        measure = None
        if table.held_out is not None:
            keys = [fold_in(plan.member.seed, Stream.VALIDATION) for plan in plans]
            make_sampler = partial(
                self._build_sampler, table.encoder, training.sampled, table.spans, self.precision
            )
            measure = training.measure(table.held_out, make_sampler, keys)
        part = None if file is None else file.part()
        return GeneratorStack(training, measure, self._patience(len(rows)), part)

    def _set_fitted(self, table: TrainingTable, results: Sequence[GeneratorResult]) -> None:
        """Set the results of the members; raises DivergedError if one of them diverged."""
        if any(result.reason == "diverged" for result in results):
            raise DivergedError(
                f"training diverged with activation={self.activation!r}: a loss is not finite; "
                "lower the learning rates, or look for values of extreme size in the table"
            )
        curves = []
        for i, result in enumerate(results):
            curve: dict[str, Any] = {"member": i, "epoch": range(1, result.n_epochs + 1)}
            for name, losses in result.losses.items():
                is_full_name = name == "loss" or name.startswith("validation")
                curve[name if is_full_name else f"{name}_loss"] = losses
            curves.append(pd.DataFrame(curve))
        with uninterrupted():
            self._set_encoder(table.encoder, table.rules)
            self.history_ = pd.concat(curves, ignore_index=True)
            self.n_iter_, self._n_rows = results[0].n_epochs, table.n_rows
            params = {**self.get_params(deep=False), "callbacks": None, "random_state": None}
            self._as_fitted = clone(type(self)(**params))
            self._states = [{n: v.numpy() for n, v in result.state.items()} for result in results]
            self._seed, self._n_sampled = table.seed, 0
            # the members that early stopping did not end were the last
            self._ended = min((r.reason for r in results), key="no_improvement".__eq__)
        if self._ended == "interrupted":
            warnings.warn(
                f"Training interrupted by user after {self.n_iter_} epochs, which are kept.",
                stacklevel=5,
            )

    def _make_sampler(self, device: torch.device) -> Sampler[NetworkT]:
        fitted, network = self._as_fitted, None
        spans = make_spans(self.encoder_.layout_, device, Precision(fitted.precision))
        if spans.n_spans:  # else all columns are constant
            members = [Member(0, fitted.activation, drawn=False) for _ in self._states]
            network = fitted._build(spans, members)
            for i, state in enumerate(self._states):
                network.load_member(i, {name: torch.from_numpy(v) for name, v in state.items()})
            network.eval()
        sampler = self._build_sampler(self.encoder_, network, spans, fitted.precision)
        sampler.rules = self.rules_
        return sampler

    def _build_sampler(
        self, encoder: ModeEncoder, network: NetworkT | None, spans: RowSpans, precision: str
    ) -> Sampler[NetworkT]:
        draw, conditional = self._draw, self._conditional
        return self._sampler_class(encoder, network, spans, draw, precision, conditional)

    # ---- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted generator to one file (safetensors with JSON in its header).

        The file contains no row of the table, and no value that fewer rows than ``min_frequency``
        have. It contains:

        - the parameters, the number of rows, and the names and dtypes of the columns;
        - for discrete columns, the values that at least ``min_frequency`` rows have, with their
          counts, and the number of rows with other values;
        - for continuous columns, the modes or bins (shares, means and standard deviations, each of
          at least ``min_frequency`` rows), the numbers of decimals with their shares, and bounds
          that enough rows share or that lie further out;
        - for identifiers, the first new one, or the provider of realistic values;
        - the losses of each epoch, and the weights, which were trained on all rows.

        It can be loaded on any device. After an error there is no incomplete file.

        Raises
        ------
        ValueError
            If a parameter cannot be saved without code, such as a custom activation.
        """
        super().save(path)

    def _to_save(self) -> tuple[Iterable[str], dict[str, Any]]:
        return _FITTED, {"as_fitted": model_header(self._as_fitted)["params"]}

    def _restore(self, saved: Saved) -> None:
        """Set the content of a file, after a check that its parts belong together."""
        params = unpack(saved.header["as_fitted"])
        if params.keys() != model_header(self)["params"].keys():
            raise ValueError(f"it was fitted with the parameters {sorted(params)}"[:500])
        self._as_fitted = fitted = type(self)(**params)
        check_parameters(fitted)
        if fitted.n_members != saved.header["n_members"]:
            raise ValueError(
                f"its header asks for {fitted.n_members} networks, and for "
                f"{saved.header['n_members']}"
            )
        check_constraints(fitted.constraints)
        encoder = self._restore_fitted(saved, _FITTED, fitted.constraints)
        # before networks are made, which a header may want of any size
        spans = make_spans(encoder.layout_, torch.device("cpu"), Precision(fitted.precision))
        if any(self._states) and not spans.n_spans:
            raise ValueError("it has weights, but all its columns are constant")
        layers = fitted._linear_shapes(spans) if spans.n_spans else {}
        for state in self._states:
            check_layers(state, layers)
        sampler = self._sampler()
        if sampler.network is not None:
            for i, state in enumerate(self._states):
                check_state(state, sampler.network.member_state(i))
        free = np.full(1, FREE)
        encoder.decode(*sampler.generate(1, free, free, 0))

    # ---- about it ------------------------------------------------------------------------------

    def _table(self) -> str:
        """Describe the size of the fitted table."""
        columns = f"{self.n_features_in_:,} column{'s' * (self.n_features_in_ != 1)}"
        return f"{self._n_rows:,} rows x {columns}"

    def _trained(self) -> str:
        """Describe how many epochs were trained, and why training ended."""
        epochs = self.history_["member"].value_counts() if len(self.history_) else [0]
        smallest, largest = min(epochs), max(epochs)
        trained = f"{largest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
        return f"{trained} epoch{'s' * (largest != 1)}{ENDS[self._ended]}"

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters; for a fitted generator also the size of its table and its epochs."""
        parameters = super().__repr__(N_CHAR_MAX)
        if not self.__sklearn_is_fitted__():
            return parameters
        return f"{parameters}  # fitted: {self._table()}, {self._trained()}"

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


def _discrete_columns(X: Any, y: Any, discrete_columns: Any) -> Any:
    """The discrete columns of ``fit(X, y, discrete_columns=...)``, whose y may be a target."""
    if not isinstance(y, list | tuple | pd.Index):
        n_rows = None if y is None else _num_samples(X)
        if y is not None and (isinstance(y, str) or _num_samples(y) != n_rows):
            raise ValueError(
                f"y must be a list of discrete columns, or a target of {n_rows} rows, got {y!r}"
            )
        return discrete_columns
    if not (isinstance(discrete_columns, str) and discrete_columns == "auto"):
        raise ValueError(
            f"the discrete columns are given twice: {y!r} and discrete_columns={discrete_columns!r}"
        )
    return y


# ---- Fit generators to a table: those of equal shape as one stack -------------------------------


def find_generators() -> dict[str, Callable[..., Sampling[Any]]]:
    """Return all classes of generators by name, those whose files ``combutab.load`` reads.

    Examples
    --------
    >>> from combutab.generators import find_generators
    >>> find_generators()["TVAE"](epochs=5)
    TVAE(epochs=5)
    """
    return {cls.__name__: cls for cls in loadable_classes() if issubclass(cls, Sampling)}


G = TypeVar("G", bound=BaseGenerator[Any])


def fit_stack(models: Sequence[G], X: Any, discrete_columns: Any = "auto") -> list[G]:
    """Fit several generators on one table, together in stacks.

    Generators are in the same stack if they have the same class and the same ``random_state`` (an
    int), and differ only in the activation or the learning rates. The table is encoded once per
    stack. On a GPU, a stack is one batched program. On a CPU the members take turns, and it takes
    about as long as separate fits. Each result is that of its own ``fit``, up to the rounding of
    sums.

    Parameters
    ----------
    models : sequence of CTGAN, TVAE and other generators
        The generators to fit.
    X, discrete_columns
        As in ``fit``.

    Returns
    -------
    list
        The same models, fitted.

    Raises
    ------
    ValueError
        As in ``fit``. If some models diverged, the others are fitted.
    KeyboardInterrupt
        If Ctrl-C was pressed before the last stack. Models of later stacks are not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from combutab import TVAE
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> models = [TVAE(epochs=1, activation=a, random_state=0) for a in ("relu", "combu")]
    >>> [model.n_iter_ for model in fit_stack(models, X)]
    [1, 1]
    """
    models = list(models)
    if len({id(model) for model in models}) < len(models):
        raise ValueError("models holds the same object twice; use sklearn.base.clone")
    for model in models:
        if not isinstance(model, BaseGenerator):
            kinds = find_generators().items()
            names = " or ".join(n for n, cls in kinds if issubclass(cls, BaseGenerator))
            raise ValueError(f"models must be {names} objects, got {model!r}")
        check_parameters(model)
        model._check()
    stacks: dict[Any, list[G]] = {}
    for model in models:
        stacks.setdefault(model._stack_key(), []).append(model)
    errors: list[str] = []
    for stack in stacks.values():
        # members of one activation must be neighbours
        activations = [model.activation for model in stack]
        models_by_activation = sorted(stack, key=lambda m: activations.index(m.activation))
        first = stack[0]
        with _shared_fit(models_by_activation):
            deadline = time.perf_counter() + parse_seconds(first.max_time)
            seed = seed_from(first.random_state)
            n_members = sum(model.n_members for model in stack)
            table = first._encode_table(X, discrete_columns, seed, n_members)
            plans = [plan for m in models_by_activation for plan in m._plan_members(seed)]
            results = first._train(table, plans, deadline)
            is_interrupted = any(result.reason == "interrupted" for result in results)
            for model in models_by_activation:
                model_results, results = results[: model.n_members], results[model.n_members :]
                try:
                    model._set_fitted(table, model_results)
                except DivergedError as error:
                    errors.append(str(error))
        if is_interrupted and stack is not list(stacks.values())[-1]:
            raise KeyboardInterrupt
    if errors:
        raise DivergedError("; ".join(errors))
    return models
