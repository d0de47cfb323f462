"""What the site makes from the code and from the repository, without building it."""

import ast
import inspect
import json
import sys

import pytest

import combutab
from combutab import ACTIVATIONS
from tests.code_blocks import PYPROJECT, ROOT
from tests.test_public_names import listed

DOCS = ROOT / "docs"
sys.path.append(str(DOCS / "_ext"))  # as docs/conf.py does
sys.path.append(str(DOCS))

import activation_pages  # noqa: E402
import check_site  # noqa: E402
import command_pages  # noqa: E402
import outputs  # noqa: E402
import parameter_groups  # noqa: E402
import plain_pages  # noqa: E402
import reference  # noqa: E402
import search_words  # noqa: E402
import shown  # noqa: E402


def test_every_public_name_has_a_page(tmp_path):
    reference.write(tmp_path, {"combutab.CombU": ["Equation and shape", "-" * 18]})
    found = reference.names()
    assert set(found) == set(listed())
    for package, names in listed().items():
        of = {name.name: name for name in found[package]}
        assert sorted(of) == sorted(names)
        overview = (tmp_path / f"{package}.rst").read_text("utf-8")
        for name in of.values():
            text = (tmp_path / f"{name.full}.rst").read_text("utf-8")
            assert f":: {name.full}\n" in text
            assert f"</{name.page}>`" in overview
            assert name.name == "__version__" or reference.sentence(name), name.full
    assert "Equation and shape" in (tmp_path / "combutab.CombU.rst").read_text("utf-8")
    # what a class has of its own, and what it has of its bases, but nothing of scikit-learn's
    methods = (tmp_path / "combutab.MLPClassifier.rst").read_text("utf-8")
    for name in ("fit", "predict_proba", "save", "fit_parquet"):
        assert f"automethod:: combutab.MLPClassifier.{name}\n" in methods
    assert "get_params" not in methods


def test_every_activation_has_an_equation_and_a_plot():
    assert set(activation_pages.EQUATIONS) == set(ACTIVATIONS)
    with activation_pages.repeatable_svg():
        axes = activation_pages.draw("combu").axes
    assert [one.get_xlabel() for one in axes] == [
        f"x, a unit of {part}" for part in ("relu", "elu", "nlrelu")
    ]
    assert all(len(one.get_lines()) == 5 for one in axes)  # three curves and the zero lines


# ---- outputs of code ---------------------------------------------------------------------------

CODE = """# Title

```python
x = 2
print("x is", x)
x + 1
```

```text
x was 1
```

Then.

```python
import matplotlib.pyplot as plt

plt.figure()
f"{x} again"
```

```sh
combutab fit 'a table.csv' -o model
combutab predict model
```

```shell
combutab is not run
```

```python
import no_such_package
```
"""

CLI = "def main(words):\n    print(words, '\\n')\n    return words[0] == 'fail'\n"


@pytest.fixture
def page(tmp_path):
    (tmp_path / "combutab").mkdir()
    (tmp_path / "combutab" / "__init__.py").touch()
    (tmp_path / "combutab" / "cli.py").write_text(CLI)
    docs = tmp_path / "docs"
    (docs / "guide").mkdir(parents=True)
    (docs / "changelog.md").write_text(CODE)
    (docs / "plain.md").write_text("No code.")
    path = docs / "guide" / "page.md"
    path.write_text(CODE)
    return path


def test_outputs_are_stored_below_their_blocks(page):
    docs = page.parents[1]
    assert outputs.pages(docs) == [page]
    found = outputs.run_in_process(page, page.parents[2], page.parents[2])
    text = outputs.with_outputs(CODE, found, page, docs)
    page.write_text(text)
    commands = "['fit', 'a table.csv', '-o', 'model']\n\n['predict', 'model']\n"
    assert outputs.stored(page) == ["x is 2\n3\n", "'2 again'\n", commands, ""]
    assert text.count("![Figure drawn by the code above](../pictures/page_1.png)") == 1
    assert (docs / "pictures" / "page_1.png").exists()
    assert outputs.with_outputs(text, found, page, docs) == text
    described = text.replace("Figure drawn by the code above", "A line")
    assert outputs.with_outputs(described, found, page, docs) == described


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x = 2", "x = y", r"page\.md: a code block fails(?s:.*)'y' is not defined"),
        ("combutab predict", "combutab fail", "status True of combutab fail model"),
    ],
)
def test_a_block_that_fails_raises_an_error(page, old, new, message):
    page.write_text(CODE.replace(old, new))
    with pytest.raises(RuntimeError, match=message):
        outputs.run_in_process(page, page.parents[2], page.parents[2])


