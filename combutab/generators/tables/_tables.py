"""TabFlowTables: several tables with keys, each row of a child drawn given its parent's family."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.validation import check_is_fitted

from combutab._model_files import (
    Loadable,
    Saved,
    file_content,
    loadable,
    make_model,
    model_header,
    restore,
    with_prefix,
)
from combutab.core.device import resolve_device
from combutab.core.files import (
    check_fields,
    kind,
    read_model,
    reading,
    several,
    text,
    whole,
)
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.state import pack, unpack
from combutab.generators._tabflow import TabFlow
from combutab.generators.tables._children import (
    ChildRows,
    drop_rare,
    find_identifier_columns,
    fit_rows,
)
from combutab.generators.tables._conditional import ChildTabFlow, ConditionalTabFlow
from combutab.generators.tables._families import CELL, find_order
from combutab.generators.tables._keys import match_parents
from combutab.generators.tables._plan import TablePlan, check_lookup, check_order
from combutab.preprocessing import ForeignKey, as_pandas, read_keys, read_tables, sort_tables

_ORPHANS = "rows without a parent: "  # prefix of the names of their generators
_FEWEST_ROWS = 20  # without a parent, that a generator is fitted to
_MOST_MATCHED = 8  # columns of a parent by which the parents of a further key are chosen


@dataclass
class DrawnTable:
    """Rows of a table in the making: the columns that are learned, and those of keys."""

    cells: pd.DataFrame
    keys: pd.DataFrame


@contextmanager
def _naming(table: str, columns: Sequence[str]) -> Iterator[None]:
    """Put the name of a table into errors, and into warnings.

    Warnings about other columns than these, such as those of summaries, are left out.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except ValueError as error:
            error.args = (f"table {table!r}: {str(error).replace(CELL, '')}", *error.args[1:])
            raise
    for warning in caught:
        message = str(warning.message).replace(CELL, "")
        if "'" not in message or any(repr(column) in message for column in columns):
            warnings.warn(f"table {table!r}: {message}", warning.category, stacklevel=4)


def count_column(key: ForeignKey) -> str:
    """The column of a parent with the number of children by a further key."""
    return f"number of {key.child}.{'+'.join(key.columns)}"


def _few_orphans(key: ForeignKey, n: int) -> str:
    return (
        f"column {'+'.join(key.columns)!r} is missing in {n} rows, too few to be learned (at "
        f"least {_FEWEST_ROWS}); they are left out"
    )


