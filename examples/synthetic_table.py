"""Synthetic data: conditional sampling and a report
=================================================

Fit a generator, sample rows, sample rows that meet conditions, and write a report on their
utility, fidelity and privacy.

::

    python examples/synthetic_table.py

Writes synthetic.csv, generator.safetensors, report.html, which opens in any
browser, and synthetic_table.png.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.model_selection import train_test_split

import combutab
from combutab import TVAE
from combutab.reports import evaluate_synthetic, write_report

# %%
# Simulate patients. The table has text, dates, whole numbers and missing values, and its columns
# depend on each other. Hold out rows for the report; the generator must not see them.


def make_patients(n: int) -> pd.DataFrame:
    """Simulate patients whose pressure depends on age and smoking."""
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


real, held_out = train_test_split(make_patients(1500), test_size=0.3, random_state=0)

# %%
# Fit the generator and sample as many rows as the table has. With ``argmax=False``, rare categories
# and missing values are as frequent as in the table.

generator = TVAE(
    activation="combu",
    batch_size=100,
    epochs=100,
    learning_rate=0.005,
    argmax=False,
    random_state=0,
).fit(real)
synthetic = generator.sample(len(real), random_state=0)
synthetic.to_csv("synthetic.csv", index=False)
print(synthetic.dtypes.to_string())
print("missing:", real["pressure"].isna().mean().round(3), "real,",
      synthetic["pressure"].isna().mean().round(3), "synthetic")  # fmt: skip

# %%
# Sample 200 rows that meet conditions: current and former smokers, aged 70 or older, who came in
# summer.

wanted = {
    "smoker": ["former", "current"],
    "age": (70, None),
    "visit": (pd.Timestamp("2025-06-01"), pd.Timestamp("2025-08-31")),
}
conditional = generator.sample(200, conditions=wanted, random_state=0)
print(conditional.head(3).to_string(index=False))

# %%
# Save the generator. The file contains no rows of the table.

generator.save("generator.safetensors")
again = combutab.load("generator.safetensors")
assert again.sample(len(real), random_state=0).equals(synthetic)

# %%
# Evaluate the synthetic rows against the training and the held-out rows, and write the report.

found = evaluate_synthetic(
    real_train=real,
    real_test=held_out,
    synthetic=synthetic,
    target="pressure",
    learners=["linear"],
)
for finding in found.findings:
    print(f"{finding.subject}: {finding.level}. {finding.sentence}")
write_report(found, "report.html")

# %%
# The picture shows blood pressure by age.


def draw(tables: dict[str, pd.DataFrame]) -> Figure:
    """Draw pressure by age, one panel per table."""
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    panels = figure.subplots(1, len(tables), sharex=True, sharey=True)
    colors = {"never": "0.65", "former": "#0072B2", "current": "#D55E00"}
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        for kind, color in colors.items():
            part = table[table["smoker"] == kind]
            axes.scatter(part["age"], part["pressure"], s=7, color=color, linewidths=0, label=kind)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("age")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("pressure")
    panels[0].legend(title="smoker", frameon=False, fontsize=8, loc="upper left")
    return figure


tables = {"real": real, "synthetic": synthetic, "conditions: smokers, 70+, summer": conditional}
draw(tables).savefig("synthetic_table.png", dpi=100)
