"""Any report as a page, and the page as a file."""

from __future__ import annotations

import os

from combutab.core.files import whole_file
from combutab.model_selection import ActivationComparison
from combutab.reports._synthetic import SyntheticEvaluation
from combutab.reports._synthetic_page import synthetic_page


def render_report(found: SyntheticEvaluation | ActivationComparison) -> str:
    """Tell what was found, in one HTML page for a person.

    The page loads nothing and runs no script; names and values of the data are text in it, whatever
    they hold. It is light or dark as the reader's system is, and can be printed.

    Parameters
    ----------
    found : SyntheticEvaluation or ActivationComparison
        As from `evaluate_synthetic` or `combutab.model_selection.compare_activations`.

    Returns
    -------
    str
    """
    if isinstance(found, SyntheticEvaluation):
        return synthetic_page(found)
    if isinstance(found, ActivationComparison):
        from combutab.reports._comparison import comparison_page

        return comparison_page(found)
    raise TypeError(
        "a report is of a SyntheticEvaluation or an ActivationComparison, got a "
        f"{type(found).__name__}"
    )


def write_report(
    found: SyntheticEvaluation | ActivationComparison, path: str | os.PathLike[str]
) -> None:
    """Write the page of `render_report` to a file, in whole or not at all.

    Parameters
    ----------
    found : SyntheticEvaluation or ActivationComparison
    path : path
        Such as "report.html"; a file that is there is replaced.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    page = render_report(found)
    with whole_file(path) as place:
        place.write_text(page, encoding="utf-8")
