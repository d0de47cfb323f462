"""The report of `layeract_statistics.py`: tables, and the paper's claims tested over the seeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_text
from benchmarks.papers.combu.report_text import NOTHING, markdown_table
from benchmarks.papers.layeract.robustness_numbers import (
    ALPHA,
    ELEMENT_LEVEL,
    LAYER_LEVEL,
    paper_test,
    verdict,
)
from combutab.evaluation import holm

NAME = "layeract_statistics"
FLUCTUATIONS = {
    ("layer", 0.0): "layer_0",
    ("layer", 1.0): "layer_1",
    ("input", 0.0): "input_0",
    ("input", 1.0): "input_1",
}
NOISES = {
    "layer_0": "N(0, 0.5²) at the activation",
    "layer_1": "N(1, 0.5²) at the activation",
    "input_0": "N(0, 0.5²) at the pixels",
    "input_1": "N(1, 0.5²) at the pixels",
}


def claims(rows: pd.DataFrame) -> list[tuple[str, str, int]]:
    """What the paper says is smaller with LayerAct: words, column, epoch."""
    first, last = rows["epoch"].min(), rows["epoch"].max()
    found = [
        (f"unit means nearer to zero, epoch {epoch} (Figure 2)", "mean_abs", epoch)
        for epoch in (first, last)
    ]
    found.append((f"input means nearer to zero, epoch {last} (Figure 6)", "input_mean_abs", last))
    for name, words in NOISES.items():
        found += [
            (f"mean fluctuation, {words} (Figure 3)", f"{name}_mean", last),
            (f"its spread over samples, {words} (Figure 3)", f"{name}_sd", last),
            (f"mean fluctuation / size of activations, {words}", f"{name}_relative", last),
        ]
    return found


def smaller(rows: pd.DataFrame, activation: str, column: str, epoch: int) -> pd.DataFrame:
    """An activation against each element-level one: paired by seed, Holm over these.

    Returns ``other``, ``ratio`` of the means, ``p``, ``p_holm``, one row each.
    """
    own = rows[rows["epoch"] == epoch].pivot_table(
        index="seed", columns="activation", values=column
    )
    others = [name for name in ELEMENT_LEVEL if name in own]
    table = pd.DataFrame(
        {
            "other": others,
            "ratio": [own[activation].mean() / own[name].mean() for name in others],
            "p": [paper_test(own[activation], own[name])[1] for name in others],
        }
    )
    table["p_holm"] = holm(table["p"])
    return table


def judge(rows: pd.DataFrame, activation: str, column: str, epoch: int) -> tuple[str, ...]:
    """Smaller than, larger than, range of ratios, verdict."""
    table = smaller(rows, activation, column, epoch)
    real = table[table["p_holm"] < ALPHA]
    less = real.loc[real["ratio"] < 1, "other"].tolist()
    more = real.loc[real["ratio"] > 1, "other"].tolist()
    return (
        "all" if len(less) == len(table) else ", ".join(less) or NOTHING,
        "all" if len(more) == len(table) else ", ".join(more) or NOTHING,
        f"{table['ratio'].min():.2f} to {table['ratio'].max():.2f}",
        verdict(len(less), len(more), len(table)),
    )


def write_report(rows: pd.DataFrame, folder: Path, command: str, settings: str) -> None:
    """Write the Markdown, and print its verdicts."""
    parts = list(_page(rows, command, settings))
    write_text(folder / f"{NAME}.md", "\n\n".join(parts) + "\n")
    print(_verdicts(rows))


def _page(rows: pd.DataFrame, command: str, settings: str) -> Iterator[str]:
    first, last = rows["epoch"].min(), rows["epoch"].max()
    yield "# LayerAct: what the units of one hidden layer do"
    yield f"`{command}`"
    yield describe_machine()
    yield (
        f"One hidden layer of {settings}; SGD with momentum 0.9, rate 0.01 and weight decay 1e-4 "
        f"as in the paper's appendix H, up to its epoch {last} (where its rate falls first, and "
        "after which its distributions do not change); no normalisation. scikit-learn's 1,797 "
        "digits of 8 x 8, standardised, stand in for MNIST, 4:1; statistics over the test rows. "
        f"{rows['seed'].nunique()} seeds of initial weights and shuffles on one split, shared by "
        "the activations. The paper adds its noise to what the activation is given; noise at the "
        "pixels is our addition. It prints figures without numbers: what is compared here is what "
        "its text says of them."
    )
    yield "## Verdicts"
    yield (
        "Against the paper's eight element-level activations, paired by seed: a t-test, or "
        "Wilcoxon's where Shapiro and Wilk's test rejects normality, as in its Tables 20 to 23, "
        'and Holm\'s correction over the eight. "holds": smaller than all of them.'
    )
    yield _verdicts(rows)
    yield (
        "The last line of each noise sets the fluctuation against the root mean square of the "
        "activations themselves: a function that halves all it gives would halve the fluctuation "
        "too, and the next layer could double it again."
    )
    for epoch in (first, last):
        yield f"## Epoch {epoch}"
        yield _units(rows[rows["epoch"] == epoch])
    yield f"## Fluctuation at epoch {last}"
    for name, words in NOISES.items():
        yield f"{words}:\n\n" + _fluctuation(rows[rows["epoch"] == last], name)
    yield "## Figures, of seed 0"
    yield f"Figure 2, epochs {first} and {last}: means of the units' activations."
    yield f"![]({NAME}_means_first.png)\n![]({NAME}_means_last.png)"
    yield "Figure 3: fluctuation of the samples."
    yield f"![]({NAME}_fluctuation.png)"
    yield f"Figure 6, epochs {first} and {last}: means of what the units' activations are given."
    yield f"![]({NAME}_input_means_first.png)\n![]({NAME}_input_means_last.png)"
    yield (
        "Figure 7: fluctuation of what the activation is given. With noise added there it is the "
        "same for all, by definition."
    )
    yield f"![]({NAME}_input_fluctuation.png)"


def _verdicts(rows: pd.DataFrame) -> str:
    present = [name for name in LAYER_LEVEL if name in set(rows["activation"])]
    body = [
        [f"{name}: {words}", *judge(rows, name, column, epoch)]
        for name in present
        for words, column, epoch in claims(rows)
    ]
    return markdown_table(["", "smaller than", "larger than", "ratio", "verdict"], body, left=3)


def _spread(values: pd.Series) -> str:
    mean, sd = values.mean(), values.std()
    if mean == sd == 0:
        return "0"
    decimals = int(np.clip(2 - np.floor(np.log10(max(abs(mean), sd))), 0, 4))
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}"


def _units(rows: pd.DataFrame) -> str:
    columns = {
        "accuracy": "accuracy",
        "mean": "mean of the unit means",
        "mean_abs": "mean of their size",
        "lowest": "lowest activation",
        "saturated": "share saturated",
        "dead": "dead units",
        "input_mean_abs": "size of input means",
        "input_sd": "sd of inputs",
    }
    body = [
        [name, *(_spread(part[column]) for column in columns)]
        for name, part in rows.groupby("activation", sort=False)
    ]
    return "Means over the seeds ± standard deviation.\n\n" + markdown_table(
        ["", *columns.values()], body
    )


def _fluctuation(rows: pd.DataFrame, name: str) -> str:
    columns = {
        f"{name}_mean": "mean",
        f"{name}_sd": "sd over samples",
        f"{name}_relative": "mean / size of activations",
        f"{name}_input_mean": "mean, of the input",
        f"{name}_input_sd": "sd, of the input",
    }
    body = [
        [activation, *(_spread(part[column]) for column in columns)]
        for activation, part in rows.groupby("activation", sort=False)
    ]
    return markdown_table(["", *columns.values()], body)
