"""Synthetic databases: several tables with keys
=============================================

Fit a generator to two tables, patients and their visits, and sample both with new keys.

::

    python examples/several_tables.py

Writes patients.csv, visits.csv and several_tables.png.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from combutab import TabFlow, TabFlowTables

# %%
# Simulate patients and their visits. Smokers come more often, and each patient has a level of blood
# pressure.


def make_tables(n: int) -> dict[str, pd.DataFrame]:
    """Simulate patients, and visits in the order of their dates."""
    rng = np.random.default_rng(0)
    smoker = rng.random(n) < 0.3
    patients = pd.DataFrame({"patient": np.arange(n), "age": rng.integers(18, 90, n)})
    patients["smoker"] = smoker
    row = np.repeat(np.arange(n), rng.poisson(np.where(smoker, 5, 2)))
    level = 100 + patients["age"].to_numpy() / 3 + rng.normal(0, 6, n)
    days = pd.to_timedelta(rng.integers(0, 1000, len(row)), unit="D")
    visits = pd.DataFrame({"patient": row, "date": pd.Timestamp("2021-01-01") + days})
    visits["pressure"] = (level[row] + rng.normal(0, 3, len(row))).round()
    visits = visits.sort_values(["patient", "date"], ignore_index=True)
    return {"patients": patients, "visits": visits}


# %%
# A key says which column of a child table refers to which parent table. Visits are sorted by date
# within each patient, and are therefore learned as sequences.

real = make_tables(600)
model = TabFlowTables(TabFlow(epochs=40), random_state=0)
model.fit(real, keys=[("visits", "patient", "patients")])
synthetic = model.sample(600, random_state=0)
print(synthetic["visits"].head(5).to_string(index=False))

# %%
# All keys are new, and every visit belongs to a synthetic patient.

patients, visits = synthetic["patients"], synthetic["visits"]
print("keys of real patients:", int(patients["patient"].isin(real["patients"]["patient"]).sum()))
print("visits without a patient:", int((~visits["patient"].isin(patients["patient"])).sum()))
patients.to_csv("patients.csv", index=False)
visits.to_csv("visits.csv", index=False)

# %%
# The rows of a patient go together: their number depends on the patient, and their pressures are
# similar.


def count_visits(tables: dict[str, pd.DataFrame]) -> pd.Series:
    """Count the visits of each patient."""
    counts = tables["visits"]["patient"].value_counts()
    return counts.reindex(tables["patients"]["patient"]).fillna(0).reset_index(drop=True)


for name, tables in {"real": real, "synthetic": synthetic}.items():
    counts, smoker = count_visits(tables), tables["patients"]["smoker"]
    pressures = tables["visits"].groupby("patient")["pressure"]
    within = pressures.std().mean() / tables["visits"]["pressure"].std()
    print(f"{name}: {counts[smoker].mean():.1f} visits of smokers, {counts[~smoker].mean():.1f} of "
          f"others; spread within patients {within:.2f}")  # fmt: skip

# %%
# The picture shows the numbers of visits, and the pressures of neighbouring visits.

figure = Figure(figsize=(8.6, 3.2), layout="constrained")
left, right = figure.subplots(1, 2)
for name, tables, color in (("real", real, "0.4"), ("synthetic", synthetic, "#D55E00")):
    left.hist(count_visits(tables), np.arange(-0.5, 13), color=color, alpha=0.6, label=name)
    previous = tables["visits"].groupby("patient")["pressure"].shift()
    right.plot(previous, tables["visits"]["pressure"], ".", color=color, alpha=0.4, markersize=4)
left.set(xlabel="visits of a patient", ylabel="patients")
right.set(xlabel="pressure at the previous visit", ylabel="pressure")
left.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
figure.savefig("several_tables.png", dpi=100)
