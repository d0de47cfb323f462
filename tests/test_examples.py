"""Every example runs as a user would run it, without a warning, and does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
WRITES = {
    "evaluate_synthetic": {"report.html"},
    "fit_a_dataframe": {"flats.safetensors"},
    "permutation_importance": {"permutation_importance.png"},
    "quantiles_and_uncertainty": {"quantiles_and_uncertainty.png"},
    "sdv_synthesizer": {"metadata.json", "synthesizer.pkl", "synthetic.csv"},
    "search_activations": {"search_activations.png"},
    "synthetic_table": {"generator.safetensors", "synthetic.csv", "synthetic_table.png"},
    "which_activation": {"which_activation.csv", "which_activation.png"},
}


def run(name, folder, *arguments):
    result = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", *arguments],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "Agg"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture(scope="module")
def outputs():
    """What the examples printed, for the tests of single ones."""
    return {}


def test_all_examples_are_tested():
    assert sorted(WRITES) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", WRITES)
def test_example(name, tmp_path, outputs):
    if name == "sdv_synthesizer":
        pytest.importorskip("sdv", reason="needs the extra sdv")
    outputs[name] = run(name, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == WRITES[name]
    for picture in tmp_path.glob("*.png"):
        pixels = matplotlib.image.imread(picture)
        assert min(pixels.shape[:2]) > 300
        assert pixels[..., :3].std() > 0.05  # something is drawn


def printed(outputs, name, tmp_path):
    return outputs[name] if name in outputs else run(name, tmp_path)


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


def test_fit_a_dataframe_learns_and_is_deterministic(outputs, tmp_path):
    first = printed(outputs, "fit_a_dataframe", tmp_path)
    (score,) = numbers(r"R2 (-?[\d.]+)", first)
    assert score > 0.8
    known, missing = numbers(r"error where the area is \w+: (\d+)", first)
    assert known < missing / 2
    assert run("fit_a_dataframe", tmp_path, "--out", str(tmp_path)) == first


def test_permutation_importance_finds_what_matters(outputs, tmp_path):
    lines = printed(outputs, "permutation_importance", tmp_path).splitlines()[1:]
    names = [line.split()[0] for line in lines]
    assert {"bmi", "s5"} == set(names[:2])
    assert names.index("noise") > 4


def test_quantiles_cover_what_they_say(outputs, tmp_path):
    text = printed(outputs, "quantiles_and_uncertainty", tmp_path)
    shares = numbers(r"([\d.]+)% of new rows", text)
    assert len(shares) == 2
    assert all(84 < share < 95 for share in shares)


def test_search_prefers_a_larger_rate(outputs, tmp_path):
    text = printed(outputs, "search_activations", tmp_path)
    assert "15 candidates" in text
    (held_out,) = numbers(r"held-out rows: ([\d.]+)", text)
    assert held_out > 0.93


def test_rows_learned_by_heart_are_found_out(outputs, tmp_path):
    text = printed(outputs, "evaluate_synthetic", tmp_path)
    generator, by_heart = text.split("rows again")
    assert re.findall(r"privacy: (\w+)", generator + by_heart) == ["good", "poor"]
    assert re.findall(r"usefulness: (\w+)", by_heart) == ["good"]
    assert re.findall(r"usefulness: (\w+)", generator) != ["poor"]
