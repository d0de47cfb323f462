"""Any report as a page, and the page as a file."""

from __future__ import annotations

import os
from typing import Any

from combutab.core.files import whole_file
from combutab.model_selection import ActivationComparison
from combutab.reports._model import ModelReport, model_page, report_model
from combutab.reports._synthetic import SyntheticEvaluation
from combutab.reports._synthetic_page import synthetic_page


def render_report(found: Any, X: Any = None, y: Any = None) -> str:
    """Render a report as a single HTML page.

    The page loads nothing and runs no script; names and values of the data are text in it, whatever
    they hold. It is light or dark as the reader's system is, and can be printed.

    Parameters
    ----------
    found : SyntheticEvaluation, ActivationComparison, ModelReport or fitted estimator
        As from `evaluate_synthetic`, `combutab.model_selection.compare_activations` or
        `report_model`, which an estimator is given to.
    X, y : table of shape (n_samples, n_features), array-like of shape (n_samples,)
        Of an estimator: rows that it was not fitted to, and their targets.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If it is none of these, or an estimator without rows.
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
    if isinstance(found, ActivationComparison):
        from combutab.reports._comparison import comparison_page

        return comparison_page(found)
    raise TypeError(
        "a report is of a SyntheticEvaluation, an ActivationComparison, a ModelReport or a fitted "
        f"estimator, got a {type(found).__name__}"
    )


def write_report(found: Any, path: str | os.PathLike[str], X: Any = None, y: Any = None) -> None:
    """Write the page of `render_report` to a file; after an error no file is left.

    Parameters
    ----------
    found : SyntheticEvaluation, ActivationComparison, ModelReport or fitted estimator
    path : path
        Such as "report.html"; a file that is there is replaced.
    X, y : table of shape (n_samples, n_features), array-like of shape (n_samples,)
        Of an estimator: rows that it was not fitted to, and their targets.

    Raises
    ------
    OSError
        If the file cannot be written.

    Examples
    --------
    ``write_report(clf, "model.html", X_test, y_test)`` for a fitted classifier.
    """
    page = render_report(found, X, y)
    with whole_file(path) as place:
        place.write_text(page, encoding="utf-8")
