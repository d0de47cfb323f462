"""Every example runs without a warning, does what it says, and is in the gallery."""

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import matplotlib.image
import pytest
import torch

from tests.short import short_reports

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"

WRITES = {  # beside a picture of the example's name
    "evaluate_synthetic": set(),
    "fit_a_dataframe": {"flats.safetensors"},
    "pack_of_networks": set(),
    "permutation_importance": set(),
    "physical_law": set(),
    "power_plots": set(),
    "private_table": {"generator.safetensors", "synthetic.csv"},
    "quantiles_and_uncertainty": set(),
    "robustness_to_noise": set(),
    "sdv_synthesizer": {"metadata.json", "synthesizer.pkl", "synthetic.csv"},
    "search_activations": set(),
    "several_tables": {"patients.csv", "visits.csv"},
    "synthetic_table": {"generator.safetensors", "report.html", "synthetic.csv"},
    "torch_cnn_and_transformer": set(),
    "watch_training": set(),
    "which_activation": {"which_activation.csv"},
}

NEEDS = {
    "physical_law": ("sympy", "the extra formulas"),
    "private_table": ("opendp", "the extra private"),
    "sdv_synthesizer": ("sdv", "the extra sdv"),
    "watch_training": ("sklearn.callback", "scikit-learn 1.9"),
}

APART = "fit_a_dataframe"

SHORT = {"evaluate_synthetic", "synthetic_table"}  # their reports: all else is as in a user's run


IPYTHON_DOC = "Automatically created module for IPython interactive environment"


def run(name, folder):
    """What an example prints as a downloaded notebook.

    In this process: in one of its own, imports take most time.
    """
    if name in NEEDS:
        module, what = NEEDS[name]
        pytest.importorskip(module, reason=f"needs {what}")
    output, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,  # which, unlike patch.dict, keeps new modules
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(),
        torch.random.fork_rng(),
        short_reports() if name in SHORT else contextlib.nullcontext(),
    ):
        warnings.simplefilter("error")
        patch.setitem(sys.modules, "__main__", types.ModuleType("__main__", IPYTHON_DOC))
        path = EXAMPLES / f"{name}.py"
        docstring, *cells = ast.parse(path.read_text("utf-8")).body
        assert isinstance(docstring.value.value, str)  # a notebook's first cell, as Markdown
        code = compile(ast.Module(cells, type_ignores=[]), path, "exec")
        exec(code, vars(sys.modules["__main__"]))
    assert errors.getvalue() == ""
    return output.getvalue()


