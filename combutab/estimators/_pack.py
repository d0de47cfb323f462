"""PackClassifier and PackRegressor: ensembles picked from many random networks and trees."""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, _fit_context, is_classifier
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from combutab._model_files import Loadable, Saved, encode, loadable, with_prefix
from combutab.core.device import guard_forks
from combutab.core.files import (
    check_fields,
    kind,
    nullable,
    number,
    several,
    text,
    whole,
)
from combutab.core.html import FittedHTML
from combutab.core.parameters import (
    COUNT,
    INFINITE,
    POSITIVE,
    RANDOM_STATE,
    DeclaredParameters,
    parameter,
)
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.splits import (
    Split,
    check_folds,
    merge_rare_labels,
    shuffled_folds,
    validation_splits,
)
from combutab.core.state import unpack
from combutab.core.tasks import CallbackSupport, fit_task
from combutab.core.text import known_instead, parse_seconds
from combutab.core.world import Ranks, broadcast, current, plain_parameters, sharing
from combutab.estimators._base import (
    N_PARTS,
    N_PARTS_SCORER,
    BaseMLP,
    FitData,
    Prepared,
    add_validation,
    check_data,
    encode_data,
)
from combutab.estimators._boosting import GivenRows, OutsideModel, Trees, check_estimators
from combutab.estimators._classifier import CLASS_WEIGHT, ClassPredictions, MLPClassifier
from combutab.estimators._export import Exports, TableModule
from combutab.estimators._fitted import (
    CONFORMAL,
    LearnedTable,
    build_network,
    held_out_answers,
    raw_outputs,
)
from combutab.estimators._jobs import OutOfFold, Scorer, output_scorer
from combutab.estimators._pack_training import (
    BOOSTING,
    MIN_ROWS,
    FoldModel,
    PackMember,
    auto_folds,
    boost_folds,
    choose_snapshots,
    draw_members,
    fit_outside_models,
    history_table,
    make_groups,
    make_members,
    member_table,
    train_members,
)
from combutab.estimators._parameters import (
    CATEGORICAL_FEATURES,
    DATE_FEATURES,
    TEXT_FEATURES,
    check_scorer,
    document,
    validate_parameters,
)
from combutab.estimators._regressor import LOSSES, MLPRegressor, NumberPredictions
from combutab.estimators._targets import Answer, ConformalScores, check_scores, learn_scores
from combutab.nn import ActivationSpec
from combutab.preprocessing import as_numpy, as_table
from combutab.training import uninterrupted

# ---- A fitted pack as a file, and back: its groups are written as the plain estimators they are

_MOST = 2**16  # networks that a file may ask for
_FITTED = {
    "validation_loss_": nullable(number()),
    "best_member_validation_loss_": nullable(number()),
    "_conformal": CONFORMAL,
}
_GROUP = {
    "n_members": whole(1, _MOST),
    "fitted": kind(dict),
    "shape": kind(dict),
    "target_state": kind(dict),
    "progress": kind(list),
}
_NUMBERS = several(number(finite=False))
_COLUMNS = ("member", "depth", "fold", "n_iter", "validation_loss", "n_snapshots", "weight")


def _group_file(saved: Saved, group: dict[str, Any], n_before: int) -> Saved:
    """Extract the contents of a file with only this group."""
    tensors = {n: a for n, a in saved.tensors.items() if n.startswith("encoder.")}
    for i in range(group["n_members"]):
        member_tensors = with_prefix(saved.tensors, f"member.{n_before + i}.")
        tensors |= {f"member.{i}.{name}": array for name, array in member_tensors.items()}
    fitted = unpack(group["fitted"])
    header = {**group, "encoder": saved.header["encoder"]}
    return Saved(fitted, pd.DataFrame(), header, tensors)


def _read_table(columns: dict[str, Any]) -> pd.DataFrame:
    values = unpack(columns)
    fields = dict.fromkeys((*values, *_COLUMNS), _NUMBERS) | {"activation": several(text(10_000))}
    check_fields(values, fields, "the table of members")
    if len({len(column) for column in values.values()}) != 1:
        raise ValueError("the columns of its table of members are not equally long")
    return pd.DataFrame(values)


# ---- The base of PackClassifier and PackRegressor: from a table to an ensemble of snapshots ------

