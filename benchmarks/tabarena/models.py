"""MLP, TabM and pack as AutoGluon models, as TabArena's board takes them.

What a model is asked for: `_fit` with AutoGluon's own validation rows, a limit in seconds and a
number of processors; an estimate of its memory before that; a space of parameters to search.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from autogluon.common.utils.resource_utils import ResourceManager
from autogluon.core.models import AbstractModel

import combutab
from combutab.training import TimeLimit

_COPIES = 6  # of the table while it is encoded and trained on
_STATES = 8  # copies of the weights: gradients, moments, the best epoch, snapshots
_BASE = 400e6  # bytes of torch and the rest


class _CombuTab(AbstractModel):
    """What the three have in common; a subclass names the estimators."""

    estimators: ClassVar[tuple[type, type]]  # of classes, of numbers
    n_networks: ClassVar[int]  # that train at a time
    widths: ClassVar[tuple[int, ...]] = (256, 256, 256)
    seed_name = "random_state"

    def _fit(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        X_val: pd.DataFrame | None = None,
        y_val: pd.Series | None = None,
        sample_weight: Any = None,
        time_limit: float | None = None,
        num_cpus: int = 1,
        num_gpus: float = 0,
        **kwargs: Any,
    ) -> None:
        started = time.time()
        torch.set_num_threads(max(1, int(num_cpus)))
        X = self.preprocess(X, y=y, is_train=True)
        params = {**self._get_model_params(), "device": "cuda" if num_gpus else "cpu"}
        own: dict[str, Any] = {}
        if X_val is not None:
            own = {"X_val": self.preprocess(X_val), "y_val": np.asarray(y_val)}
        classes = self.problem_type != "regression"
        left = None if time_limit is None else max(1.0, time_limit - (time.time() - started))
        self.model = self.estimators[not classes](**params, **self._time_params(left))
        weight = None if sample_weight is None else np.asarray(sample_weight)
        self.model.fit(X, np.asarray(y), weight, **own)

    def _time_params(self, seconds: float | None) -> dict[str, Any]:
        """What ends the training in time."""
        return {} if seconds is None else {"callbacks": [TimeLimit(0.9 * seconds)]}

    def _set_default_params(self) -> None:
        self._set_default_param_value("random_state", 0)

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        return ["binary", "multiclass", "regression"]

    def _get_default_auxiliary_params(self) -> dict[str, Any]:
        params = super()._get_default_auxiliary_params()
        kinds = {"valid_raw_types": ["int", "float", "category", "bool", "datetime"]}
        return {**params, **kinds}

    def _get_default_resources(self) -> tuple[int, int]:
        return ResourceManager.get_cpu_count(only_physical_cores=True), 0

    def _estimate_memory_usage(self, X: pd.DataFrame, **kwargs: Any) -> int:
        return self.estimate_memory_usage_static(
            X=X, problem_type=self.problem_type, num_classes=self.num_classes, **kwargs
        )

    @classmethod
    def _estimate_memory_usage_static(
        cls, *, X: pd.DataFrame, num_classes: int | None = 1, **kwargs: Any
    ) -> int:
        """Bytes: the encoded table in some copies, and the weights of all networks in others."""
        texts = X.select_dtypes(["category", "object"])
        onehot = sum(min(8, X[column].nunique()) for column in texts)
        columns = 2 * (X.shape[1] - texts.shape[1]) + onehot + texts.shape[1]
        outputs = max(1, num_classes or 1)
        widths = [5 * columns, *cls.widths, outputs]
        weights = sum(a * b for a, b in pairwise(widths))
        table = _COPIES * 4 * len(X) * columns
        return int(_BASE + table + _STATES * 4 * cls.n_networks * weights + 8 * len(X) * outputs)

    @classmethod
    def _class_tags(cls) -> dict[str, bool]:
        return {"can_estimate_memory_usage_static": True, "reset_torch_threads": True}

    def _more_tags(self) -> dict[str, bool]:
        return {"can_refit_full": False}


class CombuTabMLPModel(_CombuTab):
    """`MLPClassifier` and `MLPRegressor`."""

    ag_key = "COMBUTAB_MLP"
    ag_name = "CombuTabMLP"
    estimators = (combutab.MLPClassifier, combutab.MLPRegressor)
    n_networks = 2


class CombuTabTabMModel(_CombuTab):
    """`TabMClassifier` and `TabMRegressor`."""

    ag_key = "COMBUTAB_TABM"
    ag_name = "CombuTabTabM"
    estimators = (combutab.TabMClassifier, combutab.TabMRegressor)
    n_networks = 32


class CombuTabPackModel(_CombuTab):
    """`PackClassifier` and `PackRegressor`.

    With rows to validate on, as AutoGluon's bagging gives each fold's model, they choose by these.
    """

    ag_key = "COMBUTAB_PACK"
    ag_name = "CombuTabPack"
    estimators = (combutab.PackClassifier, combutab.PackRegressor)
    n_networks = 16

    def _time_params(self, seconds: float | None) -> dict[str, Any]:
        return {} if seconds is None else {"max_time": 0.9 * seconds}


MODELS = (CombuTabMLPModel, CombuTabTabMModel, CombuTabPackModel)
