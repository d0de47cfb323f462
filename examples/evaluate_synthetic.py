"""Can a synthetic table be given away?
====================================

Two of them judged: one made, one learned by heart.

::

    python examples/evaluate_synthetic.py [--out FOLDER]

"Rows again" stands for a generator that learned its rows by heart: it is useful and alike, and
gives everything away. Writes FOLDER/evaluate_synthetic.png. For a page of HTML see
synthetic_table.py; for files, the command ``combutab evaluate``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from combutab import TVAE
from combutab.reports import evaluate_synthetic


def load() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to learn from and rows held out, of ten columns of a table of tumours."""
    data = load_breast_cancer(as_frame=True)
    diagnosis = data.target.map(dict(enumerate(data.target_names)))
    table = data.data.filter(like="mean").assign(diagnosis=diagnosis)
    train, held_out = train_test_split(table, test_size=0.4, random_state=0)
    return train, held_out


def draw(train: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> Figure:
    """Draw how far the rows of each table are from the nearest one that was learned from."""
    columns = train.select_dtypes("number").columns
    scaler = StandardScaler().fit(train[columns])
    learned = NearestNeighbors(n_neighbors=1).fit(scaler.transform(train[columns]))
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    styles = ("black", "-"), ("#0072B2", "--"), ("#D55E00", "-")
    for (name, table), (color, style) in zip(tables.items(), styles, strict=True):
        distances = learned.kneighbors(scaler.transform(table[columns]))[0].ravel()
        axes.ecdf(distances, label=name, color=color, linestyle=style, linewidth=1.8)
    axes.set_xlim(-0.05, 3)
    axes.set_xlabel("distance to the nearest row learned from, in standard deviations")
    axes.set_ylabel("share of the rows")
    axes.grid(color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

    train, held_out = load()
    generator = TVAE(epochs=150, batch_size=50, argmax=False, random_state=0).fit(train)
    tables = {
        "TVAE": generator.sample(len(train), random_state=0),
        "rows again": train.sample(frac=1.0, random_state=0),
    }
    for name, rows in tables.items():
        found = evaluate_synthetic(
            real_train=train,
            real_test=held_out,
            synthetic=rows,
            target="diagnosis",
            learners=["linear"],
        )
        print(f"\n{name}")
        for finding in found.findings:
            print(f"  {finding.subject}: {finding.level}. {finding.sentence}")
    draw(train, {"held-out rows": held_out, **tables}).savefig(
        out / "evaluate_synthetic.png", dpi=100
    )


if __name__ == "__main__":
    main()
