"""CombuTab: neural networks for tables with a scikit-learn face."""

from combutab._model_files import load
from combutab._version import __version__
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
from combutab.estimators import MLPClassifier, MLPRegressor
from combutab.generators import CTGAN, TVAE
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
    "ProxyNorm",
    "StackedGridSearchCV",
    "__version__",
    "load",
]
