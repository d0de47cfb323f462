"""The curves of a fit, as estimators, packs, generators and scikit-learn's networks keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

_NO_LOSS = {"member", "epoch", "train_metric", "learning_rate"}
_SCORES = {"r2": "R²"}
_LOSSES = {"validation loss", "validation distance"}  # which are better if smaller


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """Training losses and validation score by member and epoch.

    ``table`` has the columns member, epoch, those of ``losses`` and validation_score, of which
    larger is better; NaN where there is none. ``validation`` says in words what the score is, or
    what it is the negative of. ``keeps_best`` is false of a pack, which chooses among epochs.
    """

    table: pd.DataFrame
    losses: tuple[str, ...]
    validation: str
    keeps_best: bool = True

    def panels(self) -> dict[str, str]:
        """Columns to draw, and their names in words."""
        named = {name: name.replace("train_", "training ") for name in self.losses}
        named = {name: words.replace("_", " ") for name, words in named.items()}
        return named | ({"validation_score": self.validation} if self.scored else {})

    def of_each(self, column: str, *, as_scores: bool = False) -> pd.DataFrame:
        """One column by epoch (rows) and member (columns), a loss of validation rows as such."""
        table = self.table.pivot(index="epoch", columns="member", values=column)
        negative = column == "validation_score" and self.validation in _LOSSES and not as_scores
        return -table if negative else table

    @property
    def scored(self) -> bool:
        """Whether there are validation scores."""
        return bool(self.table["validation_score"].notna().any())

    def best_epochs(self) -> dict[Any, int]:
        """The epoch whose weights are kept, by member: the best, the first of equals."""
        scored = self.table[self.table["validation_score"].notna() & self.keeps_best]
        rows = scored.loc[scored.groupby("member")["validation_score"].idxmax()]
        return dict(zip(rows["member"].tolist(), rows["epoch"].tolist(), strict=True))


def learning_curves(estimator: Any) -> LearningCurves:
    """Read the curves of a fitted estimator: of the last call of ``fit``, of one network of all.

    Raises
    ------
    ValueError
        If it has no epochs.
    """
    history = getattr(estimator, "history_", None)
    losses = getattr(estimator, "loss_curve_", None) or []
    if history is None or (history["member"].nunique() == 1 and len(history) < len(losses)):
        scores = getattr(estimator, "validation_scores_", None) or []
        history = pd.DataFrame({"member": 0, "epoch": np.arange(len(losses)) + 1})
        # of earlier calls there may be none
        history["train_loss"] = np.asarray(losses, dtype=float)
        history["validation_score"] = [np.nan] * (len(losses) - len(scores)) + list(scores)
    if history.empty:
        raise ValueError("has no epochs to draw; solver='lbfgs' has none")
    columns = [str(name) for name in history if name not in _NO_LOSS]
    validations = [name for name in columns if name.startswith("validation")]
    names = [name for name in columns if name not in validations]
    scores, words = pd.Series(np.nan, history.index), "score"
    for name in validations:
        if name == "validation_score":
            scores, words = history[name], _score_words(estimator)
        else:
            scores, words = -history[name], name.removeprefix("validation_")
    table = history[["member", "epoch", *names]].assign(validation_score=scores)
    table = table.rename(columns={"loss": "train_loss"})
    losses = tuple("train_loss" if name == "loss" else name for name in names)
    return LearningCurves(table, losses, f"validation {words}", not hasattr(estimator, "members_"))


def _score_words(estimator: Any) -> str:
    scoring = getattr(estimator, "early_stopping_scoring", None)
    scoring = scoring or getattr(estimator, "_score_name", "score")
    words = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")
    return _SCORES.get(words, words)
