"""The command as a whole: its help, its exit codes, and its process."""

import inspect
import re
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
import typer

import combutab
from combutab import TabFlow
from combutab.cli import app, main
from combutab.cli._console import echo
from combutab.datasets import TableError
from combutab.datasets.tables import TableFile


def test_a_process_ends_with_code_2_and_one_line(tmp_path, files):
    command = [sys.executable, "-m", "combutab", "compare", "--zzz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "combutab: error: No such option: --zzz\n"
    assert not files(tmp_path)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"combutab {combutab.__version__}\n"


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["compare", "-h"], 2)])
def test_help(capsys, arguments, code):
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert ("compare" in out + err) or err.startswith("combutab: error: ")


def help_of(name, width):
    """What ``combutab NAME --help`` prints in so many columns; "" is the command alone."""
    command = typer.main.get_command(app)
    command = command.commands[name] if name else command
    context = command.context_class(
        command, info_name=f"combutab {name}", terminal_width=width, max_content_width=width
    )
    return command.get_help(context)


@pytest.mark.parametrize("name", ["", *typer.main.get_command(app).commands])
def test_help_fits_a_terminal_and_breaks_no_word(name):
    lines = help_of(name, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split() == help_of(name, 10_000).split()
    assert not any(line.endswith("...") for line in lines if "[ARGS]" not in line)


def test_help_names_the_default_number_of_steps():
    text = inspect.getdoc(TabFlow)
    (n_steps,) = re.findall(r'"auto" is the number of epochs of ([\d,]+) steps', text)
    for command in ("synth", "impute"):
        assert f"tabflow: enough for {n_steps} training steps" in help_of(command, 10_000), command


def test_every_option_is_explained():
    for name, command in typer.main.get_command(app).commands.items():
        assert [each.name for each in command.params if not each.help] == [], name


def test_a_number_and_its_percent_sign_are_on_one_line(capsys):
    echo(f"{'word ' * 15}93.4 %; and so on", wrap=True)
    assert capsys.readouterr().out == f"{'word ' * 15}".rstrip() + "\n93.4 %; and so on\n"


def test_ctrl_c_of_which_pandas_makes_a_broken_file_is_ctrl_c(tmp_path, monkeypatch, capsys):
    def read(file):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise TableError("Error tokenizing data")

    monkeypatch.setattr(TableFile, "table", read)
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    assert main(["synth", str(table), "-o", str(tmp_path / "out.csv")]) == 130
    assert capsys.readouterr().err == "combutab: interrupted\n"
