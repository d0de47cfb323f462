"""In SDV: its metadata, constraints and conditions, our CTGAN, and missing values that it learns.

    python examples/sdv_synthesizer.py [--out FOLDER]

Needs SDV: pip install 'combutab[sdv]'. Writes FOLDER/metadata.json, FOLDER/synthesizer.pkl and
FOLDER/synthetic.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from pathlib import Path

import numpy as np
import pandas as pd
from sdv.cag import Inequality
from sdv.metadata import Metadata
from sdv.sampling import Condition
from sdv.utils import load_synthesizer

from combutab.generators.sdv import CTGANSynthesizer


def make_stays(n: int) -> pd.DataFrame:
    """Stays in a hotel: guests on business pay more, and never leave a rating."""
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


def describe(name: str, table: pd.DataFrame) -> None:
    for reason, part in table.groupby("reason"):
        price, missing = part["price"].mean(), part["rating"].isna().mean()
        print(f"{name}, {reason}: {len(part)} stays at {price:.0f}, {missing:.0%} without rating")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the files")
    out = parser.parse_args().out

    stays = make_stays(1000)
    metadata = Metadata.detect_from_dataframes({"stays": stays})
    metadata.update_column("rating", table_name="stays", sdtype="numerical")
    metadata.save_to_json(out / "metadata.json", mode="overwrite")

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
    synthesizer.save(out / "synthesizer.pkl")
    print(synthesizer.get_loss_values().tail(1).round(3).to_string(index=False))

    again = load_synthesizer(out / "synthesizer.pkl")
    # conditions go to the generator, which makes such rows: SDV need not wait for them
    wanted = [Condition({"reason": "business"}, num_rows=200)]
    with contextlib.redirect_stderr(io.StringIO()):  # SDV's progress bars
        rows = again.sample(1000)["stays"]
        business = again.sample_from_conditions(wanted)["stays"]
    rows.to_csv(out / "synthetic.csv", index=False)
    print(rows.head(3).to_string(index=False))
    print("departures before arrivals:", (rows["departure"] < rows["arrival"]).sum())
    describe("real", stays)
    describe("synthetic", rows)
    describe("asked for", business)


if __name__ == "__main__":
    main()
