"""Base class of the displays: panels in a new figure or in the user's axes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def tidy(axes: Axes, grid: Literal["x", "y"] | None = None) -> None:
    """Style a panel: no spines at the top and right, and a light grid behind."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        axes.grid(axis=grid, color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)


def label_rows(
    axes: Axes, names: Sequence[Any], grid: Literal["x", "y"] = "x", **style: Any
) -> None:
    """Name the rows of a panel, the first on top; a grid along x stands for the left spine."""
    axes.set_yticks(range(len(names)), names, parse_math=False, **style)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    tidy(axes, grid)
    if grid == "x":
        axes.spines["left"].set_visible(False)


def outside_legend(
    figure: Any,
    handles: Sequence[Any],
    side: Literal["upper", "lower"] = "lower",
    max_columns: int = 4,
) -> None:
    """Add a legend above or below the panels of a figure."""
    figure.legend(
        handles=handles,
        loc=f"outside {side} center",
        ncols=min(len(handles), max_columns),
        frameon=False,
        fontsize=9,
    )


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def new_figure(size: tuple[float, float]) -> Figure:
    """Make a figure that is not registered with pyplot; notebooks show it nevertheless."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    vars(figure)["_repr_png_"] = partial(_png, figure)
    return figure


class Display:
    """Base class of displays as in scikit-learn: made by a ``from_`` method, drawn by ``plot``.

    A figure that the display makes is not registered with pyplot: a notebook shows it, and
    ``display.figure_.savefig(path)`` saves it.
    """

    figure_: Any  # a Figure, or a SubFigure of the user's
    ax_: Axes
    axes_: np.ndarray
    _own = False  # whether it made the figure

    def _repr_png_(self) -> bytes | None:
        """Return the picture for a notebook; None if the display was drawn into given axes."""
        if not self._own:
            return None
        return _png(self.figure_)

    def _make_panels(
        self, ax: Any, n_rows: int, n_columns: int, figsize: tuple[float, float], **shared: Any
    ) -> list[Axes]:
        """Set the attributes, and return the panels: in a new figure, or where ``ax`` says."""
        from matplotlib.axes import Axes
        from matplotlib.gridspec import GridSpecFromSubplotSpec

        self._own = ax is None
        n_panels = n_rows * n_columns
        if ax is None:
            figure = new_figure(figsize)
            panels = figure.subplots(n_rows, n_columns, squeeze=False, **shared).ravel().tolist()
        elif isinstance(ax, Axes) and n_panels == 1:
            panels = [ax]
        elif isinstance(ax, Axes):
            subplot = ax.get_subplotspec()
            if subplot is None:
                raise ValueError(
                    f"ax cannot be divided into {n_panels} panels, because it is not in a grid; "
                    f"make it with subplots, or pass a sequence of {n_panels} axes"
                )
            ax.set_axis_off()
            grid = GridSpecFromSubplotSpec(n_rows, n_columns, subplot_spec=subplot)
            panels = []
            for cell in range(n_panels):
                first = panels[0] if panels else None
                panels.append(ax.figure.add_subplot(grid[cell], **dict.fromkeys(shared, first)))
        else:
            axes = np.ravel(np.asarray(ax, dtype=object)) if isinstance(ax, Iterable) else [ax]
            panels = list(axes)
            if len(panels) != n_panels or not all(isinstance(panel, Axes) for panel in panels):
                several = f" or, with one for each panel, a sequence of {n_panels}"
                raise ValueError(
                    f"ax must be a matplotlib Axes{several if n_panels > 1 else ''}, got {ax!r}"
                )
        self.axes_, self.ax_ = np.array(panels), panels[0]
        self.figure_ = panels[0].figure
        return panels

    def _make_legend(self, handles: list[Any], *, top: bool = False, max_columns: int = 4) -> None:
        """Above or below the panels of an own figure; of others above the first, or in it."""
        if not handles:
            return
        if not self._own:
            look: dict[str, Any] = {"fontsize": 9, "framealpha": 0.8, "edgecolor": "none"}
            if top:
                look |= {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
            self.ax_.legend(handles=handles, **look)
            return
        outside_legend(self.figure_, handles, "upper" if top else "lower", max_columns)
