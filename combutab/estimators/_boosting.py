"""Other candidates of a pack: boosted trees on the encoded table, and outside estimators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor, nn

from combutab.activations import ACTIVATIONS
from combutab.core.device import limit_openmp, tree_threads
from combutab.estimators._classifier import ClassTarget
from combutab.estimators._regressor import NumberTarget
from combutab.estimators._targets import Target
from combutab.training import Rows

if TYPE_CHECKING:  # imported where trees are: networks need no sklearn.ensemble
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

LEARNING_RATE, MAX_STEPS = 0.1, 300

_PATIENCE = 20  # trees without a smaller loss of the rows set aside
_TOLERANCE = 1e-7  # of the loss, scikit-learn's default
_MOST_CATEGORIES = 255  # that scikit-learn takes as such
_CODES, _WORDS = 256, 8  # of a set of categories: codes, and words of 32 bits

_ARRAYS = (
    *("feature", "threshold", "left", "right", "value", "categories", "left_codes"),
    *("roots", "outputs", "baseline"),
)
_LOSSES = ("squared_error", "absolute_error", "poisson")


def can_boost(target: Target) -> bool:
    """Tell whether scikit-learn's boosting can learn a target."""
    if isinstance(target, ClassTarget):
        return not target.multilabel and len(target.classes) > 1
    assert isinstance(target, NumberTarget)
    return target.loss_name in _LOSSES and target.n_raw_outputs == 1


class Trees(nn.Module):
    """Boosted trees of an encoded table, as arrays.

    The arrays have the nodes of all trees. From a node a row goes ``left`` where its number in
    the column ``feature`` is at most ``threshold``, or, where ``categories`` is not -1, where its
    code is in that row of ``left_codes``; a leaf leads to itself. The leaf's ``value`` is added to
    the raw output that the tree is for.

    Shape
    -----
    dense : (n, n_dense), codes : (n, n_codes) int64 or None -> (n, n_raw_outputs) float64
    """

    def __init__(
        self, arrays: Mapping[str, np.ndarray], n_dense: int, n_codes: int, n_outputs: int
    ) -> None:
        super().__init__()
        _check_arrays(arrays, n_dense + n_codes, n_outputs)
        for name in _ARRAYS:
            self.register_buffer(name, torch.from_numpy(np.array(arrays[name])))
        self.depth = _depth(arrays)
        self._predictors: list[TreePredictor] | None = None  # built when first needed

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays from which equal trees can be made."""
        return {name: self.get_buffer(name).cpu().numpy() for name in _ARRAYS}

    def forward(self, dense: Tensor, codes: Tensor | None = None) -> Tensor:
        """Raw outputs, as networks give them."""
        get = self.get_buffer
        X = dense.double() if codes is None else torch.cat([codes.double(), dense.double()], 1)
        at = get("roots") + torch.zeros_like(X[:, :1], dtype=torch.int64)
        for _ in range(self.depth):
            values = X.gather(1, get("feature")[at])
            goes_left = values <= get("threshold")[at]
            if len(get("left_codes")):
                sets = get("categories")[at]
                code = values.long().clamp(0, _CODES - 1)
                is_left = get("left_codes").flatten()[sets.clamp_min(0) * _CODES + code]
                split = sets >= 0  # no torch.where of booleans, which ONNX Runtime lacks
                goes_left = (split & is_left) | (~split & goes_left)
            at = torch.where(goes_left, get("left")[at], get("right")[at])
        of_output = get("outputs")[:, None] == torch.arange(len(get("baseline")), device=X.device)
        value = get("value")[at]
        return get("baseline") + value @ of_output.to(value.dtype)

    @property
    def n_steps(self) -> int:
        """Number of boosting steps; a step adds a tree to each output."""
        return len(self.get_buffer("roots")) // len(self.get_buffer("outputs").unique())

    def predict(self, dense: np.ndarray, codes: np.ndarray | None) -> Tensor:
        """``forward`` of rows, by scikit-learn's own predictors, which take a tenth of the time."""
        *_, raw = self.stages(dense, codes)
        return raw

    def stages(self, dense: np.ndarray, codes: np.ndarray | None) -> Iterator[Tensor]:
        """Yield the raw outputs before the first step and after each, in the same memory."""
        X = dense.astype(np.float64)
        if codes is not None and codes.shape[1]:
            X = np.concatenate([codes, X], 1)
        if self._predictors is None:
            self._predictors = _predictors(self.arrays())
        raw = np.tile(self.get_buffer("baseline").numpy(), (len(X), 1))
        known_codes = np.full((1, _WORDS), -1, np.int64).astype(np.uint32)  # all codes are
        column_map = np.zeros(X.shape[1], dtype=np.uint32)
        n_threads = tree_threads(X.size)
        outputs = self.get_buffer("outputs").tolist()
        n_per_step = len(set(outputs)) or 1
        yield torch.from_numpy(raw)
        for i, (output, tree) in enumerate(zip(outputs, self._predictors, strict=True), 1):
            raw[:, output] += tree.predict(X, known_codes, column_map, n_threads)
            if i % n_per_step == 0:
                yield torch.from_numpy(raw)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_predictors": None}


