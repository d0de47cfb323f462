"""``combutab synth`` and ``combutab sample``: one line for each user's error, and no files."""

import os
import re
from pathlib import Path

import pandas as pd
import pytest

import combutab
from combutab.cli import _tables, main
from combutab.generators import CTGAN, TVAE

QUICK = ["--model", "ctgan", "--epochs", "1", "--batch-size", "20", "--device", "cpu"]
TEXT = "\n".join(["age,kind", *(f"{20 + i % 9},{'xyz'[i % 3]}" for i in range(40)), ""])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with t.csv, a directory and a link to nowhere in it."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TEXT)
    Path("taken.csv").mkdir()
    Path("dangling").symlink_to("nowhere")
    return tmp_path


@pytest.fixture
def untrained(monkeypatch):
    """Training is an error that is no user's."""

    def fit(self, *arguments, **options):
        raise AssertionError("trained for nothing")

    monkeypatch.setattr(CTGAN, "fit", fit)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no file data.csv"),
        ("", "data.csv is empty"),
        ("a,b\n", "data.csv has a header and no rows"),
        ("a,b\n1,2\n", "the table has 1 row; at least 2 are needed"),
        ("a,a\n1,2\n3,4\n", "data.csv has more than one column named 'a'"),
        (
            "a,b\n1,inf\n2,3\n",
            "column 'b' has infinite values; .* leave the column out with --drop",
        ),
        ("a;b\n1;2\n", "separator seems to be a semicolon"),
        ("a,b\n1,2\n3\n", "line 3 has 1 fields, the header has 2"),
    ],
)
def test_bad_tables(folder, complaint, untrained, text, says):
    if text is not None:
        Path("data.csv").write_text(text)
    assert re.search(says, complaint("synth", "data.csv", "-o", "out.csv", *QUICK))


def test_a_read_only_file_is_found_before_the_training(folder, complaint, untrained, monkeypatch):
    Path("old.csv").write_text("kept")
    access = os.access  # root may write anywhere, so the system is not asked
    refused = {("old.csv", os.W_OK)}
    monkeypatch.setattr(
        os, "access", lambda path, mode: (str(path), mode) not in refused and access(path, mode)
    )
    says = complaint("synth", "t.csv", "-o", "old.csv", *QUICK)
    assert says == "combutab: error: cannot write old.csv: it is read-only\n"
    assert Path("old.csv").read_text() == "kept"


