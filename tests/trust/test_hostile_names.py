"""Names that would move a cursor, change a colour, turn the text around or run a formula."""

import io
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.cli import main
from combutab.cli._console import printable
from combutab.datasets import read_table
from tests.trust.forked import Forked, needs_fork, on_terminal

pytestmark = pytest.mark.usefixtures("short_reports")

LONG = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1")) > 1
# clear the screen; set the title; C1's CSI; a bell and a backspace; the other reading order; a new
# line that looks like one of ours; markup of rich
EVIL = "\x1b[2J\x1b]0;gone\x07\x9b31m\x08\u202e\u2066\u200f\rcombutab: all is well\n[red][/bold]"
QUIET = EVIL.replace("\r", "").replace("\n", "")  # of what a CSV file can hold in a name unquoted
HOSTILE = {letter for letter in EVIL if not letter.isprintable()}
TINY = ["--activations", "relu", "--seeds", "1", "--folds", "2", "--epochs", "1", "--hidden", "4"]
TINY += ["--baselines", "guess,linear"]  # boosting takes longer than all else


def test_no_letter_that_does_anything_is_left():
    letters = [chr(i) for i in range(0x30000)]
    shown = printable("".join(letters))
    assert shown.isprintable()
    for letter in letters:
        category = unicodedata.category(letter)
        if category[0] in "LMNPS" or category == "Zs":
            assert len(printable(letter)) == 1
        else:
            assert printable(letter).startswith("\\")


def table(n=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            f"x{EVIL}": x,
            f"word{EVIL}": rng.choice([f"a{EVIL}", f"b{EVIL}"], n),
            f"odd{EVIL}": [f"{value:.2f}" if i else f"oops{EVIL}" for i, value in enumerate(x)],
            f"y{EVIL}": np.where(x > 0, f"p{EVIL}", f"q{EVIL}"),
        }
    )


NAME = f"t{EVIL.replace('/', '')}.csv"
KEEP = ["--min-frequency", "1", "--identifiers", "none"]  # the odd column has no frequent value
ROUNDS = {
    "compare": ["compare", NAME, "--target", f"y{EVIL}", *TINY, "--out", f"out{QUIET[:9]}"],
    "a folder that is a file": ["compare", NAME, "--target", f"y{EVIL}", *TINY, "--out", NAME],
    "no such target": ["compare", NAME, "--target", f"z{EVIL}", *TINY],
    "no such file": ["compare", f"no{EVIL.replace('/', '')}.csv", "--target", "y"],
    "no such option": ["compare", NAME, f"--{EVIL}"],
    "no such command": [EVIL],
    "no such activation": ["compare", NAME, "--target", f"y{EVIL}", "--activations", EVIL],
    "no such device": ["synth", NAME, "-o", "made.csv", "--device", EVIL],
    "synth": ["synth", NAME, "-o", f"made{NAME}", "--epochs", "1", "--save", f"model{NAME}", *KEEP],
    "no such column": ["synth", NAME, "-o", "made.csv", "--drop", EVIL],
    "no such value": [
        *["synth", NAME, "-o", "made.csv", "--condition", f"word{EVIL}=c{EVIL}", *KEEP],
    ],
    "no model": ["sample", NAME, "-o", "more.csv"],
    "sample": ["sample", f"model{NAME}", "-o", f"more{NAME}", "--rows", "5"],
    "evaluate": ["evaluate", NAME, f"made{NAME}", "-o", "report.html", "--learners", "linear"],
    "a report without folder": ["evaluate", NAME, NAME, "-o", f"no{QUIET}/report.html"],
    "no such encoding": ["synth", NAME, "-o", "made.csv", "--encoding", "latin\x1b[31m"],
    "no such separator": ["synth", NAME, "-o", "made.csv", "--sep", EVIL],
}
SLOW = {"compare", "evaluate"}


def run(folder, on_a_terminal, rounds):
    """What all commands show, one after another in one process."""
    table().to_csv(folder / NAME, index=False)

    def work():
        for name, arguments in rounds.items():
            print("-----", name, flush=True)
            print(main(arguments), flush=True)

    if on_a_terminal:  # rich itself sends no codes to a dumb one
        code, text = on_terminal(work, folder, TERM="dumb", COLUMNS="80")
    else:
        process = Forked(work, folder)
        text = "".join(process.communicate())
        code = process.returncode
    assert code == 0, text
    return text.replace("\r\n", "\n")


