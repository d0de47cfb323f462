"""``combutab demo``: the main commands on a simulated table."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Annotated

import typer

from combutab.cli._console import UserError

TABLE = "flats.csv"
N_FLATS = 1000
COMMANDS = (
    f"fit {TABLE} --target rent -o model.safetensors --report model.html",
    f"compare {TABLE} --target rent --activations combu,relu,gelu --seeds 1 --out comparison "
    "--report comparison.html",
    f"synth {TABLE} --target rent -o synthetic.csv --report synthetic.html --epochs 40",
)


def demo(
    ctx: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the files; new or empty.")
    ] = Path("demo"),
) -> int:
    """Show the main commands on a simulated table of 1,000 flats.

    Predicts the rent, compares three activation functions, a linear model and boosting, and writes
    synthetic rows. Each command is printed before it runs, so that you can repeat it with your own
    table. Takes about a minute and needs no network connection.

    Example: combutab demo
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an empty folder; name another one with --out")
    out.mkdir(parents=True, exist_ok=True)

    from combutab.datasets import make_flats

    root = ctx.find_root().command
    with contextlib.chdir(out):
        make_flats(N_FLATS).to_csv(TABLE, index=False)
        print(f"Wrote {out / TABLE}: {N_FLATS:,} simulated flats and their rents\n\n$ cd {out}")
        for command in COMMANDS:
            print(f"\n$ combutab {command}")
            if code := root.main(shlex.split(command), "combutab", standalone_mode=False):
                return int(code)
    pages = ", ".join(f"{out / name}.html" for name in ("model", "comparison", "synthetic"))
    print(f"\nOpen {pages}, or repeat these commands with your own table.")
    return 0
