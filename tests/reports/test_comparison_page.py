"""The page of a comparison: its numbers, its picture and its words, read back from the HTML."""

import re
from dataclasses import replace
from html import escape
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import TimeSeriesSplit
from torch import nn

from combutab.model_selection import (
    ActivationComparison,
    compare_activations,
    compare_models,
)
from combutab.reports import render_report
from combutab.reports._comparison import verdict_cards

pytestmark = pytest.mark.usefixtures("few_trees")

SMALL = {"seeds": 2, "folds": 4, "hidden": [16], "refit": False, "recipe": "paper"}
SMALL["estimator_params"] = {"learning_rate_init": 0.01}


@pytest.fixture(scope="module")
def classified():
    silent = nn.Threshold(
        float("inf"), 0.0
    )  # learns nothing: significantly different from those that do
    activations = {"relu": "relu", "silent": lambda width: silent, "combu & co": "combu"}
    return compare_activations(
        *load_iris(return_X_y=True), **SMALL, activations=activations, epochs=20, name="iris"
    )


@pytest.fixture(scope="module")
def regressed():
    return compare_activations(
        *load_diabetes(return_X_y=True),
        **SMALL | {"seeds": 1},
        activations=["relu", "tanh"],
        epochs=3,
        scoring="mae",
        test="wilcoxon",
        name="diabetes",
    )


def test_rows_of_a_split_by_time_are_those_of_the_last_fold():
    X, y = load_diabetes(return_X_y=True)
    models = {"linear": LinearRegression()}
    found = compare_models(X[:100], y[:100], models=models, cv=TimeSeriesSplit(4), refit=False)
    assert "Rows of the largest fold 100 Task" in text(render_report(found))


def elements(page, tag):
    """All elements of a tag that are not within another of it, as trees."""
    texts = re.findall(rf"<{tag}[ >].*?</{tag}>", page, re.DOTALL)
    return [
        ElementTree.fromstring(text.replace("<br>", "\n").replace("&nbsp;", "\xa0"))
        for text in texts
    ]


def tables(page):
    """Caption -> rows of text, the header first."""
    return {
        "".join(table.find("caption").itertext()): [
            ["".join(cell.itertext()) for cell in row] for row in table.iter("tr")
        ]
        for table in elements(page, "table")
    }


def table(page, caption):
    (rows,) = [rows for name, rows in tables(page).items() if name.startswith(caption)]
    return rows


def text(page):
    """The page's text without its style, spaces and line ends made one."""
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


# ---- numbers ---------------------------------------------------------------------------------


def test_the_summary_is_shown_the_best_first(classified):
    header, *rows = table(
        render_report(classified), "Activation functions, the best first: accuracy"
    )
    assert header[:2] == ["Activation", "Mean"]
    summary = classified.summary
    assert [row[0] for row in rows] == summary["activation"].tolist()
    numbers = [[float(n) for n in re.findall(r"\d+\.\d+", " ".join(row[1:4]))] for row in rows]
    wanted = summary[["mean", "low", "high", "mean_rank"]].to_numpy()
    np.testing.assert_allclose(numbers, wanted, atol=0.00501)
    np.testing.assert_allclose(np.array(numbers)[:, :3], wanted[:, :3], atol=0.000501)
    apart = {"silent": "significantly different"}
    verdicts = [
        "best",
        *(apart.get(name, "not significantly different") for name in summary["activation"][1:]),
    ]
    assert [row[5] for row in rows] == verdicts
    assert rows[0][4] == "–"
    for shown, p in zip([row[4] for row in rows[1:]], summary["p"][1:], strict=True):
        if p < 1e-4:
            assert shown == "< 0.0001"
        else:
            assert float(shown) == pytest.approx(p, rel=0.06, abs=0.00006)


