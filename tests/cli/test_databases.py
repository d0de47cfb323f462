"""Several tables with keys: ``combutab synth``, ``sample`` and ``evaluate`` of folders."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab import TabFlowTables, load
from combutab.cli import main

KEY = ["--key", "visits.patient=patients.id"]
QUICK = ["--epochs", "1", "--batch-size", "50", "--device", "cpu"]


def write(folder, seed, first, suffix=".csv"):
    """A folder with patients and visits; every fifth visit has no patient."""
    rng = np.random.default_rng(seed)
    n, folder = 60, Path(folder)
    folder.mkdir()
    patients = pd.DataFrame({"id": first + np.arange(n), "born": rng.integers(1930, 2000, n)})
    row = np.repeat(np.arange(n), rng.poisson(3, n))
    visits = pd.DataFrame({"patient": pd.Series(first + row, dtype="Int64")})
    days = pd.to_timedelta(rng.integers(0, 300, len(row)), unit="D")
    visits["date"] = pd.Timestamp("2020-01-01") + days
    visits["ward"] = pd.Series(rng.choice(["a", "b"], len(row)), dtype="category")
    visits.loc[::5, "patient"] = pd.NA
    for name, table in {"patients": patients, "visits": visits}.items():
        if suffix == ".parquet":
            table.to_parquet(folder / f"{name}.parquet")
        else:
            table.to_csv(folder / f"{name}.csv", index=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("real", 0, 1)
    return tmp_path


def test_files_become_a_folder_of_synthetic_tables(folder, files):
    options = [*KEY, "--order-by", "visits=date", "--rows", "20"]
    command = ["synth", "real/patients.csv", "real/visits.csv", "--out", "made/here"]
    assert main([*command, *options, *QUICK]) == 0
    assert files("made") == ["here/patients.csv", "here/visits.csv"]
    patients, visits = (pd.read_csv(f"made/here/{name}.csv") for name in ("patients", "visits"))
    assert len(patients) == 20
    assert visits["patient"].dropna().isin(patients["id"]).all()
    assert [*visits] == ["patient", "date", "ward"]
    dates = visits.dropna().groupby("patient")["date"]
    assert all(siblings.is_monotonic_increasing for _, siblings in dates)


def test_first_table_comes_before_the_others(capsys):
    assert main(["synth", "--help"]) == 0
    usage = capsys.readouterr().out.partition("Usage:")[2].splitlines()[0]
    assert usage.index("DATA") < usage.index("TABLES")


def test_missing_keys_leave_integers_whole(folder):
    assert main(["synth", "real", "--out", "made", *KEY, *QUICK]) == 0
    texts = pd.read_csv("made/visits.csv", dtype=str)["patient"]
    assert texts.isna().any()
    assert texts.dropna().str.fullmatch(r"\d+").all()


def test_parquet_keeps_dtypes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("real", 0, 1, ".parquet")
    assert main(["synth", "real", "--out", "made", *KEY, *QUICK]) == 0
    for name in ("patients", "visits"):
        real, synthetic = (pd.read_parquet(f"{f}/{name}.parquet") for f in ("real", "made"))
        assert synthetic.dtypes.map(str).to_dict() == real.dtypes.map(str).to_dict()


def test_saved_generator_makes_the_same_tables(folder):
    assert main(["synth", "real", "--out", "made", "--save", "model", *KEY, *QUICK]) == 0
    assert isinstance(load("model"), TabFlowTables)
    assert main(["sample", "model", "--out", "again", "--rows", "60"]) == 0
    for name in ("patients.csv", "visits.csv"):
        assert Path("again", name).read_text() == Path("made", name).read_text()


def test_lookup_tables_are_copied(folder):
    Path("real/wards.csv").write_text("ward,floor\na,1\nb,2\n")
    keys = [*KEY, "--key", "visits.ward=wards.ward", "--lookup", "wards"]
    assert main(["synth", "real", "--out", "made", *keys, *QUICK]) == 0
    assert Path("made/wards.csv").read_text() == Path("real/wards.csv").read_text()


def test_report_shows_no_values_rarer_than_min_frequency(folder):
    visits = pd.read_csv("real/visits.csv", dtype=str).dropna(ignore_index=True)
    visits.loc[visits.index % 12 == 1, "ward"] = "annexe"
    assert 8 < (visits["ward"] == "annexe").sum() < 30
    visits.to_csv("real/visits.csv", index=False)
    command = ["synth", "real", "--out", "made", "--report", "report.html", *KEY, *QUICK]
    for min_frequency, is_shown in (("5", True), ("30", False)):
        assert main([*command, "--min-frequency", min_frequency]) == 0
        page = Path("report.html").read_text("utf-8")
        assert ("annexe" in page) == is_shown


def test_report_compares_with_held_out_families(folder, capsys):
    command = ["synth", "real", "--out", "made", "--report", "report.html", "--holdout", "0.4"]
    assert main([*command, *KEY, *QUICK]) == 0
    assert capsys.readouterr().out.startswith("keys: good")
    assert len(pd.read_csv("made/patients.csv")) == 60
    page = Path("report.html").read_text("utf-8")
    assert "Held-out real" in page
    assert "visits.patient -&gt; patients.id" in page


def test_evaluation_of_folders(folder, capsys):
    write("held", 1, 1001)
    write("made", 2, 2001)
    command = ["evaluate", "real", "made", "--test", "held", "--key", "auto", "--json", "e.json"]
    assert main([*command, "--require", "orphans<=0", "--require", "copied_families<=0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("keys: good")
    assert out.endswith("2 requirements met.\n")
    record = json.loads(Path("e.json").read_text())
    assert record["keys"] == ["visits.patient -> patients.id"]
    lists = [f"{name}/patients.csv,{name}/visits.csv" for name in ("real", "made")]
    command = ["evaluate", *lists, *KEY, "--json", "e.json", "--require", "cardinality>=1.1"]
    assert main(command) == 3
    assert json.loads(Path("e.json").read_text())["scores"]["orphans"] == 0


def test_saved_generator_knows_keys_and_format(folder, capsys):
    assert main(["synth", "real", "--out", "made", "--save", "model", *KEY, *QUICK]) == 0
    assert main(["evaluate", "real", "made", "--model", "model", "--json", "e.json"]) == 0
    assert json.loads(Path("e.json").read_text())["keys"] == ["visits.patient -> patients.id"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["synth", "real", "-o", "made"], "--key"),
        (["synth", "real", "-o", "made", "--key", "visit.patient=patients.id"], "'visits'"),
        (["synth", "real", "-o", "made", "--key", "visits.patient=patients"], "patients.COLUMN"),
        (["synth", "real", "-o", "made", "--key", "visits.patient"], "CHILD.COLUMN"),
        (["synth", "real", "-o", "made", "--key", "visits.who=patients.id"], "'who'"),
        (["synth", "real", "-o", "made", *KEY, "--order-by", "visit=date"], "--order-by"),
        (["synth", "real", "-o", "made", *KEY, "--lookup", "wards"], "--lookup"),
        (["synth", "real", "-o", "made", *KEY, "--epsilon", "1"], "--epsilon"),
        (["synth", "real", "-o", "real", *KEY], "same file"),
        (["synth", "real", "-o", "real/visits.csv", *KEY], "not a directory"),
        (["synth", "real", "real/visits.csv", "-o", "made", *KEY], "both a table 'visits'"),
        (["synth", "real/visits.csv", "-o", "made.csv", *KEY], "--key"),
        (["evaluate", "real", "real/visits.csv", *KEY], "'patients'"),
        (["evaluate", "real", "real", *KEY, "--target", "born"], "--target"),
        (["evaluate", "real", "real", *KEY, "--require", "detection>=0"], "detection_rows"),
        (["evaluate", "real/visits.csv", "real/visits.csv", *KEY], "--key"),
    ],
)
def test_errors_come_before_work(folder, complaint, uncomputed, monkeypatch, command, message):
    monkeypatch.setattr(TabFlowTables, "fit", None)
    assert message in complaint(*command)
