"""CTGAN in SDV: constraints and conditional sampling
==================================================

Use the CTGAN of this library as a synthesizer of SDV, with SDV's metadata, constraints and
conditions. The generator also learns which values are missing.

::

    python examples/sdv_synthesizer.py

Needs SDV: pip install sdv ctgan. Writes metadata.json, synthesizer.pkl,
synthetic.csv and sdv_synthesizer.png.
"""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sdv.cag import Inequality
from sdv.metadata import Metadata
from sdv.sampling import Condition
from sdv.utils import load_synthesizer

from combutab.generators.sdv import CTGANSynthesizer

# %%
# Simulate hotel stays. Business guests pay more, and never leave a rating.


def make_stays(n: int) -> pd.DataFrame:
    """Simulate stays in a hotel; business guests pay more and leave no rating."""
    rng = np.random.default_rng(0)
    business = rng.random(n) < 0.3
    arrival = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D")
    departure = arrival + pd.to_timedelta(rng.integers(1, 15, n), "D")
    return pd.DataFrame(
        {
            "booking": [f"B{i:05d}" for i in range(n)],
            "reason": np.where(business, "business", "leisure"),
            "arrival": arrival.strftime("%Y-%m-%d"),
            "departure": departure.strftime("%Y-%m-%d"),
            "price": (80 + 60 * business + rng.normal(0, 15, n)).round(2),
            "rating": np.where(business, np.nan, rng.integers(1, 6, n)),
        }
    )


stays = make_stays(1000)
metadata = Metadata.detect_from_dataframes({"stays": stays})
metadata.update_column("rating", table_name="stays", sdtype="numerical")
metadata.save_to_json("metadata.json", mode="overwrite")

# %%
# Fit the synthesizer, with the constraint that a guest departs after the arrival.

synthesizer = CTGANSynthesizer(
    metadata,
    activation="combu",
    generator_dim=(64, 64),
    discriminator_dim=(64, 64),
    generator_lr=2e-3,
    discriminator_lr=2e-3,
    batch_size=100,
    epochs=60,
    random_state=0,
)
synthesizer.add_constraints([Inequality("arrival", "departure")])
synthesizer.fit({"stays": stays})
synthesizer.save("synthesizer.pkl")
print(synthesizer.get_loss_values().tail(1).round(3).to_string(index=False))

# %%
# Save and load the synthesizer as in SDV.

again = load_synthesizer("synthesizer.pkl")

# %%
# Sample 1,000 rows, and 200 rows of business guests. The condition is passed to the generator,
# which samples such rows directly, so SDV does not have to reject other rows.

wanted = [Condition({"reason": "business"}, num_rows=200)]
with contextlib.redirect_stderr(io.StringIO()):  # SDV's progress bars
    rows = again.sample(1000)["stays"]
    business = again.sample_from_conditions(wanted)["stays"]

rows.to_csv("synthetic.csv", index=False)
print(rows.head(3).to_string(index=False))
print("departures before arrivals:", (rows["departure"] < rows["arrival"]).sum())

# %%
# Compare prices and missing ratings of the real and the synthetic rows.


def describe(name: str, table: pd.DataFrame) -> None:
    for reason, part in table.groupby("reason"):
        price, missing = part["price"].mean(), part["rating"].isna().mean()
        print(f"{name}, {reason}: {len(part)} stays at {price:.0f}, {missing:.0%} without rating")


tables = {"real": stays, "synthetic": rows, "conditional": business}
for name, table in tables.items():
    describe(name, table)

# %%
# The picture shows the distribution of prices.


def draw(tables: dict[str, pd.DataFrame]) -> Figure:
    """Draw prices by reason, one panel per table."""
    figure = Figure(figsize=(8.6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(tables), sharex=True)
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        for reason, color in (("leisure", "#0072B2"), ("business", "#D55E00")):
            part = table[table["reason"] == reason]
            without = f", {part['rating'].isna().mean():.0%} unrated" if len(part) else ""
            axes.hist(part["price"], np.arange(20, 210, 10), color=color, alpha=0.7,
                      label=reason + without)  # fmt: skip
        axes.set_title(f"{title}: {len(table)} stays", loc="left", fontsize=10)
        axes.set_xlabel("price")
        axes.set_ylim(top=1.35 * axes.get_ylim()[1])  # room for the legend
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    panels[0].set_ylabel("stays")
    return figure


draw(tables).savefig("sdv_synthesizer.png", dpi=100)
