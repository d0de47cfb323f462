"""Evaluate a synthetic table: utility, fidelity and privacy
=========================================================

Can you publish a synthetic table? This example evaluates two tables: one sampled by a generator,
and one that is a copy of the training rows.

::

    python examples/evaluate_synthetic.py

Writes evaluate_synthetic.png. For an HTML report see synthetic_table.py; for tables in
files, use the command ``combutab evaluate``.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from combutab import TVAE
from combutab.reports import evaluate_synthetic

# %%
# Load ten columns of a table of breast tumours, and hold out 40 % of the rows. The generator must
# not see the held-out rows.


def load() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return training rows and held-out rows."""
    data = load_breast_cancer(as_frame=True)
    diagnosis = data.target.map(dict(enumerate(data.target_names)))
    table = data.data.filter(like="mean").assign(diagnosis=diagnosis)
    train, held_out = train_test_split(table, test_size=0.4, random_state=0)
    return train, held_out


train, held_out = load()

# %%
# Fit a generator and sample from it. The second table, "memorized rows", stands for a generator
# that has memorized its training rows.

generator = TVAE(epochs=150, batch_size=50, argmax=False, random_state=0).fit(train)
tables = {
    "TVAE": generator.sample(len(train), random_state=0),
    "memorized rows": train.sample(frac=1.0, random_state=0),
}

# %%
# Evaluate both tables. The memorized rows have good utility, because they are real rows. Privacy is
# poor: they copy the training rows.

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

# %%
# The picture shows the distance of each row to the nearest training row. The memorized rows have a
# distance of zero. Without leakage, the synthetic rows are not closer to the training rows than the
# held-out rows are; that they are not closer does not prove that there is none.


def draw(train: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> Figure:
    """Draw the distances of the rows of each table to the nearest training row."""
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
    axes.set_xlabel("distance to the nearest training row, in standard deviations")
    axes.set_ylabel("cumulative share of rows")
    axes.grid(color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


draw(train, {"held-out rows": held_out, **tables}).savefig("evaluate_synthetic.png", dpi=100)
