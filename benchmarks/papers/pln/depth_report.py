"""The page of the study on depth: tables beside the paper's, verdicts, figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_figure, write_text
from benchmarks.papers.combu.report_text import NOTHING, markdown_table
from benchmarks.papers.pln.depth_figures import plot_gradients, plot_scores
from benchmarks.papers.pln.depth_findings import (
    deepest,
    figure_8,
    kept,
    part_of,
    table_1,
    table_1_gradients,
    table_2,
    threshold,
)
from benchmarks.papers.pln.depth_numbers import (
    choose_rates,
    gradient_table,
    label,
    paper_gradients,
    paper_vgg,
)

SHOWN = (  # whose first layers' gradients are followed in words
    *(("plain", "torch"), ("plain", "kaiming")),
    *(("residual", "kaiming"), ("pre-activation", "kaiming")),
)


def write_report(
    gradients: pd.DataFrame, training: pd.DataFrame, folder: Path, command: str
) -> str:
    """Write pln_depth.md and the figures, and return the verdicts."""
    chosen = choose_rates(training)
    data = list(dict.fromkeys(training["data"]))
    verdicts = "\n".join(_verdicts(gradients, chosen, data))
    parts = [
        "# pln_depth",
        f"`{command}`",
        describe_machine(),
        _method(gradients, training),
        "## Verdicts",
        verdicts,
        *_tables(gradients, chosen, data),
        "## Figures",
    ]
    for name in data:
        file = f"pln_depth_gradients_{name}.png"
        write_figure(plot_gradients(gradients, name), folder / file, dpi=100)
        parts.append(f"![Gradients at the start, {name}]({file})")
    write_figure(plot_scores(chosen), folder / "pln_depth.png", dpi=100)
    parts.append("![Test scores by depth](pln_depth.png)")
    write_text(folder / "pln_depth.md", "\n\n".join(parts) + "\n")
    return verdicts


def _method(gradients: pd.DataFrame, training: pd.DataFrame) -> str:
    first = training.iloc[0]
    rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(training["learning_rate"]))
    n_seeds, n_gradient = training["seed"].nunique(), gradients["seed"].nunique()
    return f"""\
Tables 1 and 2 and Figure 8 of "Universal approximation theorem of networks activated by
normalization" on tables. What differs from the paper: dense networks of width {first["width"]}
stand in for VGG-16 of width 64 and the ResNets, scikit-learn's digits (8 x 8) and
california_housing (at most {first["n_rows"]} rows) for CIFAR-10; there is no augmentation;
{first["n_steps"]} steps of {first["batch_size"]} rows stand in for 240 epochs of batches of 128.
As in the paper: SGD with momentum 0.9, weight decay 1e-4, a learning rate that rises over the first
twelfth and is divided by 2.5 five times, {n_seeds} seeds. The paper names one rate a network (0.1
for VGG, 0.01 for ResNets); here {rates} are trained and each activation is shown at the one with
the best mean score on the *training* rows. The split is one (4:1).

