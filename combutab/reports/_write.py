"""Any report as a page, and the page as a file."""

from __future__ import annotations

import os
from typing import Any

from combutab.core.files import whole_file
from combutab.model_selection import ModelComparison
from combutab.reports._model import ModelReport, model_page, report_model
from combutab.reports._synthetic import SyntheticEvaluation
from combutab.reports._synthetic_page import synthetic_page
from combutab.reports._tables import TablesEvaluation
from combutab.reports._tables_page import tables_page


def render_report(found: Any, X: Any = None, y: Any = None) -> str:
    """Render a report as a single HTML page.

    The page loads no other file and runs no script. Names and values of the data are escaped. Its
    colours follow the light or dark mode of the system, and it can be printed.

    Parameters
    ----------
    found : SyntheticEvaluation, TablesEvaluation, ModelComparison, ModelReport or fitted estimator
        Result of `evaluate_synthetic`, `combutab.model_selection.compare_models` or
        `report_model`. An estimator is passed to `report_model`.
    X, y : table of shape (n_samples, n_features), array-like of shape (n_samples,), optional
        For an estimator: rows that it was not trained on, and their targets.

    Returns
    -------
    str
        The HTML page.

    Raises
    ------
    TypeError
        If ``found`` has another type, or is an estimator and X is not given.
    """
    if hasattr(found, "get_params") and hasattr(found, "predict"):
        if X is None:
            raise TypeError(
                f"the report of a {type(found).__name__} needs rows that it was not fitted to: "
                "pass X and y"
            )
        found = report_model(found, X, y)
    if isinstance(found, ModelReport):
        return model_page(found)
    if isinstance(found, SyntheticEvaluation):
        return synthetic_page(found)
    if isinstance(found, TablesEvaluation):
        return tables_page(found)
    if isinstance(found, ModelComparison):
        from combutab.reports._comparison import comparison_page

        return comparison_page(found)
    raise TypeError(
        "a report is of a SyntheticEvaluation, TablesEvaluation, ModelComparison, ModelReport or "
        f"fitted estimator, got a {type(found).__name__}"
    )


def write_report(found: Any, path: str | os.PathLike[str], X: Any = None, y: Any = None) -> None:
    """Write a report to an HTML file.

    Parameters
    ----------
    found : SyntheticEvaluation, TablesEvaluation, ModelComparison, ModelReport or fitted estimator
        As in `render_report`.
    path : path
        HTML file to write, such as "report.html". An existing file is replaced. After an error
        there is no incomplete file.
    X, y : table of shape (n_samples, n_features), array-like of shape (n_samples,), optional
        For an estimator: rows that it was not trained on, and their targets.

    Raises
    ------
    OSError
        If the file cannot be written.

    Examples
    --------
    ``write_report(clf, "model.html", X_test, y_test)`` for a fitted classifier.
    """
    page = render_report(found, X, y)
    with whole_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
