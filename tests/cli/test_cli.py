"""The command as a whole: its help, its exit codes, and its process."""

import re
import subprocess
import sys

import pytest

import combutab
from combutab.cli import main


def test_a_process_ends_with_code_2_and_one_line(tmp_path, files):
    command = [sys.executable, "-m", "combutab", "compare", "--zzz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
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


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("compare", "target task activations seeds folds epochs hidden metric test device"),
        (
            "synth",
            "out model activation rows discrete drop condition epochs max-time batch-size seed "
            "device save checkpoint",
        ),
        ("sample", "out rows condition seed device"),
        ("fit", "target out model task activation members epochs discrete drop seed device"),
        ("predict", "out proba keep sep decimal encoding device"),
        ("impute", "out n-draws model model-file discrete drop epochs max-time seed device save"),
    ],
)
def test_every_option_is_explained(capsys, command, options):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    for option in options.split():
        assert re.search(rf"--{option} [<\w|> ]+? +\S", out), option
