"""Run a benchmark in its smallest form: the command that a user starts, in this process."""

import contextlib
import io
import sys
import warnings
from importlib import import_module
from unittest import mock


def run_quick(module, folder, *arguments):
    """What it printed; that it ends well and describes the machine is asserted.

    A process of its own would spend most of its time on imports.
    """
    command = import_module(f"benchmarks.{module}")
    argv = [module, "--quick", "--out", str(folder), *map(str, arguments)]
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # no business of this test
        getattr(command, "STUDY", command).main()
    assert "torch" in printed.getvalue(), "the machine is described"
    return printed.getvalue()
