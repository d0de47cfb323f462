"""The page of a comparison: its numbers, its picture and its words, read back from the HTML."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from torch import nn

from combutab.model_selection import compare_activations
from combutab.reports import render_report, write_report
from combutab.reports.comparison._chart import dot_plot

SMALL = {"seeds": 2, "folds": 4, "hidden": [16], "refit": False}
SMALL["estimator_params"] = {"learning_rate_init": 0.01}


@pytest.fixture(scope="module")
def classified():
    silent = nn.Threshold(float("inf"), 0.0)  # learns nothing: told apart from those that do
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
        metric="mae",
        test="wilcoxon",
        name="diabetes",
    )


def elements(page, tag):
    """All elements of a tag that are not within another of it, as trees."""
    texts = re.findall(rf"<{tag}[ >].*?</{tag}>", page, re.DOTALL)
    return [ElementTree.fromstring(text.replace("<br>", "\n")) for text in texts]


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
    header, *rows = table(render_report(classified), "The activations, the best first; accuracy")
    assert header[:2] == ["Activation", "Mean"]
    summary = classified.summary
    assert [row[0] for row in rows] == summary["activation"].tolist()
    numbers = [[float(n) for n in re.findall(r"\d+\.\d+", " ".join(row[1:4]))] for row in rows]
    wanted = summary[["mean", "low", "high", "mean_rank"]].to_numpy()
    np.testing.assert_allclose(numbers, wanted, atol=0.00501)
    np.testing.assert_allclose(np.array(numbers)[:, :3], wanted[:, :3], atol=0.0000501)
    apart = {"silent": "told apart"}
    verdicts = [
        "the best",
        *(apart.get(name, "not told apart") for name in summary["activation"][1:]),
    ]
    assert [row[5] for row in rows] == verdicts
    assert rows[0][4] == "–"
    for shown, p in zip([row[4] for row in rows[1:]], summary["p"][1:], strict=True):
        assert shown == ("< 0.0001" if p < 1e-4 else f"{p:.4f}")


def test_folds_and_other_measures_are_means_of_the_fits(classified):
    page, results = render_report(classified), classified.results
    header, *rows = table(page, "Scores by fold")
    assert header == ["Activation", "1", "2", "3", "4"]
    for name, *scores in rows:
        of_name = results[results["activation"] == name]
        wanted = [of_name[of_name["fold"] == fold]["accuracy"].mean() for fold in range(4)]
        np.testing.assert_allclose(np.array(scores, dtype=float), wanted, atol=0.0000501)
    header, *rows = table(page, "Means of all measures")
    assert [each.split("\n")[0] for each in header[1:]] == [
        *("accuracy", "macro F1", "log loss", "ROC AUC")
    ]
    assert [each.split("\n")[1] for each in header[1:]] == [
        f"{way} is better" for way in ("higher", "higher", "lower", "higher")
    ]
    assert [name for name, *_ in rows[3:]] == classified.baselines["baseline"].tolist()
    fits = pd.concat(
        [results, classified.baseline_results.rename(columns={"baseline": "activation"})]
    )
    for name, *scores in rows:
        wanted = fits[fits["activation"] == name][["accuracy", "f1", "log_loss", "roc_auc"]]
        np.testing.assert_allclose(
            np.array(scores, dtype=float), wanted.mean(), rtol=0.001, atol=0.0005
        )


def test_the_head_and_the_settings(classified, regressed):
    shown = text(render_report(classified))
    assert all(line.replace("&", "&amp;") in shown for line in classified.sentences.splitlines())
    assert "Rows 150 Task classification Compared by accuracy (higher is better)" in shown
    assert "24 networks: 3 activations, 4 folds x 2 seeds, 20 epochs" in shown
    assert "Hidden layers 16 units" in shown
    assert "learning_rate_init 0.01" in shown
    assert "corrected resampled t-test" in shown
    assert f"numpy {np.__version__}" in shown
    shown = text(render_report(regressed))
    assert "Rows 442 Task regression Compared by MAE in standard deviations of the" in shown
    assert "MSE is in variances of the target." in shown
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
    assert len(table(page, "Means of all measures")) == 3 + len(classified.baselines)
    assert len(table(page, "Scores by fold")) == 3
    assert "24 networks: 3 activations" in text(page)
    assert "nan" not in text(page)


def test_a_measure_that_is_not_known_is_a_dash(classified):
    results = classified.results.assign(roc_auc=np.nan)
    rows = table(render_report(replace(classified, results=results)), "Means of all measures")
    assert [row[4] for row in rows[1:4]] == ["–"] * 3


def test_what_is_no_report(classified, tmp_path):
    with pytest.raises(TypeError, match="got a DataFrame"):
        render_report(classified.results)
    write_report(classified, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == render_report(classified)


# ---- the picture -----------------------------------------------------------------------------


def test_marks_stand_where_their_numbers_are(classified):
    """Ticks give the scale: positions of all marks are read off against it."""
    plot = dot_plot(classified.results, classified.summary, "accuracy")
    places, labels = zip(*plot.ticks, strict=True)
    slope, start = np.polyfit(places, np.array(labels, dtype=float), 1)
    folds = classified.results.pivot_table(index="activation", columns="fold", values="accuracy")
    for marks, (_, line) in zip(plot.rows, classified.summary.iterrows(), strict=True):
        found = np.array([marks.mean, marks.low, marks.high]) * slope + start
        np.testing.assert_allclose(found, line[["mean", "low", "high"]].astype(float), atol=1e-9)
        dots = np.array([x for x, _ in marks.folds]) * slope + start
        np.testing.assert_allclose(dots, folds.loc[line["activation"]], atol=1e-9)
        assert marks.apart == (line["activation"] == "silent")


def test_the_picture_holds_the_marks(classified):
    (picture,) = [each for each in elements(render_report(classified), "svg") if each.get("role")]
    _, _, width, height = map(float, picture.get("viewBox").split())
    assert float(picture.get("width")) == width
    circles = [
        [float(each.get(part)) for part in ("cx", "cy", "r")] for each in picture.iter("circle")
    ]
    n_near = sum(not marks.beyond for marks in chart(classified).rows[3:])
    assert sorted(r for _, _, r in circles) == [3.0] * 4 * (3 + n_near) + [5.5] * 2
    assert all(r <= x <= width - r and r <= y <= height - r for x, y, r in circles)
    names = [each.text for each in picture.iter("text") if each.get("x") == "0"]
    below = classified.baselines["baseline"].tolist()
    assert names == [*classified.summary["activation"], *below]
    described = picture.find("desc").text
    apart = classified.baselines["distinguishable"].sum()
    assert described.count("told apart from the best") == 1 + apart
    assert f"silent: mean {classified.summary['mean'].iloc[-1]:.4g}" in described


def chart(found):
    frames = found.results, found.summary, found.metric
    return dot_plot(*frames, found.baselines, found.baseline_results)


def made_up(scores):
    """Results and summary of activations whose folds have these scores."""
    records = [
        {"activation": name, "fold": fold, "score": value}
        for name, values in scores.items()
        for fold, value in enumerate(values)
    ]
    summary = pd.DataFrame(
        {
            "activation": list(scores),
            "mean": [np.mean(values) for values in scores.values()],
            "low": [min(values) for values in scores.values()],
            "high": [max(values) for values in scores.values()],
            "distinguishable": False,
        }
    )
    return pd.DataFrame(records), summary


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0, 1.0], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([-0.3, 0.5], ["-0.2", "0.0", "0.2", "0.4"]),
        ([0.5, 0.5], ["0.48", "0.49", "0.50", "0.51", "0.52"]),
        ([0.0, 0.0], ["-0.4", "-0.2", "0.0", "0.2", "0.4"]),
        ([0.9993, 0.9999], ["0.9993", "0.9994", "0.9995", "0.9996", "0.9997", "0.9998", "0.9999"]),
        ([0.0, 2.5e9], ["0", "5e+08", "1e+09", "1.5e+09", "2e+09", "2.5e+09"]),
        ([0.0, 6e-9], ["0", "1e-09", "2e-09", "3e-09", "4e-09", "5e-09", "6e-09"]),
        ([0.0, 34_000.0], ["0", "10,000", "20,000", "30,000"]),
    ],
)
def test_ticks_are_round_numbers_within_the_axis(values, labels):
    plot = dot_plot(*made_up({"a": values}), "score")
    assert [label for _, label in plot.ticks] == labels
    places = [x for x, _ in plot.ticks]
    assert plot.left < places[0] < places[-1] < plot.left + 420
    np.testing.assert_allclose(np.diff(places), places[1] - places[0])


def test_long_names_have_room_and_an_end():
    plot = dot_plot(*made_up({"a" * 60: [0.1, 0.2], "b": [0.1, 0.3]}), "score")
    assert re.fullmatch(r"a{8,12}…a{4,8}", plot.rows[0].name)
    short = dot_plot(*made_up({"b": [0.1, 0.3]}), "score")
    assert plot.left > 100 > 30 > short.left
    assert "a" * 60 in plot.words