The paper does not say how weights are drawn. Its plain network behaves as torch's own
initialisation makes it, its ResNets grow as Kaiming's makes them; so do the first rows here, and
the other choice stands beside them. Nor does it say where a ResNet's activation stands: "residual"
activates after the sum, as the first ResNets did, "pre-activation" inside the branch alone. SELU is
meant for a third initialisation (LeCun's), which is not tried.

Gradients are norms of the loss's gradient at the start, on one batch of 256 training rows in
float64: geometric means over {n_gradient} seeds. "mean" averages over all weight matrices and
biases, as we read the paper's "average norm"; "first" is of the first layer's weights. Their size
depends on width, data and loss: only their growth can be compared with the paper's.

A network *trains* if every seed removes at least half of a constant answer's error on the training
rows (misclassified share, or squared error). One that diverged, or is worse than a constant answer,
counts as that answer. What does not train in these few steps may train in more. {n_seeds} seeds
are too few for tests of differences between activations that train; none is claimed."""


def _verdicts(gradients: pd.DataFrame, chosen: pd.DataFrame, data: list[str]) -> Iterator[str]:
    depths = sorted(chosen["depth"].unique())
    shallow, deep = depths[0], depths[-1]
    for name in data:
        plain = part_of(gradients, name, "plain", "torch")
        yield f"### {name}\n"
        trained = part_of(chosen, name, "plain", "torch")
        said = table_1(trained, shallow)
        yield f"- Table 1 (plain networks: PLN-8 trains, sigmoid, tanh and ReLU do not): {said}"
        table = gradient_table(plain, "mean")
        said = table_1_gradients(table, shallow)
        yield f"- Table 1 (PLN-8's gradients do not vanish): {said}"
        for body in ("residual", "pre-activation"):
            grown = gradient_table(part_of(gradients, name, body, "kaiming"), "mean")
            said = table_2(grown, shallow, deep)
            yield f"- Table 2 (gradients of ResNets, here {body}): {said}"
            said = figure_8(part_of(chosen, name, body, "kaiming"))
            yield f"- Figure 8 (training of ResNets, here {body}): {said}"
        for body, init in SHOWN:
            said = kept(part_of(gradients, name, body, init), shallow, deep)
            yield (
                f"- How far the first layer's gradient moves from {shallow} to {deep} layers "
                f"({body}, {init}; powers of ten): {said}"
            )
        own = chosen[chosen["data"] == name]
        yield f"- What trains without normalisation, deep: {deepest(own)}"
        said = threshold(own, gradients[gradients["data"] == name])
        yield f"- Does the gradient at the start tell? {said}\n"


def _tables(gradients: pd.DataFrame, chosen: pd.DataFrame, data: list[str]) -> Iterator[str]:
    for name in data:
        yield f"## {name}: initial gradients"
        for (body, init), part in gradients[gradients["data"] == name].groupby(
            ["body", "init"], sort=False
        ):
            beside = body != "plain" and init == "kaiming"
            yield f"{body}, {init}: mean / first"
            yield _gradients(part, paper_gradients() if beside else None)
        yield f"## {name}: what the networks reach"
        own = chosen[chosen["data"] == name]
        for (body, init), part in own.groupby(["body", "init"], sort=False):
            yield f"{body}, {init}: test score ± sd over seeds (learning rate); × did not train"
            yield _scores(part)
        if name == "digits":
            yield "The paper's Table 1 (VGG-16, CIFAR-10):"
            paper = paper_vgg()[["train_accuracy", "test_accuracy", "gradient"]]
            body = [[label(str(a)), *(f"{v:g}" for v in row)] for a, row in paper.iterrows()]
            yield markdown_table(["activation", "train %", "test %", "gradient"], body)


def _gradients(rows: pd.DataFrame, paper: pd.DataFrame | None) -> str:
    mean, first = gradient_table(rows, "mean"), gradient_table(rows, "first")
    head = ["activation", *map(str, mean.columns)]
    body = [
        [label(name), *(f"{mean.loc[name, d]:.2g} / {first.loc[name, d]:.2g}" for d in mean)]
        for name in mean.index
    ]
    if paper is not None:
        head += [f"paper, ResNet-{depth}" for depth in paper.columns]
        for line, name in zip(body, mean.index, strict=True):
            known = name in paper.index
            line += [f"{paper.loc[name, d]:.2g}" if known else NOTHING for d in paper.columns]
    return markdown_table(head, body)


def _scores(chosen: pd.DataFrame) -> str:
    depths = sorted(chosen["depth"].unique())
    body = []
    for name in dict.fromkeys(chosen["activation"]):
        line = [label(name)]
        for depth in depths:
            cell = chosen[(chosen["activation"] == name) & (chosen["depth"] == depth)].iloc[0]
            cross = "" if cell["trains"] else " ×"
            line.append(
                f"{cell['test']:.3f} ± {cell['test_sd']:.3f} ({cell['learning_rate']:g}){cross}"
            )
        body.append(line)
    return markdown_table(["activation", *(f"{depth} layers" for depth in depths)], body)
