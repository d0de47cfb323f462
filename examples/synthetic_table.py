"""A synthetic table: two activations trained as one stack, stopped early, and looked at.

    python examples/synthetic_table.py [--out FOLDER]

Writes FOLDER/synthetic.csv, FOLDER/generator.safetensors and FOLDER/synthetic_table.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import combutab
from combutab import TVAE
from combutab.generators import fit_stack


def make_patients(n: int) -> pd.DataFrame:
    """A table with text, dates, whole numbers, missing values, and columns that hang together."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, n)
    smoker = rng.choice(["never", "former", "current"], n, p=[0.6, 0.25, 0.15])
    pressure = 100 + 0.5 * age + 8 * (smoker == "current") + rng.normal(0, 9, n)
    table = pd.DataFrame(
        {
            "age": age,
            "smoker": smoker,
            "pressure": pressure.round(1),
            "visit": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D"),
        }
    )
    table.loc[rng.random(n) < 0.1, "pressure"] = np.nan
    return table


def draw(real: pd.DataFrame, synthetic: dict[str, pd.DataFrame]) -> Figure:
    """Pressure by age: real rows, and each generator's."""
    figure = Figure(figsize=(3.2 * (1 + len(synthetic)), 3.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(synthetic), sharex=True, sharey=True)
    for ax, (name, table) in zip(axes, {"real": real, **synthetic}.items(), strict=True):
        for kind, part in table.groupby("smoker"):
            ax.scatter(part["age"], part["pressure"], s=4, alpha=0.5, label=kind)
        ax.set_title(name, loc="left")
        ax.set_xlabel("age")
    axes[0].set_ylabel("pressure")
    axes[0].legend(title="smoker", markerscale=3, fontsize="small")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the files")
    out = parser.parse_args().out

    real = make_patients(1500)
    models = {
        name: TVAE(
            activation=name,
            batch_size=100,
            epochs=60,
            learning_rate=0.005,
            early_stopping=True,
            random_state=0,
        )
        for name in ("original", "combu")
    }
    fit_stack(list(models.values()), real)  # both networks as one stack
    for name, model in models.items():
        loss = model.history_["validation_loss"]
        print(f"{name}: {model.n_iter_} epochs, the best {loss.idxmin() + 1} ({loss.min():.3f})")

    generator = models["combu"]
    synthetic = generator.sample(1500, random_state=0)
    synthetic.to_csv(out / "synthetic.csv", index=False)
    print(synthetic.dtypes.to_string())
    print("missing:", real["pressure"].isna().mean().round(3), "real,",
          synthetic["pressure"].isna().mean().round(3), "synthetic")  # fmt: skip

    # Rows to order: old smokers in summer.
    wanted = {
        "smoker": ["former", "current"],
        "age": (70, None),
        "visit": (pd.Timestamp("2025-06-01"), pd.Timestamp("2025-08-31")),
    }
    print(generator.sample(3, conditions=wanted, random_state=0).to_string(index=False))

    generator.save(out / "generator.safetensors")  # no rows of the table in it
    again = combutab.load(out / "generator.safetensors")
    assert again.sample(1500, random_state=0).equals(synthetic)

    samples = {name: model.sample(1500, random_state=0) for name, model in models.items()}
    draw(real, samples).savefig(out / "synthetic_table.png", dpi=150)


if __name__ == "__main__":
    main()