@needs_fork
@pytest.mark.parametrize("on_a_terminal", [False, True], ids=["pipe", "terminal"])
def test_no_control_character_reaches_the_reader(tmp_path, on_a_terminal):
    slow = LONG or not on_a_terminal
    rounds = {name: each for name, each in ROUNDS.items() if slow or name not in SLOW}
    text = run(tmp_path, on_a_terminal, rounds)
    assert set(text) & HOSTILE <= {"\n"}
    assert not [line for line in text.splitlines() if line.startswith("combutab: all is well")]
    assert "Traceback" not in text
    assert all(f"----- {name}" in text for name in rounds)
    codes = [line for line in text.splitlines() if line in ("0", "2")]
    assert codes.count("0") == (4 if slow else 2), text
    assert codes.count("2") == len(ROUNDS) - 4, text
    assert "\\x1b[2J" in text  # shown as it is written
    if slow:
        page = (tmp_path / "report.html").read_text("utf-8")
        assert not set(page) & (HOSTILE - {"\n"})


def test_warnings_and_unexpected_errors_are_escaped_too(tmp_path):
    program = f"""
import sys, warnings
from combutab import model_selection
from combutab.cli import _console, main
def fail(*tables, **options):
    with _console.one_line_warnings():
        warnings.warn({EVIL!r})
    raise RuntimeError({EVIL!r})
model_selection.plan_comparison = fail
sys.argv = ["combutab", "compare"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=500, check=False
    )
    text = done.stderr.decode()
    assert done.returncode == 1
    assert "combutab: warning: \\x1b[2J" in text
    assert "RuntimeError: \\x1b[2J" in text
    assert set(text) & HOSTILE == {"\n"}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_letters_that_a_stream_does_not_know(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, errors="strict", write_through=True)
    monkeypatch.setattr(sys, "stderr", stream)
    assert main(["größe中"]) == 2
    assert b"No such command 'gr" in stream.buffer.getvalue()
    assert b"\\u4e2d" in stream.buffer.getvalue()


def test_a_file_name_of_no_encoding(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9\xff.csv")
    assert main(["compare", name, "--target", "y"]) == 2
    assert "there is no file caf" in capsys.readouterr().err


# ---- formulas ----------------------------------------------------------------------------------

CALLS = [
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "+1+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "\t=1",
]
PLAIN = ["-", "+", "-5", "+1.5", "a=b", "", "é", "- 12,5", "x@y.org"]


def write_formulas():
    words = CALLS + PLAIN
    frame = pd.DataFrame({"=name()": np.arange(140.0), "word": words * 10})
    frame["n"] = np.arange(140) % 3 - 1
    frame.to_csv("t.csv", index=False)
    return words


def test_text_comes_out_as_it_went_in_and_is_told_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = write_formulas()
    assert main(["synth", "t.csv", "-o", "made.csv", "--epochs", "1", "--rows", "400"]) == 0
    err = capsys.readouterr().err
    assert "would take text of '=name()', 'word' for formulas; --guard-formulas" in err
    assert err.count("--guard-formulas") == 1
    made = read_table("made.csv")
    assert set(made["word"].dropna()) <= set(words)
    assert set(made["word"].dropna()) & set(CALLS)
    # nothing is told of where there is nothing to run
    pd.DataFrame({"a": np.arange(60.0), "w": ["-", "+", "x=1"] * 20}).to_csv("u.csv", index=False)
    assert main(["synth", "u.csv", "-o", "made.csv", "--epochs", "1"]) == 0
    assert "--guard-formulas" not in capsys.readouterr().err


def test_guarded_files_hold_no_formula(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = write_formulas()
    run = ["synth", "t.csv", "--epochs", "1", "--rows", "400", "--save", "m"]
    assert main([*run, "-o", "made.csv", "--guard-formulas"]) == 0
    assert "--guard-formulas" not in capsys.readouterr().err
    made = read_table("made.csv")
    assert list(made) == ["'=name()", "word", "n"]
    got = set(made["word"].dropna())
    assert got <= {f"'{word}" for word in CALLS} | set(PLAIN)
    assert got & {f"'{word}" for word in CALLS}
    assert made["n"].isin([-1, 0, 1]).all()  # numbers are left alone
    assert main(["sample", "m", "-o", "more.csv", "--rows", "400"]) == 0  # the model knows
    assert Path("more.csv").read_bytes() == Path("made.csv").read_bytes()
    pytest.importorskip("pyarrow")
    assert main(["sample", "m", "-o", "more.parquet", "--rows", "400"]) == 0
    assert set(read_table("more.parquet")["word"].dropna()) <= set(words)