@pytest.mark.parametrize("value", [[1, 2], {"x": 1}])
def test_values_that_no_generator_takes(folder, complaint, untrained, value):
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [value, value, value], "b": [1, 2, 3]}).to_parquet("data.parquet")
    says = complaint("synth", "data.parquet", "-o", "out.csv", *QUICK)
    assert "column 'a' holds values that are not hashable" in says
    assert "--drop" in says


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["more.csv"], "unexpected extra argument"),
        (["-o", "taken.csv"], "cannot write taken.csv: it is a directory"),
        (["-o", "no/out.csv"], "cannot write no/out.csv: no does not exist; create it first"),
        (["-o", "t.csv/out.csv"], "cannot write t.csv/out.csv: t.csv is not a directory"),
        (["-o", "dangling/out.csv"], "cannot write dangling/out.csv: dangling does not exist"),
        (["-o", "t.csv"], "cannot write t.csv: that is DATA as well; choose another file"),
        (["-o", "./t.csv"], "cannot write t.csv: that is DATA as well"),
        (["-o", "out.xlsx"], "cannot tell what to write to out.xlsx; known endings are .csv, "),
        (["-o", "out"], "cannot tell what to write to out;"),
        (["-o", f"{'x' * 300}.csv"], "cannot write to x+.csv: File name too long"),
        (["--save", "taken.csv"], "cannot write taken.csv: it is a directory"),
        (["--save", "no/model"], "cannot write no/model: no does not exist"),
        (["--save", "t.csv"], "cannot write t.csv: that is DATA as well"),
        (["--save", "out.csv"], "cannot write out.csv: that is OUT as well"),
        (["--rows", "0"], "Invalid value for '--rows'.*1"),
        (["--rows", "-5"], "Invalid value for '--rows'.*1"),
        (["--rows", "many"], "Invalid value for '--rows'.*integer"),
        (["--rows", "1" + "0" * 17], "100,000,000,000,000,000 rows are more than the memory holds"),
        (["--discrete", "nope"], "--discrete: there is no column 'nope'; there are 'age', 'kind'"),
        (["--discrete", "age,Kin"], r"--discrete: there is no column 'Kin'; did you mean 'kind'\?"),
        (
            ["--min-frequency", "0"],
            "--min-frequency is a whole number of rows, or a share .* got 0",
        ),
        (["--min-frequency", "2.5"], "--min-frequency is a whole number of rows, or a share"),
        (["--min-frequency", "nan"], "--min-frequency is a whole number of rows, or a share"),
        (["--min-frequency", "1000"], "n_samples=.* is less than --min-frequency=1000"),
        (["--identifiers", "ages"], r"--identifiers: there is no column 'ages'; did you mean"),
        (["--identifiers", "none,age"], "--identifiers: there is no column 'none'"),
        (["--identifiers", "age", "--condition", "age=3"], "'age' holds identifiers, of which new"),
        (["--drop", "ages"], r"--drop: there is no column 'ages'; did you mean 'age'\?"),
        (["--drop", "age,kind"], "--drop leaves no column"),
        (["--drop", "kind", "--discrete", "kind"], "--discrete: there is no column 'kind'"),
        (["--drop", "kind", "--condition", "kind=x"], "there is no column 'kind'"),
        (["--condition", "kind"], r"a condition is COLUMN=VALUE, .*, got 'kind'"),
        (["--condition", "kind=q"], "'kind' has no value 'q'; there are 'x', 'y', 'z'"),
        (["--condition", "age=90.."], r"no value of 'age' lies in 90\.\.: they lie in 20\.\.30"),
        (
            ["--model", "gan"],
            "Invalid value for '--model'.*'gan' is not one of 'ctgan', 'tabflow', 'tvae'",
        ),
        (["--device", "abacus"], "device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'abacus'"),
        (["--epochs", "0"], "Invalid value for '--epochs'"),
        (["--batch-size", "0"], "Invalid value for '--batch-size'"),
        (["--max-time", "2 minutes"], "Invalid value for '--max-time'.*'2 minutes' is no number"),
        (["--max-time", "0"], "Invalid value for '--max-time'.*'0' is no number of seconds"),
        (["--max-time=-5"], "Invalid value for '--max-time'.*'-5' is no number of seconds"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--seed", "4294967296"], "Invalid value for '--seed'"),
        (["--colour", "red"], "[Nn]o such option: --colour"),
    ],
)
def test_bad_options(folder, complaint, untrained, options, says):
    assert re.search(says, complaint("synth", "t.csv", "-o", "out.csv", *QUICK, *options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--activation", "reloo"], r"unknown activation 'reloo' \(did you mean 'relu'\?\)"),
        (["--batch-size", "64"], "pac=10 must divide --batch-size=64: .* take --batch-size=60"),
    ],
)
def test_what_the_estimator_refuses(folder, complaint, options, says):
    assert re.search(says, complaint("synth", "t.csv", "-o", "out.csv", *QUICK, *options))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["synth"], "Missing argument 'data'"),
        (["synth", "t.csv"], "Missing option '--out' / '-o'"),
        (["sample"], "Missing argument 'model'"),
        (["sample", "t.csv"], "Missing option '--out' / '-o'"),
    ],
)
def test_what_must_be_given(folder, complaint, arguments, says):
    assert says.casefold() in complaint(*arguments).casefold()


def test_parquet_needs_an_extra(folder, complaint, monkeypatch, untrained):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    says = complaint("synth", "t.csv", "-o", "out.parquet", *QUICK)
    assert "writing Parquet needs pyarrow: pip install 'combutab[parquet]'" in says
    Path("data.parquet").write_bytes(b"PAR1")
    says = complaint("synth", "data.parquet", "-o", "out.csv", *QUICK)
    assert "reading Parquet needs pyarrow: pip install 'combutab[parquet]'" in says


@pytest.mark.parametrize("places", [["-o", "out.csv"], ["-o", "/out.csv", "--save", "model"]])
def test_a_read_only_folder_is_found_out_before_training(
    folder, complaint, monkeypatch, untrained, places
):
    def refuse(place):
        if Path(place) == folder:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_tables, "check_writable", refuse)
    says = complaint("synth", "t.csv", *places, *QUICK)
    assert "cannot write to .: Permission denied" in says


