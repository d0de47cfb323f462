"""CombuTab: neural networks for tabular data with the scikit-learn API.

A name is imported when it is first asked for: torch takes seconds, and not all need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import combutab._openmp  # noqa: F401 - before torch
from combutab._version import __version__

if TYPE_CHECKING:
    from combutab._model_files import load
    from combutab.activations import (
        ACTIVATIONS,
        PELU,
        PLN,
        PLS,
        CombU,
        LAHardSiLU,
        LASiLU,
        LayerAct,
        NLReLU,
        ProxyNorm,
    )
    from combutab.estimators import (
        MLPClassifier,
        MLPRegressor,
        PackClassifier,
        PackRegressor,
        TabMClassifier,
        TabMRegressor,
        paper_recipe,
    )
    from combutab.generators import (
        CTGAN,
        TVAE,
        PrivateSynthesizer,
        TabFlow,
        TabFlowImputer,
        TabFlowTables,
    )
    from combutab.model_selection import StackedGridSearchCV

__all__ = [
    "ACTIVATIONS",
    "CTGAN",
    "PELU",
    "PLN",
    "PLS",
    "TVAE",
    "CombU",
    "LAHardSiLU",
    "LASiLU",
    "LayerAct",
    "MLPClassifier",
    "MLPRegressor",
    "NLReLU",
    "PackClassifier",
    "PackRegressor",
    "PrivateSynthesizer",
    "ProxyNorm",
    "StackedGridSearchCV",
    "TabFlow",
    "TabFlowImputer",
    "TabFlowTables",
    "TabMClassifier",
    "TabMRegressor",
    "__version__",
    "load",
    "paper_recipe",
]

_HOMES = {
    "load": "_model_files",
    **dict.fromkeys(["ACTIVATIONS", "PELU", "PLN", "PLS", "CombU", "LAHardSiLU"], "activations"),
    **dict.fromkeys(["LASiLU", "LayerAct", "NLReLU", "ProxyNorm"], "activations"),
    **dict.fromkeys(["MLPClassifier", "MLPRegressor", "paper_recipe"], "estimators"),
    **dict.fromkeys(["PackClassifier", "PackRegressor"], "estimators"),
    **dict.fromkeys(["TabMClassifier", "TabMRegressor"], "estimators"),
    **dict.fromkeys(["CTGAN", "PrivateSynthesizer", "TVAE"], "generators"),
    **dict.fromkeys(["TabFlow", "TabFlowImputer", "TabFlowTables"], "generators"),
    "StackedGridSearchCV": "model_selection",
}

if not TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name):
        """Import a public name, or a package such as ``combutab.datasets``."""
        try:
            if name in _HOMES:
                globals()[name] = getattr(import_module(f"combutab.{_HOMES[name]}"), name)
                return globals()[name]
            if not name.startswith("__"):
                return import_module(f"combutab.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"combutab.{name}":
                raise
        except AttributeError as error:  # within an import: it would pass for a name that is none
            raise ImportError(f"combutab.{name} cannot be imported: {error}") from error
        raise AttributeError(f"module 'combutab' has no attribute {name!r}")

    def __dir__():
        """The public names too, which may not be imported yet."""
        return sorted({*globals(), *__all__})
