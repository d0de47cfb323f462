"""The studies on the PLN paper in their smallest form, as a user would run them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

DATA_HOME = Path(__file__).parents[4] / "shared" / "data"
HAS_DATA = DATA_HOME.is_dir()
FIGURES = {
    "approximation": ["_norm_sizes", "_activations", "_bounds", "_fits"],
    "depth": ["", "_gradients_digits"],
    "normalization": [""],
}
WORDS = {
    "approximation": ["trigonometric: PLN-4 < sigmoid"],
    "depth": ["paper, ResNet-110", "89.45"],
    "normalization": ["batch norm"],
}


@pytest.mark.parametrize("name", FIGURES)
def test_quick_form(name, tmp_path, monkeypatch, capsys):
    module, data = f"benchmarks.papers.pln.{name}", []
    if name != "approximation":
        data = ["--data", "digits"]
    if name == "depth" and HAS_DATA:  # a table is read in one way by both
        data += ["california_housing", "--data-home", str(DATA_HOME)]
    arguments = [name, "--quick", "--out", str(tmp_path), *data]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.delitem(sys.modules, module, raising=False)  # or it would be there twice
    study = runpy.run_module(module, run_name="__main__")["STUDY"]
    assert "to go" in capsys.readouterr().out
    text = (tmp_path / f"pln_{name}.md").read_text()
    for words in ("## Verdicts", f"python -m {module}", *WORDS[name]):
        assert words in text
    assert str(tmp_path) not in text
    for figure in FIGURES[name]:
        assert (tmp_path / f"pln_{name}{figure}.png").stat().st_size > 10_000
        assert f"(pln_{name}{figure}.png)" in text
    files = {path: path.read_bytes() for path in tmp_path.glob("*.csv")}
    CHECKS[name](pd.read_csv(tmp_path / f"pln_{name}.csv", keep_default_na=False, na_values=""))
    monkeypatch.setattr("benchmarks.papers.common.page.Page.figure", lambda *_: None)
    study.main(arguments[1:])
    assert "to go" not in capsys.readouterr().out, "nothing is trained twice"
    assert {path: path.read_bytes() for path in files} == files
    assert (tmp_path / f"pln_{name}.md").read_text().startswith(text.split("\n## Figure")[0])


def approximation(rows):
    assert set(rows["stage"]) == {"search", "final"}
    seeds = rows.loc[rows["stage"] == "final", "seed"].value_counts()
    assert seeds.to_dict() == dict.fromkeys(range(1, 6), 108)


def depth(rows):
    digits = rows[rows["data"] == "digits"]
    assert len(digits) == 5 * 2 * 4 * 2 * 2, "kinds, depths, activations, rates, seeds"
    assert digits["train_score"].between(0, 1).sum() == (~digits["diverged"]).sum()


def normalization(rows):
    digits = rows[rows["data"] == "digits"]
    assert len(digits) == 2 * 4 * 4 * 2, "depths, normalisations, activations, splits"
    assert (digits["n_train"] == 120).all()
    assert digits["score"].between(0, 1).all()


CHECKS = {"approximation": approximation, "depth": depth, "normalization": normalization}
