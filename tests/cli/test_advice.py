"""What the commands advise can be done there: options of the command, and no names of Python's."""

import ast
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

import combutab
from combutab import CTGAN, MLPClassifier, MLPRegressor, TabFlow, TabMClassifier
from combutab.cli import app, main
from combutab.cli._console import with_options

ODD = {  # columns of which something is odd
    "comma": ["1,2", "3,4"],
    "group": ["974 760 673", "111 222 333"],
    "phone": ["+49 363 889", "+49 111 222"],
    "mixed": ["5 €", "6 $"],
    "word": ["1.5", "2.5", "1", "2", "3", "4", "5", "6", "7", "8", "9", "many"],
    "mark": ["x", "?", "y", "z"],
    "unclear": ["01/02/2024", "03/04/2024"],
    "days": ["13/01/2024", "01/13/2024", "05/05/2024"],
    "truth": ["yes", "no", "TRUE"],
    "code": [999, 1, 2, 3, 4, 5],
    "empty": [None],
}
COMMANDS = {
    "fit": "fit odd.csv --target y -o m",
    "compare": "compare odd.csv --target y --folds 2",
    "synth": "synth odd.csv -o o.csv --model ctgan --min-frequency 1",
    "impute": "impute odd.csv -o o.csv --model ctgan --min-frequency 1",
    "evaluate": "evaluate odd.csv more.csv --target y",
}
OPTION = r"(?<![\w-])--[a-z][a-z-]+"


def options_of(name):
    command = typer.main.get_command(app).commands[name]
    return {option for each in command.params for option in each.opts}


@pytest.fixture
def odd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = {name: np.resize(np.array(values, object), 48) for name, values in ODD.items()}
    rows = pd.DataFrame(columns).assign(y=["p", "q", "r"] * 16, key=[f"K{i}" for i in range(48)])
    rows.to_csv("odd.csv", index=False)
    rows.iloc[::-1].to_csv("more.csv", index=False)


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("odd", "uncomputed")
@pytest.mark.parametrize("name", COMMANDS)
def test_each_hint_names_an_option_of_its_command(capsys, name):
    with pytest.raises(AssertionError, match="computed for nothing"):
        main(shlex.split(COMMANDS[name]))
    lines = capsys.readouterr().err.splitlines()
    hints = [line for line in lines if " treated as " in line]
    assert len(hints) >= len(ODD) - 1
    for line in hints:
        named = set(re.findall(OPTION, line))
        assert named, line
        assert named <= options_of(name), line
    assert any("'group' is treated" in line and "--thousands space" in line for line in hints)
    for line in lines:
        assert not re.search(r"[a-z]_[a-z]|\w=", line), line


def words(node):
    """The text of a message in source code, with X for what is put in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(words, node.values))
    if isinstance(node, ast.FormattedValue):
        return "X"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return words(node.left) + words(node.right)
    return "X"


@pytest.mark.parametrize(
    ("data", "option"),
    [
        ("a,b\n1,Größe\n".encode("utf-16-le"), "--encoding 'utf-16-le'"),
        ("日本語ソ,b\n1,2\n".encode("shift_jis") + b"\x81,2\n", "--encoding shift_jis, gbk"),
    ],
)
def test_unreadable_file_names_the_encoding_option(tmp_path, capsys, data, option):
    path = tmp_path / "table.csv"
    path.write_bytes(data)
    assert main(["fit", str(path), "--target", "b", "-o", "m", "--encoding", "utf-8"]) == 2
    said = capsys.readouterr().err
    assert option in said
    assert "encoding=" not in said


def test_command_line_warnings_name_no_parameter():
    models = MLPClassifier(), MLPRegressor(), TabMClassifier(), TabFlow(), CTGAN()
    parameters = {name for model in models for name in model.get_params() if "_" in name}
    parameters -= {"class_weight"}  # the commands set none, so that none is wrong
    checked = 0
    for folder in ("estimators", "generators", "preprocessing"):
        for path in (Path(combutab.__file__).parent / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                call = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                # what the commands never come to: other solvers, several searches at once
                if call not in ("warnings.warn", "note") or path.stem == "_together":
                    continue
                said = with_options(words(node.args[0]))
                checked += 1
                if "lbfgs" not in said and "`batch_size`" not in said:
                    assert not {*re.findall(r"\w+", said)} & parameters, said
    assert checked > 8
