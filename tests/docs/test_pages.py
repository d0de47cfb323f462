"""The site's pages say what is so: their code runs, their tables are complete."""

import inspect
import re

import pytest

import combutab
from combutab import generators
from tests.code_blocks import ROOT, blocks, check_command, commands, run_python

DOCS = ROOT / "docs"
MADE = ("_build", "api", "examples", "made", "papers", "project", "results")
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.relative_to(DOCS).parts[0] not in (*MADE, "changelog.md")
    and path.name != "recipes.md"  # whose blocks need packages of all kinds, and have their test
)


def code(path):
    return {text for _, text in blocks(path, "python")}


# README.md's own test runs its blocks in full
OWN = [path for path in PAGES if code(path) - code(ROOT / "README.md")]


@pytest.mark.slow
@pytest.mark.usefixtures("short_reports", "few_epochs")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:column .day. has dates that are later")  # as is said there
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_code_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("combutab.generators._tabflow._STEPS", 100)
    run_python(path)


def test_shell_commands_exist(monkeypatch, capsys):
    found = [words for path in PAGES for words in commands(path)]
    assert {words[0] for words in found} == {"combutab", "python"}
    for words in found:
        check_command(words, monkeypatch, capsys)


# ---- from another library ----------------------------------------------------------------------

MIGRATE = (DOCS / "guide" / "migrate.md").read_text("utf-8")


def table(title):
    """Theirs -> ours, of the first table of a section, each name by itself."""
    part = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", MIGRATE, re.DOTALL | re.MULTILINE)[1]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \|", part, re.MULTILINE)
    return {name: ours for theirs, ours in rows for name in re.findall(r"`([\w.]+)", theirs)}


def parameters(*classes):
    found = [set(inspect.signature(cls).parameters) for cls in classes]
    return set().union(*found) - {"args", "kwargs", "self"}


def test_all_of_scikit_learns_parameters_are_the_same():
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    listed = table("scikit-learn")
    assert set(listed) == parameters(MLPClassifier, MLPRegressor)
    assert set(listed.values()) == {"the same"}
    assert set(listed) <= parameters(combutab.MLPClassifier, combutab.MLPRegressor)


def test_all_of_skorchs_parameters_have_a_place():
    skorch = pytest.importorskip("skorch", reason="needs skorch")
    listed = table("skorch")
    assert parameters(skorch.NeuralNet, skorch.NeuralNetClassifier) <= set(listed)


def test_what_takes_the_place_of_a_parameter_exists():
    ours = parameters(combutab.MLPClassifier, combutab.MLPRegressor, combutab.TabMClassifier)
    methods = {"fit_parquet", "save", "coefs_", "intercepts_", "history_"}
    for title in ("skorch", "pytabkit"):
        for place in table(title).values():
            for name in re.findall(r"(?<![}\w])`(\w+)(?:=[^`]*)?`", place):
                assert name in ours | methods, (title, name)


def test_all_of_ctgans_parameters_have_a_place():
    ctgan = pytest.importorskip("ctgan", reason="needs the extra sdv")
    listed = table("ctgan")
    theirs = parameters(ctgan.CTGAN, ctgan.TVAE)
    assert theirs <= set(listed)
    same = {name for name in theirs if listed[name] == "the same"}
    assert same == theirs - {"cuda"}
    assert same <= parameters(generators.CTGAN, generators.TVAE)


def test_sdvs_synthesizers_are_taken_the_place_of():
    single_table = pytest.importorskip("sdv.single_table", reason="needs the extra sdv")
    from combutab.generators import sdv

    for name in ("CTGANSynthesizer", "TVAESynthesizer"):
        assert name in table("SDV")
        theirs, ours = getattr(single_table, name), getattr(sdv, name)
        assert parameters(theirs) <= parameters(ours)
