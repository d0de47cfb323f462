"""README.md says what is so: its blocks run, its commands exist, what it leads to is complete."""

import contextlib
import doctest
import importlib
import inspect
import io
import re
import warnings
from pathlib import Path
from unittest import mock

import pytest
import sklearn.neural_network

import combutab
from combutab import ACTIVATIONS
from tests.code_blocks import PYPROJECT, ROOT, blocks, check_command, check_output, commands
from tests.short import short_reports

PAGE = ROOT / "README.md"

README = PAGE.read_text("utf-8")

CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8").splitlines()


def section(page, title):
    """A section of a chapter of the guide, which the README leads to."""
    text = (ROOT / "docs" / "guide" / page).read_text("utf-8")
    heading = re.escape(title)
    return re.search(rf"^##+ {heading}\n(.*?)(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE)[1]


def outputs_shown(language):
    """Blocks of a language that have an output: (line, block, output)."""
    block = r"((?:(?!```).*\n)*)```\n"
    found = re.finditer(rf"^```{language}\n{block}\n```text\n{block}", README, re.MULTILINE)
    return [(README[: m.start(1)].count("\n"), m[1], m[2]) for m in found]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run the blocks of Python: the names that are left, and the folder of their files."""
    assert len(outputs_shown("python")) == len(blocks(PAGE, "python")) == 3
    names, folder = {}, tmp_path_factory.mktemp("readme")
    with contextlib.chdir(folder):
        for line, block, shown in outputs_shown("python"):
            output, report = io.StringIO(), "evaluate_synthetic" in block
            with (
                contextlib.redirect_stdout(output),
                short_reports() if report else contextlib.nullcontext(),
                mock.patch("combutab.generators._tabflow._STEPS", 100),
            ):
                exec(compile("\n" * line + block, str(PAGE), "exec"), names)
            check_output(output.getvalue(), shown)
    return names, folder


def test_python_blocks_print_what_is_shown(ran):
    names, folder = ran
    assert {path.name for path in folder.iterdir()} == {"rent.safetensors", "report.html"}
    activations = {name.split()[0] for name in names["compared"].summary["activation"]}
    assert activations == {"combu", "relu", "gelu"}


def test_shell_commands_exist(monkeypatch, capsys):
    found = commands(PAGE)
    for words in found:
        check_command(words, monkeypatch, capsys)
    assert {words[0] for words in found} == {"python", "combutab", "pytest"}


def test_the_table_lists_every_activation():
    rows = [
        line for line in section("activations.md", "Names").splitlines() if line.startswith("| `")
    ]
    listed = {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    assert listed - {"pln-N", "pls-N"} == set(ACTIVATIONS)


@pytest.mark.parametrize("name", ["MLPClassifier", "MLPRegressor"])
def test_other_defaults_than_scikit_learns_are_listed(name):
    ours = inspect.signature(getattr(combutab, name)).parameters
    theirs = inspect.signature(getattr(sklearn.neural_network, name)).parameters
    assert not set(theirs) - set(ours)
    other = {n for n in theirs if ours[n].default != theirs[n].default}
    assert other == {
        *("hidden_layer_sizes", "activation", "solver", "alpha", "beta_2", "max_iter", "tol"),
        *("learning_rate", "learning_rate_init", "n_iter_no_change"),
        *("early_stopping", "validation_fraction"),
    }
    text = " ".join(section("migrate.md", "Differences from scikit-learn's MLP").split())
    own = {"dropout", "weight_decay", "numeric_encoding", "numeric_embedding", "scale_target"}
    own |= {"label_smoothing", "calibration", "clip_predictions"}
    for parameter in other | (own & set(ours)):
        value = repr(ours[parameter].default).replace("'", '"')
        assert f"`{parameter}={value}`" in text
    assert "`batch_size=" in text


# ---- constraints.txt ---------------------------------------------------------------------------


def test_constraints_are_exact_pins():
    pins = [line for line in CONSTRAINTS if line and not line.startswith("#")]
    names = [re.fullmatch(r"([\w.-]+)==\d[\w.]*", pin)[1].lower() for pin in pins]
    assert len(set(names)) == len(names) > len(PYPROJECT["project"]["dependencies"])
    assert "combutab" not in names


def test_constraints_pin_what_the_test_install_asks_for():
    normal = [re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in CONSTRAINTS]
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = [*PYPROJECT["project"]["dependencies"], *extras["test"]]
    for extra in ("formulas", "parquet", "sdv", "onnx", "distributed", "docs"):
        wanted += extras[extra]
    for requirement in wanted:
        name = re.match(r"[\w.-]+", requirement)[0].lower()
        assert name == "combutab" or name in normal, requirement


# ---- The examples in the docstrings run, and print what they say --------------------------------

PACKAGE = Path(combutab.__file__).parent

# by their text: to import them all takes seconds, in every process that collects tests
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


class Runner(doctest.DocTestRunner):
    """Skips, as a module that cannot be imported is, what asks for a library to be installed."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], ImportError) and "pip install" in str(exc_info[1]):
            pytest.skip(str(exc_info[1]))
        super().report_unexpected_exception(out, test, example, exc_info)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, capsys):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))
    runner = Runner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(module):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0, capsys.readouterr().out