def has_stopped(losses: Sequence[float]) -> bool:
    """Tell whether boosting stops after these losses; the first is before any step."""
    if len(losses) <= _PATIENCE:
        return False
    return min(losses[-_PATIENCE:]) >= losses[-_PATIENCE - 1] - _TOLERANCE


def _predictors(arrays: Mapping[str, np.ndarray]) -> list[TreePredictor]:
    """The trees as scikit-learn has them."""
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    starts, n_nodes = arrays["roots"].tolist(), len(arrays["left"])
    words = np.packbits(arrays["left_codes"], axis=1, bitorder="little").view(np.uint32)
    predictors = []
    for start, stop in pairwise([*starts, n_nodes]):
        span = slice(start, stop)
        nodes = np.zeros(stop - start, dtype=PREDICTOR_RECORD_DTYPE)
        node_numbers, split = np.arange(start, stop), arrays["categories"][span] >= 0
        nodes["value"], nodes["feature_idx"] = arrays["value"][span], arrays["feature"][span]
        nodes["num_threshold"] = arrays["threshold"][span]
        nodes["left"], nodes["right"] = arrays["left"][span] - start, arrays["right"][span] - start
        nodes["is_leaf"], nodes["is_categorical"] = arrays["left"][span] == node_numbers, split
        nodes["bitset_idx"] = np.where(split, arrays["categories"][span], 0)
        predictors.append(TreePredictor(nodes, words, words))
    return predictors


def _check_arrays(arrays: Mapping[str, np.ndarray], n_columns: int, n_outputs: int) -> None:
    """Refuse arrays of a file that are not trees of ``n_columns`` and ``n_outputs``."""
    if set(arrays) != set(_ARRAYS):
        raise ValueError(f"trees have the arrays {_ARRAYS}, got {sorted(map(str, arrays))[:20]}")
    n_nodes, n_trees, n_sets = (arrays[n].size for n in ("left", "roots", "left_codes"))
    n_sets //= _CODES
    of_nodes = ("feature", "threshold", "left", "right", "value", "categories")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(of_nodes, (n_nodes,))
    shapes |= {"roots": (n_trees,), "outputs": (n_trees,), "baseline": (n_outputs,)}
    shapes["left_codes"] = n_sets, _CODES
    if any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("the arrays of its trees do not fit one another")
    kinds: dict[str, np.dtype[Any]] = dict.fromkeys(_ARRAYS, np.dtype(np.int64))
    kinds |= {"left_codes": np.dtype(bool)}
    kinds |= dict.fromkeys(("threshold", "value", "baseline"), np.dtype(np.float64))
    if any(arrays[name].dtype != kind for name, kind in kinds.items()):
        raise ValueError("the arrays of its trees have other dtypes than float64, int64 and bool")
    ranges = {"feature": (0, n_columns), "outputs": (0, n_outputs), "categories": (-1, n_sets)}
    if any(((arrays[n] < low) | (arrays[n] >= end)).any() for n, (low, end) in ranges.items()):
        raise ValueError("its trees name columns, outputs or categories that there are not")
    if not _are_trees(arrays["roots"], arrays["left"], arrays["right"]):
        raise ValueError("the nodes of its trees do not lead from their roots to leaves")


def _are_trees(roots: np.ndarray, left_child: np.ndarray, right_child: np.ndarray) -> bool:
    """Tell whether each node but the roots has one parent, which lies before it in its own tree."""
    node_numbers = np.arange(len(left_child))
    if (
        not len(roots)
        or roots[0] != 0
        or roots[-1] >= len(left_child)
        or (np.diff(roots) <= 0).any()
    ):
        return False
    inner = (left_child != node_numbers) | (right_child != node_numbers)
    ends = np.append(roots[1:], len(left_child))[
        np.searchsorted(roots, node_numbers, side="right") - 1
    ]
    below = np.concatenate([left_child[inner], right_child[inner]])
    in_order = all(
        (side > node_numbers)[inner].all() and (side < ends)[inner].all()
        for side in (left_child, right_child)
    )
    return in_order and bool(np.array_equal(np.sort(np.concatenate([roots, below])), node_numbers))


