"""The pages of results are what the stored rows give: nothing on them was written by hand."""

import re
import shlex
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from tests.benchmarks.test_quick_forms import DATA_HOME, STUDIES

ROOT = Path(__file__).parents[2]


def parts(page):
    """The command of a page, and its text without the machine; pictures may be of either kind."""
    _, command, _, text = page.read_text("utf-8").split("\n\n", 3)
    return command.strip("`"), re.sub(r"\.(png|svg)\)", ")", text)


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_is_what_its_rows_give(name, tmp_path, monkeypatch, capsys):
    study = import_module(f"benchmarks.{name}").STUDY
    results = ROOT.joinpath(*study.module.split(".")[:-1]) / "results"
    page = results / f"{study.name}.md"
    if not page.exists():
        pytest.skip("no results are kept")
    if STUDIES[name].data == "shared" and not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    monkeypatch.setenv("COMBUTAB_DATA", str(DATA_HOME))
    out = shutil.copytree(results, tmp_path / "results")
    monkeypatch.setattr("benchmarks.common.page.draw", lambda figure: ("svg", b""))
    command, text = parts(page)
    study.main([*shlex.split(command)[3:], "--report", "--out", str(out)])
    assert parts(out / page.name) == (command, text)
