"""``combutab synth`` and ``combutab sample``: what they write, print and leave behind."""

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.cli import _generators, main
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


def test_it_is_the_estimators_own_sample(folder, people):
    options = ["--rows", "30", "--seed", "5", "--activation", "gelu", "--condition", "city=Rome"]
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, *options]) == 0
    estimator = CTGAN(epochs=1, batch_size=20, activation="gelu", random_state=5, device="cpu")
    estimator.fit(pd.read_csv("people.csv"))
    expected = estimator.sample(30, conditions={"city": "Rome"}, random_state=5)
    assert Path("out.csv").read_text() == expected.to_csv(index=False)


def test_a_seed_gives_the_same_file_and_another_one_another(folder):
    for name, seed in (("a.csv.gz", "3"), ("b.csv.gz", "3"), ("c.csv.gz", "4")):
        assert main(["synth", "people.csv", "-o", name, *QUICK, "--seed", seed]) == 0
    first, again, other = (Path(f"{name}.csv.gz").read_bytes() for name in "abc")
    assert gzip.decompress(first) == gzip.decompress(again) != gzip.decompress(other)


@pytest.mark.parametrize("time", ["0.000001", ".00000001 min"])
def test_the_time_ends_the_training(folder, time):
    options = ["--epochs", "500", "--max-time", time, "--save", "model"]
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, *options]) == 0
    assert combutab.load("model").n_iter_ == 1
    assert len(pd.read_csv("out.csv")) == 60


def test_what_is_not_asked_for_is_the_generators_own(folder, monkeypatch):
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


@pytest.fixture(scope="module")
def rows(people, tmp_path_factory):
    """What a table of rows holds as text."""
    place = tmp_path_factory.mktemp("rows")
    people.to_csv(place / "people.csv", index=False)
    assert main(["synth", str(place / "people.csv"), "-o", str(place / "out.csv"), *QUICK]) == 0
    return (place / "out.csv").read_text()


@pytest.mark.parametrize("kind", ["tsv", "csv.gz", "parquet", "CSV"])
def test_other_files(folder, rows, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    assert main(["synth", "people.csv", "-o", f"out.{kind}", *QUICK]) == 0
    read = pd.read_parquet if kind == "parquet" else pd.read_csv
    options = {} if kind == "parquet" else {"sep": "\t" if "tsv" in kind else ","}
    assert read(f"out.{kind}", **options).to_csv(index=False) == rows


def test_a_parquet_table(folder):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame(
        {
            0: pd.Categorical(list("abc") * 10),
            1: pd.array([1, None, 3] * 10, "Int64"),
            2: pd.date_range("2024-01-01", periods=30, freq="h", tz="Europe/Oslo"),
            3: [True, False, None] * 10,
        }
    )
    table.to_parquet("t.parquet")
    for name in ("out.parquet", "out.csv"):
        options = ["--condition", "0=b", "--condition", "2=2024-01-01..", "--rows", "9"]
        assert main(["synth", "t.parquet", "-o", name, *QUICK, *options]) == 0
    made, source = pd.read_parquet("out.parquet"), pd.read_parquet("t.parquet")
    assert made.dtypes.to_dict() == source.dtypes.to_dict()
    assert (made[0] == "b").all()
    assert len(pd.read_csv("out.csv")) == 9


def test_more_rows_of_a_saved_generator(folder, people, files):
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, "--save", "model"]) == 0
    same = ["sample", "model", "--rows", str(len(people)), "-o"]
    assert main([*same, "again.csv"]) == 0
    assert Path("again.csv").read_bytes() == Path("out.csv").read_bytes()
    assert main([*same, "other.csv", "--seed", "1"]) == 0
    assert Path("other.csv").read_bytes() != Path("out.csv").read_bytes()
    assert main(["sample", "model", "-o", "many.csv", "--condition", "age=30..50"]) == 0
    many = pd.read_csv("many.csv")
    assert len(many) == 1000
    assert many["age"].between(30, 50).all()
    assert isinstance(combutab.load("model"), CTGAN)  # a model as any other
    assert files(folder) == sorted(
        ["again.csv", "many.csv", "model", "other.csv", "out.csv", "people.csv"]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,x\n2,y\n", None),  # far fewer rows than a batch
        ("a,b\n7,1\n7,2\n7,3\n", {"a": [7, 7, 7]}),
        ("a\n7\n7\n", {"a": [7, 7]}),
        ("a,b\n,1\n,2\n,3\n", {"a": [np.nan] * 3}),
        ("a\nx\nx\nx\n", {"a": ["x"] * 3}),
        ("a\n123456789012345678901234\n5\n", None),
    ],
)
def test_odd_tables(folder, text, expected):
    Path("t.csv").write_text(text)
    assert main(["synth", "t.csv", "-o", "out.csv", "--epochs", "1", "--min-frequency", "1"]) == 0
    made, table = pd.read_csv("out.csv"), pd.read_csv("t.csv")
    assert made.shape == table.shape
    assert made.columns.tolist() == table.columns.tolist()
    for name, values in (expected or {}).items():
        np.testing.assert_array_equal(made[name], values)


