"""Bars and sentences on terminals of any width, in pipes and in notebooks."""

import builtins
import os
import re
import sys
import types

import numpy as np
import pandas as pd
import pytest
from rich.cells import cell_len

from combutab import CTGAN
from combutab.cli import _console, main
from combutab.core import progress
from combutab.core.progress import clock
from combutab.training import EpochReport, ProgressBar
from tests.short import BUDGET
from tests.trust.forked import Forked, needs_fork, on_terminal

WIDTHS = [40, 60, 80, 120]
LONG = BUDGET > 1
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def report(epoch, seconds, losses=None, score=None):
    return EpochReport(
        epoch, 300, (0,), np.array([0.25]), score, np.array([0.1]), seconds, losses or {}
    )


# ---- how long it still takes -------------------------------------------------------------------


def test_clock():
    assert [clock(s) for s in (0, 59.6, 61, 3599.9, 3600, 90_061)] == [
        *("0:00", "1:00", "1:01", "1:00:00", "1:00:00", "25:01:01")
    ]


# ---- notebooks ---------------------------------------------------------------------------------


class Handle:
    """What IPython's display gives back: all that was shown, in order."""

    def __init__(self):
        self.shown = []

    def update(self, data, *, raw):
        assert raw
        self.shown.append(data["text/plain"])


@pytest.fixture
def notebook(monkeypatch):
    """Handles of all that is displayed, as in a notebook without ipywidgets."""
    handles = []

    class ZMQInteractiveShell:
        pass

    def display(data, *, raw, display_id):
        assert raw
        assert display_id
        handles.append(Handle())
        handles[-1].shown.append(data["text/plain"])
        return handles[-1]

    module = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setenv("FORCE_COLOR", "1")  # as ipykernel sets it
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    return handles


TINY = {"generator_dim": (8,), "discriminator_dim": (8,), "batch_size": 20, "random_state": 0}


def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=60), "word": rng.choice(list("ab"), 60)})


def test_a_generator_shows_one_line_in_a_notebook(notebook, capfd):
    CTGAN(**TINY, epochs=3, verbose=True).fit(table())
    (handle,) = notebook
    assert handle.shown[-1].startswith("CTGAN ")
    assert "3/3" in handle.shown[-1]
    assert "0:00 left" in handle.shown[-1]
    assert "so far" in handle.shown[0]
    for text in handle.shown:
        assert "\n" not in text
        assert "\x1b" not in text
        assert cell_len(text) <= 100
    assert capfd.readouterr() == ("", "")


def test_a_notebook_is_not_flooded(notebook, monkeypatch):
    now = 1.0
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: now))
    bar = ProgressBar("many")
    bar.on_train_begin(1, 300)
    for epoch in range(1, 301):
        now += 0.001
        bar.on_epoch_end(report(epoch, 0.001 * epoch))
    bar.on_train_end()
    (handle,) = notebook
    assert 3 < len(handle.shown) < 6
    assert "300/300" in handle.shown[-1]


def test_without_ipython_no_bar_is_shown(notebook, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    CTGAN(**TINY, epochs=1, verbose=True).fit(table())
    assert capfd.readouterr() == ("", "")


# ---- terminals ---------------------------------------------------------------------------------


def lines(shown):
    """Lines as they were written, one after another, without colours."""
    return [line for line in re.split(r"[\r\n]+", _CONTROL.sub("", shown)) if line.strip()]


def sections(shown, widths):
    """What a program that says ``===== 40`` before each width has shown at each."""
    _, *rest = re.split(r"===== (\d+)\s*", shown)
    found = dict(zip(map(int, rest[::2]), map(lines, rest[1::2]), strict=True))
    assert list(found) == list(widths)
    return found


def show_bars():
    for columns in WIDTHS:
        print("=====", columns, flush=True)
        os.environ["COLUMNS"] = str(columns)
        bar = ProgressBar("CTGAN x 12")
        bar.on_train_begin(1, 300)
        for epoch in (1, 2, 150):
            losses = {"Generator": np.array([-1.2345]), "Discriminator": np.array([0.0123])}
            bar.on_epoch_end(report(epoch, 20.0 * epoch, losses, np.array([0.5])))
            bar._bar.refresh()
        bar.on_train_end()


@needs_fork
def test_a_bar_fits_its_terminal(tmp_path):
    status, text = on_terminal(show_bars, tmp_path, TERM="xterm", COLUMNS="40")
    assert status == 0, text
    for columns, shown in sections(text, WIDTHS).items():
        assert max(map(cell_len, shown)) <= columns
        assert any("0:00 so far" in line for line in shown)
        assert any("2/300" in line and " left" in line for line in shown)
        assert all(line.startswith("CTGAN x 12 ") for line in shown)
        # all losses where there is room, and whole ones everywhere
        last = shown[-1]
        assert ("Discriminator 0.0123" in last) == (columns >= 80)
        assert ("Generator -1.23" in last) == (columns >= 60)
        assert "…" not in last


@needs_fork
def test_the_commands_fit_their_terminal(tmp_path):
    table().assign(price="0,125", n=range(60)).to_csv(tmp_path / "data.csv", index=False)
    widths = WIDTHS if LONG else WIDTHS[:2]
    synth = ["synth", "data.csv", "-o", "made.csv", "--epochs", "2", "--save", "generator.model"]
    sample = ["sample", "generator.model", "-o", "more.csv", "--rows", "20"]
    wrong = ["sample", "generator.model", "-o", "more.csv", "--condition", "word=c"]
    evaluate = ["evaluate", "data.csv", "made.csv", "--drop", "n", "-o", "report.html"]

    def run():
        for columns in widths:
            print("=====", columns, flush=True)
            os.environ["COLUMNS"] = str(columns)
            assert [main(each) for each in (synth, sample, wrong, evaluate)] == [0, 0, 2, 0]

    status, text = on_terminal(run, tmp_path, TERM="xterm", COLUMNS="40")
    assert status == 0, text
    assert "Traceback" not in text
    for columns, shown in sections(text, widths).items():
        long = [line for line in shown if cell_len(line) > columns]
        assert not long, long
        joined = re.sub(r"\s+", " ", " ".join(shown))  # no word was broken
        for words in ("Wrote 60 rows to made.csv", "'word' has no value 'c'", "report.html"):
            assert words in joined


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_words_are_left_whole(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    path = "/a/path/that/is/longer/than/a/line/of/this/terminal.csv"
    _console.echo(f"cannot write {path}: it is a directory 中中中中 中中中中 中中中中", wrap=True)
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if cell_len(line) > columns] in ([path + ":"], [])
    assert path in " ".join(out)
    _console.echo("aaa bbb " * 10, wrap=True, indent=4)
    assert all(
        line.startswith(("    a", "    b")) or not line.strip()
        for line in capsys.readouterr().out.splitlines()
    )


@needs_fork
def test_a_pipe_gets_one_line_for_each_sentence(tmp_path):
    table().to_csv(tmp_path / "data.csv", index=False)
    process = Forked(lambda: main(["evaluate", "data.csv", "data.csv"]), tmp_path)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.count("\n") > 3
    for line in out.splitlines():
        assert line.startswith("  ") or ": " in line
    assert "\x1b" not in out + err
