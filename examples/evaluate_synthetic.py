"""How good, and how safe, is a synthetic table? Two generators judged, one of them in a page.

    python examples/evaluate_synthetic.py [--out FOLDER]

Writes FOLDER/report.html, which opens in any browser and needs no network. "Rows again" stands for
a generator that learned its rows by heart: it is useful and alike, and gives everything away.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from combutab import TVAE
from combutab.reports import SyntheticEvaluation, evaluate_synthetic, write_report


def load() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to learn from and rows held out, of ten columns of a table of tumours."""
    data = load_breast_cancer(as_frame=True)
    diagnosis = data.target.map(dict(enumerate(data.target_names)))
    table = data.data.filter(like="mean").assign(diagnosis=diagnosis)
    train, held_out = train_test_split(table, test_size=0.4, random_state=0)
    return train, held_out


def judge(train: pd.DataFrame, held_out: pd.DataFrame, rows: pd.DataFrame) -> SyntheticEvaluation:
    """Evaluate rows that were made from ``train``."""
    return evaluate_synthetic(
        real_train=train,
        real_test=held_out,
        synthetic=rows,
        target="diagnosis",
        learners=["linear", "hist_gradient_boosting"],
        made={"Model": "TVAE, 300 epochs, batches of 50"},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(), help="folder (default: the current)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    train, held_out = load()
    generator = TVAE(epochs=300, batch_size=50, random_state=0).fit(train)
    tables = {
        "TVAE": generator.sample(len(train), random_state=0),
        "rows again": train.sample(frac=1.0, random_state=0),
    }
    for name, rows in tables.items():
        found = judge(train, held_out, rows)
        print(f"\n{name}")
        for finding in found.findings:
            print(f"  {finding.subject}: {finding.level}. {finding.sentence}")
        if name == "TVAE":
            write_report(found, out / "report.html")
    print(f"\nWrote {out / 'report.html'}")


if __name__ == "__main__":
    main()
