"""MLP, TabM and pack as AutoGluon models, as TabArena's board takes them.

What a model is asked for: `_fit` with AutoGluon's own validation rows, a limit in seconds and a
number of processors; an estimate of its memory before that; a space of parameters to search.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from autogluon.common.utils.resource_utils import ResourceManager
from autogluon.core.models import AbstractModel

import combutab
from combutab.training import TimeLimit


class _CombuTab(AbstractModel):
    """What the three have in common; a subclass names the estimators."""

    estimators: ClassVar[tuple[type, type]]  # of classes, of numbers
    n_networks: ClassVar[int]  # that train at a time
    seed_name = "random_state"

    def _fit(
        self, X: Any, y: Any, X_val: Any = None, time_limit: float | None = None, **more: Any
    ) -> None:
        torch.set_num_threads(max(1, int(more.get("num_cpus", 1))))
        X = self.preprocess(X, y=y, is_train=True)
        params = {**self._get_model_params(), "device": "cuda" if more.get("num_gpus") else "cpu"}
        held = None if X_val is None else self.preprocess(X_val)
        if time_limit is not None:
            params |= self._time_params(max(1.0, time_limit))
        self.model = self.estimators[self.problem_type == "regression"](**params)
        rest = (y, more.get("sample_weight"), more.get("y_val"))
        y, weight, y_val = (None if each is None else np.asarray(each) for each in rest)
        self.model.fit(X, y, weight, X_val=held, y_val=y_val)

    def _time_params(self, seconds: float) -> dict[str, Any]:
        """What ends the training in time."""
        return {"callbacks": [TimeLimit(0.9 * seconds)]}

    def _set_default_params(self) -> None:
        self._set_default_param_value("random_state", 0)

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        return ["binary", "multiclass", "regression"]

    def _get_default_auxiliary_params(self) -> dict[str, Any]:
        kinds = ["int", "float", "category", "bool", "datetime"]
        return super()._get_default_auxiliary_params() | {"valid_raw_types": kinds}

    def _get_default_resources(self) -> tuple[int, int]:
        return ResourceManager.get_cpu_count(only_physical_cores=True), 0

    def _estimate_memory_usage(self, X: pd.DataFrame, **kwargs: Any) -> int:
        given = {"problem_type": self.problem_type, "num_classes": self.num_classes}
        return self.estimate_memory_usage_static(X=X, **given, **kwargs)

    @classmethod
    def _estimate_memory_usage_static(
        cls, *, X: pd.DataFrame, num_classes: int | None = 1, **kwargs: Any
    ) -> int:
        """Bytes: torch, six copies of the encoded table, eight of the weights of all networks.

        The table's are held while it is encoded and trained on; the weights' are gradients,
        moments, the best epoch and snapshots.
        """
        texts = X.select_dtypes(["category", "object"])
        columns = 2 * X.shape[1] + sum(min(8, X[text].nunique()) - 1 for text in texts)
        outputs = max(1, num_classes or 1)
        weights = sum(a * b for a, b in pairwise([5 * columns, 256, 256, 256, outputs]))
        numbers = 6 * len(X) * columns + 8 * cls.n_networks * weights
        return int(400e6 + 4 * numbers + 8 * len(X) * outputs)

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

    def _time_params(self, seconds: float) -> dict[str, Any]:
        return {"max_time": 0.9 * seconds}


MODELS = (CombuTabMLPModel, CombuTabTabMModel, CombuTabPackModel)