def test_fold_scores_are_means_over_seeds(classified):
    page, results = render_report(classified), classified.results
    header, *rows = table(page, "Scores by fold")
    assert header == ["Activation", "1", "2", "3", "4"]
    for name, *scores in rows:
        of_name = results[results["activation"] == name]
        wanted = [of_name[of_name["fold"] == fold]["accuracy"].mean() for fold in range(4)]
        np.testing.assert_allclose(np.array(scores, dtype=float), wanted, atol=0.000501)
    header, *rows = table(page, "Means of the metrics")
    names = ["accuracy", "ROC AUC", "log loss", "balanced accuracy", "average precision", "F1"]
    ways = ["↑", "↑", "↓", *["↑"] * 3]
    assert [each.split("\xa0") for each in header[1:]] == [
        *map(list, zip(names, ways, strict=True))
    ]
    assert [name for name, *_ in rows[3:]] == classified.baselines["baseline"].tolist()
    fits = pd.concat(
        [results, classified.baseline_results.rename(columns={"baseline": "activation"})]
    )
    for name, *scores in rows:
        names = ["accuracy", "roc_auc", "log_loss", "balanced_accuracy", "average_precision", "f1"]
        wanted = fits[fits["activation"] == name][names]
        np.testing.assert_allclose(
            np.array(scores, dtype=float), wanted.mean(), rtol=0.001, atol=0.0005
        )


def test_the_head_and_the_settings(classified, regressed):
    shown = text(render_report(classified))
    assert all(escape(line, quote=False) in shown for line in classified.sentences.splitlines())
    assert "Rows 150 Task classification Metric accuracy (higher is better)" in shown
    assert "24 networks: 3 activations, 4 folds x 2 seeds, 20 epochs" in shown
    assert "Hidden layers 16 units" in shown
    assert "learning_rate_init 0.01" in shown
    assert "corrected resampled t-test" in shown
    assert f"numpy {np.__version__}" in shown
    shown = text(render_report(regressed))
    assert "Rows 442 Task regression Metric MAE in standard deviations of the" in shown
    assert "RMSE is in standard deviations of the target." in shown
    assert "Wilcoxon" in shown
    assert "Nadeau" not in shown


def test_an_activation_that_failed_is_told_of(classified):
    results = classified.results.copy()
    scores = ["accuracy", "f1", "log_loss", "roc_auc"]
    results.loc[(results["activation"] == "silent") & (results["fold"] == 1), scores] = np.nan
    summary = classified.summary[classified.summary["activation"] != "silent"]
    words = f"{classified.sentences}\nsilent is left out, 2 of its 8 fits failed: it diverged"
    page = render_report(replace(classified, results=results, summary=summary, sentences=words))
    assert "silent is left out, 2 of its 8 fits failed: it diverged" in text(page)
    assert len(table(page, "Means of the metrics")) == 3 + len(classified.baselines)
    assert len(table(page, "Scores by fold")) == 3
    assert "24 networks: 3 activations" in text(page)
    assert "nan" not in text(page)


def test_unknown_metric_is_a_dash(classified):
    results = classified.results.assign(roc_auc=np.nan)
    rows = table(render_report(replace(classified, results=results)), "Means of the metrics")
    assert [row[2] for row in rows[1:4]] == ["–"] * 3


# ---- the picture -----------------------------------------------------------------------------


def picture(found):
    (svg,) = [each for each in elements(render_report(found), "svg") if each.get("role")]
    return svg


def renamed(found, name):
    """The comparison with another name for relu."""
    frames = {
        which: getattr(found, which).replace({"activation": {"relu": name}})
        for which in ("results", "summary")
    }
    return replace(found, **frames)


def test_page_ignores_matplotlib_settings(classified):
    expected = render_report(classified)
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red"}):
        assert render_report(classified) == expected
        assert matplotlib.rcParams["font.size"] == 30


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a" * 60, "a{14}…a{9}"),
        ("$x^2$ </svg><b>", re.escape("$x^2$ </svg><b>")),
        ("#0072b2; fill: #123456", re.escape("#0072b2; fill: #123456")),
        ("\x1b[2J\ufffe\udfffa\n b", re.escape("\\x1b[2J\\ufffe\\udfffa b")),
        ("中文列名" * 7, "[中文列名]{14}…[中文列名]{9}"),
    ],
)
def test_names_are_short_text_that_does_nothing(regressed, name, shown):
    svg = picture(renamed(regressed, name))
    texts = [each.text for each in svg.iter("text") if "end" in each.get("style")]
    assert [text for text in texts if re.fullmatch(shown, text)], texts
    assert (
        name.translate({27: "\\x1b", 0xFFFE: "\\ufffe", 0xDFFF: "\\udfff"}) in svg.find("desc").text
    )
    # ten-point letters are no wider than this, so that wide ones are no reason to be cut off
    for each in texts:
        wide = sum(12.5 if letter > "\u2e80" else 6.4 for letter in each)
        (place,) = {float(text.get("x")) for text in svg.iter("text") if text.text == each}
        assert float(svg.get("viewBox").split()[0]) <= place - wide + 1e-6


