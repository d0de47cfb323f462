"""The report of proxynorm_training: Markdown, computed from the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.papers.proxynorm.training_nets import DEPTH_DROP
from benchmarks.papers.proxynorm.training_numbers import (
    BN_PAIRS,
    MARGIN,
    PN_PAIRS,
    SETTING,
    Difference,
    by_setting,
    cells,
    contrasts,
    load_paper,
    paper_gains,
)
from benchmarks.papers.proxynorm.training_plain import DROPOUT as DROPOUT_PLAIN
from benchmarks.papers.proxynorm.training_runs import (
    DROPOUT,
    REGULARISATION,
    SMOOTHING,
    TABLES,
    Recipe,
)
from benchmarks.papers.proxynorm.training_verdicts import CLAIMS, Judged, judge, show

NETS = {
    "MLP": "residual MLPs on tables",
    "CNN": "residual CNN on digits",
    "plain MLP": "deep MLP without skip connections",
}
LIKE_PAPER = 32  # inputs over which the paper's BN takes its statistics
METHOD = """\
Each network is the paper's ResNet v2 in small: a first map, blocks of (norm, activation, map) twice
with a skip connection, a last norm and activation, a linear classifier. On tables the maps are
matrices and the network has {layers_table} layers of {width_table} units. On scikit-learn's digits
(8 x 8 images, which stand in for ImageNet and CIFAR) they are 3 x 3 convolutions, the first with
stride 2, in {layers_image} layers of {width_image} channels, and the mean over positions comes
before the classifier. The activation is {activation}. Groups of GN: {groups};
LN is GN with one group.

{n_train} training rows: one random split, the same for all, of which up to {n_test} other rows are
the test; rows of equal features stay on one side. {n_seeds} seeds, each of which all norms share:
weights, shuffles and masks. SGD with momentum 0.9 and weight decay 1e-4 on all parameters, PN's
included; the rate rises over a tenth of the steps and falls by a cosine. Rate and epochs go by the
square root of the batch size, so that the sum of the rates over a training is the same:

