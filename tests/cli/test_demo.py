"""``combutab demo``: files, printed commands, and folders that it refuses."""

import pytest

from combutab.cli import main
from combutab.datasets import make_flats
from tests.short import short_reports


@pytest.mark.slow
def test_demo_prints_commands_and_writes_pages(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("combutab.generators._tabflow._STEPS", 50)
    out = tmp_path / "demo"
    with short_reports():
        assert main(["demo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[2] for line in printed.splitlines() if line.startswith("$ combutab")] == [
        *("fit", "compare", "synth")
    ]
    names = {path.name for path in out.iterdir()}
    assert {"model.html", "comparison.html", "synthetic.html", "synthetic.csv"} < names


def test_demo_refuses_a_folder_with_files(tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("a\n1\n")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "--out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_flats_are_reproducible_and_partly_missing():
    flats = make_flats(400, random_state=3)
    assert flats.equals(make_flats(400, random_state=3))
    assert not flats.equals(make_flats(400, random_state=4))
    missing = flats.isna().mean()
    assert missing[["area", "heating"]].between(0.02, 0.09).all()
    assert not missing.drop(["area", "heating"]).any()