def _depth(arrays: Mapping[str, np.ndarray]) -> int:
    """Steps from the roots to the farthest leaf."""
    at, depth = arrays["roots"], 0
    while True:
        both = np.concatenate([arrays["left"][at], arrays["right"][at]])
        below = np.setdiff1d(both, at)
        if not len(below):
            return depth
        at, depth = below, depth + 1


def boost(
    rows: Rows,
    train: Tensor,
    held_out: Tensor,
    cardinalities: Sequence[int],
    target: Target,
    seed: int,
    max_steps: int = MAX_STEPS,
) -> Trees | None:
    """Boost trees on some rows until those held out are predicted no better.

    None where scikit-learn has nothing to learn: the training rows have one class or only zeros as
    counts, or the rows held out have no class that trains.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    codes = np.empty((len(rows.dense), 0)) if rows.codes is None else rows.codes.cpu().numpy()
    X = np.concatenate([codes, rows.dense.double().cpu().numpy()], 1)
    y = rows.y.reshape(-1).cpu().numpy()
    weight = None if rows.weight is None else rows.weight.double().cpu().numpy()
    fitted, scored = train.cpu().numpy(), held_out.cpu().numpy()
    options: dict[str, Any] = {"learning_rate": LEARNING_RATE, "max_iter": max_steps}
    options |= {"early_stopping": True, "n_iter_no_change": _PATIENCE}
    options["random_state"] = seed % (1 << 32)
    few = [j for j, n in enumerate(cardinalities) if n <= _MOST_CATEGORIES]
    options["categorical_features"] = few or None
    outputs, start = np.zeros(1, np.int64), np.zeros(target.n_raw_outputs)
    if isinstance(target, ClassTarget):
        classes = np.unique(y[fitted])
        if len(classes) < 2:
            return None
        if len(start) > 1:  # classes that no row has begin far below
            outputs = classes.astype(np.int64)
            start[np.setdiff1d(np.arange(len(start)), outputs)] = -np.log(len(fitted)) - len(
                classes
            )
            if len(outputs) == 2:  # one number: the log odds of the second
                outputs = outputs[1:]
        scored = scored[np.isin(y[scored], classes)]
        if not len(scored):
            return None
        model: BaseEstimator = HistGradientBoostingClassifier(**options)
    else:
        assert isinstance(target, NumberTarget)
        if target.loss_name == "poisson" and not y[fitted].any():
            return None
        model = HistGradientBoostingRegressor(loss=target.loss_name, **options)
    weight_train, weight_val = (
        None if weight is None else weight[part] for part in (fitted, scored)
    )
    with limit_openmp(tree_threads(len(fitted) * X.shape[1])):
        model.fit(
            X[fitted],
            y[fitted],
            weight_train,
            X_val=X[scored],
            y_val=y[scored],
            sample_weight_val=weight_val,
        )
    arrays = _as_arrays(model, X[fitted], few, outputs, start)
    return Trees(arrays, X.shape[1] - codes.shape[1], codes.shape[1], len(start))


def _as_arrays(
    model: Any, X: np.ndarray, few: Sequence[int], outputs: np.ndarray, start: np.ndarray
) -> dict[str, np.ndarray]:
    """Convert the trees of a fitted model, which are private attributes of scikit-learn.

    ``X`` are the training rows, whose columns ``few`` are categories. ``outputs`` are the
    raw outputs that the trees of one step are for, and all raw outputs begin at ``start``.
    """
    # the model's order of columns, and for its categories the codes that it has seen
    order = np.array([*few, *(j for j in range(X.shape[1]) if j not in set(few))])
    seen = [np.unique(X[:, j]).astype(np.int64) for j in few]
    collected: dict[str, list[np.ndarray]] = {name: [] for name in _ARRAYS}
    n_nodes = n_sets = 0
    for trees in model._predictors:
        for output, tree in enumerate(trees):
            nodes = tree.nodes
            numbers, leaf = n_nodes + np.arange(len(nodes)), nodes["is_leaf"].astype(bool)
            split = nodes["is_categorical"].astype(bool) & ~leaf
            for side in ("left", "right"):
                collected[side].append(
                    np.where(leaf, numbers, n_nodes + nodes[side].astype(np.int64))
                )
            collected["feature"].append(np.where(leaf, 0, order[nodes["feature_idx"]]))
            collected["threshold"].append(np.where(leaf | split, 0.0, nodes["num_threshold"]))
            collected["value"].append(np.where(leaf, nodes["value"], 0.0))
            collected["categories"].append(np.where(split, n_sets + np.cumsum(split) - 1, -1))
            for node in nodes[split]:
                words = tree.raw_left_cat_bitsets[node["bitset_idx"]]
                bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
                codes = seen[node["feature_idx"]]
                goes_left = np.full(_CODES, bool(node["missing_go_to_left"]))
                goes_left[codes] = bits[: len(codes)]
                collected["left_codes"].append(goes_left[None])
            collected["roots"].append(numbers[:1])
            collected["outputs"].append(outputs[output : output + 1])
            n_nodes, n_sets = n_nodes + len(nodes), n_sets + int(split.sum())
    start[outputs] += np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1)
    arrays = {
        name: np.concatenate(parts) if parts else np.zeros((0, _CODES), dtype=bool)
        for name, parts in collected.items()
        if name != "baseline"
    }
    return {**arrays, "baseline": start}


# ---- Estimators of other libraries as candidates of a pack ---------------------------------------


@dataclass(frozen=True)
class GivenRows:
    """The table as it was passed to ``fit``, which outside estimators are fitted to.

    Positions are those of encoded rows: ``rows`` are their positions in ``X``, and later ones are
    rows of ``X_val``.
    """

    X: Any
    rows: np.ndarray  # (n,)
    X_val: Any = None

    def select(self, positions: Tensor) -> Any:
        """The table of these encoded rows, all of X or all of X_val."""
        index = positions.numpy()
        if index[0] >= len(self.rows):
            return _safe_indexing(self.X_val, index - len(self.rows))
        return _safe_indexing(self.X, self.rows[index])


@dataclass(frozen=True)
class OutsideModel:
    """A fitted estimator of another library, which predicts what networks do."""

    name: str
    estimator: Any
    target: Target

    def predict(self, X: Any) -> Tensor:
        """Raw outputs whose answer is the prediction of the estimator: (n, n_raw_outputs)."""
        if not hasattr(self.estimator, "classes_"):
            return self.target.raw_outputs(np.asarray(self.estimator.predict(X), dtype=np.float64))
        probabilities = np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
        labels = self.target.attributes()["classes_"]
        columns = np.searchsorted(labels, np.asarray(self.estimator.classes_).reshape(-1))
        of_labels = np.zeros((len(probabilities), len(labels)))
        of_labels[:, columns] = probabilities
        return self.target.raw_outputs(of_labels)


def fit_outside(
    name: str,
    estimator: Any,
    X: Any,
    y: np.ndarray,
    weight: np.ndarray | None,
    target: Target,
    seed: int,
) -> OutsideModel:
    """Fit a copy of an outside estimator; its errors get a note with its name."""
    model = clone(estimator)
    if "random_state" in model.get_params() and model.get_params()["random_state"] is None:
        model.set_params(random_state=seed % (1 << 31))
    weights = {} if weight is None else {"sample_weight": weight}
    try:
        model.fit(X, y, **weights)
    except Exception as error:
        error.add_note(f"It was raised by {name!r}, one of the pack's estimators.")
        raise
    return OutsideModel(name, model, target)


def check_estimators(
    estimators: Sequence[Any], *, classifies: bool, weighted: bool, reserved: Sequence[str]
) -> Mapping[str, BaseEstimator]:
    """Outside estimators by name; raises ValueError, before any work, if one cannot be used.

    ``weighted``: whether rows or classes have weights, which the estimators must take.
    """
    by_name: dict[str, BaseEstimator] = {}
    method = "predict_proba" if classifies else "predict"
    for pair in estimators:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(
                "estimators must be pairs (name, estimator), such as ('forest', "
                f"ExtraTreesRegressor()), got {pair!r}"[:300]
            )
        name, estimator = pair
        if name in by_name or name in reserved or name in ACTIVATIONS:
            raise ValueError(
                f"estimators has the name {name!r}, which is taken; choose another name"
            )
        missing = [m for m in ("fit", "get_params", method) if not hasattr(estimator, m)]
        if missing:
            raise ValueError(
                f"estimators: {name!r} has no method {missing[0]}, which a pack needs; "
                "set probability=True of an SVC, or use CalibratedClassifierCV"
                if missing[0] == "predict_proba"
                else f"estimators: {name!r} must be an unfitted estimator with the methods of "
                f"scikit-learn, but has no {missing[0]}"
            )
        if weighted and not has_fit_parameter(estimator, "sample_weight"):
            raise ValueError(
                f"estimators: {name!r} takes no sample_weight in fit, but the rows or classes have "
                "weights; leave it out, or fit without weights"
            )
        by_name[name] = estimator
    return by_name
