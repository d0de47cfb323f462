"""``combutab synth --epsilon``: rows with a promise, and what would break it."""

import json

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.cli import main
from combutab.core.text import describe_guarantee

RNG = np.random.default_rng(0)
N = 1500
TABLE = pd.DataFrame(
    {
        "who": np.arange(N) // 2,
        "age": RNG.integers(18, 90, N),
        "city": RNG.choice(["Rome", "Oslo"], N),
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 300, N), unit="D"),
    }
)
BASE = ["synth", "table.csv", "-o", "made.csv", "--epsilon", "20", "--epochs", "2"]
DATES = ["--bounds", "since=2020-01-01..2020-12-31"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("table.csv", index=False)
    return tmp_path


@pytest.mark.usefixtures("short_report", "few_steps")
def test_private_rows_come_with_the_promise_in_words(folder, capsys):
    (folder / "cities.json").write_text(json.dumps({"city": ["Rome", "Oslo"]}))
    known = ["--bounds", "age=0..120", "--categories", "cities.json", "--person", "who"]
    options = [*known, "--rows-per-person", "2", "--delta", "1e-7", "--save", "model"]
    assert main([*BASE, *DATES, *options, "--condition", "city=Rome"]) == 0
    said = capsys.readouterr().out
    assert "(20, 1e-07)-differentially private" in said
    assert "one person from 50 % to at most 100 %" in said
    made = pd.read_csv("made.csv", parse_dates=["since"])
    assert set(made["city"]) == {"Rome"}
    assert abs(len(made) - N) < 300  # the noisy number of rows
    assert made["age"].between(0, 120).all()
    assert made["since"].between("2020-01-01", "2020-12-31").all()
    model = combutab.load("model")
    assert set(model.ledger_["sensitivity"]) == {2}
    # no domain was learned
    assert set(model.ledger_["step"]) - {"choice"} == {"rows", "column", "pair"}
    assert main(["evaluate", "table.csv", "made.csv", "--model", "model", "-o", "r.html"]) == 0
    assert "guaranteed, epsilon=20, delta=1e-07" in (folder / "r.html").read_text("utf-8")
    assert main(["sample", "model", "-o", "more.csv", "--rows", "7"]) == 0
    assert len(pd.read_csv("more.csv")) == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--report", "r.html"], "--report reads rows without noise"),
        (["--holdout", "0.2"], "--holdout reads rows without noise"),
        (["--suggest-constraints", "r.json"], "--suggest-constraints reads rows"),
        (["--model", "tvae"], "--model has no effect with --epsilon"),
        (["--checkpoint", "c"], "--checkpoint has no effect"),
        (["--device", "cuda"], "--device has no effect"),
        (["--target", "city"], "--target city needs a report"),
        (["--bounds", "age"], "--bounds age is not COLUMN=LOW..HIGH"),
        (["--bounds", "age=3"], "is not COLUMN=LOW..HIGH"),
        (["--bounds", "age=0.5..3"], "age has whole numbers"),
        (["--bounds", "agee=0..3"], "agee"),
        (["--categories", "nofile.json"], "is not COLUMN=ONE|OTHER, or a file"),
        (["--categories", "age=a|b"], "age has whole numbers"),
        (["--person", "whom"], "whom"),
        (["--rows-per-person", "2"], "needs --person"),
        ([*DATES, "--condition", "town=Rome"], "error: --condition 'town=Rome': there is no"),
        ([*DATES, "--shares", "town=Rome:0.3"], "error: --shares 'town=Rome:0.3': there is no"),
        ([], "bounds of dates and durations are not learned"),
        ([*DATES, "--delta", "0.5"], "delta"),
        ([*DATES, "--epsilon", "0.01"], "error: --epsilon 0.01 is too small for 4 columns"),
        ([*DATES, "--delta", "0.001"], "error: --delta 0.001 must be well below"),
    ],
)
def test_what_breaks_the_promise_is_refused(options, says, folder, capsys):
    assert main([*BASE, *options]) == 2
    assert says in capsys.readouterr().err
    assert not (folder / "made.csv").exists()


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("options", "says"), [([], "was not saved (--save)"), (["--save", "model"], "is in model")]
)
def test_error_after_the_fit_says_budget_is_spent(options, says, folder, capsys):
    known = ["--bounds", "age=0..120", "--categories", "city=Rome|Oslo", "--condition", "city=Bonn"]
    assert main([*BASE, *DATES, *known, *options]) == 2
    assert f"the budget is spent, and the generator {says}: 'city'" in capsys.readouterr().err
    assert (folder / "model").exists() == bool(options)


def test_options_of_the_promise_need_epsilon(capsys):
    assert main(["synth", "table.csv", "-o", "made.csv", "--bounds", "age=0..9"]) == 2
    assert "--bounds is for a differentially private generator" in capsys.readouterr().err


def test_the_words_have_the_bound_of_an_attacker():
    assert "to at most 73 %," in describe_guarantee(1.0, 1e-6, "row")
    assert "to at most 57 %," in describe_guarantee(0.3, 1e-6, "row")
