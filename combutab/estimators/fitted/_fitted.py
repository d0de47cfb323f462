"""A fitted estimator: its network, which predicts, its weights as arrays, and a file of it."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from combutab._device import Precision, mind_forks, resolve_device
from combutab._fields import Field
from combutab._model_files import Loadable, Saved
from combutab.estimators._parameters import Parameters
from combutab.estimators.export import Exports, TableModule
from combutab.estimators.fitted._outcome import LazyNetwork
from combutab.estimators.fitted._saving import parts_to_save, restore
from combutab.estimators.fitting import FitHandout, TrainedFit
from combutab.nn import NTK, ActivationSpec, Member, MLPSpec, NetworkSpec, TableNetwork
from combutab.preprocessing import EncodedTable, TableEncoder

# Matrix products round otherwise in the rows left over from their blocks: with a multiple of this
# many rows a prediction depends on the rows beside it by the last bit at most.
_MIN_ROWS = 16
_PREDICT_UNITS = 1 << 20  # units of a layer computed at a time: a few MB, within the caches


class Fitted(Parameters, Exports, Loadable):
    """A fitted estimator, and what it can do without its data."""

    encoder_: TableEncoder
    history_: pd.DataFrame
    n_features_in_: int
    n_layers_: int
    n_outputs_: int
    out_activation_: str
    _spec: NetworkSpec
    _states: list[dict[str, np.ndarray]]  # of the members' networks
    _progress: list[dict[str, Any]]  # of the members' training
    _trained: tuple[tuple[ActivationSpec, ...], str]  # the members' activations; the precision
    _made_with: dict[str, Any]  # the parameters that the first fit settled
    _seed: int
    _seeded: int | None  # the random_state that it came of
    _net: LazyNetwork

    _fitted_fields: ClassVar[Mapping[str, Field]]
    """Attributes that the class learns of its target, as a file may have them."""

    @abstractmethod
    def _check_loaded(self) -> dict[str, tuple[object, object]]:
        """Return what must be equal in a loaded estimator of this class, by name."""

    # skops.io takes arrays and our own types, and no frame of pandas
    def __getstate__(self) -> dict[str, Any]:
        state = {**super().__getstate__()}
        if isinstance(state.get("history_"), pd.DataFrame):
            state["history_"] = {name: c.to_numpy() for name, c in state["history_"].items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("history_"), dict):
            state = {**state, "history_": pd.DataFrame(state["history_"])}
        super().__setstate__(state)

    @torch.inference_mode(False)  # weights that predict has built can be differentiated, too
    def _network(self) -> TableNetwork:
        """The members as one stack, built from their saved states when first needed."""
        device = resolve_device(self.device)
        net = self._net.network
        if net is None or net.device != device:
            net = self._net.network = self._built(device)
        return net

    def _built(
        self, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> TableNetwork:
        """The members as a new stack, of their saved states, for predictions."""
        activations, precision = self._trained
        net = self._spec.build(
            [Member(0, activation) for activation in activations],
            dtype=dtype or Precision(precision).dtype,
            device=device,
        )
        for i, state in enumerate(self._states):
            net.load_member(i, {n: torch.from_numpy(v) for n, v in state.items()})
        return net.eval()

    @abstractmethod
    def _answer(self) -> nn.Module:
        """What is made of raw outputs (n_networks, n, n_outputs)."""

    def _exported(self, dtype: torch.dtype | None) -> TableModule:
        net = self._built(dtype=dtype).unflatten()
        return TableModule(self.encoder_, [net], self._answer())

    def _raw(self, X: Any) -> Tensor:
        """Raw outputs of every member and head: (n_networks, n_samples, n_outputs), on the CPU.

        They are float32 where X is, else float64, as scikit-learn's predictions.
        """
        check_is_fitted(self)
        mind_forks()
        return self._outputs(self.encoder_.encode(X, owner=self)).to(float_dtype(X))

    @torch.inference_mode()
    def _outputs(self, table: EncodedTable) -> Tensor:
        """Raw outputs of encoded rows, in the network's dtype."""
        net = self._network()
        context = Precision(self._trained[1]).context(net.device)
        units = self._spec.peak_units * net.n_members
        chunk = _PREDICT_UNITS // units // _MIN_ROWS * _MIN_ROWS or _MIN_ROWS
        n_rows = len(table.dense)
        whole = n_rows // chunk * chunk  # of these rows no copy is made
        parts = []
        for dense, codes in (
            (torch.from_numpy(table.dense[:whole]), torch.from_numpy(table.codes[:whole])),
            (_padded(table.dense[whole:]), _padded(table.codes[whole:])),
        ):
            if len(dense):
                parts.append(net.predict(dense.to(net.dtype), codes, chunk, context).cpu())
        return torch.cat(parts, 1)[:, :n_rows]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (safetensors with JSON in its header).

        It loads on any device. It is written beside its place and moved there, so a failure leaves
        no half-written file.

        Notes
        -----
        The file holds no rows and no optimiser state. Of the training data it holds the names and
        kinds of the columns; categories that ``min_frequency`` rows or more have; of numbers and
        dates a mean and a deviation (of fewer than ``min_frequency`` rows: rounded to two digits),
        or quantiles (edges of bins, too) that lie between means of ``min_frequency`` neighbouring
        rows, and which columns had missing values; the classifier's labels, all of them; the mean
        and deviation of the regressor's targets; losses and scores; the parameters as they were
        given. It does not hold a column's smallest and largest value, nor rarer categories. The
        weights are learned from all rows, and no promise is made of what can be computed from them.
        A pickle holds the same, and the optimiser's state, the ``callbacks`` and the ``oof_``
        predictions of ``bagging="cv"``, one a row, beside it.

        Raises
        ------
        ValueError
            If a parameter cannot be written without code (a custom activation, say).
        """
        super().save(path)

    def _to_save(self) -> tuple[Iterable[str], dict[str, Any]]:
        return parts_to_save(self)

    def _restore(self, saved: Saved) -> None:
        restore(self, saved)

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weight matrices (in, out) of the first member; the first acts on encoded features."""
        return self._layer_arrays("weight")

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Bias vectors (out,) of the first member's layers."""
        return self._layer_arrays("bias")

    def _layer_arrays(self, name: str) -> list[np.ndarray]:
        if not hasattr(self, "_states"):
            raise AttributeError(f"{type(self).__name__} is not fitted: call fit first")
        state = self._states[0]
        arrays = [state[f"linears.{i}.{name}"] for i in range(self.n_layers_ - 1)]
        if name == "bias":
            views = [a[0].view() if len(a) == 1 else a.view() for a in arrays]
        elif isinstance(self._spec, MLPSpec) and self._spec.init in NTK:
            views = [a / np.sqrt(a.shape[-2]) for a in arrays]
        else:
            views = [a.view() for a in arrays]
        for view in views:
            view.flags.writeable = False  # what was written there, predict would not see
        return views

    # ---- scikit-learn's questions --------------------------------------------------------------

    _handout: FitHandout | None = None  # of the estimator that a stacked search clones
    _trained_fit: TrainedFit  # of one of the clones

    def __sklearn_clone__(self) -> Self:
        clone: Self = super().__sklearn_clone__()
        if self._handout is not None:
            self._handout.equip(clone)
        return clone

    def _fit_facts(self) -> dict[str, str]:
        layers = " → ".join(map(str, self._spec.widths))
        facts = {"networks": f"{len(self._states)}", "units": layers}
        return facts if len(self.history_) else {**facts, "trained": f"{self.n_iter_} iterations"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_states")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = False
        return tags


def float_dtype(X: Any) -> torch.dtype:
    """The dtype of a table's numbers: float32 where all columns are, else float64."""
    dtypes = getattr(X, "dtypes", None)  # of a frame
    dtypes = [getattr(X, "dtype", None)] if dtypes is None else dtypes
    names = {str(dtype).lower().rpartition(".")[2] for dtype in dtypes}  # as in torch.float32
    return torch.float32 if names == {"float32"} else torch.float64


def _padded(array: np.ndarray) -> Tensor:
    """A multiple of ``_MIN_ROWS`` rows, the last repeated."""
    missing = -len(array) % _MIN_ROWS
    if missing:
        array = np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
    return torch.from_numpy(array)