def run_apart(name, folder):
    """The same as a user does, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "Agg"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def outputs():
    """What the examples printed, for the tests of single ones."""
    return {}


def test_all_examples_are_tested():
    assert sorted(WRITES) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", WRITES)
def test_example(name, tmp_path, outputs):
    outputs[name] = (run_apart if name == APART else run)(name, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == WRITES[name] | {f"{name}.png"}
    pixels = matplotlib.image.imread(tmp_path / f"{name}.png")
    assert min(pixels.shape[:2]) > 300
    assert pixels[..., :3].std() > 0.05  # something is drawn
    shown = matplotlib.image.imread(EXAMPLES / "pictures" / f"{name}.png")
    assert shown.shape == pixels.shape, "examples/pictures has another picture: run it once more"


def test_every_example_is_in_the_gallery():
    gallery = (EXAMPLES / "README.md").read_text("utf-8")
    pictures = EXAMPLES / "pictures"
    assert sorted(path.name for path in pictures.iterdir()) == [f"{name}.png" for name in WRITES]
    assert max(path.stat().st_size for path in pictures.iterdir()) < 80_000
    shown = re.findall(r"!\[[^]]+\]\((.+)\)", gallery)
    assert sorted(shown) == [f"pictures/{name}.png" for name in WRITES]
    commands = re.findall(r"^python examples/(\w+)\.py$", gallery, re.MULTILINE)
    assert commands == [Path(picture).stem for picture in shown]


def printed(outputs, name, tmp_path):
    return outputs[name] if name in outputs else run(name, tmp_path)


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


def test_fit_a_dataframe_learns(outputs, tmp_path):
    first = printed(outputs, "fit_a_dataframe", tmp_path)
    (score,) = numbers(r"R2 (-?[\d.]+)", first)
    assert score > 0.8
    known, missing = numbers(r"error where the area is \w+: (\d+)", first)
    assert known < missing / 2


def test_a_monitor_sees_the_network_learn(outputs, tmp_path):
    text = printed(outputs, "watch_training", tmp_path)
    scores = [numbers(r"([\d.]+)", line) for line in re.findall(r"accuracy \[(.+)\]", text)]
    assert [len(each) for each in scores] == [12, 12, 12]
    assert all(each[-1] > each[0] for each in scores)
    bars = text.split("best:")[0]
    assert bars.count("| MLPClassifier - fit") == 2 * 2 + 1


def test_a_pack_names_what_it_chose(outputs, tmp_path):
    text = printed(outputs, "pack_of_networks", tmp_path)
    boosting, *ours = numbers(r": R2 (-?[\d.]+)", text)
    assert len(ours) == 2
    assert min(ours) > boosting
    weights = numbers(r"(?m)^ *[\w-]+ +\d +.* ([\d.]+)$", text)
    assert len(weights) > 1
    assert sum(weights) == pytest.approx(1, abs=0.005)


def test_permutation_importance_finds_what_matters(outputs, tmp_path):
    text = printed(outputs, "permutation_importance", tmp_path)
    lines = text.partition("The first prediction")[0].splitlines()[2:-1]
    names = [line.split()[0] for line in lines]
    assert {"bmi", "s5"} == set(names[:2])
    assert names.index("noise") > 4
    answer, mean = numbers(r"(?:prediction is|the mean) (\d+)", text)
    parts = numbers(r"(?m)(-?[\d.]+)$", text.partition("The first prediction")[2])
    assert sum(parts) == pytest.approx(answer - mean, abs=2)


def test_quantiles_cover_what_they_say(outputs, tmp_path):
    text = printed(outputs, "quantiles_and_uncertainty", tmp_path)
    shares = numbers(r"([\d.]+)% of new rows", text)
    assert len(shares) == 4
    assert all(84 < share < 95 for share in shares)


def test_search_prefers_a_larger_rate(outputs, tmp_path):
    text = printed(outputs, "search_activations", tmp_path)
    assert "15 candidates" in text
    (held_out,) = numbers(r"held-out rows: ([\d.]+)", text)
    assert held_out > 0.93


def test_conditional_rows_meet_their_conditions(outputs, tmp_path):
    text = printed(outputs, "synthetic_table", tmp_path)
    ordered = re.findall(r"^ +(\d+) +(\w+) +(?:[\d.]+|NaN) 2025-0([678])-\d\d$", text, re.MULTILINE)
    assert len(ordered) == 3
    assert all(int(age) >= 70 and smoker != "never" for age, smoker, _ in ordered)
    assert re.findall(r"(\w+): good", text) == ["utility", "fidelity", "privacy"]


def test_private_promise_is_explained_by_step(outputs, tmp_path):
    text = printed(outputs, "private_table", tmp_path)
    assert "promise: epsilon=1, delta=1e-06" in text
    assert "at most 73 %." in text
    spent = numbers(r"(?m)^(?:column|choice|pair) +\d+ +[\d.]+ +([\d.]+)$", text)
    assert len(spent) >= 2  # nothing is spent on choices where all pairs are measured
    assert spent == sorted(set(spent))
    assert 0 < spent[0] < spent[-1] <= 1
    young, *_, old = numbers(r"([\d.]+)(?:,|$)", text.split("median days by age ")[-1].strip())
    assert old > young + 1  # 6 days apart in the table; the noise moves this by a day or two


def test_rows_learned_by_heart_are_found_out(outputs, tmp_path):
    text = printed(outputs, "evaluate_synthetic", tmp_path)
    generator, by_heart = text.split("memorized rows")
    assert re.findall(r"privacy: (\w+)", generator + by_heart) == ["good", "poor"]
    assert re.findall(r"utility: (\w+)", by_heart) == ["good"]
    assert re.findall(r"utility: (\w+)", generator) != ["poor"]


def test_activations_learn_in_both_torch_networks(outputs, tmp_path):
    text = printed(outputs, "torch_cnn_and_transformer", tmp_path)
    assert len(numbers(r"CNN, \S+: test accuracy ([\d.]+)", text)) == 4
    right = numbers(r", \S+: test accuracy ([\d.]+)", text)
    assert len(right) == 8
    assert min(right) > 0.9


def test_a_collapsed_network_is_seen_and_cured(outputs, tmp_path):
    text = printed(outputs, "power_plots", tmp_path)
    collapsed, *cured = zip(
        numbers(r"accuracy ([\d.]+)", text), numbers(r"P1 is (\d+)%", text), strict=True
    )
    assert len(cured) == 2
    assert collapsed[0] < 0.2
    assert collapsed[1] > 95
    assert all(accuracy > 0.6 and share < 30 for accuracy, share in cured)


def test_wrong_rows_in_training_help(outputs, tmp_path):
    text = printed(outputs, "robustness_to_noise", tmp_path)
    scores = re.findall(r"^ *(\w.*?) +([\d.]+) +([\d.]+) +[\d.]+$", text, re.MULTILINE)
    clean, wrong = ({name: float(row[i]) for name, *row in scores} for i in (0, 1))
    assert len(scores) == 4
    assert all(wrong[name] < clean[name] for name in clean)
    assert wrong["ReLU, corrupted rows in training"] > wrong["ReLU"] + 0.005


def test_the_law_is_read_back(outputs, tmp_path):
    text = printed(outputs, "physical_law", tmp_path)
    (found,) = re.findall(
        r"read back: period = ([\d.]+) \* axis\*\*([\d.]+) \* mass\*\*\((.+)\)", text
    )
    assert [float(number) for number in found] == pytest.approx([1, 1.5, -0.5], abs=0.03)
    guess, plain, *fitted = numbers(r"(?m)^[a-z, ]+?([\d.]+)%", text)
    assert max(fitted) < plain < guess
