"""A fitted estimator as a file, and back."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from combutab._device import resolve_device
from combutab._model_files import (
    decode,
    encode,
    make_model,
    model_header,
    read_model,
    with_prefix,
    write_model,
)
from combutab.estimators._lazy import LazyNetwork
from combutab.nn import MLPShape
from combutab.preprocessing import TableEncoder

# kept elsewhere in the file, or not part of a model
_NOT_IN_HEADER = {"_states", "_shape", "_net", "_progress", "encoder_", "history_"}
# all that fit sets besides: a file that names others is refused
_FITTED = {
    *("n_features_in_", "feature_names_in_", "classes_", "n_outputs_", "out_activation_"),
    *("n_layers_", "t_", "n_iter_", "loss_", "best_loss_", "loss_curve_", "validation_scores_"),
    *("best_validation_score_", "_seed", "_trained", "_multilabel", "_one_dimensional"),
    *("_trained_loss", "_y_mean", "_y_scale"),
}


def save_estimator(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; see ``Weights.save``."""
    check_is_fitted(model)
    arrays, encoder = model.encoder_.to_state()
    tensors = {f"encoder.{name}": array for name, array in arrays.items()}
    for i, state in enumerate(model._states):
        for name, array in state.items():
            tensors[f"member.{i}.{name}"] = array
    parameters = model.get_params(deep=False)
    history = model.history_.to_dict("list")
    header = {
        **model_header(model),
        "fitted": {
            name: encode(value, name)
            for name, value in vars(model).items()
            if name not in _NOT_IN_HEADER and name not in parameters
        },
        "shape": asdict(model._shape),
        "encoder": encoder,
        "n_members": len(model._states),
        "progress": [
            {name: encode(value, name) for name, value in member.items() if name != "optimizer"}
            for member in model._progress
        ],
        "history": {name: encode(column, name) for name, column in history.items()},
    }
    write_model(path, header, tensors)


def load_estimator(cls: Any, path: str | os.PathLike[str], device: str | torch.device) -> Any:
    """Read a fitted estimator of this class; see ``Weights.load``."""
    header, tensors = read_model(path)
    resolve_device(device)
    try:
        return _rebuild(cls, path, header, tensors, device)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path} is damaged: its header and arrays do not make a {cls.__name__} ({error!r})"
        ) from error


def _rebuild(
    cls: Any,
    path: str | os.PathLike[str],
    header: dict[str, Any],
    tensors: dict[str, np.ndarray],
    device: str | torch.device,
) -> Any:
    model = make_model(cls, path, header, device)
    for name, value in header["fitted"].items():
        if name not in _FITTED:
            raise ValueError(f"{path} sets {name!r}, which no estimator learns")
        setattr(model, name, decode(value))
    shape = {n: tuple(v) if isinstance(v, list) else v for n, v in header["shape"].items()}
    model._shape = MLPShape(**shape)  # type: ignore[arg-type]
    model.encoder_ = TableEncoder.from_state(with_prefix(tensors, "encoder."), header["encoder"])
    model._states = [with_prefix(tensors, f"member.{i}.") for i in range(header["n_members"])]
    model._progress = [
        {**{n: decode(v) for n, v in member.items()}, "optimizer": {}}
        for member in header["progress"]
    ]
    model.history_ = pd.DataFrame({n: decode(v) for n, v in header["history"].items()})
    model._net = LazyNetwork()
    model._network()  # names and shapes fit the network, or it says which does not
    return model
