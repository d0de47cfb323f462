"""Constraints on the command line: proposed, written, read, and met by what is written."""

import json

import numpy as np
import pandas as pd

from combutab.cli import main
from combutab.generators import Inequality, Sum, read_constraints

QUICK = ["--model", "tvae", "--epochs", "2"]


def write_table(path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"net": rng.integers(1, 900, 200), "tax": rng.integers(1, 90, 200)})
    table["total"] = table["net"] + table["tax"]
    table["low"] = rng.integers(0, 10_000, 200)
    table["high"] = table["low"] + rng.integers(1, 50, 200)
    table.to_csv(path, index=False)


def test_constraints_are_proposed_then_met(tmp_path, capsys):
    data, rules, out = (tmp_path / name for name in ("t.csv", "rules.json", "out.csv"))
    write_table(data)
    run = ["synth", str(data), "-o", str(out), *QUICK]
    assert main([*run, "--suggest-constraints", str(rules)]) == 0
    assert "Sum(['net', 'tax'], 'total')" in capsys.readouterr().out
    found = read_constraints(rules)
    assert found == [Sum(["net", "tax"], "total"), Inequality("low", "<", "high")]
    model = tmp_path / "model"
    assert main([*run, "--constraints", str(rules), "--save", str(model)]) == 0
    again = tmp_path / "again.csv"
    assert main(["sample", str(model), "-o", str(again), "--rows", "50"]) == 0
    for path in (out, again):
        rows = pd.read_csv(path)
        assert (rows["net"] + rows["tax"] == rows["total"]).all()
        assert (rows["low"] < rows["high"]).all()


def test_filled_cells_meet_them(tmp_path, capsys):
    data, rules, out = (tmp_path / name for name in ("t.csv", "rules.json", "out.csv"))
    write_table(data)
    table = pd.read_csv(data).astype("Int64")
    table.loc[:20, "total"] = table.loc[10:40, "high"] = pd.NA
    table.to_csv(data, index=False)
    content = [{"Sum": [["net", "tax"], "total"]}, {"Inequality": ["low", "<", "high"]}]
    rules.write_text(json.dumps(content))
    run = ["impute", str(data), "-o", str(out), "--constraints", str(rules)]
    assert main([*run, *QUICK]) == 0
    filled = pd.read_csv(out)
    assert not filled.isna().any().any()
    assert (filled["net"] + filled["tax"] == filled["total"]).all()
    assert (filled["low"] < filled["high"]).all()
    capsys.readouterr()
    assert main([*run, "--model-file", str(data)]) == 2
    assert "--constraints applies to training" in capsys.readouterr().err


def test_files_that_cannot_be_used_are_refused(tmp_path, capsys):
    data, rules, out = (tmp_path / name for name in ("t.csv", "rules.json", "out.csv"))
    write_table(data)
    run = ["synth", str(data), "-o", str(out), *QUICK, "--constraints", str(rules)]
    for content, message in (
        (None, "rules.json"),
        ("{", ": Expecting property name"),
        (json.dumps([{"Sum": [["net", "low"], "total"]}]), "break Sum(['net', 'low'], 'total')"),
        (json.dumps([{"Sum": [["net", "taxes"], "total"]}]), "no column 'taxes'"),
    ):
        if content is not None:
            rules.write_text(content)
        assert main(run) == 2
        assert message in capsys.readouterr().err
        assert not out.exists()
