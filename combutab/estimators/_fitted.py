"""A fitted estimator: its attributes, its network, which predicts, and its file."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.functional import pad

from combutab._model_files import (
    ACTIVATION,
    Loadable,
    Saved,
    check_layers,
    check_state,
    encode,
)
from combutab.core.device import (
    PRECISIONS,
    Precision,
    guard_forks,
    limit_threads,
    network_threads,
    resolve_device,
)
from combutab.core.files import (
    check_fields,
    choice,
    kind,
    nullable,
    number,
    optional,
    pair,
    several,
    whole,
)
from combutab.core.parameters import table_tags
from combutab.core.state import unpack
from combutab.core.text import list_names
from combutab.estimators._export import Exports, TableModule
from combutab.estimators._jobs import Job, OutOfFold
from combutab.estimators._parameters import Parameters
from combutab.estimators._targets import Answer, ConformalScores, Target, check_scores
from combutab.nn import NTK, ActivationSpec, Member, MLPSpec, NetworkSpec, TableNetwork
from combutab.preprocessing import EncodedTable, TableEncoder
from combutab.training import MemberResult, is_per_step

# ---- Outputs of a fitted network for validation rows ---------------------------------------------

_ROWS = 2048  # looked at, and computed at a time


def validation_outputs(job: Job, results: Sequence[MemberResult]) -> list[tuple[Tensor, Tensor]]:
    """Positions of validation rows, and raw outputs, (n_networks, n, n_outputs), of their members.

    Each row is predicted by an epoch, and with a temperature, that was chosen without it. It is
    empty without validation rows.
    """
    raws = [result.held_out.double() for result in results if result.held_out is not None]
    rows = [plan.val_rows for plan in job.plans[: len(raws)] if plan.val_rows is not None]
    if raws and not job.has_folds:  # all members predict the same rows
        rows, raws = rows[:1], [torch.stack(raws)]
    else:
        raws = [raw[None] for raw in raws]
    return list(zip(rows, raws, strict=True))


def held_out_answers(
    out_of_fold: OutOfFold, outputs: Sequence[tuple[Tensor, Tensor]], target: Target
) -> np.ndarray:
    """Predictions for the rows that were set aside, (n_given, ...), NaN for others."""
    predictions = [target.held_out(raw) for _, raw in outputs]
    values = np.full((out_of_fold.n_given, *predictions[0].shape[1:]), np.nan)
    for (positions, _), predicted in zip(outputs, predictions, strict=True):
        values[out_of_fold.rows[positions.numpy()]] = predicted
    return values


@torch.inference_mode()
def held_out_outputs(net: TableNetwork, job: Job) -> Tensor:
    """Raw outputs of each row by a member that set it aside, (n_heads, n, n_outputs).

    NaN where there is no such member.
    """
    assert job.out_of_fold is not None
    raw = torch.full((net.n_heads, len(job.out_of_fold.rows), job.spec.n_outputs), torch.nan)
    raw = raw.to(net.dtype)
    held_out = [plan.val_rows for plan in job.plans[: net.n_members]]
    folds = [rows for rows in held_out if rows is not None]
    longest, chunk = max(map(len, folds)), max(1, _ROWS // len(folds))
    index = torch.stack([pad(fold, (0, longest - len(fold))) for fold in folds])
    for start in range(0, longest, chunk):
        part = index[:, start : start + chunk]
        codes = None if job.rows.codes is None else job.rows.codes[part].to(net.device)
        with job.config.precision.context(net.device)():
            outputs = net(job.rows.dense[part].to(net.device), codes)
        by_head = outputs.to(net.dtype).cpu().unflatten(1, (-1, net.n_heads))
        for fold, fold_outputs in zip(folds, by_head, strict=True):  # (b, n_heads, n_outputs)
            positions = fold[start : start + chunk]
            raw[:, positions] = fold_outputs[: len(positions)].transpose(0, 1)
    return raw


def scored_outputs(net: TableNetwork, job: Job) -> tuple[Tensor, Tensor]:
    """Raw outputs, (n_networks, n, n_outputs), for rows that the fit is scored on, and which.

    These are the validation rows, or without any the training rows; a sample of many rows.
    """
    if job.out_of_fold is not None and job.has_folds:
        outputs = held_out_outputs(net, job)
        held_out = [plan.val_rows for plan in job.plans[: net.n_members]]
        left_out = torch.cat([rows for rows in held_out if rows is not None]).unique()
        return outputs[:, left_out], left_out
    plan = job.plans[0]
    rows = plan.rows if plan.val_rows is None else plan.val_rows
    if len(rows) > _ROWS:
        sample = np.random.default_rng(0).permutation(len(rows))[:_ROWS]
        rows = rows[torch.from_numpy(sample)]
    codes = None if job.rows.codes is None else job.rows.codes[rows]
    context = job.config.precision.context(net.device)
    return net.predict(job.rows.dense[rows], codes, _ROWS, context).cpu(), rows


# ---- Attributes of a fitted estimator, from what training found ----------------------------------


@dataclass(frozen=True)
class Unfinished:
    """A warning of training that was cut short, diverged or did not converge."""

    text: str
    category: type[Warning]
    members: tuple[int, ...]
    n_members: int

    @property
    def words(self) -> str:
        """The text; with several members, also the numbers of those that it is about."""
        if self.n_members == 1:
            return self.text
        numbers = list_names(self.members)
        return f"{self.text} ({len(self.members)} of {self.n_members} members: {numbers})"


def unfinished(
    job: Job, results: Sequence[MemberResult], *, converges: bool, in_parts: bool = False
) -> list[Unfinished]:
    """Collect the warnings of training that was cut short, or has not converged as expected.

    With ``in_parts``, a call of ``fit`` is one of several, and the last one is not known.
    """
    config, solver = job.config, job.config.optimizer.solver
    by_reason = defaultdict[str, list[int]](list)  # positions of members
    for i, result in enumerate(results):
        by_reason[result.reason].append(i)
    late = by_reason["max_iter"]
    members_by_text = {
        "Training diverged; the weights of its best epoch are kept. Lower learning_rate_init="
        f"{job.plans[0].learning_rate}, or set max_grad_norm.": by_reason["diverged"]
    }
    if config.score is not None and not any(np.isfinite(r.best_score) for r in results):
        members_by_text[
            "No epoch has a validation score that is a number: the weights of the last are kept. "
            "See early_stopping_scoring."
        ] = list(range(len(results)))
    # n_iter_no_change=inf and schedules over all epochs ask for max_iter epochs
    planned = np.isinf(config.n_iter_no_change) or is_per_step(config.learning_rate)
    if solver == "lbfgs" and late:
        members_by_text[
            f"lbfgs failed to converge after {results[late[0]].epochs} iteration(s); increase "
            f"max_iter={config.max_epochs} or max_fun={job.max_fun}"
        ] = late
    elif converges and (in_parts or not planned):
        members_by_text[
            f"Stochastic Optimizer: Maximum iterations ({config.max_epochs}) reached and the "
            "optimization hasn't converged yet."
        ] = late
    interrupted = "Training interrupted by user: the best weights so far are kept."
    notes = [(interrupted, UserWarning, by_reason["interrupted"])]
    notes += [(text, ConvergenceWarning, members) for text, members in members_by_text.items()]
    return [
        Unfinished(text, category, tuple(members), len(results))
        for text, category, members in notes
        if members
    ]


def _history(results: Sequence[MemberResult]) -> pd.DataFrame:
    """Tidy history: one row a member and epoch."""
    frames = [
        pd.DataFrame(
            {
                "member": i,
                "epoch": np.arange(1, len(r.train_loss) + 1) + r.epochs - len(r.train_loss),
                "train_loss": r.train_loss,
                "train_metric": r.train_metric or np.nan,
                "validation_score": r.validation_score or np.nan,
                "learning_rate": r.learning_rate,
            }
        )
        for i, r in enumerate(results)
    ]
    return pd.concat(frames, ignore_index=True)


# ---- A fitted estimator as a file, and back: its declared fields, and how its parts must agree

_COUNT, _LONG, _ANY = whole(), whole(0, 2**62), number(finite=False)
_CURVE = several(_ANY)
_PROGRESS = {
    "epochs": _COUNT,
    "t": _LONG,
    "best_loss": nullable(_ANY),
    "n_idle": _COUNT,
    "learning_rate": nullable(number()),
}
CONFORMAL = optional(several(kind(ConformalScores)))
# all that fit sets besides: a file that names others is refused
_FITTED = {
    "t_": _LONG,
    "n_iter_": _COUNT,
    "loss_": nullable(_ANY),
    "best_loss_": nullable(_ANY),
    "loss_curve_": optional(_CURVE),
    "validation_scores_": nullable(_CURVE),
    "best_validation_score_": nullable(_ANY),
    "_seed": whole(0, 2**64),
    "_trained": pair(several(ACTIVATION, 1), choice(*PRECISIONS)),
    "_architecture": kind(dict),
    "_seeded": nullable(whole(0, 2**64)),
    "_conformal": CONFORMAL,
}


# ---- A fitted estimator: its network, which predicts, its weights as arrays, and a file of it ----

# Matrix products round otherwise in the rows left over from their blocks: with a multiple of this
# many rows a prediction depends on the other rows by the last bit at most.
_MIN_ROWS = 16
_PREDICT_UNITS = 1 << 20  # units of a layer computed at a time: a few MB, within the caches


class LearnedTable:
    """The part of a fitted model that is learned before any network is trained."""

    encoder_: TableEncoder
    target_: Any  # a Target, of the class's own kind
    n_features_in_: int
    n_outputs_: int
    out_activation_: str

    def _adopt(self, encoder: TableEncoder, target: Target) -> None:
        """Set the fitted encoder and target."""
        self.encoder_, self.target_ = encoder, target
        self.n_features_in_ = encoder.n_features_in_
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_
        self.__dict__.update(target.attributes())


class Fitted(LearnedTable, Parameters, Exports, Loadable):
    """A fitted estimator, its predictions and its file.

    Attributes
    ----------
    encoder_ : TableEncoder
        Fitted encoding of the table's columns.
    loss_ : float
        Training loss of the last epoch. With several networks, this and the other attributes of a
        single network are those of the first one; ``history_`` has all of them.
    best_loss_ : float or None
        Smallest training loss; None if there are validation rows.
    loss_curve_ : list of float
        Training loss of each epoch.
    validation_scores_ : list of float or None
        ``early_stopping_scoring`` of the validation rows after each epoch; larger is better. None
        without validation rows.
    best_validation_score_ : float or None
        Largest validation score. The weights of its epoch are kept.
    t_ : int
        Number of training rows processed so far, over all epochs.
    coefs_, intercepts_ : list of ndarray
        Weights, of shape (in, out), and biases of each layer.
    n_iter_ : int
        Number of epochs (lbfgs: iterations).
    n_layers_ : int
        Number of layers, including the input and output layers.
    n_outputs_ : int
        Number of output units, as in scikit-learn.
    out_activation_ : str
        Name of the output activation.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, if all are strings.
    history_ : DataFrame
        One row per network and epoch: train_loss, train_metric (with ``track_metric``),
        validation_score, learning_rate.
    """

    history_: pd.DataFrame
    n_layers_: int
    _spec: NetworkSpec
    _states: list[dict[str, np.ndarray]]  # of the members' networks
    _progress: list[dict[str, Any]]  # of the members' training
    _trained: tuple[tuple[ActivationSpec, ...], str]  # the members' activations; the precision
    _architecture: dict[str, Any]  # the architecture parameters of the first fit
    _seed: int
    _seeded: int | None  # the random_state that it came of
    _network: TableNetwork | None = None  # built when first needed

    _target_class: ClassVar[type[Target]]
    _given_outputs: Tensor | None = None  # replace those of the network
    _conformal: Sequence[ConformalScores]

    def _fitted_attributes(
        self, job: Job, results: Sequence[MemberResult], *, is_new: bool
    ) -> dict[str, Any]:
        """The results of a training by attribute; curves continue unless it ``is_new``.

        Raises ValueError if training diverged, or a weight is not finite.
        """
        curve, scores = (
            [] if is_new else getattr(self, name, None) or []
            for name in ("loss_curve_", "validation_scores_")
        )
        first, trained = results[0], job.members[: len(results)]  # fewer after an interrupt
        finite = all(torch.isfinite(v).all() for r in results for v in r.state.values())
        has_diverged = any(
            r.reason == "diverged" and not np.isfinite(r.best_score) for r in results
        )
        if not finite or has_diverged:  # with validation rows there are the best weights before
            raise ValueError(
                "Solver produced non-finite parameter weights. The input data may contain large "
                "values and need to be preprocessed. Or lower learning_rate_init="
                f"{job.plans[0].learning_rate}, or set max_grad_norm."
            )
        scored = job.config.score is not None
        attributes: dict[str, Any] = {
            "_states": [{n: v.numpy() for n, v in r.state.items()} for r in results],
            "_progress": [
                {
                    "epochs": r.epochs,
                    "t": r.t,
                    "best_loss": r.best_loss,
                    "n_idle": r.n_iter_no_improvement,
                    "learning_rate": r.next_learning_rate,
                    "optimizer": {n: v.numpy() for n, v in r.optimizer.items()},
                }
                for r in results
            ],
            "_network": None,
            "_trained": (tuple(member.activation for member in trained), job.config.precision.name),
            "n_layers_": len(job.spec.widths),
            "t_": first.t,
            "n_iter_": len(first.train_loss),
            "loss_": first.train_loss[-1] if first.train_loss else first.best_loss,
            "loss_curve_": [*curve, *first.train_loss],
            "best_loss_": None if scored else first.best_loss,
            "validation_scores_": [*scores, *first.validation_score] if scored else None,
            "best_validation_score_": first.best_score if scored else None,
            "history_": _history(results),
        }
        if job.config.optimizer.solver == "lbfgs":
            del attributes["loss_curve_"]
            attributes |= {"n_iter_": first.epochs, "loss_": first.best_loss}
        return attributes

    # skops.io takes arrays and our own types, and no frame of pandas
    def __getstate__(self) -> dict[str, Any]:
        state = {**super().__getstate__(), "_network": None}
        if isinstance(state.get("history_"), pd.DataFrame):
            state["history_"] = {name: c.to_numpy() for name, c in state["history_"].items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("history_"), dict):
            state = {**state, "history_": pd.DataFrame(state["history_"])}
        super().__setstate__(state)

    @torch.inference_mode(False)  # weights that predict has built can be differentiated, too
    def network(self) -> TableNetwork:
        """The members as one stack, built from their saved states when first needed."""
        device = resolve_device(self.device)
        if self._network is None or self._network.device != device:
            self._network = build_network(self, device)
        return self._network

    def _exported(self, dtype: torch.dtype | None) -> TableModule:
        net = build_network(self, dtype=dtype).unflatten()
        return TableModule(self.encoder_, [net], Answer(self.target_))

    def _raw(self, X: Any) -> Tensor:
        """Raw outputs of every member and head: (n_networks, n_samples, n_outputs), on the CPU."""
        check_is_fitted(self)
        if self._given_outputs is not None:
            return self._given_outputs
        guard_forks()
        return raw_outputs(self, self.encoder_.encode(X, owner=self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (safetensors with JSON in its header).

        It can be loaded on any device. After an error there is no incomplete file.

        Notes
        -----
        The file contains no rows and no optimiser state. It contains:

        - the names and kinds of the columns, and which had missing values;
        - the categories that at least ``min_frequency`` rows have, and the share of rows with one
          of them, to two digits;
        - for numbers and dates, mean and standard deviation (rounded to two digits if fewer than
          ``min_frequency`` rows have a value), or quantiles and edges of bins, which lie between
          means of ``min_frequency`` neighbouring rows;
        - for dates, the time zone, and the parts that vary;
        - all labels of a classifier, or mean and standard deviation of a regressor's targets;
        - up to 1,000 quantiles of the prediction errors on rows set aside (for classifiers, also of
          each class), rounded up to three digits, for intervals and sets of labels;
        - the losses, the scores and the parameters;
        - the weights, which were trained on all rows. What can be computed from them about single
          rows is not bounded.

        It contains neither the smallest and largest value of a column nor rarer categories. A
        pickle also contains the optimiser state, the ``callbacks``, and the ``oof_`` predictions of
        each row.

        Raises
        ------
        ValueError
            If a parameter cannot be saved without code, such as a custom activation.
        """
        super().save(path)

    def _to_save(self) -> tuple[Iterable[str], dict[str, Any]]:
        progress = [
            {name: encode(value, name) for name, value in member.items() if name != "optimizer"}
            for member in self._progress
        ]
        target = {name: encode(value, name) for name, value in self.target_.to_state().items()}
        parts = {"shape": self._spec.to_json(), "target_state": target, "progress": progress}
        return [name for name in _FITTED if hasattr(self, name)], parts

    def _restore(self, saved: Saved) -> None:
        """Set the contents of a file after checking that its parts agree."""
        for name in saved.fitted:
            if name not in _FITTED:
                raise ValueError(f"it sets {name!r}, which no estimator learns")
        check_fields(saved.fitted, _FITTED, "what was fitted")
        self.__dict__.update(saved.fitted)
        header = saved.header
        self._spec = NetworkSpec.from_json(header["shape"])
        arrays, self._states = saved.arrays()
        target = unpack(header["target_state"])
        encoder = TableEncoder.from_state(arrays, header["encoder"])
        self._adopt(encoder, self._target_class.from_state(target))
        self._progress = []
        for member in header["progress"]:
            progress = unpack(member)
            check_fields(progress, _PROGRESS, "the progress")
            self._progress.append({**progress, "optimizer": {}})
        self.history_, self.n_layers_ = saved.history, len(self._spec.widths)
        self._check_agreement()

    def _check_agreement(self) -> None:
        """Refuse parts of a file that do not belong together, naming the first."""
        spec, encoder, n_members = self._spec, self.encoder_, len(self._states)
        for name, expected, actual in (
            ("n_dense", spec.n_dense, encoder.n_dense_),
            ("cardinalities", spec.cardinalities, encoder.cardinalities_),
            ("n_outputs", spec.n_outputs, self.target_.n_raw_outputs),
            ("n_members", len(self._trained[0]), n_members),
            ("progress", len(self._progress), n_members),
        ):
            if expected != actual:
                raise ValueError(
                    f"{name} is {str(expected)[:100]}, the rest of it has {str(actual)[:100]}"
                )
        check_scores(self.target_, self._conformal)
        for state in self._states:
            check_layers(state, spec.array_shapes())
        net = self.network()
        for i, state in enumerate(self._states):
            check_state(state, net.member_state(i))
        dense = torch.zeros(1, spec.n_dense, dtype=net.dtype)
        codes = torch.zeros(1, len(spec.cardinalities), dtype=torch.int64)
        if not net.predict(dense, codes, 1).isfinite().all():
            raise ValueError("its weights give predictions that are not finite")

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
            view.flags.writeable = False  # predict does not use these arrays
        return views

    # ---- scikit-learn's questions --------------------------------------------------------------

    def _fit_facts(self) -> dict[str, str]:
        layers = " → ".join(map(str, self._spec.widths))
        facts = {"networks": f"{len(self._states)}", "units": layers}
        return facts if len(self.history_) else {**facts, "trained": f"{self.n_iter_} iterations"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_states")

    def __sklearn_tags__(self) -> Any:
        tags = table_tags(super().__sklearn_tags__(), sparse=True)
        tags.non_deterministic = False
        return tags


def _padded(array: np.ndarray) -> Tensor:
    """A multiple of ``_MIN_ROWS`` rows, the last repeated."""
    missing = -len(array) % _MIN_ROWS
    if missing:
        array = np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
    return torch.from_numpy(array)


def build_network(
    estimator: Fitted, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> TableNetwork:
    """Build the members as a new stack for predictions, with the weights of their saved states."""
    activations, precision = estimator._trained
    net = estimator._spec.build(
        [Member(0, activation, drawn=False) for activation in activations],
        dtype=dtype or Precision(precision).dtype,
        device=device,
    )
    for i, state in enumerate(estimator._states):
        net.load_member(i, {n: torch.from_numpy(v) for n, v in state.items()})
    return net.eval()


@torch.inference_mode()
def raw_outputs(estimator: Fitted, table: EncodedTable) -> Tensor:
    """Raw outputs of encoded rows as float64, for any precision of the network."""
    net = estimator.network()
    context = Precision(estimator._trained[1]).context(net.device)
    units = estimator._spec.peak_units * net.n_members
    chunk = _PREDICT_UNITS // units // _MIN_ROWS * _MIN_ROWS or _MIN_ROWS
    n_rows = len(table.dense)
    n_full = n_rows // chunk * chunk  # of these rows no copy is made
    parts = []
    flops = 2.0 * min(chunk, n_rows) * net.n_heads * net.flat.values.numel()
    with limit_threads(network_threads(flops)):
        for dense, codes in (
            (torch.from_numpy(table.dense[:n_full]), torch.from_numpy(table.codes[:n_full])),
            (_padded(table.dense[n_full:]), _padded(table.codes[n_full:])),
        ):
            if len(dense):
                parts.append(net.predict(dense.to(net.dtype), codes, chunk, context).cpu())
    return torch.cat(parts, 1)[:, :n_rows].double()


# ---- Unfitted estimators for a last training on all rows -----------------------------------------


def clone_for_all_rows(estimator: Any) -> Any:
    """Build an unfitted estimator like a fitted one, for training on all rows.

    Its networks train for the median of the best epochs of the fitted networks, and set no rows
    aside. A pack chooses its ensemble by cross-validation instead, so that all rows are used for
    training.

    Parameters
    ----------
    estimator : fitted classifier or regressor of this library
        It must have set rows aside for validation.

    Returns
    -------
    estimator of the same class, not fitted

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from combutab import MLPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = MLPRegressor(max_iter=5, n_iter_no_change=float("inf"), random_state=0).fit(X, y)
    >>> final = clone_for_all_rows(reg).fit(X, y)
    >>> final.max_iter <= 5, final.early_stopping
    (True, False)
    """
    parameters = estimator.get_params(deep=False)
    if hasattr(estimator, "cv"):
        return type(estimator)(**parameters | {"cv": "auto"})
    history = estimator.history_
    best_epochs = history.loc[history.groupby("member")["validation_score"].idxmax(), "epoch"]
    parameters |= {"max_iter": int(np.median(best_epochs)), "n_members": len(best_epochs)}
    parameters |= {"early_stopping": False, "validation_split": None, "n_iter_no_change": np.inf}
    parameters |= {"bagging": None} if "bagging" in parameters else {}
    return type(estimator)(**parameters)
