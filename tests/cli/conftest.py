"""The command as a user runs it: its complaints, and its output on a terminal."""

import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import combutab.reports
from combutab import TVAE, MLPClassifier, model_selection
from combutab.cli import main
from combutab.generators import CTGAN


@pytest.fixture
def files():
    """files(folder): the names of all files in it and below, sorted."""

    def files(folder):
        found = (path for path in Path(folder).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(folder)) for path in found)

    return files


@pytest.fixture
def complaint(capsys):
    """complaint(*arguments): the one line of a user's error.

    Nothing may be printed besides it, and no file or folder written.
    """

    def complaint(*arguments):
        before = sorted(Path().rglob("*"))
        assert main(list(arguments)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("combutab: error: ")
        assert err.count("\n") == 1
        assert sorted(Path().rglob("*")) == before
        return err

    return complaint


@contextmanager
def _terminal():
    """A pseudo-terminal: the descriptor to write to, and what it was shown, a list that grows."""
    pty = pytest.importorskip("pty", reason="needs a pseudo-terminal")
    ours, theirs = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(ours, shown))
    reader.start()
    try:
        yield theirs, shown
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


def _drain(descriptor, into):
    """Read a pseudo-terminal to its end; unread, it would block its writer."""
    try:
        while chunk := os.read(descriptor, 4096):
            into.append(chunk)
    except OSError:  # Linux's way of saying that the other end was closed
        pass


@pytest.fixture
def shown_on_terminal(monkeypatch):
    """shown_on_terminal(*arguments): what the command shows with standard error on a terminal."""

    def show(*arguments, columns=120):
        with monkeypatch.context() as patch, _terminal() as (theirs, shown):
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", str(columns))
            with open(theirs, "w", encoding="utf-8", closefd=False) as stream:
                patch.setattr(sys, "stderr", stream)
                assert main(list(arguments)) == 0
        return b"".join(shown).decode()

    return show


@pytest.fixture
def arguments(monkeypatch):
    """What `evaluate_synthetic` is called with, in place of the call."""
    seen = {}

    def note(**given):
        seen.update(given)
        raise ValueError("noted")

    monkeypatch.setattr(combutab.reports, "evaluate_synthetic", note)
    return seen


@pytest.fixture
def uncomputed(monkeypatch):
    """Training or evaluating is an error that is no user's."""

    def fail(*arguments, **options):
        raise AssertionError("computed for nothing")

    monkeypatch.setattr(model_selection, "run_comparison", fail)
    monkeypatch.setattr(combutab.reports, "evaluate_synthetic", fail)
    for kind in (CTGAN, TVAE, MLPClassifier):
        monkeypatch.setattr(kind, "fit", fail)
