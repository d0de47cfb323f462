"""The site's pages say what is so: their code runs, their tables are complete."""

import inspect
import re
import sys

import pytest

import combutab
from combutab import generators
from tests.code_blocks import ROOT, check_command, check_output, commands

DOCS = ROOT / "docs"
sys.path.append(str(DOCS / "_ext"))

import outputs  # noqa: E402

PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("guide/*.md")])
PAGES = [path for path in PAGES if path.name != "changelog.md"]  # which the site makes
TEXTS = [ROOT / "README.md", ROOT / "examples" / "README.md"]


def anchors(path):
    """The anchors of a page's sections, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.slow
@pytest.mark.parametrize("path", outputs.pages(), ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_the_code(path, tmp_path):
    found = outputs.run_in_process(path, tmp_path)
    texts = outputs.stored(path)
    for output, text in zip(found, texts, strict=True):
        if any(texts) and not output["missing"]:
            check_output(output["text"], text)


def test_pages_are_plain_markdown():
    for path in PAGES:
        text = path.read_text("utf-8")
        assert not re.search(r"\{[a-z:]+\}`|^`{3,}\{|^:::|^---\n.*^---$", text, re.M), path


@pytest.mark.parametrize("path", [*PAGES, *TEXTS], ids=lambda path: path.name)
def test_links_lead_to_files_and_sections(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"(?<!`)\]\(([^()\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


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
    assert set(listed.values()) == {"same"}
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
                assert name in ours | methods | set(combutab.__all__), (title, name)


def test_all_of_ctgans_parameters_have_a_place():
    ctgan = pytest.importorskip("ctgan", reason="needs the extra sdv")
    listed = table("ctgan")
    theirs = parameters(ctgan.CTGAN, ctgan.TVAE)
    assert theirs <= set(listed)
    same = {name for name in theirs if listed[name] == "same"}
    assert same == theirs - {"cuda"}
    assert same <= parameters(generators.CTGAN, generators.TVAE)


def test_sdvs_synthesizers_are_taken_the_place_of():
    single_table = pytest.importorskip("sdv.single_table", reason="needs the extra sdv")
    from combutab.generators import sdv

    for name in ("CTGANSynthesizer", "TVAESynthesizer"):
        assert name in table("SDV")
        theirs, ours = getattr(single_table, name), getattr(sdv, name)
        assert parameters(theirs) <= parameters(ours)
