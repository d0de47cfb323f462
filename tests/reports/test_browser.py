"""Both pages in a real browser: seen, read, used and printed as they are meant to be.

The names and values in them try to be more than text.
"""

import html

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from torch import nn

from combutab import MLPClassifier
from combutab.model_selection import compare_activations
from combutab.reports import evaluate_synthetic, render_report, report_model
from tests.reports.page_checks import CHECKS, look, structure

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_reports")]

SCRIPT = "<script>document.title='owned'</script>"
IMAGE = '"><img src=x onerror="document.title=\'owned\'">'


def flats(n_rows, seed, n_columns=6):
    """A table with numbers, dates, classes, gaps, and a column and a category that are attacks."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    columns = {
        "area": np.where(rng.random(n_rows) < 0.1, np.nan, np.exp(x).round(2)),
        SCRIPT: x + rng.normal(size=n_rows),
        IMAGE: rng.choice([SCRIPT, IMAGE, "plain"], n_rows),
        "built": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n_rows), "D"),
        "rooms": rng.integers(1, 6, n_rows),
        "let": np.where(x + rng.normal(size=n_rows) > 0, "yes", "no"),
    }
    for i in range(n_columns - len(columns)):
        words = [f"category {k} of column {i}" for k in range(12)]
        values = rng.choice(words, n_rows) if i % 2 else rng.gamma(2.0, size=n_rows) + x
        columns[f"a column with a long name: {i}"] = values
    return pd.DataFrame(columns)


def evaluated(n_columns, **options):
    tables = {"real_train": 0, "synthetic": 1, "real_test": 2}
    return evaluate_synthetic(
        **{name: flats(150, seed, n_columns) for name, seed in tables.items()},
        target="let",
        learners=["linear"],
        made={"Class": "CTGAN", "File": SCRIPT},
        names={"real": "flats.csv", "synthetic": SCRIPT, "test": IMAGE},
        **options,
    )


def database():
    """A real, a synthetic and a held-out database, with names that are attacks."""
    databases = []
    for seed in range(3):
        parents, children = flats(120, seed), flats(300, 10 + seed)
        parents[IMAGE + "key"] = [f"{seed}-{i}" for i in range(120)]
        children["flat"] = np.random.default_rng(seed).choice(parents[IMAGE + "key"], 300)
        rooms = pd.DataFrame({"rooms": range(1, 6), "beds": range(5)})
        databases.append({SCRIPT: parents, "visits": children, "sizes": rooms})
    return evaluate_synthetic(
        **dict(zip(("real_train", "synthetic", "real_test"), databases, strict=True)),
        keys=[("visits", "flat", SCRIPT, IMAGE + "key"), ("visits", "rooms", "sizes")],
        lookup=["sizes"],
        order_by={"visits": "built"},
        made={"File": SCRIPT},
        names={"real": "flats", "synthetic": SCRIPT, "test": IMAGE},
    )


def compared():
    X, y = load_iris(return_X_y=True, as_frame=True)
    silent = nn.Threshold(
        float("inf"), 0.0
    )  # learns nothing: significantly different from those that do
    return compare_activations(
        X,
        y,
        activations={"relu": "relu", SCRIPT: "combu", IMAGE: lambda width: silent},
        seeds=1,
        folds=4,
        epochs=20,
        hidden=[16],
        name=SCRIPT,
        refit=False,
        estimator_params={"learning_rate_init": 0.01},
    )


def modelled():
    train, rows = flats(120, 0, 8), flats(120, 1, 8)
    rows["let"] = rows["let"].replace("yes", SCRIPT)
    train["let"] = train["let"].replace("yes", SCRIPT)
    clf = MLPClassifier(max_iter=3, n_iter_no_change=np.inf, random_state=0, max_onehot=10)
    clf.fit(train.drop(columns="let"), train["let"])
    return report_model(
        clf,
        rows.drop(columns="let"),
        rows["let"],
        explain=rows.drop(columns="let")[:1],
        target=IMAGE,
        facts={"File": SCRIPT},
        warnings=[SCRIPT],
        file=SCRIPT,
        n_repeats=2,
    )


PAGES = {
    "model": modelled,
    "synthetic": lambda: evaluated(6),
    "synthetic, 50 columns": lambda: evaluated(50),
    "comparison": compared,
    "database": database,
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """page(name): the file of a page, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def page(name):
        if name not in made:
            path = folder / f"{name}.html"
            path.write_text(render_report(PAGES[name]()), "utf-8")
            made[name] = path
        return made[name]

    return page


OF_MANY_COLUMNS = {"figures", "width", "tables", "printing"}  # what more of them might change


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, id=f"{name}-{check.__name__}")
        for name in PAGES
        for check in CHECKS
        if name != "synthetic, 50 columns" or check.__name__ in OF_MANY_COLUMNS
    ],
)
def test_pages(browser, page, name, check):
    assert check(browser, page(name)) == []


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("synthetic", [f"150 in {SCRIPT}", f"150 in {IMAGE}", f"File\n{SCRIPT}"]),
        ("database", [SCRIPT, f"{IMAGE}key", f"File\n{SCRIPT}"]),
        ("model", [SCRIPT, f"Prediction of {IMAGE}", f"combutab predict {SCRIPT}"]),
        ("comparison", [SCRIPT, IMAGE, f"{SCRIPT}: which activation is best?"]),
    ],
)
def test_names_and_values_are_text(browser, page, name, texts):
    browser.open(page(name))
    assert browser.title.startswith((SCRIPT, "Prediction of"))
    look(browser, "openAll")
    shown = browser.ask("return document.body.innerText")
    assert [text for text in texts if text not in shown] == []


# ---- the checks find what is wrong -----------------------------------------------------------


def test_names_that_are_more_than_text_are_found(browser, page, tmp_path):
    """A page that does not escape has active parts; its policy stops them, not the check."""
    broken = tmp_path / "broken.html"
    text = html.unescape(page("comparison").read_text("utf-8"))
    broken.write_text(text, "utf-8")
    wrong = structure(browser, broken)
    assert any("script" in line for line in wrong)
    assert any("onerror" in line for line in wrong)
    assert browser.title != "owned"
    assert any("violates" in line for line in browser.problems())
    broken.write_text(
        text.replace("default-src 'none';", "default-src * 'unsafe-inline';"), "utf-8"
    )
    browser.open(broken)
    assert browser.title == "owned"
