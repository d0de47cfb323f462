"""What the commands refuse, a line each: nothing is computed, and no file is written.

A row is ``what follows the command -> what is said``; ``...`` in it stands for anything.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab import MLPClassifier
from combutab.cli import main
from combutab.core import files as core_files
from combutab.generators import CTGAN
from tests.cli.people import people

COMPARE = "compare real.csv --target dear --seeds 1 --folds 3 --epochs 2 --hidden 8"
COMPARE += " --activations relu,combu --baselines none"
QUICK = "--model ctgan --epochs 1 --batch-size 20 --device cpu"
SYNTH = f"synth real.csv -o out.csv {QUICK}"
IMPUTE = f"impute holes.csv -o out.csv {QUICK.replace('--batch-size 20 ', '')}"
EVALUATE = "evaluate real.csv made.csv"
FIT = "fit real.csv -o new.safetensors --target"
MANY = "1" + "0" * 17

REFUSED = {
    COMPARE: f"""
        --folds 1 -> Invalid value for '--folds': ...equal to 2
        --epochs 0 -> Invalid value for '--epochs': ...equal to 1
        --split days:a -> Invalid value for '--split': 'days:a' is not a way to split rows; ...
        --split time:when -> --split time:when: there is no column 'when'
        --split time:city -> --split time:city: 'city' holds ...
        --recipe best -> --recipe must be one of default, paper, got 'best'
        --hidden 128, -> --hidden must be 'auto' or widths such as 128,128, got '128,'
        --activations relu,reloo -> unknown activation 'reloo' (did you mean 'relu'?)
        --activations 'relu, relu' -> activation 'relu' is named twice
        --device abacus -> --device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'abacus'
        --task ranking -> 'ranking' is not one of 'auto', 'classification', 'regression'
        --task regression -> the target 'dear' has text that is not numbers
        --metric mae -> --metric: 'mae' is a metric of regression, and the task is classification
        --metric acuracy -> --metric: 'acuracy' is not a known metric; did you mean 'accuracy'?
        --drop b -> --drop: there is no column 'b'
        --drop dear -> --drop leaves out 'dear', which is the column
        --decimal ';' -> '--decimal': ';' is not one of '.', ','
        --sep ';;' -> sep must be a single character, such as ; or tab, got ';;'
        --encoding latin-99 -> 'latin-99' is not a known encoding; use a name such as
        --out real.csv -> cannot write to real.csv: ...real.csv is not a directory
        --out taken -> cannot write taken/results.csv: it is a directory
        --out dangling/x -> cannot write to dangling/x: ...dangling is a broken link
        --report real.csv -> cannot write real.csv: it is the same file as DATA
        --report ./taken/../real.csv -> it is the same file as DATA
        --out o --report o/results.csv -> o/results.csv: it is the same file as --report
        --report taken -> cannot write taken: it is a directory
        --report dangling/r.html -> cannot write to dangling: ...dangling is a broken link
        --report {"r" * 300} -> cannot write to r...: File name too long
    """,
    "compare": """
        real.csv -> give the column of real.csv to predict: --target COLUMN
        --target kind -> --target kind needs a table: combutab compare DATA
        --split time:day -> --split time:day needs a table: combutab compare DATA
    """,
    SYNTH: f"""
        -o taken -> cannot write taken: use one of the file
        -o no/out.csv -> cannot write no/out.csv: the folder no does not exist; create it first
        -o dangling/out.csv -> cannot write dangling/out.csv: the folder dangling does not exist
        -o ./real.csv -> cannot write real.csv: it is the same file as DATA; choose another file
        -o out.xlsx -> cannot write out.xlsx: use one of the file endings .csv,
        --save real.csv -> cannot write real.csv: it is the same file as DATA
        --save out.csv -> cannot write out.csv: it is the same file as OUT
        --rows 0 -> Invalid value for '--rows'
        --rows {MANY} -> 100,000,000,000,000,000 rows do not fit into memory
        --discrete nope -> --discrete: there is no column 'nope'; there are 'age', 'city'
        --discrete age,Cit -> --discrete: there is no column 'Cit'; did you mean 'city'?
        --min-frequency 0 -> '--min-frequency': 0 is not possible; give a whole number of rows, at
        --min-frequency 2.5 -> '--min-frequency': 2.5 is not possible; give a whole number
        --min-frequency 1000 -> n_samples=...is less than --min-frequency=1000
        --identifiers ages -> --identifiers: there is no column 'ages'; did you mean
        --identifiers age --condition age=3 -> 'age' is an identifier column, whose
        --drop ages -> --drop: there is no column 'ages'; did you mean 'age'?
        --drop * -> --drop leaves out all columns
        --drop city --condition city=Rome -> there is no column 'city'
        --condition city -> --condition 'city' is not in the form COLUMN=VALUE
        --condition city=q -> 'city' has no value 'q'; there are 'Oslo', 'Rome'
        --device abacus -> --device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'abacus'
        --max-time=-5 -> Invalid value for '--max-time'...'-5' is not a time; give a number of
        --target dear -> --target dear needs a report: --report report.html
        --holdout 0.1 -> --holdout 0.1 needs a report: --report report.html
        --report real.csv -> cannot write real.csv: it is the same file as DATA
        --report m --save m -> cannot write m: it is the same file as --save
        --report r --target dea -> there is no column 'dea'; did you mean 'dear'?
        --report r --target dear --drop dear -> --target: there is no column 'dear'
        --report r --target dear --drop age,city,price -> there is no column beside 'dear' to
        --report r --holdout 0.95 -> --holdout must lie between 0 and 0.9, got 0.95
        --report r --holdout nan -> --holdout must lie between 0 and 0.9, got nan
        --report r --holdout 0.005 -> holds out 1 of 150 rows; at least 2 held-out rows
        --report r --condition city=Rome -> leave --condition and --shares, or --report, out
    """,
    f"synth days.csv -o out.csv {QUICK}": """
        --report r --target day -> target 'day' holds dates ... --discrete day
    """,
    f"synth four.csv -o out.csv {QUICK} --min-frequency 1": """
        --report r --holdout 0.8 -> holds out 3 of 4 rows; at least 2 held-out rows and 2
    """,
    "synth": """
        real.csv -> missing option '--out' / '-o'
    """,
    "sample": f"""
        model -o no/out.csv -> cannot write no/out.csv: the folder no does not exist
        model -o out.csv --rows {MANY} -> rows do not fit into memory
        model -o out.csv --condition city=w -> 'city' has no value 'w'; there are 'Oslo', 'Rome'
        model.csv -o model.csv -> cannot write model.csv: it is the same file as MODEL
        none -o out.csv -> no such file: none
        real.csv -o out.csv -> real.csv is not a safetensors file, or is cut short
        cut -o out.csv -> cut is not a safetensors file, or is cut short
        damaged -o out.csv -> damaged is damaged
        strange -o out.csv -> strange is damaged
        other -o out.csv -> the model in other cannot make rows; give a file that
    """,
    IMPUTE: """
        -o holes.csv -> cannot write holes.csv: it is the same file as DATA
        --save out.csv -> cannot write out.csv: it is the same file as --save
        --max-time soon -> 'soon' is not a time; give a number of seconds, or a time such as 90s
        --drop ages -> --drop: there is no column 'ages'; did you mean 'age'?
    """,
    "impute": """
        real.csv -o out.csv -> real.csv has no missing cells to fill
        holes.csv -o out.csv --model-file t --epochs 2 -> --epochs applies to training, but t is
        holes.csv -o out.csv --model-file t --min-frequency 5 -> --min-frequency applies to training
        holes.csv -o out.csv --model-file t --model tvae -> --model applies to training, but t is
        holes.csv -o out.csv --model-file real.csv -> real.csv
    """,
    EVALUATE: """
        --require detection -> requirement 'detection': write a score, one of <=, >=, < and ...
        --require 'detecton>=0.8' -> 'detecton' is not a known score (did you mean 'detection'?)...
        --require 'copies<=some' -> requirement 'copies<=some': write a score, one of ...
        --require 'membership_tpr@1%<=0.03' -> ...the generator was not trained on: --test FILE
        --require 'utility>=0.9' -> --require utility>=0.9 needs a column to predict: --target ...
        --json real.csv -> cannot write real.csv: it is the same file as REAL
        --person nobody -> --person: there is no column 'nobody'
        --metric roc_auc -> --metric roc_auc needs a column to predict: --target COLUMN
        -o real.csv -> cannot write real.csv: it is the same file as REAL; choose another file
        -o ./made.csv -> cannot write made.csv: it is the same file as SYNTHETIC
        -o held.csv --test held.csv -> cannot write held.csv: it is the same file as --test
        -o m --model m -> cannot write m: it is the same file as --model
        -o no/report.html -> no does not exist; create it first
        --target dea -> --target: there is no column 'dea'; did you mean 'dear'?
        --drop nope -> --drop: there is no column 'nope'
        --drop * -> --drop leaves out all columns of REAL
        --task regression -> --task regression needs a column to predict: --target COLUMN
        --target dear --task regression -> the target 'dear' has text that is not numbers: 'yes'
        --test real.csv -> --test real.csv is the same file as REAL; give real rows that
        --test none.csv -> there is no file none.csv
        --model real.csv -> real.csv is not a safetensors file
        --model other -> the model in other cannot make rows; give a file that
        --min-frequency 0 -> '--min-frequency': 0 is not possible; give a whole number of rows
    """,
    FIT: """
        deer -> did you mean 'dear'
        dear --drop dear -> --drop leaves out 'dear'
        dear --model forest -> 'mlp', 'pack', 'tabm'
        dear --task regression -> the target 'dear' has text that is not numbers: 'yes'
        dear --task guess -> 'guess' is not one of
        dear -o real.csv -> it is the same file as DATA
        dear -o note -> exists and is not a model file
        dear --metric acuracy -> --metric: 'acuracy' is not a known metric; did you mean 'accuracy'
        dear --metric mae -> --metric: 'mae' is a metric of regression, and the task is classif
    """,
    "fit days.csv -o new.safetensors --target": "day -> the target 'day' holds dates",
    "predict": """
        real.csv real.csv -o o.csv -> not a safetensors file
        model real.csv -o o.csv -> the model in model cannot predict
        other real.csv -o o.txt -> cannot write o.txt: use one of the file endings
        other real.csv -o real.csv -> it is the same file as DATA
    """,
}
ROWS = [
    (command, *f" {row.strip()}".split(" -> "))
    for command, rows in REFUSED.items()
    for row in rows.strip().splitlines()
]


def said(words, line):
    """Whether a line says so: ``...`` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in words.split("..."))
    return re.search(pattern, line, re.IGNORECASE)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with tables, models, directories and a link to nowhere in it."""
    folder = tmp_path_factory.mktemp("made")
    tables = {f"{name}.csv": people(150, i) for i, name in enumerate(["real", "made", "held"])}
    table = tables["real.csv"]
    tables["holes.csv"] = table.mask(np.random.default_rng(0).random(table.shape) < 0.1)
    tables["four.csv"] = people(4, 0)
    days = pd.date_range("2020-01-01", periods=150).strftime("%Y-%m-%d")
    tables["days.csv"] = table.assign(day=days)
    for name, rows in tables.items():
        rows.to_csv(folder / name, index=False)
    real, out, model = (str(folder / name) for name in ("real.csv", "out.csv", "model"))
    assert main(["synth", real, "-o", out, *QUICK.split(), "--save", model]) == 0
    Path(out).unlink()
    one = MLPClassifier(max_iter=1, hidden_layer_sizes=(2,), n_iter_no_change=float("inf"))
    one.fit([[0.0], [1.0]] * 10, [0, 1] * 10).save(folder / "other")
    whole = Path(model).read_bytes()
    for name, content in {
        "model.csv": whole,
        "cut": whole[: len(whole) // 2],
        "damaged": whole.replace(b'\\"dates\\"', b'\\"datas\\"'),
        "strange": whole.replace(b'{\\"dates\\": {}', b'{\\"dates\\": []'),
        "note": b"kept",
    }.items():
        (folder / name).write_bytes(content)
    (folder / "taken.csv").mkdir()
    (folder / "taken" / "results.csv").mkdir(parents=True)
    (folder / "dangling").symlink_to("nowhere")
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch, made):
    """The working directory, a copy of it."""
    shutil.copytree(made, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder", "uncomputed")
@pytest.mark.parametrize(("command", "options", "says"), ROWS)
def test_refused(complaint, command, options, says):
    line = complaint(*shlex.split(f"{command} {options}"))
    assert said(says, line), line


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"{SYNTH} --activation reloo", "unknown activation 'reloo' (did you mean 'relu'?)"),
        (f"{SYNTH} --batch-size 64", "pac=10 must divide --batch-size=64: ... --batch-size=60"),
        (f"{EVALUATE} --target dear --learners oracle", "unknown learner 'oracle'"),
        (f"{EVALUATE} --target dear --metric mae", "--metric: 'mae' is a metric of regression"),
        (f"{EVALUATE} --target dear --identifiers dear", "'dear' is listed in --identifiers"),
        (f"{FIT} dear --activation rleu", "did you mean 'relu'"),
    ],
)
def test_what_the_library_refuses(complaint, command, says):
    line = complaint(*shlex.split(command))
    assert said(says, line), line


COMPARED = COMPARE.replace("real.csv", "t.csv").replace("dear", "y")
SYNTHESISED, EVALUATED = SYNTH.replace("real.csv", "t.csv"), "evaluate real.csv t.csv -o r.html"
TABLES = [
    (None, [COMPARED, SYNTHESISED, EVALUATED], "there is no file t.csv"),
    ("", [COMPARED, SYNTHESISED, EVALUATED], "t.csv is empty"),
    ("a,y\n1,2\n", [COMPARED], "the table has 1 row(s); at least 2 are needed"),
    ("a,y\n1,2\n", [SYNTHESISED], "the table has 1 row; at least 2 are needed"),
    ("a,y\n1,inf\n2,3\n", [SYNTHESISED], "'y' has infinite values; ... column out with --drop"),
    ("a,b\n1,2\n3,4\n", [COMPARED], "there is no column 'y'; there are 'a', 'b'"),
    ("a,y\n1,2\n3,\n5,6\n", [COMPARED], "'y' has 1 missing value(s), the first in data row 2"),
    ("a,y\n1,2.5\n3,2.5\n", [COMPARED], "the target 'y' is 2.5 in all 2 rows"),
    ("a,y\n1,yes\n3,yes\n", [COMPARED], "the target 'y' is yes in all 2 rows: one class"),
    ("a,y\n1,p\n2,q\n3,p\n4,q\n", [COMPARED], "3 folds are more than the rows of any class"),
    ("a,y\n1,p\n2,q\n3,p\n4,p\n", [COMPARED], "class 'q' has a single row"),
    ("a,y\n1,1.5\n2,2.5\n3,3.5\n4,4.5\n", [COMPARED], "4 rows are too few for 3 folds"),
    ("age,city\n1,x\n", [EVALUATED], "not those of real.csv: t.csv lacks ['price', 'dear']"),
    ("age,city,price,dear,<b>\n1,x,2,yes,3\n", [EVALUATED], "t.csv has besides ['<b>']"),
    ("age,city,price,dear\nold,x,2,yes\n", [EVALUATED], "column 'age' of t.csv"),
]
BESIDE = "evaluate real.csv made.csv --test t.csv -o r.html"


@pytest.mark.parametrize(
    ("text", "command", "says"),
    [(text, c, says) for text, commands, says in TABLES for c in commands]
    + [(text, BESIDE, says) for text, commands, says in TABLES if EVALUATED in commands],
)
def test_bad_tables(tmp_path, monkeypatch, complaint, text, command, says):
    monkeypatch.chdir(tmp_path)
    for name in ("real", "made"):
        people(150, 0).to_csv(f"{name}.csv", index=False)
    if text is not None:
        Path("t.csv").write_text(text)
    line = complaint(*shlex.split(command))
    assert said(says, line), line


@pytest.mark.usefixtures("folder", "uncomputed")
@pytest.mark.parametrize("value", [[1, 2], {"x": 1}])
def test_values_that_no_generator_takes(complaint, value):
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [value, value, value], "b": [1, 2, 3]}).to_parquet("data.parquet")
    line = complaint(*SYNTH.replace("real.csv", "data.parquet").split())
    assert said("column 'a', data row 1, holds a...--drop", line)


@pytest.mark.usefixtures("folder", "uncomputed")
def test_parquet_needs_an_extra(complaint, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    Path("data.parquet").write_bytes(b"PAR1")
    needs = "Parquet needs pyarrow: pip install pyarrow"
    assert f"writing {needs}" in complaint(*SYNTH.replace("out.csv", "out.parquet").split())
    assert f"reading {needs}" in complaint(*SYNTH.replace("real.csv", "data.parquet").split())


@pytest.mark.usefixtures("uncomputed")
@pytest.mark.parametrize(
    ("command", "place"),
    [
        (COMPARE, "combutab-compare"),
        (SYNTH, "."),
        (SYNTH.replace("out.csv", "/out.csv") + " --save new", "."),
    ],
)
def test_a_read_only_folder_is_found_out_beforehand(folder, complaint, monkeypatch, command, place):
    def refuse(asked):
        if Path(asked).absolute() == folder:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(core_files, "check_writable", refuse)
    assert f"cannot write to {place}: Permission denied" in complaint(*command.split())


@pytest.mark.usefixtures("folder", "uncomputed")
def test_a_read_only_file_is_found_out_beforehand(complaint, monkeypatch):
    access = os.access  # root may write anywhere, so the system is not asked
    refused = {("held.csv", os.W_OK)}
    monkeypatch.setattr(
        os, "access", lambda path, mode: (str(path), mode) not in refused and access(path, mode)
    )
    line = complaint(*SYNTH.replace("out.csv", "held.csv").split())
    assert line == "combutab: error: cannot write held.csv: it is read-only\n"


@pytest.mark.usefixtures("folder")
def test_bugs_are_not_reported_as_user_errors(monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(CTGAN, "fit", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(SYNTH.split())


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore:The classifier predicts class")  # of a few units
@pytest.mark.parametrize(
    ("command", "writer", "place", "left"),
    [
        (
            COMPARE, (core_files, "write_tensors"),
            "combutab-compare", {"combutab-compare/journal.jsonl"},
        ),
        (
            f"{COMPARE} --report new.html", (Path, "write_text"),
            "new.html", {"combutab-compare/journal.jsonl"},
        ),
        (f"{EVALUATE} --learners linear -o note", (Path, "write_text"), "note", set()),
        (SYNTH, (pd.DataFrame, "to_csv"), "out.csv", set()),
        (f"{SYNTH} --save new", (core_files, "write_tensors"), "new", set()),
        (IMPUTE, (pd.DataFrame, "to_csv"), "out.csv", set()),
    ],
)  # fmt: skip
def test_full_disk_leaves_nothing_half_written(
    capsys, monkeypatch, files, short_reports, command, writer, place, left
):
    def fail(self, path, *arguments, **options):
        Path(self if isinstance(self, Path) else path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    before = files(".")
    monkeypatch.setattr(*writer, fail)
    assert main(command.split()) == 2
    out, err = capsys.readouterr()
    last = f"combutab: error: cannot write to {place}: No space left on device"
    assert err.splitlines()[-1] == last
    assert ("has the best mean accuracy" in out) == command.startswith("compare")
    assert set(files(".")) == {*before, *left}
    assert Path("note").read_bytes() == b"kept"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "method", "error", "says"),
    [
        (SYNTH, "fit", RuntimeError("can't allocate memory"), "not enough memory for the training"),
        (SYNTH, "sample", ValueError("only 0 of 500 rows met"), "error: only 0 of 500 rows met\n"),
        (IMPUTE, "impute", ValueError("X has no column 'x'"), "error: X has no column 'x'\n"),
    ],
)
def test_what_goes_wrong_in_a_generator_is_said(
    complaint, monkeypatch, command, method, error, says
):
    def fail(self, *arguments, **options):
        raise error

    monkeypatch.setattr(CTGAN, method, fail)
    assert says in complaint(*command.split())


# ---- Errors come before torch is imported, which takes seconds -----------------------------------

RUN = """
import json, shlex, sys
from combutab.cli import main
codes = [main(shlex.split(line)) for line in sys.stdin]
print(json.dumps({"codes": codes, "imported": list(sys.modules)}))
"""
WITHOUT_TORCH = """
    fit none.csv --target dear -o m
    fit empty.csv --target dear -o m
    fit real.csv --target deer -o m
    fit real.csv --target dear -o no/m
    fit real.csv --target dear -o note
    fit real.csv --target dear -o m --set n_members=3
    fit real.csv --target dear -o m --task regression
    fit real.csv --target same -o m
    fit gaps.csv --target dear -o m
    explain none real.csv
    predict cut real.csv -o o.csv
    predict other none.csv -o o.csv
    sample model -o o.txt
    synth real.csv -o o.csv --report r --target deer
    synth days.csv -o o.csv --report r --target day
    impute real.csv -o o.csv
    evaluate real.csv made.csv --test real.csv
    compare none.csv --target dear
    compare gaps.csv --target dear
"""


def test_errors_come_before_torch_is_imported(folder):
    Path("empty.csv").touch()
    rows = pd.read_csv("real.csv").assign(same=1)
    rows.to_csv("real.csv", index=False)
    rows.assign(dear=rows["dear"].where(rows.index > 2)).to_csv("gaps.csv", index=False)
    commands = [line.strip() for line in WITHOUT_TORCH.strip().splitlines()]
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    errors = done.stderr.splitlines()
    assert len(errors) == len(commands)
    assert all(line.startswith("combutab: error: ") for line in errors), errors
    result = json.loads(done.stdout)
    assert result["codes"] == [2] * len(commands)
    assert "torch" not in {name.partition(".")[0] for name in result["imported"]}
