"""Fenced blocks of Markdown: found, run, and commands held against the programs they name."""

import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main

from combutab import cli

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def blocks(path, language):
    """(line number, text) of a file's fenced blocks in a language."""
    text = path.read_text("utf-8")
    return [
        (text[: match.start(1)].count("\n"), match[1])
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
# The first line of a finding on synthetic rows: its subject and its level
FINDING = re.compile(r"^(\w+): (?:good|fair|poor|not known)\b", re.MULTILINE)


def check_output(printed, stored):
    """Compare what is printed with what a page shows: the same words, and similar numbers.

    Numbers may differ by 20 % or 0.1, as on another processor, and numbers of epochs by more. The
    values in a row of a DataFrame are not compared, and neither are the words of findings on
    synthetic rows, which end an output.
    """
    assert FINDING.findall(printed) == FINDING.findall(stored)
    printed, stored = (
        FINDING.split(text, maxsplit=1)[0].strip().splitlines() for text in (printed, stored)
    )
    assert len(printed) == len(stored), (printed, stored)
    for new, old in zip(printed, stored, strict=True):
        if re.match(r"\s*\d+ ", old):  # a row of a DataFrame
            assert re.match(r"\s*\d+ ", new), (new, old)
        else:
            new, old = (re.sub(r"\d+ epochs", "epochs", line) for line in (new, old))
            words = [re.sub(r"[ -]+", " ", NUMBER.sub("#", line)) for line in (new, old)]
            words = [text.replace("p < #", "p = #") for text in words]  # 0.00013, or < 0.0001
            assert words[0] == words[1]
            numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(x)] for x in (new, old)]
            assert numbers[0] == pytest.approx(numbers[1], rel=0.2, abs=0.1), (new, old)


def commands(path):
    """Each command of a page's shell blocks, as a list of words."""
    texts = [text.replace("\\\n", " ") for _, text in blocks(path, "sh(?:ell)?")]
    lines = [line for text in texts for line in text.splitlines()]
    return [shlex.split(part, comments=True) for line in lines for part in line.split("&&")]


def check_command(words, monkeypatch, capsys):
    """Hold a command against the program that it names; nothing is run but a benchmark's help."""
    name, *arguments = words
    if name == "combutab":
        assert PYPROJECT["project"]["scripts"]["combutab"] == "combutab.cli:main"
        command, *options = arguments
        known = typer.main.get_command(cli.app).commands[command]
        if options != ["--help"]:  # parsed, not run: unknown options are errors
            known.make_context(command, options)
    elif name == "python" and arguments[1].startswith("benchmarks."):
        monkeypatch.setattr(sys, "argv", [arguments[1], "--help"])
        for module in (arguments[1], f"{arguments[1]}.__main__"):  # as if it were new
            monkeypatch.delitem(sys.modules, module, raising=False)
        with pytest.raises(SystemExit):
            runpy.run_module(arguments[1], run_name="__main__")
        known = capsys.readouterr().out
        options = {word for word in arguments if word.startswith("--")}
        assert options <= set(re.findall(r"--[a-z-]+", known))
    elif name == "python":
        assert arguments[:5] == ["-m", "pip", "install", "-c", "constraints.txt"]
        *editable, target = arguments[5:]
        assert editable in ([], ["-e"])
        extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", target)[1]
        for extra in (extras or "").split(",") if extras else ():
            assert extra in PYPROJECT["project"]["optional-dependencies"]
    else:
        assert words == ["pytest"]
