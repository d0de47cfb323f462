"""The generator of a child table: learns its rows in their families, and draws families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.rng import Stream, fold_in
from combutab.generators._cells import number_kind
from combutab.generators._tabflow import TabFlow
from combutab.generators.tables._conditional import ChildTabFlow, ConditionalTabFlow
from combutab.generators.tables._families import (
    CELL,
    MOST_COLUMNS,
    Families,
    FamilyColumns,
    read_places,
    to_floats,
    training_rows,
    write_places,
)
from combutab.generators.tables._plan import TablePlan
from combutab.preprocessing import ModeEncoder, NumberColumn, find_identifiers, rows_needed


def find_identifier_columns(table: pd.DataFrame, template: TabFlow) -> list[str]:
    """The columns that hold identifiers or get realistic values, which are not learned."""
    return [
        str(name)
        for name, column in table.items()
        if name in (template.fake or ())
        or find_identifiers(column, min_frequency=template.min_frequency) is not None
    ]


def fakes_of(template: TabFlow, names: Sequence[str], prefix: str = "") -> dict[str, str]:
    """The realistic values of a table with these columns, by column with a prefix."""
    return {prefix + name: text for name, text in (template.fake or {}).items() if name in names}


def fit_rows(
    template: TabFlow,
    table: pd.DataFrame,
    names: Sequence[str],
    identifiers: Sequence[str],
    seed: int,
    sources: Mapping[str, pd.Series],
) -> TabFlow:
    """Fit a generator to rows that have no parents; ``names`` are columns of the table itself.

    ``sources`` has the columns that those of parents by further keys are learned from.
    """
    params = template.get_params(deep=False) | {"random_state": seed >> 32}
    params |= {"identifiers": list(identifiers), "fake": fakes_of(template, names)}
    table = drop_rare(table, names, template.min_frequency, sources)
    if not sources:
        return TabFlow(**params).fit(table)
    return ChildTabFlow(**params).fit_children(table, sources)


def drop_rare(
    table: pd.DataFrame,
    needed: Sequence[str],
    min_frequency: float,
    sources: Mapping[str, pd.Series],
) -> pd.DataFrame:
    """Drop columns, other than ``needed``, that are missing or have only rare values.

    Columns in ``sources`` are judged by these.
    """
    dropped = []
    for name, column in table.items():
        source = sources.get(str(name), column)
        n = rows_needed(min_frequency, len(source))
        if number_kind(column.dtype) is None:
            is_rare = source.value_counts().max() < n
        else:
            is_rare = str(name) in sources and source.notna().sum() < n
        if name not in needed and (is_rare or not column.notna().any()):
            dropped.append(name)
    return table.drop(columns=dropped)


class ChildRows:
    """Rows of a child table given their parents and a summary of each family.

    Parameters
    ----------
    generator : TabFlow or None
        A ConditionalTabFlow; a TabFlow of the rows where no column varies; None without columns.
    plan : TablePlan
        It has the order of siblings, and the columns of the context.
    """

    def __init__(self, generator: TabFlow | None, plan: TablePlan) -> None:
        self.generator, self.plan = generator, plan

    @classmethod
    def fit(
        cls,
        template: TabFlow,
        plan: TablePlan,
        table: pd.DataFrame,
        family: np.ndarray,
        parents: pd.DataFrame,
        identifiers: Sequence[str],
        seed: int,
        sources: Mapping[str, pd.Series],
    ) -> tuple[ChildRows, pd.DataFrame]:
        """Fit to the rows of a child table; returns the summaries of families, too.

        ``family`` is the position of each row's parent. The context of later rows has only columns
        that are the table's own, and hold no identifiers. ``sources`` has the columns that those of
        parents by further keys are learned from.
        """
        order = plan.order
        min_frequency = template.min_frequency
        order_values = np.zeros(len(table))
        if order is not None:
            order_values = read_places(_order_coder(table[[order]], min_frequency), table[order])
        by_family = np.lexsort((order_values, family))
        table, family = table.iloc[by_family].reset_index(drop=True), family[by_family]
        sorted_values = None if order is None else order_values[by_family]
        learned = [name for name in plan.cells if name not in identifiers]
        columns = FamilyColumns.of_table(table[learned], order, min_frequency)
        summary = columns.summarize(table, family, len(parents), sorted_values)
        excluded = find_identifier_columns(parents, template)
        parent_columns = [
            name
            for name in map(str, parents)
            if name not in excluded and parents[name].notna().any()
        ][:MOST_COLUMNS]
        families = Families(columns, summary, parents[parent_columns])
        frame, context, family_sources = training_rows(families, table, sorted_values)
        sources = {CELL + name: source for name, source in sources.items()} | family_sources
        sources |= {f"parent {name}": parents[name] for name in parent_columns}
        varying = table.drop(columns=list(identifiers)).nunique(dropna=False)
        params = template.get_params(deep=False) | {"random_state": seed >> 32}
        params["identifiers"] = [CELL + name for name in identifiers]
        params["fake"] = fakes_of(template, [*map(str, table)], CELL)
        generator: TabFlow | None = None
        if (varying > 1).any():
            targets = [name for name in map(str, frame) if name not in context]
            frame = drop_rare(frame, targets, min_frequency, sources)
            context = [name for name in context if name in frame]
            generator = ConditionalTabFlow(**params, context_columns=context)
            generator.fit_children(frame, sources)
        elif table.shape[1]:
            generator = ChildTabFlow(**params).fit_children(table.add_prefix(CELL), sources)
        plan = replace(
            plan,
            numbers=tuple(columns.numbers),
            categories=tuple(columns.categories),
            parent_columns=tuple(parent_columns),
        )
        return cls(generator, plan), summary

    def coder(self, name: str) -> Any:
        """The encoder of a column of the child table."""
        assert self.generator is not None
        encoder: ModeEncoder = self.generator.encoder_
        return encoder.columns_[encoder.schema_.position(CELL + name)]

    def renew_identifiers(self, cells: pd.DataFrame) -> pd.DataFrame:
        """Make the identifiers of rows that were drawn in parts, so that all of them differ."""
        renewed = cells.copy(deep=False)
        for name in map(str, cells if self.generator is not None else ()):
            coder = self.coder(name)
            if coder.is_identifier:
                renewed[name] = coder.decode(cells[name].isna().to_numpy().astype(np.int64))
        return renewed

    def columns(self) -> FamilyColumns:
        """The columns of families, with the values that the generator has learned."""
        # other columns of numbers have rare values, or only one
        numbers = [name for name in self.plan.numbers if self.coder(name).is_continuous]
        categories = {name: [*self.coder(name).keys, None] for name in self.plan.categories}
        return FamilyColumns(numbers, categories, self.plan.order)

    def draw(
        self,
        summary: pd.DataFrame,
        parents: pd.DataFrame,
        key: int,
        conditions: Mapping[str, Any] | None = None,
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Draw the families of parents: the rows of the child table, and the family of each, (n,).

        ``summary`` and ``parents`` have one row per family.
        """
        families = Families(self.columns(), summary, parents[list(self.plan.parent_columns)])
        if conditions:
            conditions = {CELL + str(name): value for name, value in conditions.items()}
        family = np.repeat(np.arange(len(summary)), families.sizes)
        if self.generator is None:
            return pd.DataFrame(index=range(len(family))), family
        if not isinstance(self.generator, ConditionalTabFlow):
            if not len(family):
                return self._empty(), family
            cells = self.generator.sample(
                len(family), conditions=conditions, random_state=key >> 32
            )
            return child_cells(cells), family
        parts: list[pd.DataFrame] = []
        owners: list[np.ndarray] = []
        while len(rows := families.open()):
            keys = [fold_in(key, Stream.SIBLINGS, families.position, stage) for stage in (0, 1)]
            parts.append(self._draw_siblings(families, rows, keys, conditions))
            owners.append(rows)
        if not parts:
            return self._empty(), np.empty(0, dtype=np.int64)
        family = np.concatenate(owners)
        by_family = np.argsort(family, kind="stable")
        cells = pd.concat(parts, ignore_index=True).iloc[by_family].reset_index(drop=True)
        return cells, family[by_family]

    def _empty(self) -> pd.DataFrame:
        assert self.generator is not None
        encoder: ModeEncoder = self.generator.encoder_
        spans, values = len(encoder.layout_.spans), encoder.layout_.n_values
        empty = encoder.decode(np.empty((0, values)), np.empty((0, spans), dtype=np.int64))
        return child_cells(empty)

    def _draw_siblings(
        self,
        families: Families,
        rows: np.ndarray,
        keys: Sequence[int],
        conditions: Mapping[str, Any] | None,
    ) -> pd.DataFrame:
        """Draw the next row of some families, and add it to them."""
        generator, columns, order = self.generator, families.columns, self.plan.order
        assert isinstance(generator, ConditionalTabFlow)
        names = generator.encoder_.schema_.keys
        frame = families.context(rows).reindex(columns=names)
        steps, repeated = None, {}
        if order is not None or columns.categories:
            # which values are repeated is drawn first, so that the rest of the row goes with them
            structure = generator.draw_targets(frame, keys[0], conditions)
            if order is not None:
                steps = families.steps(rows, structure["step"].to_numpy(dtype=np.float64))
                order_values = families.place(rows) + steps
                frame["step"] = steps
                frame[CELL + order] = write_places(self.coder(order), order_values)
            for name in columns.categories:
                drawn = structure[f"recency {name}"].astype(int).to_numpy()
                repeated[name] = families.repeated(name, rows, drawn)
                frame[f"recency {name}"] = structure[f"recency {name}"]
                values = columns.decode(name, repeated[name])
                frame[CELL + name] = pd.Series(values, dtype=object)
        drawn_rows = generator.draw_targets(frame, keys[1], conditions)
        cells = child_cells(drawn_rows)
        numbers = {name: to_floats(cells[name]) for name in columns.numbers}
        codes = {name: columns.encode(name, cells[name]) for name in columns.categories}
        families.add(rows, numbers, codes, steps)
        return cells


def child_cells(drawn: pd.DataFrame) -> pd.DataFrame:
    """The columns of the child table itself."""
    drawn = drawn[[name for name in map(str, drawn) if name.startswith(CELL)]]
    return drawn.rename(columns=lambda name: name.removeprefix(CELL))


def _order_coder(table: pd.DataFrame, min_frequency: float) -> NumberColumn:
    """The encoder that the column of the order will have."""
    (coder,) = ModeEncoder(min_frequency=min_frequency, strategy="quantile").fit(table).columns_
    assert isinstance(coder, NumberColumn)
    return coder