def _matched_columns(
    key: ForeignKey, parents: pd.DataFrame, family: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The columns of parents by which those of a further key are chosen.

    ``family`` is the position of each child's parent. Returns the columns for each child, and for
    each parent, with a row of missing values if a child has no parent.
    """
    columns = parents[[name for name in parents if parents[name].notna().any()][:_MOST_MATCHED]]
    columns = columns.add_prefix(_matched_prefix(key))
    rows = columns.reindex(family).reset_index(drop=True)
    if (family < 0).any():
        rows[f"{'+'.join(key.columns)} is missing"] = family < 0
        columns = columns.reindex([*range(len(parents)), -1])
    return rows, columns


def _matched_prefix(key: ForeignKey) -> str:
    """The prefix of a parent's columns in its children by a further key."""
    return f"{'+'.join(key.columns)}: "


# ---- TabFlowTables ------------------------------------------------------------------------------


@loadable
class TabFlowTables(Loadable, BaseEstimator):
    """Synthetic databases: several tables with foreign keys, by TabFlow.

    Tables are drawn in the order of their keys. A parent's row is drawn with the number of its
    children and a summary of them (means of numbers, variety of categories), which is dropped in
    the end. The children of all parents are then drawn one position after another, each row given
    its parent, the summary of its family, and the rows before it. Keys are new, and every foreign
    key refers to a row of its parent table.

    The first key of a table is the one whose parents its rows are drawn given. Parents by further
    keys are chosen among the drawn ones by similarity, so that their numbers of children are
    about those drawn for them.

    Parameters
    ----------
    generator : TabFlow or None, default=None
        Parameters of the generators of all tables; None is ``TabFlow()``. Its ``constraints`` must
        be None and its ``identifiers`` "auto". Its ``fake`` may have columns of any table.
    random_state : int, RandomState, Generator or None, default=None
        Seed of training and samples.

    Attributes
    ----------
    keys_ : list of ForeignKey
        The foreign keys, as given or proposed.
    order_by_ : dict of str to str
        Child table -> the column by which the rows of a parent are ordered.
    lookup_ : list of str
        The tables that are returned as they are.
    tables_ : list of str
        The tables, parents first.
    generators_ : dict
        Table -> the fitted TabFlow of its rows.

    References
    ----------
    Patki et al. (2016), "The Synthetic Data Vault" (summaries of children as columns of parents);
    Solatorio and Dupriez (2023), "REaLTabFormer" (children drawn given their parents).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> shops = pd.DataFrame({"shop": range(60), "size": rng.integers(1, 4, 60)})
    >>> sales = pd.DataFrame({"shop": np.repeat(range(60), shops["size"])})
    >>> sales["price"] = rng.normal(10, 1, len(sales)).round(2)
    >>> model = TabFlowTables(TabFlow(epochs=1), random_state=0)
    >>> model = model.fit({"shops": shops, "sales": sales}, keys=[("sales", "shop", "shops")])
    >>> tables = model.sample(20)
    >>> len(tables["shops"]), bool(tables["sales"]["shop"].isin(tables["shops"]["shop"]).all())
    (20, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "generator": [HasMethods(["fit", "sample"]), None],
        "random_state": ["random_state", np.random.Generator],
    }

    keys_: list[ForeignKey]
    tables_: list[str]
    generators_: dict[str, TabFlow]

    def __init__(self, generator: Any = None, *, random_state: Any = None) -> None:
        self.generator = generator
        self.random_state = random_state

    # ---- fit ---------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        tables: Mapping[str, Any],
        keys: Any = "auto",
        *,
        order_by: Mapping[str, str] | None = None,
        lookup: Sequence[str] = (),
    ) -> Self:
        """Learn the distribution of a database.

        Parameters
        ----------
        tables : mapping
            Name -> DataFrame of pandas or polars.
        keys : "auto" or list, default="auto"
            Foreign keys: ``(child, column, parent)``. The parent's column has the same name, or is
            the one whose unique values include the child's; otherwise it is the fourth element.
            Keys of several columns have lists of columns. "auto" proposes keys by names and values,
            with a warning that lists them.
        order_by : mapping, optional
            Child table -> the column of numbers or dates by which the rows of a parent are ordered,
            such as ``{"visits": "date"}``. They are drawn as a sequence: the column as differences
            from the previous row. By default it is the first such column by which siblings are
            sorted in the table, if there is one; otherwise rows have the order of the table.
        lookup : sequence of str, optional
            Tables without foreign keys that are not drawn, but returned as they are. They are part
            of a saved model, with all rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a table, key or column cannot be used; the message names table and column. Keys may
            not refer to their own table or form a circle. A parent's key is unique and not missing;
            a child's key is that of a parent, or missing.

        Warns
        -----
        UserWarning
            With ``keys="auto"``, about the keys; and as in ``TabFlow.fit``.
        """
        template, frames = self._template(), read_tables(tables)
        foreign_keys = read_keys(frames, keys)
        order_by = check_order(frames, foreign_keys, order_by)
        check_lookup(frames, foreign_keys, lookup)
        if isinstance(keys, str) and foreign_keys:
            listed = "; ".join(map(str, foreign_keys))
            warnings.warn(f"keys='auto' took {listed}; check them, or give keys", stacklevel=3)
        self._seed, self._n_sampled = seed_from(self.random_state), 0
        names = sort_tables(frames, foreign_keys)
        plans = {n: TablePlan.of_table(n, frames, foreign_keys, lookup) for n in frames}
        cells = {name: plan.read(frames[name]) for name, plan in plans.items()}
        extras = {name: pd.DataFrame(index=frame.index) for name, frame in frames.items()}
        fake, columns = template.fake or {}, {name for table in cells.values() for name in table}
        for column in fake:
            if column not in columns:
                raise ValueError(
                    f"fake: no table has a column {column!r} that is drawn; keys are new in any "
                    "case"
                )
        self.generators_ = {}
        for i, name in reversed([*enumerate(names)]):  # parents with the summaries of children
            plan, seed = plans[name], fold_in(self._seed, Stream.TABLE, i)
            if plan.rows is not None:
                continue
            learned = [cells[name], extras[name]]
            sources: dict[str, pd.Series] = {}
            for key in plan.matched:
                family, parents = key.find_parents(frames), cells[key.parent]
                if key.parent in lookup:
                    excluded = [column for column in map(str, parents) if column in fake]
                else:
                    excluded = find_identifier_columns(parents, template)
                matched, source = _matched_columns(key, parents.drop(columns=excluded), family)
                learned.append(matched)
                if key.parent not in lookup:  # a model has all rows of a lookup table
                    sources |= {str(column): source[column] for column in source}
                counts = np.bincount(family[family >= 0], minlength=len(frames[key.parent]))
                extras[key.parent] = extras[key.parent].assign(**{count_column(key): counts})
            rows = pd.concat(learned, axis=1)
            rows = drop_rare(rows, plan.cells, template.min_frequency, sources)
            with _naming(name, plan.columns):
                plan = replace(plan, order=order_by.get(name))
                identifiers = find_identifier_columns(cells[name], template)
                identifiers = [column for column in identifiers if column != plan.order]
                if plan.context is None:
                    if rows.shape[1]:
                        generator = fit_rows(template, rows, plan.cells, identifiers, seed, {})
                        self.generators_[name] = generator
                    continue
                foreign_key = plan.context
                parent, family = foreign_key.parent, foreign_key.find_parents(frames)
                orphans = rows[family < 0].reset_index(drop=True)
                if len(orphans) >= _FEWEST_ROWS and rows.shape[1]:
                    generator = fit_rows(
                        template, orphans, plan.cells, identifiers, seed + 1, sources
                    )
                    self.generators_[_ORPHANS + name] = generator
                    plan = replace(plan, orphans=len(orphans) / len(rows))
                elif len(orphans):
                    warnings.warn(_few_orphans(foreign_key, len(orphans)), stacklevel=2)
                rows, family = rows[family >= 0].reset_index(drop=True), family[family >= 0]
                if plan.order is None:
                    candidates = [column for column in plan.cells if column not in identifiers]
                    plan = replace(plan, order=find_order(rows[candidates], family))
                child_rows, summary = ChildRows.fit(
                    template, plan, rows, family, cells[parent], identifiers, seed, sources
                )
            if child_rows.generator is not None:
                self.generators_[name] = child_rows.generator
            plans[name] = child_rows.plan
            summary = summary.add_prefix(f"{name}: ")
            extras[parent] = pd.concat([extras[parent], summary], axis=1)
        self.tables_, self.keys_, self._plans = names, foreign_keys, plans
        return self

    def _template(self) -> TabFlow:
        generator = TabFlow() if self.generator is None else clone(self.generator)
        if not isinstance(generator, TabFlow):
            raise ValueError(f"generator must be a TabFlow, got {self.generator!r}")
        if generator.constraints or generator.identifiers != "auto":
            raise ValueError(
                "generator must have constraints=None and identifiers='auto', because it is fitted "
                f"to several tables, got {self.generator!r}"
            )
        return generator

    # ---- sample ------------------------------------------------------------------------------

    def sample(
        self,
        n: int | None = None,
        *,
        parents: Any = None,
        conditions: Mapping[str, Mapping[str, Any]] | None = None,
        shares: Mapping[str, Mapping[str, Mapping[Any, float]]] | None = None,
        random_state: Any = None,
    ) -> dict[str, pd.DataFrame]:
        """Sample a synthetic database.

        Parameters
        ----------
        n : int, optional
            Number of rows of the root table, which has no parent. With several root tables, that
            of the first one in the order of ``fit``; the others are larger or smaller in
            proportion. By default the number of rows of the fitted table.
        parents : DataFrame or mapping, optional
            Rows of a root table (with several, name -> DataFrame), which are returned as they are,
            with new children.
        conditions : mapping, optional
            Table -> conditions on its rows, as in ``TabFlow.sample``.
        shares : mapping, optional
            Root table -> shares of values of its columns, as in ``TabFlow.sample``, such as
            ``{"patients": {"smoker": {True: 0.5, False: 0.5}}}``.
        random_state : int, RandomState, Generator or None
            Seed. None continues the random numbers of the fit.

        Returns
        -------
        dict
            Table -> DataFrame with the columns and dtypes of the fitted one. The rows of a child
            table are in the order of their parents.

        Raises
        ------
        ValueError
            If a table or column is unknown, or a condition cannot be met.
        ShortfallError
            If rows that meet the conditions are too rare.
        """
        check_is_fitted(self)
        parent_rows, sizes = self._read_parents(parents, n), self._count_roots(n)
        for name in conditions or {}:
            if name not in self._plans or self._plans[name].rows is not None:
                raise ValueError(f"conditions: {name!r} is no table that is drawn")
        for name in shares or {}:
            if name not in sizes or name in parent_rows:
                raise ValueError(
                    f"shares are possible for tables without a parent, which are drawn first "
                    f"({[table for table in sizes if table not in parent_rows]}), got {name!r}; "
                    "use conditions instead"
                )
        seed = self._seed if random_state is None else seed_from(random_state)
        key = fold_in(seed, Stream.SAMPLE, *([self._n_sampled] if random_state is None else []))
        self._n_sampled += random_state is None
        drawn: dict[str, DrawnTable] = {}
        for i, name in enumerate(self.tables_):
            plan, table_key = self._plans[name], fold_in(key, Stream.TABLE_ROWS, i)
            with _naming(name, plan.columns):
                read = plan.read_requests((conditions or {}).get(name), "conditions")
                root_shares = plan.read_requests((shares or {}).get(name), "shares")
                if plan.rows is not None:
                    rows = pd.DataFrame(plan.rows)
                    drawn[name] = DrawnTable(plan.read(rows), rows)
                elif name in parent_rows:
                    drawn[name] = self._complete_parents(name, parent_rows[name], table_key)
                elif plan.context is None:
                    cells = self._draw_roots(name, sizes[name], read, table_key, root_shares)
                    drawn[name] = self._add_keys(name, cells, None, drawn, table_key)
                else:
                    cells, family = self._draw_children(name, drawn, read, table_key)
                    drawn[name] = self._add_keys(name, cells, family, drawn, table_key)
        tables = {}
        for name, plan in self._plans.items():
            rows = pd.concat([drawn[name].cells[plan.cells], drawn[name].keys], axis=1)
            tables[name] = plan.write(rows) if plan.rows is None else pd.DataFrame(plan.rows)
        return tables | parent_rows

    def _count_roots(self, n: int | None) -> dict[str, int]:
        """The number of rows of each root table."""
        if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1):
            raise ValueError(f"n must be a whole number of at least 1, got {n!r}")
        fitted = {name: plan.n_rows for name, plan in self._plans.items() if plan.is_root}
        first = next(iter(fitted.values()), 1)
        return {k: m if n is None else max(1, round(int(n) * m / first)) for k, m in fitted.items()}

    def _read_parents(self, parents: Any, n: int | None) -> dict[str, pd.DataFrame]:
        """Check rows of root tables that children are drawn for."""
        if parents is None:
            return {}
        if n is not None:
            raise ValueError(f"{n=} cannot be combined with parents, which are all returned")
        roots = [name for name, plan in self._plans.items() if plan.is_root]
        if not isinstance(parents, Mapping):
            if len(roots) != 1:
                raise ValueError(f"parents must be a mapping, because {roots} are root tables")
            parents = {roots[0]: parents}
        rows: dict[str, pd.DataFrame] = {}
        for name, table in parents.items():
            frame = as_pandas(table)
            if name not in roots or not isinstance(frame, pd.DataFrame):
                raise ValueError(
                    f"parents must be DataFrames of root tables, {roots}, got {name!r} of "
                    f"{type(table).__name__}"
                )
            plan = self._plans[name]
            missing = [column for column in plan.columns if column not in frame]
            if missing:
                raise ValueError(f"parents: table {name!r} lacks the columns {missing}")
            for column in plan.new_keys:
                if frame[column].isna().any() or frame[column].duplicated().any():
                    raise ValueError(
                        f"parents: column {column!r} of table {name!r} is a key, which must be "
                        "unique and not missing"
                    )
            rows[name] = frame[plan.columns].reset_index(drop=True)
        return rows

    def _complete_parents(self, name: str, rows: pd.DataFrame, key: int) -> DrawnTable:
        """Draw the summaries of the families of given parents."""
        plan = self._plans[name]
        cells = plan.read(rows)
        seed_data = cells[[column for column in cells if cells[column].notna().any()]]
        if name in self.generators_:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # values that are never sampled are kept
                options = {"seed_data": seed_data} if len(seed_data.columns) else {"n": len(rows)}
                drawn = self.generators_[name].sample(**options, random_state=key >> 32)
            cells = pd.concat([cells, drawn.drop(columns=plan.cells)], axis=1)
        return DrawnTable(cells, rows[[column for column in rows if column not in plan.cells]])

    def _draw_roots(
        self,
        name: str,
        n: int,
        conditions: Mapping[str, Any],
        key: int,
        shares: Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        if name not in self.generators_:  # it has only keys
            return pd.DataFrame(index=range(n))
        requests: dict[str, Any] = {"conditions": conditions, "shares": shares or None}
        rows = self.generators_[name].sample(n, **requests, random_state=key >> 32)
        return pd.DataFrame(rows)

    def _draw_children(
        self,
        name: str,
        drawn: Mapping[str, DrawnTable],
        conditions: Mapping[str, Any],
        key: int,
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Draw the rows of a child table, and the positions of their parents, -1 without one."""
        plan = self._plans[name]
        assert plan.context is not None
        parents, prefix = drawn[plan.context.parent].cells, f"{name}: "
        summary = parents[[c for c in map(str, parents) if c.startswith(prefix)]]
        summary = summary.rename(columns=lambda column: column.removeprefix(prefix))
        rows = ChildRows(self.generators_.get(name), plan)
        cells, family = rows.draw(summary, parents, key, conditions)
        n_orphans = round(len(cells) * plan.orphans / (1 - plan.orphans))
        if n_orphans:
            orphans = self._draw_roots(_ORPHANS + name, n_orphans, conditions, key ^ (1 << 63))
            cells = pd.concat([cells, orphans[[*cells]]], ignore_index=True)
            family = np.append(family, np.full(n_orphans, -1))
        return rows.renew_identifiers(cells), family

    def _add_keys(
        self,
        name: str,
        cells: pd.DataFrame,
        family: np.ndarray | None,
        drawn: Mapping[str, DrawnTable],
        key: int,
    ) -> DrawnTable:
        """Make new keys, and refer to the keys of parents."""
        plan = self._plans[name]
        keys = pd.DataFrame(index=range(len(cells)))
        for column, new_keys in plan.new_keys.items():
            keys[column] = new_keys.make(len(cells))
        if plan.context is not None and family is not None:
            _refer(plan, plan.context, drawn, family, keys)
        for j, foreign_key in enumerate(plan.matched):
            parents = drawn[foreign_key.parent].cells
            columns = parents.add_prefix(_matched_prefix(foreign_key))
            columns = columns[[column for column in columns if column in cells]]
            counts = parents.get(count_column(foreign_key), pd.Series(1.0, parents.index))
            is_missing = cells.get(f"{'+'.join(foreign_key.columns)} is missing")
            chosen = match_parents(
                cells[[*columns]], columns, counts.to_numpy(float), (key >> 32) + j
            )
            if is_missing is not None:
                chosen[is_missing.to_numpy(dtype=bool)] = -1
            _refer(plan, foreign_key, drawn, chosen, keys)
        return DrawnTable(cells, keys)

    # ---- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted generators of all tables to one file (safetensors).

        For each table it has what ``TabFlow.save`` writes, and for a lookup table all rows.

        Raises
        ------
        ValueError
            If a parameter cannot be saved without code.
        """
        super().save(path)

    def _file_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        header = model_header(type(self)())
        tensors: dict[str, np.ndarray] = {}
        header["template"] = model_header(self._template())
        header["fitted"] = {
            "tables": self.tables_,
            "keys": pack(self.keys_),
            "plans": pack(self._plans),
            "seed": self._seed,
            "n_sampled": self._n_sampled,
        }
        header["generators"] = {}
        for i, (name, generator) in enumerate(self.generators_.items()):
            header["generators"][name], arrays = file_content(generator)
            tensors |= {f"{i}.{key}": array for key, array in arrays.items()}
        return header, tensors

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Self:
        """Read a model that ``save`` wrote; no code of the file is run.

        Parameters
        ----------
        path : str or path
        device : str or torch.device, default="auto"
            Where it computes.

        Raises
        ------
        FileNotFoundError, ValueError
            If there is no such file, or it is not a model of this class.
        """
        header, tensors = read_model(path)
        resolve_device(device)
        with reading(path, cls.__name__):
            if header["class"] != cls.__name__:
                raise ValueError(f"{path} holds a {header['class']}, not a {cls.__name__}")
            model = cls(make_model(TabFlow, path, header["template"], device))
            fitted = {name: unpack(value) for name, value in header["fitted"].items()}
            check_fields(fitted, _FITTED, "what was fitted")
            model.tables_, model.keys_, model._plans = (
                fitted[name] for name in ("tables", "keys", "plans")
            )
            model._seed, model._n_sampled = fitted["seed"], fitted["n_sampled"]
            model.generators_ = {}
            for i, (name, part) in enumerate(header["generators"].items()):
                classes = (TabFlow, ChildTabFlow, ConditionalTabFlow)
                kinds = {generator_class.__name__: generator_class for generator_class in classes}
                generator_class = kinds.get(part["class"], TabFlow)
                arrays = with_prefix(tensors, f"{i}.")
                model.generators_[name] = restore(generator_class, path, part, arrays, device)
        return model

    def _to_save(self) -> Any:
        raise NotImplementedError  # save writes several models

    def _restore(self, saved: Saved) -> None:
        raise NotImplementedError  # load reads several models

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_plans")

    @property
    def order_by_(self) -> dict[str, str]:
        return {name: plan.order for name, plan in self._plans.items() if plan.order is not None}

    @property
    def lookup_(self) -> list[str]:
        return [name for name, plan in self._plans.items() if plan.rows is not None]


_FITTED = {
    "tables": several(text(), 1),
    "keys": several(kind(ForeignKey)),
    "plans": kind(dict),
    "seed": whole(0, 2**64),
    "n_sampled": whole(),
}


def _refer(
    plan: TablePlan,
    key: ForeignKey,
    drawn: Mapping[str, DrawnTable],
    family: np.ndarray,
    keys: pd.DataFrame,
) -> None:
    """Set the columns of a foreign key to the keys of the parents at these positions."""
    for column, parent_column in zip(key.columns, key.parent_columns, strict=True):
        values = drawn[key.parent].keys[parent_column].astype(object).reindex(family)
        values = values.where(family >= 0, None).reset_index(drop=True)
        dtype = plan.dtypes[column]
        if isinstance(dtype, pd.CategoricalDtype):
            keys[column] = pd.Series(pd.Categorical(values), index=keys.index)
        elif dtype.kind == "f":
            keys[column] = pd.to_numeric(values).astype(dtype)
        else:
            keys[column] = values.astype(dtype)
