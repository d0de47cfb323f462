"""README.md says what is so: its blocks run, its commands exist, what it leads to is complete."""

import inspect
import re

import pytest
import sklearn.neural_network

import combutab
from combutab import ACTIVATIONS, MLPClassifier, MLPRegressor
from tests.code_blocks import PYPROJECT, ROOT, blocks, check_command, commands, run_python

PAGE = ROOT / "README.md"
README = PAGE.read_text("utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8").splitlines()


def section(page, title):
    """A section of a chapter of the guide, which the README leads to."""
    text = (ROOT / "docs" / "guide" / page).read_text("utf-8")
    heading = re.escape(title)
    return re.search(rf"^##+ {heading}\n(.*?)(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE)[1]


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(blocks(PAGE, "python")) == 3
    namespace = run_python(PAGE)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("comparison.png", "rent.safetensors", "report.html"),
    }
    # the models have learned something
    flats, test = namespace["flats"], namespace["test"]
    assert namespace["clf"].score(flats[test], namespace["segment"][test]) > 0.8
    assert namespace["reg"].score(flats[test], namespace["rent"][test]) > 0.7


def test_shell_commands_exist(monkeypatch, capsys):
    found = commands(PAGE)
    for words in found:
        check_command(words, monkeypatch, capsys)
    assert {words[0] for words in found} == {"python", "combutab", "pytest"}


def test_ci_runs_the_readmes_test_command():
    (line,) = [
        line
        for _, text in blocks(PAGE, "sh")
        for line in text.splitlines()
        if line.endswith("pytest")
    ]
    assert f"({line})" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        assert (ROOT / path).exists(), link
        text = (ROOT / path).read_text("utf-8") if anchor else ""
        titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
        assert not anchor or anchor in slugs, link


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


def test_what_the_differences_say():
    """Those that another test does not hold; numbers as the chapter gives them."""
    import numpy as np

    X, y = np.array([[1.0], [2.0], [3.0]] * 10), np.array([0, 1, 2] * 10)
    quick = {"max_iter": 2, "n_iter_no_change": np.inf, "random_state": 0}
    clf = MLPClassifier(**quick).fit(X, y, sample_weight=(y < 2).astype(float))
    assert clf.classes_.tolist() == [0, 1]
    assert clf.predict_proba(X).dtype == np.float64
    assert clf.predict_proba(X.astype(np.float32)).dtype == np.float64
    with pytest.raises(AttributeError):
        clf.coefs_ = []
    with pytest.raises(ValueError, match="Negative values"):
        clf.fit(X, y, sample_weight=-np.ones(30))
    assert MLPClassifier().batch_size == "auto"

    reg = MLPRegressor(**quick).fit(X, y)
    assert reg.predict(X).dtype == np.float64
    for _ in range(2):
        reg.partial_fit(X, y)
    assert reg.n_iter_ == 4
    lbfgs = MLPRegressor(solver="lbfgs", max_iter=200, tol=0.01).fit(X, y)
    assert lbfgs.t_ > 0
    assert lbfgs.validation_scores_ is None

    strings = X.astype(str).astype(object)
    quick["numeric_embedding"] = "none"  # which would make more of a number
    assert MLPClassifier(**quick).fit(strings, y).coefs_[0].shape[0] == 3
    numbers = MLPClassifier(**quick, categorical_features=None).fit(strings, y)
    assert numbers.coefs_[0].shape[0] == 1
    rates = MLPClassifier(**quick, learning_rate="invscaling").fit(X, y).history_["learning_rate"]
    assert rates.iloc[1] < rates.iloc[0]


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
    for extra in ("formulas", "parquet", "sdv", "openml", "onnx", "distributed", "docs"):
        wanted += extras[extra]
    for requirement in wanted:
        name = re.match(r"[\w.-]+", requirement)[0].lower()
        assert name == "combutab" or name in normal, requirement
