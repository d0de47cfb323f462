"""TabFlow for the rows of child tables: columns of parents, and rows drawn given a context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from combutab.core.parameters import parameter
from combutab.core.rng import Stream, fold_in
from combutab.generators._base import TrainingTable
from combutab.generators._cells import Coder
from combutab.generators._tabflow import FlowTargets, FlowTraining, TabFlow
from combutab.generators._training import GeneratorPlan, TableRows
from combutab.generators.completion import ShortfallError
from combutab.generators.conditions import RANGES, all_met, read_conditions, write_points
from combutab.generators.sampling import FREE, DirectSampler
from combutab.nn import RowSpans
from combutab.preprocessing import (
    ColumnForm,
    IncompleteTable,
    ModeEncoder,
    Table,
    TableSchema,
    rows_needed,
)


@dataclass(eq=False, repr=False)
class ChildTabFlow(TabFlow):
    """A TabFlow of rows with columns of their parents, whose values are repeated in siblings.

    Values that are rare among the parents are not rare among their children. Categories, bounds and
    bins of these columns are therefore learned from columns in which each parent counts once.
    """

    def fit_children(self, table: pd.DataFrame, sources: Mapping[str, pd.Series]) -> Self:
        """Fit to a table whose forms of dates have been read.

        ``sources`` has the columns, by name, that columns of parents or families are learned from.
        """
        self._sources = sources
        try:
            return self.fit(table)
        finally:
            del self._sources  # which has rows of the parents

    def _read_forms(self, X: Any, discrete_columns: Any) -> tuple[Any, tuple[ColumnForm, ...]]:
        return X, ()

    def _fit_encoder(self, encoder: ModeEncoder, X: pd.DataFrame) -> ModeEncoder:
        table = X.drop(columns=[*self._sources], errors="ignore")
        coders: dict[str, Coder] = {}
        if table.shape[1]:
            encoder.fit(table)
            coders = dict(zip(encoder.schema_.keys, encoder.columns_, strict=True))
        for name in [name for name in map(str, X) if name in self._sources]:
            source = self._sources[name].to_frame(name)
            n = rows_needed(self.min_frequency, len(source))
            column_encoder = clone(encoder).set_params(identifiers=None, fake=None, min_frequency=n)
            (coders[name],) = column_encoder.fit(source).columns_
        params = encoder.get_params()
        encoder = ModeEncoder.of_columns(
            TableSchema.of(Table(X)), [coders[name] for name in map(str, X)]
        )
        return encoder.set_params(**params)


@dataclass(eq=False, repr=False)
class ConditionalTabFlow(ChildTabFlow):
    """A TabFlow that learns some columns given the others, which it does not learn.

    Parameters
    ----------
    context_columns : sequence of str
        Columns that are known whenever rows are drawn.
    """

    _: KW_ONLY
    context_columns: Sequence[str] = parameter((), list, tuple)

    _learns_repetitions = False

    def _n_batch(self, n_rows: int) -> int:
        n_batch = super()._n_batch(n_rows)
        return n_batch if self.batch_size != "auto" else min(n_batch, _LARGEST_BATCH)

    def _n_epochs(self, n_rows: int) -> int:
        if self.epochs != "auto":
            return int(self.epochs)
        return min(super()._n_epochs(n_rows), max(_FEWEST_EPOCHS, -(-_ROWS_SEEN // n_rows)))

    def _encode_table(
        self, X: Any, discrete_columns: Any, seed: int, n_members: int
    ) -> TrainingTable:
        table = super()._encode_table(X, discrete_columns, seed, n_members)
        self._targets = split_targets(table.encoder, self.context_columns, table.spans.device)
        return table

    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> FlowTraining:
        return FlowTraining(self, rows, spans, plans, self._targets)

    def draw_targets(
        self, table: pd.DataFrame, key: int, conditions: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Draw the missing cells of columns that are no context; missing context is a value.

        ``table`` has all columns. Numbers beyond the fitted bounds count as the nearest bound.
        ``conditions`` on columns that are no context are those of ``sample``.

        Raises ShortfallError if rows with conditions on ranges are too rare.
        """
        encoder, sampler = self.encoder_, self._sampler()
        assert isinstance(sampler, DirectSampler)
        read = read_conditions(encoder, conditions or {})
        fixed, allowed, points = sampler.encode_conditions(read)
        codes, values = self._encode(table, key)
        codes = np.where(fixed != FREE, fixed, codes)
        for i in allowed:
            codes[:, i] = FREE
        drawn = encoder.decode(*sampler.complete(codes, values, key, allowed, points))
        ranges = [condition for condition in read if isinstance(condition, RANGES)]
        for attempt in range(_MAX_TRIES):
            rows = np.flatnonzero(~all_met(ranges, codes, drawn))
            if not len(rows):
                break
            redraw_key = fold_in(key, Stream.REDRAWN, attempt)
            redrawn = sampler.complete(codes[rows], values[rows], redraw_key, allowed, points)
            drawn.iloc[rows] = encoder.decode(*redrawn)
        else:
            raise ShortfallError(f"rows that meet the conditions {conditions} are too rare")
        write_points(drawn, read)
        return drawn

    def _encode(self, table: pd.DataFrame, key: int) -> tuple[np.ndarray, np.ndarray]:
        """Encode rows whose context is known: codes, FREE elsewhere, and values, NaN elsewhere."""
        encoder, context = self.encoder_, set(self.context_columns)
        table = clip_numbers(encoder, self.rules_.forms.read(table))
        encoded, is_known = IncompleteTable(encoder, table).encode(key, np.arange(len(table)))
        codes, values = np.where(is_known, encoded.codes, FREE), encoded.values
        for i, span in enumerate(encoder.layout_.spans):
            coder, name = encoder.columns_[span.column], encoder.schema_.keys[span.column]
            if name in context:  # a value that was not learned counts as the most frequent one
                unknown = codes[:, i] == FREE
                codes[unknown, i] = int(np.argmax(coder.code_weights))
                if coder.missing_code >= 0:
                    codes[table[name].isna().to_numpy() & unknown, i] = coder.missing_code
            elif span.value_index is not None:
                values[codes[:, i] == FREE, span.value_index] = np.nan
        return codes, values


_FEWEST_EPOCHS, _ROWS_SEEN = 5, 3_000_000  # of the training, by epochs="auto"
_LARGEST_BATCH = 256  # by batch_size="auto": more steps, because few epochs are trained
_MAX_TRIES = 100  # for rows within ranges


def split_targets(
    encoder: ModeEncoder, context_columns: Sequence[str], device: torch.device
) -> FlowTargets:
    """Find the codes and values of columns that are no context."""
    names, context, layout = encoder.schema_.keys, set(context_columns), encoder.layout_
    is_target = [names[span.column] not in context for span in layout.spans]
    values = torch.zeros(layout.n_values, dtype=torch.bool, device=device)
    for span, learned in zip(layout.spans, is_target, strict=True):
        if span.value_index is not None:
            values[span.value_index] = learned
    return FlowTargets(torch.tensor(is_target, dtype=torch.bool, device=device), values)


def clip_numbers(encoder: ModeEncoder, table: pd.DataFrame) -> pd.DataFrame:
    """Clip numbers to the bounds that the encoder has learned."""
    clipped = table.copy(deep=False)
    for coder, name in zip(encoder.columns_, encoder.schema_.keys, strict=True):
        if coder.is_continuous and table[name].notna().any():
            clipped[name] = table[name].clip(*coder.bounds)
    return clipped
