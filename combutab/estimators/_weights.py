"""What a fitted network has learned: weights as arrays, and a file of them."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
import torch

from combutab.estimators._saving import load_estimator, save_estimator


class Weights:
    """``save``, ``load``, ``coefs_`` and ``intercepts_`` of both estimators."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (safetensors with JSON in its header).

        It loads on any device. It is written beside its place and moved there, so a failure leaves
        no half-written file.

        Notes
        -----
        The file holds no rows and no optimiser state. Of the training data it holds the names and
        kinds of the columns; categories that ``min_frequency`` rows or more have; of numbers and
        dates a mean and a deviation (of fewer than ``min_frequency`` rows: rounded to two digits),
        or quantiles that lie between means of ``min_frequency`` neighbouring rows, and which
        columns had missing values; the classifier's labels, all of them; the mean and deviation of
        the regressor's targets; losses and scores; the parameters as they were given. It does not
        hold a column's smallest and largest value, nor rarer categories. The weights are learned
        from all rows, and no promise is made of what can be computed from them. A pickle holds the
        same, and the optimiser's state and the ``callbacks`` beside it.

        Raises
        ------
        ValueError
            If a parameter cannot be written without code (a custom activation, say).
        """
        save_estimator(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Self:
        """Read an estimator that ``save`` wrote; no code of the file's is run.

        Parameters
        ----------
        path : str or path
        device : str or torch.device, default="auto"
            Where it predicts; independent of where it was trained.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a model of this class.
        """
        return load_estimator(cls, path, device)

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weight matrices (in, out) of the first member; the first acts on encoded features."""
        return self._layer_arrays("weight")

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Bias vectors (out,) of the first member's layers."""
        return self._layer_arrays("bias")

    def _layer_arrays(self, name: str) -> list[np.ndarray]:
        estimator: Any = self
        if not hasattr(estimator, "_states"):
            raise AttributeError(f"{type(self).__name__} is not fitted: call fit first")
        state = estimator._states[0]
        arrays = [state[f"linears.{i}.{name}"] for i in range(estimator.n_layers_ - 1)]
        if name == "bias":
            views = [a.reshape(-1) for a in arrays]
        elif estimator._spec.init == "ntk":
            views = [a / np.sqrt(a.shape[0]) for a in arrays]
        else:
            views = [a.view() for a in arrays]
        for view in views:
            view.flags.writeable = False  # what was written there, predict would not see
        return views
