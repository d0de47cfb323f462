"""The command as a whole: its help, its exit codes, and its process."""

import inspect
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
import typer

import combutab
from combutab import TabFlow
from combutab.cli import EXIT_CODES, app, main
from combutab.cli._console import echo
from combutab.datasets import TableError
from combutab.datasets.tables import TableFile


def test_usage_error_exits_with_code_2(tmp_path, files):
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


COMMANDS = typer.main.get_command(app).commands


@pytest.fixture
def help_of(monkeypatch, capsys):
    """Return a function of a command's name and a width to what its ``--help`` prints."""

    def help_of(name, width):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main([*filter(None, [name]), "--help"]) == 0
        return capsys.readouterr().out

    return help_of


def words_of(text):
    return re.sub("[│╭╰╮╯─]", " ", text).split()


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_a_terminal_and_breaks_no_word(help_of, name):
    text = help_of(name, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert set(words_of(help_of(name, 10_000))) <= set(words_of(text))
    assert "Example: combutab" in text or not name


def test_help_names_the_default_number_of_steps(help_of):
    text = inspect.getdoc(TabFlow)
    (n_steps,) = re.findall(r'"auto" is the number of epochs of ([\d,]+) steps', text)
    for command in ("synth", "impute"):
        assert f"tabflow: enough for {n_steps} training steps" in help_of(command, 10_000), command


def test_help_lists_exit_codes(help_of):
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning}" in help_of("", 10_000)


def test_every_option_is_explained():
    for name, command in COMMANDS.items():
        assert [option.name for option in command.params if not option.help] == [], name


def test_shell_completion_is_shown():
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "combutab", "--show-completion", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "complete -o default -F _combutab_completion combutab" in done.stdout


def test_percent_sign_stays_with_its_number(capsys):
    echo(f"{'word ' * 15}93.4 %; and so on", wrap=True)
    assert capsys.readouterr().out == f"{'word ' * 15}".rstrip() + "\n93.4 %; and so on\n"


def test_ctrl_c_while_reading_is_an_interrupt(tmp_path, monkeypatch, capsys):
    def read(file):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise TableError("Error tokenizing data")

    monkeypatch.setattr(TableFile, "table", read)
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    assert main(["synth", str(table), "-o", str(tmp_path / "out.csv")]) == 130
    assert capsys.readouterr().err == "combutab: interrupted\n"