# ---- What the site adds to plain pages ---------------------------------------------------------


def test_the_site_links_names_and_styles_outputs():
    text = "# T\n\n`CombU` and `CombU`, [a](install.md), `no_name`.\n\n"
    text += (
        "```python\nprint(1)  # `CombU`\n```\n\n```text\n1\n```\n\n![b](pictures/explain_1.png)\n"
    )
    assert plain_pages.site_text("start", text, DOCS) == (
        "# T\n\n{py:obj}`CombU <combutab.CombU>` and `CombU`, [a](install.md), `no_name`.\n\n"
        "```python\nprint(1)  # `CombU`\n```\n\n```{code-block} text\n:class: output\n\n1\n```\n\n"
        "```{image} pictures/explain_1.png\n:alt: b\n:class: output\n```\n"
    )
    assert plain_pages.site_text("papers/index", text, DOCS) == text


def test_the_navigation_has_all_pages():
    listed = " ".join(plain_pages.TREES["index"])
    names = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert all(name in listed for name in names)
    chapters = {path.stem for path in (DOCS / "guide").glob("*.md")} - {"index"}
    assert chapters == set(plain_pages.TREES["guide/index"])


# ---- what readers search for -------------------------------------------------------------------


def test_searched_words_lead_to_pages():
    for words, page in search_words.WORDS.items():
        assert (DOCS / f"{page}.md").exists(), words
        assert words == words.lower()


# ---- parameters in groups ----------------------------------------------------------------------


def test_every_estimator_parameter_has_one_group():
    listed = " ".join(parameter_groups.GROUPS.values()).split()
    assert len(listed) == len(set(listed))
    classes = [
        getattr(combutab, kind + task)
        for kind in ("MLP", "TabM", "Pack")
        for task in ("Classifier", "Regressor")
    ]
    assert {name for cls in classes for name in inspect.signature(cls).parameters} == set(listed)


def test_examples_stand_before_parameters():
    lines = [
        "A model.",
        "",
        ":Parameters:",
        "",
        "    **a** : int",
        "",
        ".. rubric:: Notes",
        "",
        "N.",
    ]
    lines += ["", ".. rubric:: Examples", "", ">>> 1", "1", "", ":Attributes:", "", "    **b_**"]
    found = parameter_groups.examples_first(lines)
    assert found[2:6] == [".. rubric:: Examples", "", ">>> 1", "1"]
    assert found.index(":Parameters:") < found.index(".. rubric:: Notes") < len(found) - 3
    assert found[-3:] == [":Attributes:", "", "    **b_**"]
    assert parameter_groups.examples_first(found) == found


# ---- the packages ------------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path):
    """low <- middle <- high, and high -> low too."""
    sources = {
        "low": "",
        "middle": "from toy.low import x",
        "high": "def f():\n    import toy.middle\n    from toy import low",
    }
    for name, text in sources.items():
        folder = tmp_path / "toy" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f'"""{name.title()} <things>.\n\nMore."""\n')
        (folder / "_code.py").write_text(text)
    return tmp_path / "toy"


# ---- texts of the repository -------------------------------------------------------------------


def test_examples_begin_with_a_title():
    for path in sorted((ROOT / "examples").glob("*.py")):
        title, line, empty, *_ = ast.get_docstring(ast.parse(path.read_text("utf-8"))).splitlines()
        assert line == "=" * len(title), f"{path.name}: underline its first line, which is a title"
        assert not empty


# ---- reports -----------------------------------------------------------------------------------


def test_shown_reports_are_made():
    page = (DOCS / "reports.md").read_text("utf-8")
    reports = [name for name, _ in plain_pages.REPORT.findall(page)]
    assert sorted(reports) == sorted([*shown.REPORTS, *shown.BY_EXAMPLES])
    examples = [path.stem for path in (ROOT / "examples").glob("*.py")]
    assert set(shown.BY_EXAMPLES) <= set(examples)


