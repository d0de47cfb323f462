"""Synthetic data with differential privacy
========================================

Fit a generator with differential privacy, and see what epsilon means and how the privacy budget
is spent.

::

    python examples/private_table.py

Needs OpenDP: pip install opendp. Writes synthetic.csv,
generator.safetensors and private_table.png.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import combutab
from combutab import PrivateSynthesizer

# %%
# Simulate hospital stays. Older patients stay longer, and a patient can have several rows.


def make_stays(n: int) -> pd.DataFrame:
    """Simulate stays in a hospital, which are longer for older patients."""
    rng = np.random.default_rng(0)
    patient = np.sort(rng.integers(0, n // 2, n))
    age = rng.integers(18, 90, n // 2)[patient]
    return pd.DataFrame(
        {
            "patient": patient,
            "age": age,
            "ward": rng.choice(["surgery", "medicine", "children"], n, p=[0.5, 0.4, 0.1]),
            "emergency": rng.random(n) < 0.2 + 0.4 * (age >= 60),
            "days": np.minimum(1 + rng.poisson(age / 8), 30),
        }
    )


# %%
# Fit the generator. The bounds and categories come from the meaning of the columns, never from the
# table: the smallest and largest values of the table belong to real people. ``person="patient"``
# protects all rows of a patient together, and at most two rows per patient are used.
# ``random_state`` does not fix the noise, which comes from the operating system.

stays = make_stays(6000)
generator = PrivateSynthesizer(
    epsilon=1.0,
    delta=1e-6,  # well below one over the number of patients
    bounds={"age": (0, 120), "days": (1, 30)},
    categories={"ward": ["surgery", "medicine", "children"]},
    max_rows_per_person=2,
    epochs=10,  # steps after each round of measurements
    random_state=0,
)
generator.fit(stays, person="patient")

# %%
# Epsilon limits what an attacker can learn about one patient.

epsilon, delta = generator.epsilon_, generator.delta_
highest = math.exp(epsilon) / (1 + math.exp(epsilon))
print(f"promise: epsilon={epsilon:g}, delta={delta:g}")
print("An attacker who knows all other rows, and guesses with a probability of 50 % that a")
print(f"patient is in the table, can raise that guess to at most {100 * highest:.0f} %.")

# %%
# The ledger lists what each step has spent. The column epsilon is the total of all steps so far.

steps = generator.ledger_.groupby("step", sort=False)
print(steps.agg(times=("rho", "size"), rho=("rho", "sum"), epsilon=("epsilon", "last")).round(4))

# %%
# You can sample any number of rows without spending more budget, because rows are computed from the
# noisy counts.

synthetic = generator.sample(6000, random_state=0)
synthetic.to_csv("synthetic.csv", index=False)
print(synthetic.head(3).to_string(index=False))

# %%
# The synthetic rows keep the relation between age and days.

AGES = [(18, 40), (40, 60), (60, 90)]

tables = {"real": stays, f"synthetic, epsilon={epsilon:g}": synthetic}
for name, table in tables.items():
    groups = pd.cut(table["age"], [low for low, _ in AGES] + [90], right=False)
    days = table.groupby(groups, observed=False)["days"].median()
    print(f"{name}: median days by age {', '.join(f'{x:.0f}' for x in days)}")

# %%
# The file of the generator has the same guarantee as the rows, so it can be published too.

generator.save("generator.safetensors")
again = combutab.load("generator.safetensors")
assert again.sample(6000, random_state=0).equals(synthetic)

# %%
# The picture shows the days of stay by age.


def draw(tables: dict[str, pd.DataFrame]) -> Figure:
    """Draw days by age, one panel for each table."""
    figure = Figure(figsize=(8.6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(tables), sharex=True, sharey=True)
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        for (low, high), color in zip(AGES, ("0.65", "#0072B2", "#D55E00"), strict=True):
            days = table.loc[table["age"].between(low, high, "left"), "days"]
            axes.hist(days, np.arange(0, 26), density=True, color=color, alpha=0.6,
                      label=f"age {low} to {high - 1}")  # fmt: skip
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("days")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of stays")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


draw(tables).savefig("private_table.png", dpi=100)
