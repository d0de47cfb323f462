"""``combutab impute``: missing cells of a file are filled, all else is as it was."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.cli import main
from combutab.generators import CTGAN, TVAE
from combutab.training import ProgressBar

QUICK = ["--model", "tvae", "--epochs", "1", "--device", "cpu"]
RNG = np.random.default_rng(0)
N = 80
WHOLE = pd.DataFrame(
    {
        "age": RNG.integers(20, 60, N),
        "city": RNG.choice(["Oslo", "Rome"], N),
        "when": pd.Series(pd.date_range("2024-01-01", periods=N)).dt.strftime("%d.%m.%Y"),
        "price": (RNG.normal(size=N) + 50).round(2),
    }
)
HOLES = WHOLE.astype(object).mask(RNG.random(WHOLE.shape) < 0.15)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    HOLES.to_csv("t.csv", index=False)
    return tmp_path


@pytest.fixture
def calls(monkeypatch):
    """What `impute` is called with; in its place, any values of each column."""
    seen = []

    def impute(self, X, *, n_draws=1, random_state=None):
        seen.append((type(self), n_draws, random_state))
        tables = []
        for seed in range(random_state, random_state + n_draws):
            rows, filled = self.sample(400, random_state=seed), X.copy()
            for name in X:
                holes, values = X[name].isna(), rows[name].dropna().to_list()
                if values:
                    filled.loc[holes, name] = values[: holes.sum()]
            tables.append(filled)
        return tables[0] if n_draws == 1 else tables

    for kind in (CTGAN, TVAE):
        monkeypatch.setattr(kind, "impute", impute)
    return seen


def cells(path):
    return pd.read_csv(path, dtype=str)


def assert_filled(path):
    """All cells are there; those that were, letter by letter."""
    before, after = cells("t.csv"), cells(path)
    assert list(after) == list(before)
    assert after.notna().all(axis=None)
    pd.testing.assert_frame_equal(after.where(before.notna()), before)
    assert after["age"].str.fullmatch(r"\d+").all()
    assert after["when"].str.fullmatch(r"\d\d\.\d\d\.20\d\d").all()  # bounds are rounded outward


@pytest.mark.parametrize("model", ["tvae", "ctgan", "tabflow"])
def test_a_file_is_filled_by_the_generator_itself(folder, model):
    quick = [*QUICK, "--model", model]
    assert main(["impute", "t.csv", "-o", "out.csv", *quick, "--save", "model"]) == 0
    assert_filled("out.csv")
    again = ["impute", "t.csv", "-o", "again.csv", "--model-file", "model"]
    assert main(again) == 0
    assert Path("again.csv").read_bytes() == Path("out.csv").read_bytes()
    assert main(["impute", "t.csv", "-o", "two.csv", *quick, "--n-draws", "2"]) == 0
    assert_filled("two-1.csv")
    assert_filled("two-2.csv")
    assert not cells("two-1.csv").equals(cells("two-2.csv"))


def test_options_reach_the_generator(folder, calls):
    options = ["--epochs", "500", "--max-time", "0.000001", "--discrete", "age", "--drop", "when"]
    options += ["--min-frequency", "1", "--identifiers", "none", "--save", "model"]
    assert main(["impute", "t.csv", "-o", "out.csv", *QUICK, *options]) == 0
    model = combutab.load("model")
    assert (model.n_iter_, model.min_frequency, model.identifiers) == (1, 1, None)
    assert set(model.encoder_.discrete_columns) == {"age", "city"}
    assert list(cells("out.csv")) == ["age", "city", "price"]


def test_imputed_table_keeps_its_identifiers(folder, capsys):
    names = [f"P{i:05}" for i in range(len(HOLES))]
    HOLES.assign(id=names).to_csv("ids.csv", index=False)
    assert main(["impute", "ids.csv", "-o", "out.csv", *QUICK]) == 0
    assert "not learned, and new rows and filled cells get made-up" in capsys.readouterr().err
    assert pd.read_csv("out.csv")["id"].tolist() == names


def test_unfilled_cells_are_named(folder, calls, capsys):
    HOLES.assign(empty=np.nan).to_csv("empty.csv", index=False)
    assert main(["impute", "empty.csv", "-o", "out.csv", *QUICK]) == 0
    assert "warning: 80 cells of 'empty' are still missing" in capsys.readouterr().err
    assert cells("out.csv").drop(columns="empty").notna().all(axis=None)


def test_ctrl_c_fills_by_what_was_learned(folder, calls, capsys, monkeypatch):
    def interrupt(bar, report):
        if report.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "on_epoch_end", interrupt)
    Path("out.csv").write_text("old")
    assert main(["impute", "t.csv", "-o", "out.csv", *QUICK, "--epochs", "9"]) == 130
    says = "interrupted after 2 of 9 epochs; kept: the filled table in out-interrupted.csv\n"
    assert capsys.readouterr() == ("", f"combutab: {says}")
    assert Path("out.csv").read_text() == "old"
    assert_filled("out-interrupted.csv")