# ---- warnings ----------------------------------------------------------------------------------


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

    assert main([*run, "--drop", "name,job"]) == 0
    assert capsys.readouterr().err.startswith("combutab: warning: 'id' holds identifiers")
    assert main([*run, "--drop", "name,job", "--identifiers", "none"]) == 0
    assert capsys.readouterr().err == ""
    assert pd.read_csv("out.csv")["id"].between(0, 70).all()
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
def test_conditions_that_no_row_meets_are_told_of_before_the_training(
    folder, capsys, monkeypatch, conditions, told
):
    def fit(self, *arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(CTGAN, "fit", fit)
    Path("t.csv").write_text("a,b\n1,x\n2,x\n3,y\n4,\n5,y\n")
    options = [f"--condition={condition}" for condition in conditions] + ["--min-frequency=1"]
    assert main(["synth", "t.csv", "-o", "out.csv", *QUICK, *options]) == 130
    assert ("no row of t.csv meets all conditions" in capsys.readouterr().err) == told


# ---- a terminal, and the end by force ----------------------------------------------------------


def test_a_terminal_gets_a_progress_bar_and_a_summary(folder, shown_on_terminal, capsys):
    arguments = ["synth", "people.csv", "-o", "out.csv", "--epochs", "30", "--batch-size", "20"]
    shown = shown_on_terminal(*arguments, "--save", "model", columns=80)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert capsys.readouterr().out == ""
    assert "people.csv: 60 rows, 4 columns (1 discrete); TabFlow with silu, on " in text
    assert re.search(r"TabFlow \S+ +\d+/30 \d+:\d\d left codes \S+, values \S+", text)
    assert "…" not in text  # all of it fits into 80 columns
    assert "'label' are taken for quantities" in text
    assert "Wrote the generator to model" in text
    assert "Wrote 60 rows to out.csv (" in text


def test_ctrl_c_while_rows_are_made_keeps_the_trained_generator(folder, capsys, monkeypatch):
    def stop(self, *arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(CTGAN, "sample", stop)
    assert main(["synth", "people.csv", "-o", "out.csv", *QUICK, "--save", "model"]) == 130
    says = "combutab: interrupted; kept: the generator in model\n"
    assert capsys.readouterr() == ("", says)
    assert sorted(os.listdir(folder)) == ["model", "people.csv"]


@pytest.mark.parametrize("out", ["out.csv", "old.csv"])
def test_an_interrupted_fit_is_an_interrupted_command(folder, capsys, monkeypatch, out):
    there = []

    class Interrupt(_generators.ProgressBar):
        def on_epoch_end(self, report):
            there[:] = sorted(os.listdir())
            raise KeyboardInterrupt

    monkeypatch.setattr(_generators, "ProgressBar", Interrupt)
    Path("old.csv").write_text("old")
    options = [*QUICK, "--epochs", "5", "--save", "model"]
    assert main(["synth", "people.csv", "-o", out, *options]) == 130
    kept = "out.csv" if out == "out.csv" else "old-interrupted.csv"
    assert capsys.readouterr() == (
        "",
        "combutab: interrupted after 1 of 5 epochs; kept: the generator in model, 60 rows in "
        f"{kept}\n",
    )
    assert there == ["old.csv", "people.csv"]  # which is what a kill leaves
    assert sorted(os.listdir()) == sorted([*there, "model", kept])
    assert Path("old.csv").read_text() == "old"
    assert len(pd.read_csv(kept)) == 60
    assert isinstance(combutab.load("model"), CTGAN)
