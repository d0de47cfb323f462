"""``combutab synth`` and ``combutab sample``: what they write, print and leave behind."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.cli import main
from combutab.generators import CTGAN, TVAE, TabFlow

QUICK = ["--model", "ctgan", "--epochs", "1", "--batch-size", "20", "--device", "cpu"]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 60
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "city": rng.choice(["Oslo", "Rome", "New York"], n),
            "label": rng.integers(0, 3, n),
            "price": rng.normal(20, 5, n).round(2),
        }
    )
    table.loc[[3, 5, 8], "city"] = None
    return table


@pytest.fixture
def folder(tmp_path, monkeypatch, people):
    """The working directory, with people.csv in it."""
    people.to_csv(tmp_path / "people.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- good runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tabflow", "ctgan", "tvae"])
def test_the_same_columns_come_out(folder, capsys, people, files, kind):
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, "--model", kind]) == 0
    assert capsys.readouterr() == ("", "")  # not a terminal
    assert files(folder) == ["out.csv", "people.csv"]
    made = pd.read_csv("out.csv")
    assert made.shape == people.shape
    assert made.dtypes.tolist() == pd.read_csv("people.csv").dtypes.tolist()
    ages = people["age"]  # of which the bounds are moved outward
    assert made["age"].between(ages.min() - 5, ages.max() + 5).all()
    assert set(made["city"].dropna()) <= set(people["city"].dropna())
    np.testing.assert_array_equal(made["price"].round(2), made["price"])


def test_realistic_values_in_a_file(folder, people, capsys):
    pytest.importorskip("faker", reason="needs the extra faker")
    table = people.assign(mail=[f"user{i}@mail.org" for i in range(len(people))])
    table.to_csv("mails.csv", index=False)
    options = [*QUICK, "--fake", "mail=email:de_DE"]
    assert main(["synth", "mails.csv", "-o", "out.csv", *options]) == 0
    mails = pd.read_csv("out.csv")["mail"]
    assert mails.str.fullmatch(r"[a-z.]+\d*@example\.com").all()
    assert mails.is_unique
    wrong_options = {"mail": "COLUMN=PROVIDER", "mial=email": "'mail'", "mail=emial": "email"}
    for wrong, says in wrong_options.items():
        assert main(["synth", "mails.csv", "-o", "out.csv", *QUICK, "--fake", wrong]) == 2
        assert says in capsys.readouterr().err


def test_it_is_the_estimators_own_sample(folder, people):
    options = ["--rows", "30", "--seed", "5", "--activation", "gelu", "--condition", "city=Rome"]
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, *options]) == 0
    estimator = CTGAN(epochs=1, batch_size=20, activation="gelu", random_state=5, device="cpu")
    estimator.fit(pd.read_csv("people.csv"))
    expected = estimator.sample(30, conditions={"city": "Rome"}, random_state=5)
    assert Path("out.csv").read_text() == expected.to_csv(index=False)


@pytest.mark.parametrize("time", ["0.000001", ".00000001 min"])
def test_the_time_ends_the_training(folder, time):
    options = ["--epochs", "500", "--max-time", time, "--save", "model"]
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, *options]) == 0
    assert combutab.load("model").n_iter_ == 1
    assert len(pd.read_csv("out.csv")) == 60


def test_default_parameters_are_those_of_the_generator(folder, monkeypatch):
    seen = {}

    def fit(self, *arguments, **options):
        seen.clear()
        seen.update(self.get_params())
        raise KeyboardInterrupt

    for kind in (CTGAN, TVAE, TabFlow):
        monkeypatch.setattr(kind, "fit", fit)
        arguments = ["--model", kind.__name__.lower(), "--drop", "price"]
        assert main(["synth", "people.csv", "-o", "out.csv", *arguments]) == 130
        own = kind(random_state=0).get_params()
        assert len(seen.pop("callbacks")) == 2
        del own["callbacks"]
        assert seen == own


def test_discrete_and_drop(folder, people):
    options = ["--discrete", "label, age", "--drop", "price", "--condition", "label=1"]
    options += ["--min-frequency", "1"]  # 60 people have few ages in common
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, *options]) == 0
    made = pd.read_csv("out.csv")
    assert made.columns.tolist() == ["age", "city", "label"]
    assert (made["label"] == 1).all()
    assert set(made["age"]) <= set(people["age"])  # not just between the bounds
    patterns = ["--discrete", "*", "--drop", "pri*"]
    assert main(["synth", "people.csv", "-o", "other.csv", *QUICK, *patterns, *options[4:]]) == 0
    assert Path("other.csv").read_bytes() == Path("out.csv").read_bytes()


# ---- warnings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--discrete", "label"], ["--condition", "city=Rome"]])
def test_different_times_of_day_are_learned(folder, people, options):
    minutes = np.random.default_rng(0).permutation(1440)[: len(people)]
    clock = [f"{minute // 60}:{minute % 60:02d}" for minute in minutes]
    people.assign(clock=clock).to_csv("people.csv", index=False)
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, *options]) == 0
    assert pd.read_csv("out.csv")["clock"].str.fullmatch(r"\d{1,2}:\d\d").all()


def test_identifiers_and_rare_values_are_named(folder, capsys, people):
    names = [f"n{i}" for i in range(60)]
    jobs = ["cook"] * 30 + [f"job {i}" for i in range(30)]
    people.assign(name=names, id=range(60), job=jobs).to_csv("t.csv", index=False)
    run = ["synth", "t.csv", "-o", "out.csv", *QUICK]
    assert main(run) == 0
    identifiers, rare = capsys.readouterr().err.splitlines()
    assert identifiers.startswith("combutab: warning: 'name', 'id' hold identifiers: they are not ")
    assert rare.startswith("combutab: warning: 50% of the rows of 'job' have values that fewer ")
    made = pd.read_csv("out.csv")
    assert not set(made["name"]) & set(names)
    assert made["name"].is_unique
    assert made["id"].tolist() == list(range(60, 120))
    assert set(made["job"]) == {"cook"}

    all_kept = ["--min-frequency", "1", "--identifiers", "id,age", "--rows", "200"]
    assert main([*run, *all_kept]) == 0
    err = capsys.readouterr().err
    assert "'age', 'id' hold identifiers" in err
    assert "most values of 'name' are there once, and new rows get them as they are" in err
    made = pd.read_csv("out.csv")
    assert set(made["name"]) <= set(names)
    assert made["age"].is_unique


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        (["a=2..", "b=y"], False),
        (["a=2..", "b=x|y"], False),
        (["b=", "a=..4"], False),
        (["a=3..", "b=x"], True),
        (["b=", "a=..3"], True),
    ],
)
def test_unmet_conditions_are_named_before_training(folder, capsys, monkeypatch, conditions, told):
    def fit(self, *arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(CTGAN, "fit", fit)
    Path("t.csv").write_text("a,b\n1,x\n2,x\n3,y\n4,\n5,y\n")
    options = [f"--condition={condition}" for condition in conditions] + ["--min-frequency=1"]
    assert main(["synth", "t.csv", "-o", "out.csv", *QUICK, *options]) == 130
    assert ("no row of the table meets all conditions" in capsys.readouterr().err) == told


# ---- a terminal, and the end by force ----------------------------------------------------------


def test_terminal_shows_a_bar_and_a_summary(folder, shown_on_terminal, capsys):
    arguments = ["synth", "people.csv", "-o", "out.csv", "--epochs", "30", "--batch-size", "20"]
    shown = shown_on_terminal(*arguments, "--save", "model", columns=80)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert capsys.readouterr().out == ""
    assert "people.csv: 60 rows, 4 columns (1 discrete); TabFlow with silu, on " in text
    assert re.search(r"TabFlow \S+ +\d+/30 \d+:\d\d left codes \S+, values \S+", text)
    assert "…" not in text  # all of it fits into 80 columns
    assert "'label' are treated as numbers" in text
    assert "Wrote the generator to model" in text
    assert "Wrote 60 rows to out.csv (" in text
