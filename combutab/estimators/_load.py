"""Read any saved estimator."""

from __future__ import annotations

import os

import torch

from combutab.estimators._base import BaseMLP
from combutab.estimators._classifier import MLPClassifier
from combutab.estimators._regressor import MLPRegressor
from combutab.estimators._saving import saved_class

_CLASSES: dict[str, type[BaseMLP]] = {
    "MLPClassifier": MLPClassifier,
    "MLPRegressor": MLPRegressor,
}


def load(path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> BaseMLP:
    """Read any estimator that ``save`` wrote; the file says which it is.

    Parameters
    ----------
    path : str or path
    device : str or torch.device, default="auto"
        Where it predicts.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or it is not a model of this library.
    """
    name = saved_class(path)
    if name not in _CLASSES:
        raise ValueError(f"{path} holds a {name}, which is none of {sorted(_CLASSES)}")
    return _CLASSES[name].load(path, device=device)