# ---- the rest ----------------------------------------------------------------------------------


def test_every_command_is_shown():
    helps = command_pages.helps()
    assert {"compare", "synth", "evaluate"} <= set(helps)
    assert max(len(line) for text in helps.values() for line in text.splitlines()) <= 88
    assert "--target" in helps["compare"]


def test_this_version_is_among_those_to_switch_to():
    versions = json.loads((DOCS / "versions.json").read_text("utf-8"))
    assert combutab.__version__ in [entry["version"] for entry in versions]
    assert all({"name", "version", "folder"} <= set(entry) for entry in versions)
    preferred = [entry["version"] for entry in versions if entry.get("preferred")]
    assert preferred == [combutab.__version__]
    assert "dev" in [entry["version"] for entry in versions]
    (name,) = (entry["name"] for entry in versions if entry.get("preferred"))
    heading = f"## [{combutab.__version__}] - "
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    (dated,) = (line for line in log.splitlines() if line.startswith(heading))
    assert ("unreleased" in name) == ("unreleased" in dated)


def test_one_command_builds_and_ci_runs_it():
    command = "python -m sphinx -W --keep-going docs docs/_build/html"
    check = "python docs/check_site.py docs/_build/html"
    for path in (".ci/run", "CONTRIBUTING.md"):
        text = (ROOT / path).read_text("utf-8")
        assert command in text, path
        assert check in text, path
    asked = " ".join(PYPROJECT["project"]["optional-dependencies"]["docs"])
    wanted = ("sphinx", "numpydoc", "pydata-sphinx-theme", "sphinx-gallery", "myst-parser")
    assert all(name in asked for name in wanted)


def test_the_workflow_runs_what_the_script_runs():
    yaml = pytest.importorskip("yaml", reason="needs the extra yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    script = (ROOT / ".ci" / "run").read_text("utf-8").replace(" install -q", " install")
    for command in runs:
        assert command.replace(" python3.11 python3.12 python3.13", "") in script, command
    for check in ("pytest", "pytest -m slow", "ruff check", "ruff format --check", "mypy"):
        assert check in runs
    assert any(command.startswith(".ci/package") for command in runs)
    versions = [line.rsplit(" ")[-1] for line in PYPROJECT["project"]["classifiers"]]
    assert set(jobs["tests"]["strategy"]["matrix"]["python"]) <= set(versions)


PAGE = """<!DOCTYPE html><html lang="en"><head><title>t</title>
<link rel="stylesheet" href="_static/a.css"></head><body><a href="#main-content">Skip</a>
<h1 id="main-content">t</h1>{}</body></html>"""


def test_faults_of_a_site_are_found(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "a.css").write_text("")
    body = '<p id="here"></p><a href="https://x.org">x</a><pre>```\n| --- | **f</pre><p>2**x</p>'
    (tmp_path / "b.html").write_text(PAGE.format(body))
    (tmp_path / "a.html").write_text(PAGE.format('<a href="b.html#here">b</a><a href="#">top</a>'))
    assert check_site.faults(tmp_path) == []
    assert check_site.main(str(tmp_path)) == 0
    bad = {
        '<a href="none.html">x</a>': "a link to nothing: none.html",
        '<a href="b.html#there">x</a>': "a link to no such place: b.html#there",
        '<img src="_static/a.css">': "a picture without a text: _static/a.css",
        '<script src="https://x.org/a.js"></script>': "loads from another host: https://x.org/a.js",
        '<iframe src="b.html"></iframe>': "a frame without a title: b.html",
        "<h1>again</h1>": "it has not one heading of the first level",
        "<p>a: | x | y |\n| --- | --- |</p>": "Markdown that was not rendered: | --- | --- |",
        "<p>b: ```\n1 2\n```</p>": "Markdown that was not rendered: ```",
        "<p>see {doc}`guide`</p>": "Markdown that was not rendered: {doc}`guide`",
    }
    for html, fault in bad.items():
        (tmp_path / "a.html").write_text(PAGE.format(html))
        assert check_site.faults(tmp_path) == [f"a.html: {fault}"]
    assert check_site.main(str(tmp_path)) == 1