# ---- the cards -------------------------------------------------------------------------------


def scored(p, mean=0.9, p_guess=0.001, learners=()):
    """Three activations with p-values beside the best, the guess, and learners: mean and p."""
    summary = pd.DataFrame(
        {
            "activation": ["relu", "gelu", "tanh"],
            "mean": [mean, mean - 0.01, mean - 0.02],
            "low": mean - 0.05,
            "high": mean + 0.05,
            "distinguishable": [False, *(each < 0.05 for each in p)],
            "p_guess": p_guess,
            "beats_guess": p_guess < 0.05,
        }
    )
    rows = [("guess", 0.5, p_guess), *learners]
    baselines = pd.DataFrame(rows, columns=["baseline", "mean", "p"])
    baselines["distinguishable"] = baselines["p"] < 0.05
    return ActivationComparison(
        *("data", "classification", "accuracy", pd.DataFrame(), summary, "", "relu", None, {}),
        baselines=baselines,
        baseline_results=pd.DataFrame({"baseline": ["guess"], "accuracy": [0.5]}),
        guess_metric="accuracy",
    )


@pytest.mark.parametrize(
    ("found", "levels", "says"),
    [
        (scored([0.01, 0.02]), ["good", "good"], "relu is the best."),
        (scored([0.3, 0.2]), ["unknown", "good"], "No activation function is clearly the best."),
        (scored([0.3, 0.02]), ["fair", "good"], "relu and gelu are not significantly different."),
        (
            scored([0.3, 0.2], p_guess=0.4),
            ["unknown", "poor"],
            "No activation function is significantly better than guessing by accuracy.",
        ),
        (
            scored([0.3, 0.2], learners=[("linear", 0.95, 0.01), ("boosting", 0.8, 0.01)]),
            ["unknown", "good", "poor"],
            "Linear is significantly better than relu.",
        ),
        (
            scored([0.3, 0.2], learners=[("linear", 0.85, 0.01), ("boosting", 0.8, 0.01)]),
            ["unknown", "good", "good"],
            "relu is significantly better than linear and boosting.",
        ),
        (
            scored([0.3, 0.2], learners=[("linear", 0.85, 0.01), ("boosting", 0.95, 0.5)]),
            ["unknown", "good", "fair"],
            "Boosting is not significantly different from relu.",
        ),
    ],
)
def test_cards_say_what_the_tests_found(found, levels, says):
    cards = verdict_cards(found)
    assert [card.level for card in cards] == levels
    assert says in [card.short for card in cards]


def test_cards_have_scores_that_people_say():
    _, guess, learners = verdict_cards(scored([0.3, 0.2], learners=[("linear", 0.953, 0.5)]))
    assert guess.short == "relu predicts the correct class for 90.0 % of the test rows."
    assert guess.sentences == (
        "Guessing (always the most frequent class) predicts the correct class for 50.0 % of the "
        "test rows.",
        "95 % interval of the mean accuracy: 85.0 % to 95.0 %.",
    )
    assert learners.sentences == ("Accuracy: relu 90.0 %, linear 95.3 %.",)


def test_cards_without_baselines_or_others():
    found = scored([0.3, 0.2])
    alone = found.summary.iloc[:1].drop(columns=["p_guess", "beats_guess"])
    nothing = dict.fromkeys(["baselines", "baseline_results"], pd.DataFrame())
    cards = verdict_cards(replace(found, summary=alone, **nothing))
    assert [card.word for card in cards] == ["only one", "not tested"]
