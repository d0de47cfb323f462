"""Figure of the tables of a database and of the foreign keys that connect them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from combutab.plotting._display import new_figure
from combutab.preprocessing import ForeignKey, read_keys, sort_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In points: size of letters, their width, height of a line, distances between boxes, margin
_SIZE, _LETTER, _LINE, _APART, _ABOVE, _MARGIN = 10, 6.4, 16, 70, 18, 6
_LONGEST = 24  # letters of a name
_REAL, _SOFT, _PAGE, _LINES = "#0b66a8", "#4c4c4c", "#ffffff", "#cccccc"


def plot_schema(tables: Mapping[str, Any], keys: Sequence[Any], *, max_columns: int = 8) -> Figure:
    """Draw the schema of a database: tables with their columns, and arrows from child to parent.

    Columns of keys are blue, and come first in tables with more than ``max_columns`` columns.

    Parameters
    ----------
    tables : mapping of str to DataFrame or sequence of str
        Tables, or the names of their columns.
    keys : list of ForeignKey or tuple
        Such as ``keys_`` of a fitted `TabFlowTables`, or with DataFrames as in its ``fit``.
    max_columns : int, default=8
        Number of columns of each table that are shown.

    Returns
    -------
    matplotlib.figure.Figure
        It is not registered with pyplot: save it with ``figure.savefig(path)``.

    Raises
    ------
    ValueError
        If a table or column of a key does not exist, or keys form a circle.

    Examples
    --------
    >>> import pandas as pd
    >>> from combutab.plotting import plot_schema
    >>> tables = {"people": pd.DataFrame({"id": [1]}), "visits": pd.DataFrame({"who": [1]})}
    >>> plot_schema(tables, [("visits", "who", "people")]).axes[0].texts[0].get_text()
    'people'
    """
    if not all(isinstance(key, ForeignKey) for key in keys):
        keys = read_keys(tables, keys)
    lines = _choose_columns(tables, keys, max_columns)
    corners, width, height = _place_tables(lines, keys)
    figure = new_figure((width / 72, height / 72))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    of_keys = {(key.child, name) for key in keys for name in key.columns}
    of_keys |= {(key.parent, name) for key in keys for name in key.parent_columns}
    for table, (x, y) in corners.items():
        _draw_table(axes, x, y, table, lines[table], of_keys)
    for key in keys:
        for name, parent_name in zip(key.columns, key.parent_columns, strict=True):
            start, end = corners[key.child], corners[key.parent]
            parent_width = _width(key.parent, lines[key.parent])
            axes.annotate(
                "",
                (end[0] + parent_width, end[1] + _row_of(lines[key.parent], parent_name)),
                (start[0], start[1] + _row_of(lines[key.child], name)),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": _SOFT,
                    "shrinkA": 0,
                    "shrinkB": 0,
                    "connectionstyle": "arc3,rad=0",
                },
            )
    return figure


def _choose_columns(
    tables: Mapping[str, Any], keys: Sequence[ForeignKey], max_columns: int
) -> dict[str, list[str]]:
    """The lines of each table: all columns, or those of keys and the first others."""
    lines = {}
    for table, columns in tables.items():
        names = [*map(str, columns)]
        of_keys = [name for key in keys if key.parent == table for name in key.parent_columns]
        of_keys += [name for key in keys if key.child == table for name in key.columns]
        if unknown := set(of_keys) - set(names):
            raise ValueError(f"table {table!r} has no columns {sorted(unknown)}")
        if len(names) > max_columns:
            first = [*dict.fromkeys([*of_keys, *names])][: max(max_columns, len(of_keys))]
            names = [*first, f"… {len(names) - len(first)} more"]
        lines[table] = names
    return lines


def _place_tables(
    lines: Mapping[str, list[str]], keys: Sequence[ForeignKey]
) -> tuple[dict[str, tuple[float, float]], float, float]:
    """The upper left corners of the tables, parents to the left, and the size of the figure."""
    depth: dict[str, int] = {}
    for table in sort_tables(lines, keys):
        depths = [depth[key.parent] for key in keys if key.child == table]
        depth[table] = max(depths, default=-1) + 1
    corners, x, height = {}, float(_MARGIN), 0.0
    for level in range(max(depth.values()) + 1):
        y = float(_MARGIN)
        names = [table for table in lines if depth[table] == level]
        for table in names:
            corners[table] = (x, y)
            y += _LINE * (len(lines[table]) + 1) + _ABOVE
        x += max(_width(table, lines[table]) for table in names) + _APART
        height = max(height, y)
    return corners, x - _APART + _MARGIN, height - _ABOVE + _MARGIN


def _width(table: str, names: Iterable[str]) -> float:
    return _LETTER * max(min(len(name), _LONGEST) for name in (table, *names)) + 3 * _MARGIN


def _row_of(names: Sequence[str], name: str) -> float:
    return _LINE * (names.index(name) + 1.5)


def _draw_table(
    axes: Any, x: float, y: float, table: str, names: Sequence[str], of_keys: set[tuple[str, str]]
) -> None:
    from matplotlib.patches import Rectangle

    width = _width(table, names)
    height = _LINE * (len(names) + 1)
    axes.add_patch(Rectangle((x, y), width, height, facecolor=_PAGE, edgecolor=_LINES))
    axes.plot([x, x + width], [y + _LINE, y + _LINE], color=_LINES, linewidth=1)
    for row, name in enumerate((table, *names)):
        is_key = row > 0 and (table, name) in of_keys
        text = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        axes.text(
            x + _MARGIN,
            y + _LINE * (row + 0.5),
            text,
            size=_SIZE,
            va="center_baseline",
            color=_REAL if is_key else "#000000",
            weight="normal" if row else "bold",
            parse_math=False,
        )
