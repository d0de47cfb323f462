"""How an estimator leaves the library."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from combutab._whole_files import whole_file
from combutab.estimators.export._module import TableModule

if TYPE_CHECKING:
    import onnx


class Exports(BaseEstimator):
    """A fitted estimator that can be given away as a torch module or an ONNX file."""

    @abstractmethod
    def _exported(self, dtype: torch.dtype | None) -> TableModule:
        """The estimator as a module, on the CPU; its weights in this dtype, or their own."""

    def to_torch(self) -> TableModule:
        """The fitted estimator as a plain torch module, encoding included.

        Returns
        -------
        TableModule
            On the CPU, in eval mode. ``module(*module.encode(X))`` is ``predict_proba(X)``, of a
            regressor ``predict(X)``; it can be differentiated by its parameters and by the numbers.

        Examples
        --------
        >>> import torch
        >>> from sklearn.datasets import load_iris
        >>> from combutab import MLPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MLPClassifier((8,), max_iter=5, n_iter_no_change=float("inf"),
        ...                     random_state=0).fit(X, y)
        >>> module = clf.to_torch()
        >>> probabilities = module(*module.encode(X[:2])).detach().numpy()
        >>> abs(probabilities - clf.predict_proba(X[:2])).max() < 1e-6
        np.True_
        """
        check_is_fitted(self)
        return self._exported(None).eval()

    def to_onnx(self, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
        """The fitted estimator as an ONNX model, encoding included.

        Parameters
        ----------
        path : str or path, optional
            File to write it to, in whole or not at all.

        Returns
        -------
        onnx.ModelProto
            Any number of rows at a time. It has an input for each column, of the column's name and
            of shape (n, 1): float64 with NaN for missing values, where dates are seconds since
            1970-01-01 UTC and durations are seconds, and of categories text, "" for missing ones
            (float64, where all known categories are numbers). Columns without names are "x0",
            "x1", ...; where all of these are numbers there is one input "X" of shape
            (n, n_features). The outputs are those of skl2onnx: "label", (n,), and "probabilities",
            (n, n_classes); of a regressor "variable", (n, n_outputs).

        Raises
        ------
        ImportError
            If onnx or onnxscript is not installed: ``pip install 'combutab[onnx]'``.
        ValueError
            If an activation cannot be expressed, which is named, a column is named as no input can
            be, has categories of several types that are written alike, or the weights take 2 GB.
        OSError
            If the file cannot be written.

        Notes
        -----
        The metadata "combutab" of the model, JSON, has of each input the column and its kind, and
        the text that stands for a missing value. A column that is named like an output has a "_"
        behind its name. Networks compute in float32 whatever ``precision`` says. A model refuses
        no rows: infinite numbers, which ``predict`` does not take, get an answer. The file holds
        what that of ``save`` does of the categories and scales, and none of the training.

        Examples
        --------
        >>> import pandas as pd
        >>> from combutab import MLPClassifier
        >>> X = pd.DataFrame({"area": [20.0, 35.0, 50.0, 90.0] * 5, "city": ["Rome", "Oslo"] * 10})
        >>> clf = MLPClassifier((4,), max_iter=2, n_iter_no_change=float("inf"), random_state=0)
        >>> model = clf.fit(X, X["area"] > 40).to_onnx()
        >>> [each.name for each in model.graph.input], [each.name for each in model.graph.output]
        (['area', 'city'], ['label', 'probabilities'])

        With a path it is a file for a runtime: ``onnxruntime.InferenceSession("clf.onnx").run(None,
        {"area": X[["area"]].to_numpy(), "city": X[["city"]].to_numpy(object)})``.
        """
        from combutab.estimators.export._onnx import make_onnx  # only now: it needs onnx

        check_is_fitted(self)
        classes = getattr(self, "classes_", None)
        with nullcontext() if path is None else whole_file(path) as place:
            model = make_onnx(self._exported(torch.float32).eval(), type(self).__name__, classes)
            if place is not None:
                place.write_bytes(model.SerializeToString())
        return model
