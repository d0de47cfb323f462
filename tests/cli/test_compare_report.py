"""``combutab compare --report``: where the page is written, and what is refused before training."""

import re
from pathlib import Path

import pandas as pd
import pytest
from sklearn.datasets import load_iris

from combutab import model_selection
from combutab.cli import main
from combutab.cli._compare import FILES, JOURNAL

QUICK = ["--seeds", "1", "--folds", "3", "--epochs", "2", "--hidden", "8"]
QUICK += ["--activations", "relu,combu", "--baselines", "none"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with iris.csv in it."""
    load_iris(as_frame=True).frame.to_csv(tmp_path / "iris.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compare(*options):
    return main(["compare", "iris.csv", "--target", "target", *QUICK, *options])


def test_the_page_says_what_is_printed_and_takes_the_place_of_an_old_one(folder, capsys, files):
    Path("o/new").mkdir(parents=True)
    Path("o/new/report.html").write_text("old")
    assert compare("--out", "o", "--report", "o/new/report.html") == 0
    out = capsys.readouterr().out
    assert out.endswith("Wrote o/new/report.html\n")
    page = Path("o/new/report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "<h1>iris: which activation is best?</h1>" in page
    first = next(line for line in out.splitlines() if "has the best mean accuracy" in line)
    assert first in page
    for name, mean in pd.read_csv("o/summary.csv")[["activation", "mean"]].itertuples(index=False):
        assert re.search(rf">{name}</th><td class=\"num\">{mean:.4f}</td>", page)
    assert files(folder / "o") == sorted([*FILES, JOURNAL, "new/report.html"])


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ("iris.csv", "cannot write iris.csv: that is DATA as well"),
        ("./o/../iris.csv", "that is DATA as well"),
        ("o/results.csv", "cannot write o/results.csv: that is results.csv as well"),
        ("taken", "cannot write taken: it is a directory"),
        (".", "cannot write .: it is a directory"),
        ("iris.csv/r.html", "cannot write to iris.csv: .*iris.csv is not a directory"),
        ("dangling/r.html", "cannot write to dangling: .*dangling is a broken link"),
        ("r" * 300, "cannot write to r+: File name too long"),
    ],
)
def test_a_place_that_will_not_do_is_refused_before_training(
    folder, complaint, monkeypatch, report, says
):
    def train(*arguments, **options):
        raise AssertionError("trained for nothing")

    monkeypatch.setattr(model_selection, "run_comparison", train)
    Path("taken").mkdir()
    Path("dangling").symlink_to("nowhere")
    arguments = ["compare", "iris.csv", "--target", "target", *QUICK, "--out", "o"]
    assert re.search(says, complaint(*arguments, "--report", report))
    if report == ".":
        assert re.search(says, complaint("compare", *QUICK, "--report", report))


def test_a_disk_that_fills_up_leaves_no_half_page(folder, capsys, files, monkeypatch):
    def fail(self, text, **options):
        self.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    assert compare("--out", "o", "--report", "report.html") == 2
    out, err = capsys.readouterr()
    says = "combutab: error: cannot write to report.html: No space left on device"
    assert err.splitlines()[-1] == says
    assert "has the best mean accuracy" in out  # what was computed is told
    assert files(folder) == ["iris.csv", f"o/{JOURNAL}"]  # and no file without the others
