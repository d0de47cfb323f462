"""What the rows of the study on depth say: gradients, their growth, and which networks train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

CELL = ["data", "body", "init", "depth", "activation"]
PAPER = Path(__file__).parent / "expected" / "pln_depth.csv"
LABELS = {
    "relu": "ReLU",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "pln-8": "PLN-8",
    "pls-8": "PLS-8",
    "combu": "CombU",
    "nlrelu": "NLReLU",
    "selu": "SELU",
    "gelu": "GELU",
    "la-silu": "LA-SiLU",
    "identity": "none",
}
INIT_NAMES = {"torch": "torch's own", "kaiming": "Kaiming's"}


def label(activation: str) -> str:
    return LABELS.get(activation, activation)


def labels(activations: list[str]) -> str:
    """Names in a sentence."""
    named = [label(name) for name in activations]
    if len(named) < 2:
        return "".join(named) or "none"
    return f"{', '.join(named[:-1])} and {named[-1]}"


def gradient_table(rows: pd.DataFrame, norm: str) -> pd.DataFrame:
    """Activations x depths: the geometric mean of a norm over seeds, of one data set and network.

    A norm of zero, and a norm that is not finite, stay so.
    """
    with np.errstate(divide="ignore"):
        logs = np.log10(rows[norm].astype(np.float64))
    means = logs.groupby([rows["activation"], rows["depth"]]).mean().unstack()
    return 10.0 ** means.loc[list(dict.fromkeys(rows["activation"]))]


def decades(table: pd.DataFrame, shallow: int, deep: int) -> pd.Series:
    """By how many powers of ten each row grows from one depth to another."""
    with np.errstate(divide="ignore"):
        return np.log10(table[deep]) - np.log10(table[shallow])


def paper_gradients() -> pd.DataFrame:
    """Table 2: activations x depths."""
    paper = pd.read_csv(PAPER)
    return paper[paper["table"] == 2].pivot(index="activation", columns="depth", values="value")


def paper_vgg() -> pd.DataFrame:
    """Table 1: activations x quantities."""
    paper = pd.read_csv(PAPER)
    own = paper[paper["table"] == 1]
    return own.pivot(index="activation", columns="quantity", values="value")


def choose_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a cell: the learning rate with the best mean score on the training rows.

    A network that diverged, or is worse than a constant answer, counts as that answer. Of equal
    means the first rate is taken.

    Returns
    -------
    DataFrame
        The columns of the cell, ``learning_rate``, ``train`` and ``test`` (means over seeds),
        ``test_sd``, ``n_diverged``, ``n_seeds``, and ``trains``: whether every seed removed at
        least half of the constant answer's error on the training rows.
    """
    least = rows["trivial_score"]
    filled = rows.assign(
        train=rows["train_score"].fillna(-np.inf).clip(lower=least),
        test=rows["test_score"].fillna(-np.inf).clip(lower=least),
    )
    filled["fits"] = filled["train"] >= least + (1.0 - least) / 2.0
    cells = []
    for cell, part in filled.groupby(CELL, sort=False):
        means = part.groupby("learning_rate", sort=False)["train"].mean()
        rate = means.idxmax()
        best = part[part["learning_rate"] == rate]
        cells.append(
            dict(zip(CELL, cell, strict=True))
            | {
                "learning_rate": rate,
                "train": means[rate],
                "test": best["test"].mean(),
                "test_sd": best["test"].std(),
                "n_diverged": int(best["diverged"].sum()),
                "n_seeds": len(best),
                "trains": bool(best["fits"].all()),
            }
        )
    return pd.DataFrame(cells)


def that_train(chosen: pd.DataFrame, depth: int) -> list[str]:
    """The activations that train at a depth, the best on test rows first."""
    own = chosen[(chosen["depth"] == depth) & chosen["trains"]]
    return list(own.sort_values("test", ascending=False)["activation"])