@pytest.mark.parametrize("kept", [[], ["--save", "model"]])
def test_a_disk_that_fills_up_leaves_nothing_half_written(folder, complaint, monkeypatch, kept):
    def fail(self, path, **options):
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CTGAN, "save", fail)
    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    says = complaint("synth", "t.csv", "-o", "out.csv", *QUICK, *kept)
    place = "model" if kept else "out.csv"
    assert says == f"combutab: error: cannot write to {place}: No space left on device\n"


def test_rows_that_are_never_made(folder, capsys, monkeypatch):
    def sample(self, n, **options):
        raise ValueError("only 0 of 500 rows met the conditions")

    monkeypatch.setattr(TVAE, "sample", sample)
    arguments = ["synth", "t.csv", "-o", "out.csv", *QUICK, "--model", "tvae", "--save", "model"]
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err == "combutab: error: only 0 of 500 rows met the conditions\n"
    assert sorted(os.listdir()) == ["dangling", "model", "t.csv", "taken.csv"]  # it was trained


def test_memory_that_runs_out(folder, complaint, monkeypatch):
    def fit(self, *arguments, **options):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(CTGAN, "fit", fit)
    says = complaint("synth", "t.csv", "-o", "out.csv", *QUICK)
    assert "the training takes more memory than there is" in says


def test_a_bug_is_not_dressed_up_as_a_users_error(folder, monkeypatch):
    def fail(self, *arguments, **options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(CTGAN, "fit", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["synth", "t.csv", "-o", "out.csv", *QUICK])


# ---- combutab sample ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a generator's file."""
    place = tmp_path_factory.mktemp("saved")
    (place / "t.csv").write_text(TEXT)
    options = ["-o", str(place / "made.csv"), *QUICK, "--save", str(place / "model")]
    assert main(["synth", str(place / "t.csv"), *options]) == 0
    return (place / "model").read_bytes()


@pytest.fixture
def model(folder, saved):
    """A generator's file."""
    Path("model").write_bytes(saved)
    return Path("model")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-o", "no/out.csv"], "cannot write no/out.csv: no does not exist"),
        (["-o", "taken.csv"], "cannot write taken.csv: it is a directory"),
        (["-o", "out.json"], "cannot tell what to write to out.json"),
        (["--rows", "0"], "Invalid value for '--rows'"),
        (["--rows", "1" + "0" * 17], "rows are more than the memory holds"),
        (["--condition", "kind=w"], "'kind' has no value 'w'; there are 'x', 'y', 'z'"),
        (["--condition", "knd=x"], r"there is no column 'knd'; did you mean 'kind'\?"),
        (["--condition", "age=1..5"], r"no value of 'age' lies in 1\.\.5: they lie in 20\.\.30"),
        (["--device", "abacus"], "device must be"),
    ],
)
def test_bad_options_of_sample(model, complaint, options, says):
    assert re.search(says, complaint("sample", str(model), "-o", "out.csv", *options))


def test_a_model_is_not_overwritten(model, complaint):
    model.rename("model.csv")
    says = complaint("sample", "model.csv", "-o", "model.csv")
    assert "cannot write model.csv: that is MODEL as well" in says


def test_files_that_are_no_generators(model, complaint):
    whole = model.read_bytes()
    Path("cut").write_bytes(whole[: len(whole) // 2])
    Path("damaged").write_bytes(whole.replace(b'\\"dates\\"', b'\\"datas\\"'))
    Path("strange").write_bytes(whole.replace(b'{\\"dates\\": {}', b'{\\"dates\\": []'))
    combutab.MLPClassifier(max_iter=1, n_iter_no_change=float("inf")).fit(
        [[0.0], [1.0]] * 10, [0, 1] * 10
    ).save("other")
    for name, says in {
        "none": "no such file: none",
        "taken.csv": "'taken.csv' is a directory; name a file in it",
        "t.csv": "t.csv is not a safetensors file, or is cut short",
        "cut": "cut is not a safetensors file, or is cut short",
        "damaged": "damaged is damaged",
        "strange": "strange is damaged",
        "other": "other holds a MLPClassifier, which makes no rows; give a file of a CTGAN, ",
    }.items():
        assert says in complaint("sample", name, "-o", "out.csv")
