"""Running the command as a user does: in a process, its output piped or on a terminal."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from combutab.cli import main


@pytest.fixture
def run():
    """run(*arguments, cwd=...): the command in a process of its own, its output piped."""

    def run(*arguments, cwd, **options):
        options = {"capture_output": True, "text": True, "timeout": 120} | options
        command = [sys.executable, "-m", "combutab", *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, check=False, **options)

    return run


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


@pytest.fixture
def on_terminal():
    """on_terminal(*arguments, cwd=...): the command started with standard error on a terminal.

    Yields the process, and what it has shown so far: a list of bytes that grows.
    """
    pty = pytest.importorskip("pty", reason="needs a pseudo-terminal")

    @contextmanager
    def start(*arguments, cwd, columns=120):
        ours, theirs = pty.openpty()
        shown: list[bytes] = []
        reader = threading.Thread(target=_drain, args=(ours, shown))
        reader.start()
        process = subprocess.Popen(
            [sys.executable, "-m", "combutab", *map(str, arguments)],
            cwd=cwd,
            env=os.environ | {"TERM": "xterm", "COLUMNS": str(columns)},
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        try:
            yield process, shown
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
            os.close(theirs)
            reader.join()
            os.close(ours)

    return start


def _drain(descriptor, into):
    """Read a pseudo-terminal to its end; unread, it would block its writer."""
    try:
        while chunk := os.read(descriptor, 4096):
            into.append(chunk)
    except OSError:  # Linux's way of saying that the other end was closed
        pass
