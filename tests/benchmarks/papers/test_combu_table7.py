"""Table 7's study: rows can be repeated, a kill loses nothing finished, the report counts right."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.papers.combu import generation, generation_report
from benchmarks.papers.combu import table7_generation as table7
from benchmarks.papers.combu.generation import KEY, Generator, Score
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import Recipe
from benchmarks.papers.common.page import Page
from combutab import CTGAN, TVAE, MLPRegressor

FOLDER = Path(__file__).parents[3] / "benchmarks"


GS = Source("formula", "gs", "regression", n_samples=150)
LABELS = replace(GS, task="classification")
RECIPE = Recipe(hidden=(8,), epochs=2)


def make_scores(
    source=GS, models=("tvae",), activations=("relu", "combu"), seeds=(0, 1), samples=2,
    learners=("mlp", "boosting"),
):  # fmt: skip
    makers = [
        maker
        for seed in seeds
        for maker in (
            Generator(source, "real", "real", seed, 0, 1),
            *(Generator(source, m, a, seed, 1, samples) for m in models for a in activations),
        )
    ]
    return [
        Score(maker, sample, learner, RECIPE)
        for maker in makers
        for sample in range(maker.n_samples)
        for learner in learners
    ]


def run(folder, scores):
    work = folder / "samples"
    experiment = replace(
        table7.SCORES,
        name="rows",
        jobs=lambda arguments: table7.score_jobs(scores, work),
        prepare=lambda arguments, has: table7.generate_missing(
            scores, work, has, n_jobs=1, device="cpu"
        ),
    )
    rows = experiment.complete(Namespace(out=folder, jobs=1))
    table7.clear(scores, rows, work)
    return rows


def write_report(folder, rows):
    page = Page("x", "Table 7", "python x.py")
    generation_report.write_report(page, folder, rows)
    page.write(folder)
    return (folder / "x.md").read_text()


def numbers_of(rows):
    return rows[[*KEY, "mae", "mse", "r2", "accuracy", "f1", "roc_auc", "n_train"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table7")
    return run(folder, make_scores()), folder


# ---- rows ----------------------------------------------------------------------------------------


def test_a_row_for_each_sample_and_learner_in_order(finished):
    rows, folder = finished
    keys = (
        rows[["model", "activation", "seed", "sample", "learner"]].astype(str).agg(" ".join, axis=1)
    )
    expected = [
        f"{model} {activation} {seed} {sample} {learner}"
        for seed in (0, 1)
        for model, activation, samples in (
            ("real", "real", 1), ("tvae", "relu", 2), ("tvae", "combu", 2),
        )
        for sample in range(samples)
        for learner in ("mlp", "boosting")
    ]  # fmt: skip
    assert keys.tolist() == expected
    assert (rows["error"] == "").all()
    assert (rows.loc[rows["model"] == "tvae", "stack"] == 2).all()
    assert not (folder / "samples").exists(), "what was scored is cleared away"


@pytest.mark.parametrize(("model", "kind"), [("ctgan", CTGAN), ("tvae", TVAE)])
def test_samples_are_those_of_a_generator_trained_alone(tmp_path, model, kind):
    makers = [Generator(LABELS, model, name, 3, 2, 2) for name in ("relu", "combu")]
    generation.generate(makers, tmp_path, "cpu")
    train, _ = generation.split(LABELS)
    alone = kind(epochs=2, activation="combu", random_state=3, device="cpu").fit(train)
    for number in (0, 1):
        made = makers[1].sample(number, tmp_path)
        expected = alone.sample(len(train), random_state=30 + number)
        assert made.dtypes.to_dict() == train.dtypes.to_dict()
        pd.testing.assert_frame_equal(made, expected, rtol=1e-3)
    facts = json.loads((makers[1].folder(tmp_path) / "facts.json").read_text())
    assert facts["stack"] == 2
    assert facts["error"] == ""


def test_scores_can_be_repeated_from_what_a_row_says(tmp_path):
    scores = make_scores(seeds=(1,))
    generation.generate([scores[-1].generator], tmp_path, "cpu")
    last_mlp, last_boosting = generation.score_together(scores[-2:], tmp_path)
    train, test = generation.split(GS)
    made = scores[-1].generator.sample(1, tmp_path)
    net = MLPRegressor(
        activation="relu", hidden_layer_sizes=(8,), max_iter=2, n_iter_no_change=math.inf,
        learning_rate_init=5e-4, dropout=0.1, alpha=0.0, random_state=11,
    ).fit(made.drop(columns="target"), made["target"])  # fmt: skip
    error = (net.predict(test.drop(columns="target")) - test["target"]) / train["target"].std(
        ddof=0
    )
    assert float(last_mlp["mae"]) == pytest.approx(error.abs().mean(), rel=1e-4)
    assert float(last_mlp["mse"]) == pytest.approx((error**2).mean(), rel=1e-4)
    assert float(last_mlp["target_std_train"]) == pytest.approx(train["target"].std(ddof=0))
    assert last_mlp["n_train"] == str(len(train)) == "120"
    assert last_mlp["n_test"] == str(len(test)) == "30"
    assert scores[-1].settings["hidden"] == ""
    assert last_boosting["mae"] != last_mlp["mae"]


def test_rows_with_missing_values_are_left_out(monkeypatch):
    table = pd.DataFrame({"a": [1.0, None] * 10, "b": np.arange(20.0)})
    holes = replace(GS, name="holes", n_samples=20)
    monkeypatch.setattr(Source, "load", lambda self: (table, table["b"]))
    train, test = generation.split(holes)
    assert len(train) + len(test) == 10
    assert not train.isna().any(axis=None)


# ---- stopped and taken up ------------------------------------------------------------------------


def test_killed_at_any_moment_it_goes_on_where_it_stood(finished, tmp_path, monkeypatch):
    whole, _ = finished
    scores = make_scores()
    generate, score = generation.generate, generation.score_together
    made, scored = [], []

    class Killed(BaseException):
        pass

    def dies(function, log, key, when):
        def call(work, *arguments):
            if len(log) == when:
                raise Killed
            done = function(work, *arguments)
            log.extend(key(each) for each in work)
            return done

        return call

    def name(each):
        return (each.activation, each.seed)

    def row(each):
        return tuple(each.settings[n] for n in KEY)

    # before the first generators, after them, after all, among the scores of both seeds
    for generators, rows in [(0, 0), (2, 0), (4, 0), (4, 5), (4, 8), (4, 10), (4, 16)]:
        monkeypatch.setattr(table7, "generate", dies(generate, made, name, generators))
        monkeypatch.setattr(table7, "score_together", dies(score, scored, row, rows))
        with pytest.raises(Killed):
            run(tmp_path, scores)
        assert len(pd.read_csv(tmp_path / "rows.csv")) == len(scored) == rows
    monkeypatch.setattr(table7, "generate", dies(generate, made, name, None))
    monkeypatch.setattr(table7, "score_together", dies(score, scored, row, None))
    pd.testing.assert_frame_equal(numbers_of(run(tmp_path, scores)), numbers_of(whole))
    assert sorted(made) == sorted({name(s.generator) for s in scores} - {("real", 0), ("real", 1)})
    assert len(scored) == len(set(scored)) == len(scores)
    monkeypatch.setattr(table7, "generate", lambda *_: pytest.fail("it is there"))
    monkeypatch.setattr(table7, "score_together", lambda *_: pytest.fail("it is there"))
    generate([scores[-1].generator], tmp_path / "samples", "cpu")  # killed before it cleared up
    run(tmp_path, scores)
    assert not (tmp_path / "samples").exists()


def test_half_written_samples_are_made_again(tmp_path):
    maker = Generator(GS, "tvae", "relu", 0, 1, 2)
    generation.generate([maker], tmp_path, "cpu")
    first = maker.sample(1, tmp_path)
    (maker.folder(tmp_path) / "facts.json").unlink()
    (maker.folder(tmp_path) / "1.csv.gz").write_bytes(b"half")
    assert not maker.is_sampled(tmp_path)
    generation.generate([maker], tmp_path, "cpu")
    assert maker.is_sampled(tmp_path)
    pd.testing.assert_frame_equal(maker.sample(1, tmp_path), first)
    assert not replace(maker, epochs=2).is_sampled(tmp_path), "another generator"


def test_samples_are_kept_until_all_learners_are_scored(tmp_path):
    scores = make_scores(seeds=(0,), activations=("relu",), samples=1)
    run(tmp_path, [s for s in scores if s.learner == "mlp"])
    (folder,) = (tmp_path / "samples").iterdir()
    stamp = (folder / "facts.json").stat().st_mtime_ns
    assert stamp
    rows = run(tmp_path, scores)
    assert rows["learner"].tolist() == ["mlp", "boosting"] * 2
    assert not (tmp_path / "samples").exists()


def test_other_settings_are_refused(finished):
    _, folder = finished
    scores = [replace(s, recipe=replace(RECIPE, epochs=3)) for s in make_scores()]
    with pytest.raises(ValueError, match="net_epochs=2, this study wants net_epochs=3"):
        run(folder, scores)


def test_a_generator_that_fails_is_a_failed_row(tmp_path, monkeypatch):
    def diverges(models, table):
        models[0].fit(table)
        raise ValueError("training diverged with activation='combu'")

    monkeypatch.setattr(generation, "fit_stack", diverges)
    rows = run(tmp_path, make_scores(seeds=(0,)))
    failed = rows[rows["error"] != ""]
    assert failed["activation"].tolist() == ["combu"] * 4
    assert set(failed["error"]) == {"generator: training diverged with activation='combu'"}
    assert failed["mae"].isna().all()
    assert rows.loc[rows["error"] == "", "mae"].notna().all()


# ---- the report ----------------------------------------------------------------------------------


def handmade(values, model="tvae", data="california_housing", metric="mae"):
    """``values``: activation -> seeds x samples."""
    rows = [
        {
            "data": data, "task": "regression", "model": model, "activation": activation,
            "seed": seed, "sample": sample, "learner": "mlp", "error": "", "mae": value,
            "mse": value**2, "fit_seconds": 1.0, "seconds": 1.0,
        }
        for activation, table in values.items()
        for seed, line in enumerate(table)
        for sample, value in enumerate(line)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_cells_are_over_seeds_and_samples_inside_them():
    values = {"relu": [[0.50, 0.52], [0.60, 0.64], [0.55, 0.55]], "real": [[0.3], [0.3], [0.3]]}
    rows = pd.concat(
        [handmade({"relu": values["relu"]}), handmade({"real": values["real"]}, "real")]
    )
    cells = generation_report.generation_cells(rows, "mlp").set_index(["model", "metric"])
    means = np.array([0.51, 0.62, 0.55])
    cell = cells.loc[("tvae", "mae")]
    assert cell["mean"] == pytest.approx(means.mean())
    assert cell["sd"] == pytest.approx(means.std(ddof=1))
    inside = [np.var(line, ddof=1) for line in values["relu"]]
    assert cell["sd_samples"] == pytest.approx(np.sqrt(np.mean(inside)))
    assert cells.loc[("real", "mae"), "sd"] == 0


def test_the_paper_s_numbers_stand_beside_ours():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(0.47, 0.002, (3, 2)) for name in ("relu", "combu")}
    rows = pd.concat(
        [
            handmade(values),
            handmade({"combu": values["combu"] + 1}, "tvae-patched"),
            handmade({"real": [[0.267]] * 3}, "real"),
        ]
    )
    cells = generation_report.generation_cells(rows, "mlp")
    table = generation_report.beside_paper(cells, generation_report.load_expected(7))
    mae = table[table["metric"] == "mae"].set_index(["model", "activation"])
    assert mae["paper_mean"].to_dict() == {
        ("tvae", "relu"): 0.471,
        ("tvae", "combu"): 0.460,
        ("tvae-patched", "combu"): 0.460,
        ("real", "real"): 0.267,
    }
    assert mae.loc[("tvae", "relu"), "reproduced"]
    assert not mae.loc[("tvae-patched", "combu"), "reproduced"]


def test_significant_differences_are_what_a_paired_t_test_says():
    rng = np.random.default_rng(0)
    base = rng.normal(0.5, 0.05, (5, 1))  # seeds differ more than activations do
    values = {
        "relu": base + 0.10 + rng.normal(0, 0.002, (5, 3)),
        "elu": base + 0.001 + rng.normal(0, 0.02, (5, 3)),
        "selu": base - 0.10 + rng.normal(0, 0.002, (5, 3)),
        "combu": base + rng.normal(0, 0.002, (5, 3)),
    }
    scores = generation_report.seed_scores(handmade(values), "mae")
    means = pd.DataFrame({name: table.mean(axis=1) for name, table in values.items()})
    np.testing.assert_allclose(scores[list(values)].to_numpy(), means.to_numpy())
    better, worse, open_, rival, lead = generation_report._verdict(scores, "mae")
    pvalues = {
        name: stats.ttest_rel(means["combu"], means[name]).pvalue
        for name in ("relu", "elu", "selu")
    }
    assert pvalues["relu"] * 3 < 0.05
    assert pvalues["selu"] * 3 < 0.05
    assert pvalues["elu"] > 0.05
    assert (better, worse, open_, rival) == (1, 1, 1, "SELU")
    difference = means["selu"] - means["combu"]
    low, high = stats.t.interval(0.95, 4, difference.mean(), difference.std(ddof=1) / math.sqrt(5))
    assert lead == f"{difference.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def test_failed_runs_and_unfinished_seeds_are_not_compared():
    values = {name: np.full((3, 2), 0.5) for name in ("relu", "elu", "combu")}
    rows = handmade(values)
    rows.loc[(rows["activation"] == "elu") & (rows["seed"] == 1), "error"] = "diverged"
    rows = rows[~((rows["activation"] == "relu") & (rows["seed"] == 2))]
    scores = generation_report.seed_scores(rows, "mae")
    assert list(scores) == ["relu", "combu"]
    assert scores.index.tolist() == [0, 1]


def test_report_of_one_seed_says_what_it_lacks(tmp_path):
    rows = handmade({"relu": [[0.5, 0.6]], "combu": [[0.4, 0.5]]})
    rows.loc[0, "error"] = "diverged"
    text = write_report(tmp_path, rows)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"x.md", "table7_generation_comparison.csv", "x_mlp.png"}
    assert "failed 1 of 2" in text
    assert "Two seeds that two activations finished are the least to compare." in text
    assert "**0.450 ± 0.071**" in text
    assert "± is the standard deviation over the samples, as the paper's is" in text


def test_report_of_several_seeds_names_what_has_one(tmp_path):
    several = {"relu": [[0.5, 0.6], [0.7, 0.6]], "combu": [[0.4, 0.5], [0.5, 0.5]]}
    one = {"relu": [[0.5, 0.9]], "combu": [[0.4, 0.5]]}
    rows = pd.concat([handmade(several), handmade(one, "tvae-patched")], ignore_index=True)
    text = write_report(tmp_path, rows)
    assert "Generator seeds: 2;" in text
    assert "One seed alone: TVAE, package patched on CH (california_housing); there ±" in text
    spread = text.split("What the ± leaves out")[1].split("###")[0]
    assert "TVAE, ours" in spread
    assert "patched" not in spread, "one seed has no spread over seeds"