# parameters of members that a pack sets, in addition to those that it has itself
_SET_FOR_MEMBERS = {
    *("activation", "bagging", "callbacks", "early_stopping", "early_stopping_scoring"),
    *("warm_start", "track_metric", "max_fun", "validation_split"),
}


class _Kept(LearnedTable, FittedHTML, CallbackSupport, DeclaredParameters, Exports, Loadable):
    """Attributes of a fitted pack."""

    members_: pd.DataFrame
    validation_loss_: float | None
    best_member_validation_loss_: float | None
    history_: pd.DataFrame
    _groups: list[BaseMLP]
    _trees: list[Trees]
    _outside: list[OutsideModel]
    _conformal: Sequence[ConformalScores]
    _selected: list[int]  # positions in all networks, trees and outside models; they may repeat


@dataclass(eq=False, repr=False, kw_only=True)
class BasePack(_Kept):
    """A pack: draw members, encode the table, train, select and store.

    Members are plain estimators of the class that a subclass names. The fitted pack has groups: one
    estimator of several members for each shape of network.

    Parameters
    ----------
    n_members : int, default=16
        Number of networks to train.
    activations : sequence of str or callable
        Activation functions, which the members have in turn: names in
        ``combutab.activations.ACTIVATIONS`` or callables ``width -> nn.Module``. The default is
        ``("combu", "mish", "selu", "relu", "pln-8", "la-silu")``.
    max_time : float, str or None, default=None
        Time limit in seconds, or as text such as ``"90s"``, ``"2min"`` or ``"1h"``. Training stops
        at the end of the epoch in which it is reached. The ensemble is chosen from what was trained
        until then, without members whose training had not begun. On a CPU members are trained one
        after another, so that few are half trained then. Such a fit cannot be repeated exactly. On
        a cluster each machine measures the time with its own clock.
    cv : "auto", int, splitter, iterable of (train, test), array-like or None, default="auto"
        Cross-validation. An int is the number of folds: each member is trained without one of
        them, in turn, and is chosen by its loss on that fold, so that all rows are used for
        training. The encoding and the scale of the target are learned from all rows that a network
        trains on. ``"auto"`` uses 8 folds, or as many as
        there are members if these are fewer; with fewer than 50 rows it uses none: every member is
        trained on all rows, and all have equal weights. None sets ``validation_fraction`` of the
        rows aside and chooses all members by them. Other splits are passed as in scikit-learn, or
        as an array: a boolean mask of the validation rows, their positions, or the fold of each
        row.
    boosting : bool, default=True
        Whether scikit-learn's gradient boosting can join the ensemble:
        `HistGradientBoostingClassifier` or `HistGradientBoostingRegressor` on the same encoded
        columns and folds. The trees have a positive weight if they reduce the
        validation loss. They are available for single targets, with the losses
        ``"squared_error"``, ``"absolute_error"`` and ``"poisson"``, and if rows are set aside. Use
        False for an ensemble of networks only.
    estimators : sequence of (str, estimator), default=()
        Names and unfitted estimators with the API of scikit-learn, such as
        ``[("forest", ExtraTreesRegressor())]``, which can join the ensemble. They are fitted to the
        table as it was passed to ``fit``, once for each fold, and have a positive weight if they
        reduce the validation loss. An unset ``random_state`` is set. Classifiers need
        ``predict_proba``, and all of them ``sample_weight`` if rows or classes have weights. The
        pack can then be pickled, but not saved or exported.
    scoring : str, callable or None, default=None
        Score by which the ensemble is chosen: a metric such as ``"roc_auc"``, or any scorer of
        scikit-learn, as in ``early_stopping_scoring`` of {member}. None is the training loss.
        Networks and trees are trained with the loss in both cases.
    validation_fraction : float, default=0.2
        Share of the rows that ``cv=None`` sets aside, stratified for classes.
    max_ensemble_size : int, default=64
        Largest number of snapshots in the ensemble. A snapshot that is chosen several times counts
        several times.
    max_iter : int, default=80
        Maximum number of epochs.
    n_iter_no_change : int or inf, default=16
        Number of epochs without a smaller validation loss after which a member stops. A member also
        stops after a cycle of the learning rate (``"coslog4"``, of 60 epochs or more) that lowered
        its validation loss by less than 5 %.
    member_params : dict or None, default=None
        Parameters that are the same for every member: any parameter of {member} that is not one of
        the pack, such as ``{"dropout": 0.1, "numeric_encoding": "quantile"}``. Other parameters
        vary at random between members.
    categorical_features : as in {member}, default="from_dtype"
        Which columns are categorical.
    date_features : as in {member}, default="auto"
        Encoding of dates.
    text_features : {"auto", "ignore"}, default="auto"
        Encoding of columns of free text.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the members' parameters, of their training, and of the folds. Pass an int for
        reproducible results.
    device : str or torch.device, default="auto"
        Device of the training and of predictions: ``"auto"`` (a GPU if there is one), ``"cpu"``,
        ``"cuda"`` or ``"cuda:1"``.
    verbose : bool or int, default=False
        Whether to print a line each time that members have been trained.
    n_jobs : int or None, default=None
        Number of stacks of members that are trained at the same time, in threads, or in the
        processes of joblib's context ("loky", "dask", "ray"). The pack is the same, up to rounding
        if processes have another number of torch threads. None is the number of torch threads, or
        all workers of a cluster. Within a task of a cluster, all are trained in its process.

    Attributes
    ----------
    members_ : DataFrame
        One row per member: its number, ``activation``, ``depth`` (number of hidden layers), its
        other parameters, ``fold`` (the fold that it was not trained on), ``n_iter`` (epochs),
        ``validation_loss`` (the smallest), ``n_snapshots`` (number of snapshots in the ensemble)
        and ``weight`` in the ensemble; weights sum to 1. One more row per fold of
        boosting, with the activation ``"boosting"`` and its number of trees as ``n_iter``.
    n_iter_ : int
        Largest number of epochs of a member.
    activation_weights_ : Series
        Sum of the weights of each activation's members, in decreasing order.
    validation_loss_ : float or None
        Loss of the ensemble on the validation rows by which it was chosen. It is therefore an
        optimistic estimate of the loss on new rows. A weighted mean over folds, with weights of one
        over the fold's loss, as in the ensemble. None if no rows were set aside.
    best_member_validation_loss_ : float or None
        Smallest loss of a single snapshot on these rows, as the same weighted mean.
    history_ : DataFrame
        One row per member and epoch: train_loss, validation_loss, learning_rate.
    encoder_ : TableEncoder
        Fitted encoding of the table's columns.
    n_outputs_ : int
        Number of output units, as in scikit-learn.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, if all are strings.
    """

    n_members: int = parameter(16, COUNT)
    activations: Sequence[ActivationSpec] = parameter(
        ("combu", "mish", "selu", "relu", "pln-8", "la-silu"), list, tuple
    )
    max_time: float | str | None = parameter(None, None, str, POSITIVE)
    cv: Any = parameter("auto", StrOptions({"auto"}), "cv_object")
    boosting: bool = parameter(True, "boolean")
    estimators: Sequence[tuple[str, Any]] = parameter((), list, tuple)
    scoring: str | Callable[..., float] | None = parameter(None, None, str, callable)
    validation_fraction: float = parameter(0.2, Interval(Real, 0, 1, closed="neither"))
    max_ensemble_size: int = parameter(64, COUNT)
    max_iter: int = parameter(80, COUNT)
    n_iter_no_change: float = parameter(16, COUNT, INFINITE)
    member_params: Mapping[str, Any] | None = parameter(None, dict, None)
    categorical_features: Any = parameter("from_dtype", *CATEGORICAL_FEATURES)
    date_features: Any = parameter("auto", *DATE_FEATURES)
    text_features: str = parameter("auto", TEXT_FEATURES)
    random_state: Any = parameter(None, *RANDOM_STATE)
    device: str | torch.device = parameter("auto", str, torch.device)
    verbose: bool | int = parameter(False, "verbose")
    n_jobs: int | None = parameter(None, Integral, None)

    _member_class: ClassVar[type[BaseMLP]]
    _member_defaults: ClassVar[Mapping[str, Any]]  # where they are not the class's own
    _passed_on: ClassVar[tuple[str, ...]]  # parameters of the pack that all members have

    # ---- fit ---------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Fit to a table.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_samples, n_features)
            Columns may be numeric, boolean, categorical, text or dates, with missing values.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets. Missing cells of several targets (NaN) have no part in the loss and the scores.
        sample_weight : array-like of shape (n_samples,), optional
            Rows of weight 0 are left out.
        X_val, y_val : as X and y, optional
            Validation rows, by which the ensemble is selected instead of by folds of X.
        groups : array-like of shape (n_samples,), optional
            Group of each row, such as a customer or a patient. All rows of a group are in the same
            fold. If ``cv`` is a splitter, the groups are passed to it.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the data or ``member_params`` cannot be used, or all members diverged.
        RuntimeError
            If several processes share the fit, and another one of them has ended.

        Notes
        -----
        In a process group of ``torch.distributed``, such as that of ``torchrun``, all processes
        must call ``fit`` with the whole table. They divide the stacks of members between them, and
        all end with the same pack. It is that of one process, bit for bit, if processors and torch
        threads are the same. Printed lines, warnings and callbacks are those of rank 0. After
        Ctrl-C there is no pack. Within ``combutab.training.unshared()`` each process fits
        separately.
        """
        seconds, started = parse_seconds(self.max_time), time.time()
        words = f"{type(self).__name__} {plain_parameters(self)}"
        with sharing(lambda: f"{words} {sample_weight is None} {X_val is None}"):
            seed = seed_from(self.random_state)
            estimators = self._draw(seed)
            outside = self._checked_estimators(sample_weight)
            if X_val is not None and not (self.cv is None or isinstance(self.cv, str)):
                raise ValueError(f"X_val and cv={self.cv!r} do not go together; use cv=None")
            self.__dict__.pop("_groups", None)
            encoder = self._encoding(seed)
            data = check_data(encoder, X, y, sample_weight, groups, owner=self)
            data = add_validation(encoder, data, X_val, y_val)
            prepared = encode_data(encoder, data, self._split_rows(data, encoder, seed))
            of_rows = prepared.out_of_fold
            n_parts = N_PARTS if self.scoring is None else N_PARTS_SCORER
            members = make_members(estimators, prepared, n_parts)
            scorer, (_, held_out) = None, prepared.splits[0]
            if self.scoring is not None and held_out is not None:
                if prepared.rows.y.isnan().any():
                    raise ValueError(
                        f"scoring={self.scoring!r} cannot score missing targets; use None"
                    )
                rows = prepared.rows.each(itemgetter(held_out))
                scorer = output_scorer(
                    estimators[0],
                    self.scoring,
                    prepared.target,
                    rows,
                    prepared.rows.y,
                    name="scoring",
                )

            with fit_task(self, X, y, sample_weight, n_parts=len(members)) as task:

                def report_progress(n_trained: int) -> None:
                    if self.verbose:
                        losses = [s.loss for m in members for s in m.history.snapshots()]
                        best = (
                            f", best loss = {min(losses):.6f}" if np.isfinite(losses).any() else ""
                        )
                        print(f"{n_trained} of {len(members)} members trained{best}")
                    if task is not None:
                        task.count("member", n_trained)

                # a fifth of the time is left for the trees
                deadline = started + (0.8 if self.boosting else 1.0) * seconds
                outside_models = self._fit_outside(outside, data, prepared, members, seed)
                interrupted = train_members(members, deadline, self.n_jobs, report_progress)
                boosted: list[FoldModel] = []
                if self.boosting and not interrupted and any(m.history.usable for m in members):
                    trees = boost_folds(members, prepared.target, seed, started + seconds)
                    boosted, interrupted = self._collected(trees)
                fold_models = [*boosted, *outside_models]
                self._keep(members, fold_models, of_rows, scorer, interrupted=interrupted)
            if of_rows is not None:
                self.oof_n_repeated_ = prepared.count_repeated_rows(X, y)
        return self

    def _checked_estimators(self, sample_weight: Any) -> Mapping[str, BaseEstimator]:
        return check_estimators(
            self.estimators,
            classifies=is_classifier(self),
            weighted=sample_weight is not None or getattr(self, "class_weight", None) is not None,
            reserved=[BOOSTING],
        )

    def _fit_outside(
        self,
        estimators: Mapping[str, BaseEstimator],
        data: FitData,
        prepared: Prepared,
        members: Sequence[PackMember],
        seed: int,
    ) -> list[FoldModel]:
        """Fit the outside estimators, before networks, so that an error loses no training."""
        if not estimators:
            return []
        target, of_rows = prepared.target, prepared.out_of_fold
        if prepared.splits[0][1] is None:
            raise ValueError(
                f"estimators join the ensemble by their loss on rows set aside, and with cv="
                f"{self.cv!r} a table of {len(data.rows)} rows has none; use cv=2, or leave "
                "estimators out"
            )
        zeros = torch.zeros(1, 1, target.n_raw_outputs, dtype=torch.float64)
        target.raw_outputs(target.answer(zeros, **target.constants()).numpy())  # or ValueError
        table = GivenRows(data.X, data.rows if of_rows is None else of_rows.rows, data.X_val)
        y = data.targets[np.searchsorted(data.rows, table.rows)]
        return broadcast(fit_outside_models(members, estimators, table, y, target, seed))

    def _split_rows(self, data: FitData, encoder: BaseMLP, seed: int) -> Sequence[Split]:
        """Split the used rows as ``cv`` says; without folds as the plain estimator does."""
        if data.X_val is not None:
            return []
        if self.cv is None or (isinstance(self.cv, str) and self.n_members == 1):
            return encoder._split_rows(data, min_rows=MIN_ROWS)
        n_rows, labels, groups = len(data.rows), data.labels, data.used_groups
        if isinstance(self.cv, str):
            n_folds = auto_folds(self.n_members, n_rows)
            if n_folds is None:
                return []
            if groups is not None:
                n_folds = max(2, min(n_folds, len(np.unique(groups))))
            labels = None if labels is None else merge_rare_labels(labels, n_folds)
        elif isinstance(self.cv, Integral):
            n_folds = int(self.cv)
        else:
            splits = validation_splits(self.cv, "cv", data.X, data.y, data.groups, data.weight)
            self._check_room(len(splits))
            return splits
        if n_folds > n_rows:
            raise ValueError(
                f"cv={n_folds} needs as many rows, got n_samples={n_rows}; use cv=None"
            )
        check_folds(f"cv={n_folds}", n_folds, labels, groups)
        state = fold_in(seed, Stream.SPLIT) % (1 << 32)
        return shuffled_folds(n_folds, n_rows, labels, groups, state)

    @staticmethod
    def _collected(trees: Iterator[FoldModel]) -> tuple[list[FoldModel], bool]:
        """The trees, and whether Ctrl-C ended them; where ranks share the fit it ends that."""
        collected: list[FoldModel] = []
        try:
            for boosted in trees:
                collected.append(boosted)
        except KeyboardInterrupt:
            if isinstance(current(), Ranks):
                raise
            return collected, True
        return broadcast(collected), False

    def _encoding(self, seed: int) -> BaseMLP:
        """Make the estimator that encodes the table, and sets rows aside."""
        return self._member_class(
            **self._shared(), early_stopping="auto", random_state=seed % (1 << 32)
        )

    def _draw(self, seed: int) -> list[BaseMLP]:
        """Make the members; a ValueError, before any work, if one of them cannot be made."""
        if not self.activations:
            raise ValueError(
                "activations is empty: name at least one, such as activations=('relu',)"
            )
        if isinstance(self.cv, Integral):
            self._check_room(int(self.cv))
        if self.scoring is not None:
            check_scorer(self, "scoring", self.scoring)
        seeds = [fold_in(seed, Stream.MEMBER, i) % (1 << 32) for i in range(self.n_members)]
        drawn = draw_members(self.n_members, self.activations, seed)
        return [
            self._checked_member({**settings, "random_state": member_seed})
            for settings, member_seed in zip(drawn, seeds, strict=True)
        ]

    def _check_room(self, n_folds: int) -> None:
        """Refuse more folds than members, or than the ensemble may have."""
        for name in ("n_members", "max_ensemble_size"):
            if getattr(self, name) < n_folds:
                raise ValueError(
                    f"{name} must be at least the {n_folds} folds of cv, got {getattr(self, name)}"
                )

    def _check_member_params(self) -> None:
        params = self.member_params or {}
        parameters = self._member_class().get_params(deep=False)
        plain, pack_parameters = self._member_class.__name__, self.get_params(deep=False)
        for name, value in params.items():
            if name not in parameters:
                raise ValueError(
                    f"member_params has {name!r}, no parameter of {plain}; "
                    f"{known_instead(name, parameters)}"
                )
            pack_name = "activations" if name == "activation" else name
            is_of_pack = pack_name in pack_parameters
            if is_of_pack or name in _SET_FOR_MEMBERS:
                way_out = f"; give the pack {pack_name}=" if is_of_pack else ""
                raise ValueError(
                    f"member_params cannot have {name!r}, which a pack sets itself{way_out}"
                )
            if name == "solver" and value == "lbfgs":
                raise ValueError(
                    "member_params has solver='lbfgs', which has no epochs to choose from; use "
                    "'adamw', 'adam' or 'sgd'"
                )

    def _shared(self) -> dict[str, Any]:
        """Parameters of every member, without those that are drawn."""
        names = (
            *("max_iter", "n_iter_no_change", "validation_fraction"),
            *("categorical_features", "date_features", "text_features"),
        )
        return {
            **self._member_defaults,
            "n_members": 1,
            **{name: getattr(self, name) for name in (*names, "device", *self._passed_on)},
            **(self.member_params or {}),
        }

    def _checked_member(self, settings: Mapping[str, Any] | None = None) -> BaseMLP:
        """A member that is made with these, unless ``member_params`` says otherwise."""
        self._check_member_params()
        parameters = {**self._shared(), **(settings or {}), **(self.member_params or {})}
        return validate_parameters(self._member_class(**parameters))

    def _keep(
        self,
        members: Sequence[PackMember],
        fold_models: Sequence[FoldModel],
        of_rows: OutOfFold | None,
        scorer: Scorer | None,
        *,
        interrupted: bool,
    ) -> Self:
        """Select the ensemble, and store its networks and other models."""
        if not any(member.history.usable for member in members):
            raise ValueError(
                "All members of the pack diverged: the input data may contain large values and "
                "need to be preprocessed. Or set member_params, such as {'max_grad_norm': 1.0} or "
                "a lower 'learning_rate_init'"
            )
        size = self.max_ensemble_size
        chosen = broadcast(choose_snapshots(members, fold_models, size, scorer))
        groups, models, selected = make_groups(members, fold_models, chosen)
        target = groups[0].target_
        with uninterrupted():
            self.members_ = member_table(members, fold_models, chosen)
            self.history_ = history_table(members)
            self.validation_loss_ = chosen.loss
            self.best_member_validation_loss_ = chosen.best_single
            self._take_groups(groups, models, selected)
            for name in (target.held_out_name, "oof_folds_", "oof_groups_", "oof_n_repeated_"):
                self.__dict__.pop(name, None)
            outputs = chosen.out_of_fold
            self._conformal = learn_scores(target, outputs, members[0].job.rows) if outputs else []
            if of_rows is not None:
                n_folds = 1 + max(member.history.fold for member in members)
                plans = [member.job.plans[0] for member in members[:n_folds]]
                self.__dict__.update(of_rows.attributes(plans))
                setattr(self, target.held_out_name, held_out_answers(of_rows, outputs, target))
        if interrupted:
            warnings.warn(
                "Training interrupted by user: the best weights so far are kept.", stacklevel=4
            )
        return self

    def _take_groups(
        self, groups: list[BaseMLP], models: Sequence[Trees | OutsideModel], selected: list[int]
    ) -> None:
        """Set the fitted groups and other models, and the encoder and target of the groups."""
        self._groups, self._selected = groups, selected
        self._trees = [model for model in models if isinstance(model, Trees)]
        self._outside = [model for model in models if isinstance(model, OutsideModel)]
        self._states = [state for group in groups for state in group._states]
        self._states += [boosted.arrays() for boosted in self._trees]
        self._adopt(groups[0].encoder_, groups[0].target_)

    # ---- predict -----------------------------------------------------------------------------

    @torch.inference_mode()
    def _raw(self, X: Any) -> Tensor:
        """Raw outputs of the ensemble, a network as often as it is chosen: (n_selected, n, k)."""
        check_is_fitted(self)
        guard_forks()
        table = self.encoder_.encode(X, owner=self)
        for group in self._groups:
            group.device = self.device  # set_params may have changed it
        raws = [raw_outputs(group, table) for group in self._groups]
        raws += [trees.predict(table.dense, table.codes)[None] for trees in self._trees]
        raws += [model.predict(as_table(as_numpy(X)))[None] for model in self._outside]
        return torch.cat(raws)[self._selected]

    def _exported(self, dtype: torch.dtype | None) -> TableModule:
        self._refuse_outside("export")
        networks = [build_network(group, dtype=dtype).unflatten() for group in self._groups]
        trees = copy.deepcopy(self._trees)  # the module's own, which may be moved
        return TableModule(self.encoder_, networks, Answer(self.target_), self._selected, trees)

    @property
    def n_iter_(self) -> int:
        """Epochs that the member trained that did so longest."""
        check_is_fitted(self)
        networks = self.members_["dropout"].notna()
        return int(self.members_.loc[networks, "n_iter"].max())

    @property
    def activation_weights_(self) -> pd.Series:
        """Weight of each activation's members, the largest first."""
        check_is_fitted(self)
        by_name = self.members_.groupby("activation", sort=False)["weight"].sum()
        return by_name.sort_values(ascending=False, kind="stable")

    # ---- files and scikit-learn's questions ------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted pack to one file (safetensors with JSON in its header).

        It can be loaded on any device, and has the same predictions. The file contains the selected
        networks and trees, the table of members, their losses, and the same information about the
        data as that of `MLPClassifier.save`, without rows. Thresholds of trees lie halfway between
        two neighbouring values of an encoded column, and leaves can have few rows. A file with
        trees therefore discloses more about single rows than one with only networks. Use
        ``boosting=False`` if that matters.

        Raises
        ------
        ValueError
            If a parameter cannot be saved without code, such as a custom activation.
        """
        if self.cv is not None and not isinstance(self.cv, Integral | str):
            raise ValueError(
                f"cv={repr(self.cv)[:80]} cannot be saved; set_params(cv=None) first, which "
                "changes no prediction, or pickle the pack"
            )
        self._refuse_outside("save")
        super().save(path)

    def _refuse_outside(self, verb: str) -> None:
        check_is_fitted(self)
        if self.estimators:
            names = ", ".join(repr(name) for name, _ in self.estimators)
            raise ValueError(
                f"a pack with estimators of other libraries ({names}) has no file without code to "
                f"{verb}; pickle it, or fit without estimators"
            )

    def _to_save(self) -> tuple[Sequence[str], dict[str, Any]]:
        groups = []
        for group in self._groups:
            names, parts = group._to_save()
            fitted = {name: encode(getattr(group, name), name) for name in names}
            groups.append({"n_members": len(group._states), "fitted": fitted, **parts})
        table = {
            str(name): encode(column.tolist(), str(name)) for name, column in self.members_.items()
        }
        return tuple(_FITTED), {"groups": groups, "selected": self._selected, "members": table}

    def _restore(self, saved: Saved) -> None:
        """Set the contents of a file after checking that its parts agree."""
        check_fields(saved.fitted, _FITTED, "what was fitted")
        header = saved.header
        _, states = saved.arrays()  # all of them have a place
        check_fields(
            {name: header.get(name) for name in ("groups", "selected", "members")},
            {
                "groups": several(kind(dict), 1),
                "selected": several(whole(0, header["n_members"] - 1), 1),
                "members": kind(dict),
            },
            "the header",
        )
        groups, n_before = [], 0
        for group_header in header["groups"]:
            check_fields(group_header, _GROUP, "a group")
            if group_header["target_state"] != header["groups"][0]["target_state"]:
                raise ValueError("its groups differ in their target")
            group = self._checked_member()
            group._restore(_group_file(saved, group_header, n_before))
            groups.append(group)
            n_before += group_header["n_members"]
        if n_before > header["n_members"]:
            raise ValueError(
                f"its header asks for {str(header['n_members'])[:20]} networks, its groups have "
                f"{n_before}"
            )
        spec = groups[0]._spec
        shape = spec.n_dense, len(spec.cardinalities), spec.n_outputs
        trees = [Trees(state, *shape) for state in states[n_before:]]
        for group in groups[1:]:
            group.encoder_ = groups[0].encoder_
        self.validation_loss_ = saved.fitted["validation_loss_"]
        self.best_member_validation_loss_ = saved.fitted["best_member_validation_loss_"]
        self.history_, self.members_ = saved.history, _read_table(header["members"])
        self._take_groups(groups, trees, list(header["selected"]))
        self._conformal = saved.fitted.get("_conformal", [])
        check_scores(self.target_, self._conformal)

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


# ---- PackClassifier ------------------------------------------------------------------------------


@loadable
@document
@dataclass(eq=False, repr=False, kw_only=True)
class PackClassifier(ClassPredictions, BasePack):
    """Ensemble classifier of neural networks with random settings, and boosted trees (a pack).

    Each member is a multilayer perceptron with its own activation, depth, dropout, weight decay,
    learning rate and embedding of numbers. Networks of the same shape are trained together as one
    batched program. The ensemble is selected from the best epochs of the networks (snapshots),
    greedily and with replacement, to minimise the log loss on rows that they were not trained on.

    It accepts a DataFrame without preprocessing: numeric, boolean, text, category and date columns,
    with missing values. Targets can be binary, multi-class or multi-label.

    Parameters
    ----------
    {parameters}
    class_weight : dict, list of dict, "balanced" or None, default=None
        Weights of the classes, as in `MLPClassifier`: in training, in the losses and scores of
        the validation rows, and in the selection of the ensemble.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    {attributes}

    References
    ----------
    TabPack, arXiv 2607.05380; the selection is that of Caruana et al., "Ensemble selection from
    libraries of models", ICML 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import PackClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> pack = PackClassifier(n_members=4, max_iter=10, random_state=0).fit(X, y)
    >>> pack.predict_proba(X[:5]).shape, pack.validation_loss_ <= pack.best_member_validation_loss_
    ((5, 3), True)
    """

    class_weight: Any = parameter(None, *CLASS_WEIGHT)

    _member_class = MLPClassifier
    _member_defaults = {"calibration": None}
    _passed_on = ("class_weight",)


# ---- PackRegressor -------------------------------------------------------------------------------


@loadable
@document
@dataclass(eq=False, repr=False, kw_only=True)
class PackRegressor(NumberPredictions, BasePack):
    """Ensemble regressor of neural networks with random settings, and boosted trees (a pack).

    Each member is a multilayer perceptron with its own activation, depth, dropout, weight decay,
    learning rate and embedding of numbers. Networks of the same shape are trained together as one
    batched program. The ensemble is selected from the best epochs of the networks (snapshots),
    greedily and with replacement, to minimise the loss on rows that they were not trained on.

    It accepts a DataFrame without preprocessing: numeric, boolean, text, category and date columns,
    with missing values. It learns one or several targets. They are standardized for the training;
    predictions are in the original units.

    Parameters
    ----------
    loss : str, default="squared_error"
        As in MLPRegressor: ``"squared_error"``, ``"absolute_error"``, ``"huber"``, ``"poisson"``,
        ``"quantile"`` or ``"gaussian_nll"``.
    {parameters}
    quantiles : sequence of float, default=(0.05, 0.5, 0.95)
        Quantiles that ``loss="quantile"`` learns, each in (0, 1). As in MLPRegressor, those of each
        network are sorted before they are averaged, predicted and scored.

    Attributes
    ----------
    {attributes}

    References
    ----------
    TabPack, arXiv 2607.05380; the selection is that of Caruana et al., "Ensemble selection from
    libraries of models", ICML 2004.

    Examples
    --------
    >>> from combutab import PackRegressor
    >>> from combutab.datasets import make_formula
    >>> X, y = make_formula("ar", n_samples=300, random_state=0)
    >>> pack = PackRegressor(n_members=4, max_iter=10, random_state=0).fit(X, y)
    >>> pack.predict(X[:5]).shape, pack.validation_loss_ <= pack.best_member_validation_loss_
    ((5,), True)
    """

    loss: str = parameter("squared_error", StrOptions(set(LOSSES)))
    quantiles: Sequence[float] = parameter((0.05, 0.5, 0.95), "array-like")

    _member_class = MLPRegressor
    _member_defaults = {}
    _passed_on = ("loss", "quantiles")
