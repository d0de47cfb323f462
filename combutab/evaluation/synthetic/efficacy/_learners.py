"""The models that `ml_efficacy` trains, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

from sklearn.base import clone

Task = Literal["classification", "regression"]
Learners = str | Sequence[str] | Mapping[str, Any]

_SMALL = 1000  # rows; below, the CombU paper trains its smaller network, for longer


def _linear(task: Task) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge

    # with a little of a penalty: one-hot columns are linearly dependent
    return LogisticRegression(max_iter=1000) if task == "classification" else Ridge()


def _decision_tree(task: Task) -> Any:
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    return DecisionTreeClassifier() if task == "classification" else DecisionTreeRegressor()


def _random_forest(task: Task) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    return RandomForestClassifier() if task == "classification" else RandomForestRegressor()


def _hist_gradient_boosting(task: Task) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = (
        HistGradientBoostingClassifier
        if task == "classification"
        else HistGradientBoostingRegressor
    )
    return kind()


def _mlp(task: Task, **parameters: Any) -> Any:
    from combutab.estimators import MLPClassifier, MLPRegressor, paper_recipe

    kind = MLPClassifier if task == "classification" else MLPRegressor
    # as the other learners' encoding: what is learned here is not kept
    own = {"activation": "relu", "early_stopping": True, "min_frequency": 1}
    return kind(**paper_recipe(task, **own | parameters))


def _paper_mlp(task: Task, n_rows: int) -> Any:
    """The CombU paper's network and its training, appendix B."""
    # NOTE[DIFF]: the paper does not say which activation the scoring network has; ReLU favours none
    small = n_rows < _SMALL
    return _mlp(
        task,
        early_stopping=False,
        hidden_layer_sizes=(128,) * 2 if small else (256,) * 5,
        max_iter=500 if small else 200,
        n_iter_no_change=math.inf,
        alpha=0.0,
        dropout=0.1,
        learning_rate_init=5e-4,
    )


def _xgboost(task: Task) -> Any:
    try:
        from xgboost import XGBClassifier, XGBRegressor
    except ModuleNotFoundError as error:
        raise ImportError("the learner 'xgboost' needs it: pip install xgboost") from error
    return XGBClassifier() if task == "classification" else XGBRegressor()


def _catboost(task: Task) -> Any:
    try:
        from catboost import CatBoostClassifier, CatBoostRegressor
    except ModuleNotFoundError as error:
        raise ImportError("the learner 'catboost' needs it: pip install catboost") from error
    kind = CatBoostClassifier if task == "classification" else CatBoostRegressor
    return kind(verbose=False, allow_writing_files=False)


_OPTIONAL: dict[str, Callable[[Task], Any]] = {"xgboost": _xgboost, "catboost": _catboost}
_NAMED: dict[str, Callable[[Task], Any]] = {
    "linear": _linear,
    "decision_tree": _decision_tree,
    "random_forest": _random_forest,
    "hist_gradient_boosting": _hist_gradient_boosting,
    "mlp": _mlp,
    **_OPTIONAL,
}
_PAPER = "paper_mlp"


def make_learners(
    learners: Learners, task: Task, *, n_rows: int, random_state: int
) -> dict[str, Any]:
    """Make unfitted estimators by name.

    ``n_rows`` is of the whole data set, which the paper's network depends on; ``random_state`` goes
    to those that have one and leave it open. Raises ValueError if a name is unknown, there is none,
    or an estimator is for the other task; ImportError without a named learner's library.
    """
    if isinstance(learners, Mapping):
        made = {str(name): clone(estimator) for name, estimator in learners.items()}
        _check_task(made, task)
    else:
        made = {
            name: _paper_mlp(task, n_rows) if name == _PAPER else _NAMED[name](task)
            for name in _names(learners)
        }
    if not made:
        raise ValueError("learners is empty; name at least one, or take 'standard'")
    return {name: _seeded(learner, random_state) for name, learner in made.items()}


def _names(learners: str | Sequence[str]) -> list[str]:
    if learners == "standard":
        return [name for name in _NAMED if name not in _OPTIONAL or find_spec(name) is not None]
    if learners == "paper":
        return [_PAPER]
    names = [learners] if isinstance(learners, str) else list(learners)
    for name in names:
        if name not in _NAMED and name != _PAPER:
            known = ", ".join(["standard", "paper", *_NAMED, _PAPER])
            raise ValueError(
                f"unknown learner {name!r}; known are {known}, and a mapping of names to "
                "scikit-learn estimators may be given"
            )
    return list(dict.fromkeys(names))


def _check_task(learners: Mapping[str, Any], task: Task) -> None:
    from sklearn.base import is_classifier, is_regressor

    fits = is_classifier if task == "classification" else is_regressor
    for name, learner in learners.items():
        if not fits(learner):
            raise ValueError(
                f"the task is {task}, but the learner {name!r} is {learner!r}; take one for this "
                "task, or set task="
            )


def _seeded(learner: Any, random_state: int) -> Any:
    """Set the random states that are None, also those of the learner's parts."""
    open_ones = {
        name: random_state % 2**32  # scikit-learn takes no more
        for name, value in learner.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    return learner.set_params(**open_ones)


def takes_tables(learner: Any) -> bool:
    """Say whether an estimator is given tables as they are, rather than encoded arrays."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils import get_tags

    return isinstance(learner, Pipeline) or bool(get_tags(learner).input_tags.string)