{schedule}
The rate is the paper's, 0.1 at batch 128; one other, 0.03, was tried with two seeds and gave BN
lower accuracy. Extra regularisation is the paper's on CIFAR: label smoothing {smoothing}, dropout
{dropout} before the classifier, stochastic depth {depth}, a row's branch at a time. What else is
the paper's: PN's eps 0.03, its own gain and shift in place of the norm's, no scaling before the
mean over positions; norms' eps 1e-6; BN's running decay 0.97; weight standardisation with a scale
after each branch; weights from a truncated normal. What differs: sizes, data, length of training,
and the batch, which here is both the step's and the norm's (the paper holds the step's at 256 and
takes BN's statistics over 32). {classes}Accuracy is in percent.

MLPs without skip connections, which the paper does not train, have {layers_plain} layers of
{width_plain} units and are combutab's `MLPClassifier` on {data_plain}: AdamW (weight decay 0.01 on
weights alone), {rate_plain} at batch 128 (with a quarter of it BN's accuracy was lower), a cosine
without the rise; its extra regularisation is label smoothing and dropout {dropout_plain} after each
layer.

*train accuracy* is that over the last epoch as it is trained, with dropout, stochastic depth and
batch statistics: the paper's Tables 9 to 11 have it so, and leave BN out, whose batches regularise.
*p* is of Student's paired t-test over seeds, by Holm over all p of one table (those of the column
"all" apart); the unit is a seed's mean over data sets and regularisations, unless a table has lines
of their own for these. "equal within a point": the 95 % interval lies within {margin:g} point of
zero. All networks of a data set share one split: the tests speak of seeds, not of other rows.
"""


def write(rows: pd.DataFrame, command: str, pictures: Sequence[str]) -> str:
    """The whole page."""
    parts = [
        f"# proxynorm_training: does PN make layer norm match batch norm?\n\n`{command}`\n",
        f"{describe_machine()}\n",
        _verdict(rows),
        "## What was done\n\n" + _method(rows),
    ]
    parts += [f"![{name}]({name})\n" for name in pictures]
    parts.append("Means over seeds; bars are one standard deviation, and end at 100 %.\n")
    for net, part in rows.groupby("net", sort=False):
        parts.append(_net(str(net), part))
    parts.append(_beside_paper(rows))
    return "\n".join(parts)


def markdown(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    body = [f"| {' | '.join(map(str, line))} |" for line in (header, ["---"] * len(header), *lines)]
    return "\n".join(body) + "\n"


def _verdict(rows: pd.DataFrame) -> str:
    judged = {net: judge(part) for net, part in rows.groupby("net", sort=False)}
    lines = [
        [claim.text, *(_outcome(found[i][1]) for found in judged.values())]
        for i, claim in enumerate(CLAIMS)
    ]
    header = ["claim", *(NETS[net] for net in judged)]
    note = (
        "In points of accuracy, over all batch sizes, data sets and regularisations unless said "
        "otherwise, with 95 % intervals over seeds.\n"
    )
    return f"## Verdict\n\n{note}\n{markdown(header, lines)}"


def _outcome(judged: Judged | None) -> str:
    return f"**{judged.verdict}**: {judged.numbers}" if judged else "not judged"


def _method(rows: pd.DataFrame) -> str:
    first = {net: part.iloc[0] for net, part in rows.groupby("net")}
    table, image, plain = (first.get(net) for net in NETS)
    schedule = rows[rows["net"] != "plain MLP"].drop_duplicates("batch_size")
    schedule = schedule.sort_values("batch_size")

    def of(row: pd.Series | None, name: str) -> str:
        return "no" if row is None else str(row[name])

    own = rows[rows["norm"].str.startswith("GN")].drop_duplicates("net")
    groups = [f"{row['groups']} in the {row['net']}" for _, row in own.iterrows()]
    return METHOD.format(
        layers_table=of(table, "layers"),
        width_table=of(table, "width"),
        layers_image=of(image, "layers"),
        width_image=of(image, "width"),
        layers_plain=of(plain, "layers"),
        width_plain=of(plain, "width"),
        data_plain=of(plain, "data"),
        dropout_plain=DROPOUT_PLAIN,
        rate_plain=Recipe.learning_rate_plain,
        activation=" and ".join(dict.fromkeys(rows["activation"])),
        groups=", ".join(groups) or "none",
        n_train=rows["n_train"].iloc[0],
        n_test=rows["n_test"].max(),
        n_seeds=rows["seed"].nunique(),
        schedule=markdown(
            ["batch size", "largest rate", "epochs", "steps"],
            schedule[["batch_size", "learning_rate", "epochs", "steps"]].astype(str).to_numpy(),
        ),
        smoothing=SMOOTHING,
        dropout=DROPOUT,
        depth=DEPTH_DROP,
        margin=100 * MARGIN,
        classes=_classes(rows),
    )


def _classes(rows: pd.DataFrame) -> str:
    made = [f"{name} is that of {n} quantile bins" for name, n in TABLES.items() if n]
    own = [text for text in made if text.split()[0] in set(rows["data"])]
    return f"The class of {', of '.join(own)} of its target. " if own else ""


def _net(net: str, rows: pd.DataFrame) -> str:
    text = f"## {NETS[net][0].upper()}{NETS[net][1:]}\n"
    for data, part in rows.groupby("data", sort=False):
        for metric, title in (("accuracy", "test accuracy"), ("train_accuracy", "train accuracy")):
            text += f"\n### {data}: {title}, without / with extra regularisation\n\n"
            text += _cells(part, metric)
    if rows["seed"].nunique() < 2:
        return text
    for title, pairs, metric in (
        ("What PN adds: test accuracy", PN_PAIRS, "accuracy"),
        ("What PN adds: train accuracy", PN_PAIRS, "train_accuracy"),
        ("Beside BN: test accuracy", BN_PAIRS, "accuracy"),
    ):
        text += f"\n### {title}\n\n{_contrasts(rows, pairs, metric)}"
    for pair in (("LN+PN", "LN"), ("LN+PN", "BN")):
        text += f"\n### {pair[0]} less {pair[1]}, setting by setting\n\n{_settings(rows, pair)}"
    return text


def _cells(rows: pd.DataFrame, metric: str) -> str:
    table = cells(rows, metric)
    sizes = sorted(set(table["batch_size"]))
    lines = []
    for norm, part in table.groupby("norm", sort=False):
        found = part.set_index(["batch_size", "regularisation"])
        line = [norm]
        for size in sizes:
            keys = [(size, kind) for kind in REGULARISATION]
            line.append(" / ".join(_mean_sd(found.loc[key]) for key in keys if key in found.index))
        lines.append(line)
    return markdown(["norm", *(f"batch {size}" for size in sizes)], lines)


def _mean_sd(cell: pd.Series) -> str:
    spread = f" ± {100 * cell['std']:.1f}" if np.isfinite(cell["std"]) else ""
    return f"{100 * cell['mean']:.1f}{spread}"


def _contrasts(rows: pd.DataFrame, pairs: Sequence[tuple[str, str]], metric: str) -> str:
    table = contrasts(rows, pairs, metric)
    sizes = list(dict.fromkeys(table["batch_size"]))
    lines = [
        [pair, *(_worded(d) for d in part["difference"])]
        for pair, part in table.groupby("pair", sort=False)
    ]
    names = ["all" if size == "all" else f"batch {size}" for size in sizes]
    return markdown(["difference, points", *names], lines)


def _settings(rows: pd.DataFrame, pair: tuple[str, str]) -> str:
    table = by_setting(rows, pair)
    sizes = sorted(set(table["batch_size"]))
    lines = []
    found = table.set_index(list(SETTING))["difference"]
    for data in dict.fromkeys(rows["data"]):
        for kind in REGULARISATION:
            lines.append([data, kind, *(_worded(found[data, kind, size]) for size in sizes)])
    header = ["data", "regularisation", *(f"batch {size}" for size in sizes)]
    return markdown(header, lines)


def _worded(difference: Difference) -> str:
    return f"{show(difference)}: {difference.words}"


def _beside_paper(rows: pd.DataFrame) -> str:
    size = min(set(rows["batch_size"]), key=lambda s: abs(s - LIKE_PAPER))
    text = (
        f"## Beside the paper's\n\nTables 2 and 6, 9: ResNet-50 on ImageNet; ours at batch {size} "
        "(the paper's BN takes its statistics over 32 inputs). The data differ, so that only the "
        "order of the norms compares. Without / with extra regularisation.\n"
    )
    nets = rows["net"].isin(["MLP", "CNN"])
    rows = rows[nets] if nets.any() else rows
    for metric, title in (("accuracy", "test accuracy"), ("train_accuracy", "train accuracy")):
        text += f"\n### {title.capitalize()}\n\n" + _resnet_50(rows, metric, size)
    text += (
        "\n### What PN adds, in points: mean over the paper's networks (Tables 2 to 4; 9 to 11), "
        "least and most, and ours over all batch sizes\n\n"
    )
    return text + _gains(rows)


def _resnet_50(rows: pd.DataFrame, metric: str, size: int) -> str:
    paper = load_paper()
    paper = paper[(paper["metric"] == metric) & (paper["net"] == "RN50") & (paper["groups"] != 32)]
    ours = cells(rows[rows["batch_size"] == size], metric)
    data = list(dict.fromkeys(ours["data"]))
    lines = []
    for norm in dict.fromkeys(ours["norm"]):
        theirs = paper[paper["norm"] == norm].set_index("regularisation")["mean"]
        line = [norm, " / ".join(f"{theirs[k]:.1f}" for k in REGULARISATION if k in theirs) or "-"]
        for name in data:
            own = ours[(ours["norm"] == norm) & (ours["data"] == name)]
            line.append(" / ".join(_mean_sd(cell) for _, cell in own.iterrows()))
        lines.append(line)
    return markdown(["norm", "paper's ResNet-50 (GN: 8 groups)", *data], lines)


def _gains(rows: pd.DataFrame) -> str:
    lines = []
    for metric in ("accuracy", "train_accuracy"):
        theirs = paper_gains(metric)
        for pair in PN_PAIRS:
            name = f"{pair[0]} - {pair[1]}"
            for kind in REGULARISATION:
                found = theirs[(theirs["pair"] == name) & (theirs["regularisation"] == kind)]
                gains = found["gain"]
                line = [metric.replace("_", " "), name, kind, "-"]
                if len(gains):
                    line[-1] = f"{gains.mean():+.1f} ({gains.min():+.1f} to {gains.max():+.1f})"
                own = rows[rows["regularisation"] == kind]
                for _, part in own.groupby("net", sort=False):
                    means = part.groupby("norm")[metric].mean()
                    both = set(pair) <= set(means.index)
                    line.append(f"{100 * (means[pair[0]] - means[pair[1]]):+.1f}" if both else "-")
                lines.append(line)
    nets = [NETS[net] for net in dict.fromkeys(rows["net"])]
    return markdown(["", "difference", "regularisation", "paper's", *nets], lines)
