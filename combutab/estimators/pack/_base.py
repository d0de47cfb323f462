"""The base of PackClassifier and PackRegressor: from a table to an ensemble of snapshots."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, Options
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from combutab._device import mind_forks
from combutab._fitted_html import FittedHTML
from combutab._model_files import Loadable, Saved
from combutab._random import Purpose, derive
from combutab._random_state import seed_from
from combutab._seconds import parse_seconds
from combutab._sklearn_callbacks import CallbackSupport, fit_task
from combutab._suggestions import known_instead
from combutab.estimators._base import BaseMLP
from combutab.estimators.export import Exports, TableModule
from combutab.estimators.fitted import float_dtype
from combutab.estimators.fitting import Job, answering
from combutab.estimators.pack._ensemble import choose, history, make_groups, member_table
from combutab.estimators.pack._folds import given_folds, split_folds
from combutab.estimators.pack._members import Recipe, draw_members
from combutab.estimators.pack._saving import parts_to_save, restore
from combutab.estimators.pack._training import Track, member_jobs, train_members
from combutab.nn import ActivationSpec
from combutab.training import uninterrupted

_OF_THE_PACK = {  # parameters of members that are the pack's to set
    *(
        "activation",
        "n_members",
        "bagging",
        "random_state",
        "device",
        "verbose",
        "callbacks",
        "warm_start",
    ),
    *("max_iter", "n_iter_no_change", "early_stopping", "early_stopping_scoring"),
    *("validation_fraction", "categorical_features", "track_metric", "max_fun"),
}


class _Kept(FittedHTML, CallbackSupport, Exports, Loadable):
    """What a fit keeps."""

    members_: pd.DataFrame
    validation_loss_: float | None
    best_member_validation_loss_: float | None
    history_: pd.DataFrame
    _groups: list[BaseMLP]
    _picks: list[int]  # positions in the groups' members, which may repeat


@dataclass(eq=False, repr=False, kw_only=True)
class BasePack(_Kept):
    """The story of a pack: draw members, encode, train, choose, keep.

    Members are plain estimators, of the class that a subclass names; what is kept of them are the
    groups, one a shape of network, each such an estimator of several members.
    """

    n_members: int = 16
    activations: Sequence[ActivationSpec] = ("combu", "mish", "selu", "relu", "pln-8", "la-silu")
    max_time: float | str | None = None
    cv: Any = None
    validation_fraction: float = 0.2
    max_ensemble_size: int = 32
    max_iter: int = 80
    n_iter_no_change: float = 16
    member_params: Mapping[str, Any] | None = None
    categorical_features: Any = "from_dtype"
    random_state: Any = None
    device: str | torch.device = "auto"
    verbose: bool | int = False
    n_jobs: int | None = None

    _parameter_constraints: ClassVar[Mapping[str, Sequence[object]]] = {
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "activations": [list, tuple],
        "max_time": [None, str, Interval(Real, 0, None, closed="neither")],
        "cv": ["cv_object"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "max_ensemble_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left"), Options(Real, {np.inf})],
        "member_params": [dict, None],
        "categorical_features": BaseMLP._parameter_constraints["categorical_features"],
        "random_state": BaseMLP._parameter_constraints["random_state"],
        "device": [str, torch.device],
        "verbose": ["verbose"],
        "n_jobs": [Integral, None],
    }
    _recipe: ClassVar[Recipe]
    _member_class: ClassVar[type[BaseMLP]]
    _encoding_class: ClassVar[type[BaseMLP]]  # encodes the table, and sets rows aside
    _passed_on: ClassVar[tuple[str, ...]]  # parameters of the pack that all members have
    _learned: ClassVar[tuple[str, ...]] = ("n_features_in_", "feature_names_in_", "n_outputs_")

    # ---- fit ---------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Fit to a table.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
            Columns may be numeric, boolean, categorical, text or dates, with missing values.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Rows of weight 0 are left out.
        X_val, y_val : as X and y, optional
            Your own rows to choose by, instead of a part of these.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the data or ``member_params`` cannot be used, or all members diverged.
        """
        deadline = time.perf_counter() + parse_seconds(self.max_time)
        seed = seed_from(self.random_state)
        members = self._draw(seed)
        self._check_given(X, X_val)
        for name in ("_groups", *self._learned):
            self.__dict__.pop(name, None)
        encoding = self._encoding(seed)
        prepared = encoding._encode(X, y, sample_weight, X_val, y_val, split=self.cv is None)
        parameters = encoding.get_params(deep=False)
        learned = {n: v for n, v in vars(encoding).items() if n not in parameters}
        for member in members:
            member.__dict__.update(learned)
        folds = [prepared]
        if isinstance(self.cv, Integral):
            folds = split_folds(prepared, int(self.cv), seed, members[0])
        elif self.cv is not None:
            folds = given_folds(prepared, self.cv, X, y, sample_weight)
            self._check_room(len(folds))
        jobs, tracks = member_jobs(members, folds)

        def say(n_trained: int) -> None:
            losses = [s.loss for track in tracks for s in track.snapshots()]
            best = f", best loss = {min(losses):.6f}" if np.isfinite(losses).any() else ""
            print(f"{n_trained} of {len(members)} members trained{best}")

        with fit_task(self, X, y, sample_weight, n_parts=len(members)) as task:

            def tell(n_trained: int) -> None:
                if self.verbose:
                    say(n_trained)
                if task is not None:
                    task.count("member", n_trained)

            interrupted = train_members(jobs, tracks, deadline, self.n_jobs, tell)
            return self._keep(members, jobs, tracks, interrupted=interrupted)

    def _encoding(self, seed: int) -> BaseMLP:
        """Make the estimator that encodes the table, and sets rows aside."""
        return self._encoding_class(
            **self._shared(), early_stopping="auto", random_state=seed % (1 << 32)
        )

    def _set_aside(self, y: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """As of a plain estimator; None also where ``cv`` has all rows train."""
        return (
            None
            if self.cv is not None
            else self._encoding(seed_from(self.random_state))._set_aside(y)
        )

    def _draw(self, seed: int) -> list[BaseMLP]:
        """Make the members; a ValueError, before any work, if one of them cannot be made."""
        if not self.activations:
            raise ValueError(
                "activations is empty: name at least one, such as activations=('relu',)"
            )
        for activation in self.activations:
            if not (isinstance(activation, str) or callable(activation)):
                raise ValueError(
                    "activations must hold names or callables width -> nn.Module, got "
                    f"{activation!r}"
                )
        if isinstance(self.cv, Integral):
            self._check_room(int(self.cv))
        members = []
        drawn = draw_members(self._recipe, self.n_members, self.activations, seed)
        for i, settings in enumerate(drawn):
            member = self._checked_member(settings)
            member.random_state = derive(seed, Purpose.MEMBER, i) % (1 << 32)
            members.append(member)
        return members

    def _check_room(self, n_folds: int) -> None:
        """Refuse more folds than members, or than the ensemble may have."""
        for name in ("n_members", "max_ensemble_size"):
            if getattr(self, name) < n_folds:
                raise ValueError(
                    f"{name} must be at least the {n_folds} folds of cv, got {getattr(self, name)}"
                )

    def _check_member_params(self) -> None:
        given = self.member_params or {}
        known = self._member_class().get_params(deep=False)
        plain = self._member_class.__name__
        for name, value in given.items():
            if name not in known:
                raise ValueError(
                    f"member_params has {name!r}, no parameter of {plain}; "
                    f"{known_instead(name, known)}"
                )
            if name in _OF_THE_PACK or name in self._passed_on:
                own = name if name in self.get_params(deep=False) else None
                own = "activations" if name == "activation" else own
                raise ValueError(
                    f"member_params cannot have {name!r}, which a pack sets itself"
                    + (f"; give the pack {own}=" if own else "")
                )
            if name == "solver" and value == "lbfgs":
                raise ValueError(
                    "member_params has solver='lbfgs', which has no epochs to choose from; use "
                    "'adamw', 'adam' or 'sgd'"
                )

    def _shared(self) -> dict[str, Any]:
        """Parameters of every member, but for what is drawn."""
        own = ("max_iter", "n_iter_no_change", "validation_fraction", "categorical_features")
        return {
            **self._recipe.shared,
            **{name: getattr(self, name) for name in (*own, "device", *self._passed_on)},
            "early_stopping_scoring": "loss",
            "n_members": 1,
            **(self.member_params or {}),
        }

    def _checked_member(self, settings: Mapping[str, Any] | None = None) -> BaseMLP:
        """A member that is made with these, unless ``member_params`` says otherwise."""
        self._check_member_params()
        parameters = {**self._shared(), **(settings or {}), **(self.member_params or {})}
        member = self._member_class(**parameters)
        member._validate_params()
        member._check_parameters()
        return member

    def _check_given(self, X: Any, X_val: Any) -> None:
        name, plain = type(self).__name__, self._member_class.__name__
        paths = X if isinstance(X, list | tuple) and X else [X]
        if all(isinstance(p, str | os.PathLike) and str(p).endswith(".parquet") for p in paths):
            raise ValueError(
                f"{name} reads its table into memory, got the path {str(paths[0])!r}: pass a table "
                f"(pandas.read_parquet, say), or use {plain}, whose fit_parquet reads it in parts"
            )
        if X_val is not None and self.cv is not None:
            raise ValueError(f"X_val and cv={self.cv!r} do not go together; use cv=None")

    def _keep(
        self,
        members: Sequence[BaseMLP],
        jobs: Sequence[Job],
        tracks: Sequence[Track],
        *,
        interrupted: bool,
    ) -> Self:
        """Choose the ensemble, and keep its networks alone."""
        if not any(track.usable for track in tracks):
            raise ValueError(
                "All members of the pack diverged: the input data may contain large values and "
                "need to be preprocessed. Or set member_params, such as {'max_grad_norm': 1.0} or "
                "a lower 'learning_rate_init'"
            )
        chosen = choose(jobs, tracks, self.max_ensemble_size)
        groups, picks = make_groups(members, jobs, tracks, chosen.counts)
        with uninterrupted():
            self.members_ = member_table(members, jobs, tracks, chosen, self._recipe)
            self.history_ = history(tracks)
            self.validation_loss_ = chosen.loss
            self.best_member_validation_loss_ = chosen.best_single
            self._adopt(groups, picks)
        if interrupted:
            warnings.warn(
                "Training interrupted by user: the best weights so far are kept.", stacklevel=4
            )
        return self

    def _adopt(self, groups: list[BaseMLP], picks: list[int]) -> None:
        """Take over fitted groups, and what they learned of the data."""
        self._groups, self._picks = groups, picks
        self.encoder_ = groups[0].encoder_
        self._states = [state for group in groups for state in group._states]
        for name in self._learned:
            if hasattr(groups[0], name):
                setattr(self, name, getattr(groups[0], name))

    # ---- predict -----------------------------------------------------------------------------

    @torch.inference_mode()
    def _raw(self, X: Any) -> Tensor:
        """Raw outputs of the ensemble, a network as often as it is chosen: (n_picks, n, k)."""
        check_is_fitted(self)
        mind_forks()
        table = self.encoder_.encode(X, owner=self)
        for group in self._groups:
            group.device = self.device  # which may have been set anew
        raw = torch.cat([group._outputs(table) for group in self._groups])
        return raw[self._picks].to(float_dtype(X))

    def _exported(self, dtype: torch.dtype | None) -> TableModule:
        networks = [group._built(dtype=dtype).unflatten() for group in self._groups]
        return TableModule(self.encoder_, networks, self._groups[0]._answer(), self._picks)

    def _answering(self, X: Any) -> Any:
        """A plain estimator that answers with the ensemble's raw outputs for these rows."""
        raw = self._raw(X)
        return answering(self._groups[0], raw)

    @property
    def n_iter_(self) -> int:
        """Epochs that the member trained that did so longest."""
        check_is_fitted(self)
        return int(self.members_["n_iter"].max())

    @property
    def activation_weights_(self) -> pd.Series:
        """Weight of each activation's members, the largest first."""
        check_is_fitted(self)
        by_name = self.members_.groupby("activation", sort=False)["weight"].sum()
        return by_name.sort_values(ascending=False, kind="stable")

    # ---- files and scikit-learn's questions ------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted pack to one file (safetensors with JSON in its header).

        It loads on any device, and predicts the same. It holds the chosen networks, the table of
        members and their losses, and of the data what the file of a plain estimator holds
        (`MLPClassifier.save`): no rows.

        Raises
        ------
        ValueError
            If a parameter cannot be written without code (a custom activation, say).
        """
        if self.cv is not None and not isinstance(self.cv, Integral):
            raise ValueError(
                f"cv={self.cv!r} cannot be saved; set_params(cv=None) first, which changes no "
                "prediction, or pickle the pack"
            )
        super().save(path)

    def _to_save(self) -> tuple[Sequence[str], dict[str, Any]]:
        return parts_to_save(self)

    def _restore(self, saved: Saved) -> None:
        restore(self, saved)

    def _fit_facts(self) -> dict[str, str]:
        chosen = self.members_[self.members_["weight"] > 0]
        by_name = self.activation_weights_
        weights = [f"{name} {weight:.2f}" for name, weight in by_name[by_name > 0].items()]
        facts = {
            "members": f"{len(self.members_)}, {len(chosen)} of them in the ensemble",
            "weight by activation": ", ".join(weights),
        }
        if self.validation_loss_ is not None:
            alone = f"best member alone {self.best_member_validation_loss_:.3g}"
            facts["validation loss"] = f"{self.validation_loss_:.3g} ({alone})"
        return facts

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_groups")

    def __sklearn_tags__(self) -> Any:
        return self._member_class().__sklearn_tags__()
