"""Table 7's study: rows can be repeated, a kill loses nothing finished, the report counts right."""

from __future__ import annotations

import math
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.papers.combu import generation, generation_report
from benchmarks.papers.combu import table7_generation as table7
from benchmarks.papers.combu.expected import load_expected
from benchmarks.papers.combu.generation import KEY, Generator, Score
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import Recipe
from benchmarks.papers.common.page import Page
from combutab import CTGAN, TVAE, MLPRegressor

GS = Source("formula", "gs", "regression", n_samples=150)
LABELS = replace(GS, task="classification")
RECIPE = Recipe(hidden=(8,), epochs=2)


def make_scores(seeds=(0, 1)):
    makers = [
        maker
        for seed in seeds
        for maker in (
            Generator(GS, "real", "real", seed, 0, 1),
            *(Generator(GS, "tvae", name, seed, 1, 2) for name in ("relu", "combu")),
        )
    ]
    return [
        Score(maker, sample, learner, RECIPE)
        for maker in makers
        for sample in range(maker.n_samples)
        for learner in ("mlp", "boosting")
    ]


def run(folder, scores):
    experiment = replace(table7.SCORES, name="rows", jobs=lambda arguments: table7.jobs(scores))
    return experiment.complete(Namespace(out=folder, jobs=1))


def write_report(folder, rows):
    page = Page("x", "Table 7", "python x.py")
    generation_report.write_report(page, Namespace(out=folder), rows)
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
    rows, _ = finished
    expected = [
        (model, activation, seed, sample, learner)
        for seed in (0, 1)
        for model, activation, samples in (
            ("real", "real", 1), ("tvae", "relu", 2), ("tvae", "combu", 2),
        )
        for sample in range(samples)
        for learner in ("mlp", "boosting")
    ]  # fmt: skip
    keys = rows[["model", "activation", "seed", "sample", "learner"]]
    assert list(keys.itertuples(index=False, name=None)) == expected
    assert (rows["error"] == "").all()
    assert (rows.loc[rows["model"] == "tvae", "stack"] == 2).all()


@pytest.mark.parametrize(("model", "kind"), [("ctgan", CTGAN), ("tvae", TVAE)])
def test_samples_are_those_of_a_generator_trained_alone(model, kind):
    makers = [Generator(LABELS, model, name, 3, 1, 2) for name in ("relu", "combu")]
    facts, samples = generation.generate(makers, "cpu")[1]
    train, _ = generation.split(LABELS)
    drawn = {"argmax": False} if kind is TVAE else {}  # as what is stored
    alone = kind(epochs=1, activation="combu", random_state=3, device="cpu", **drawn).fit(train)
    for number, sample in enumerate(samples):
        expected = alone.sample(len(train), random_state=30 + number)
        pd.testing.assert_frame_equal(sample, expected, rtol=1e-3)
    assert len(samples) == facts["stack"] == 2
    assert facts["error"] == ""


@pytest.mark.usefixtures("paper_defaults")
def test_scores_can_be_repeated_from_what_a_row_says(finished):
    rows, _ = finished
    score = make_scores()[-2]
    assert score.settings["learner"] == "mlp"
    stack = [Generator(GS, "tvae", name, 1, 1, 2) for name in ("relu", "combu")]
    train, test = generation.split(GS)
    _, (_, sample) = generation.generate(stack, "cpu")[1]
    net = MLPRegressor(
        activation="relu", hidden_layer_sizes=(8,), max_iter=2, n_iter_no_change=math.inf,
        learning_rate_init=5e-4, dropout=0.1, alpha=0.0, random_state=11,
    ).fit(sample.drop(columns="target"), sample["target"])  # fmt: skip
    error = net.predict(test.drop(columns="target")) - test["target"]
    error /= train["target"].std(ddof=0)
    last_mlp, last_boosting = rows.iloc[-2], rows.iloc[-1]
    assert last_mlp["mae"] == pytest.approx(error.abs().mean(), rel=1e-4)
    assert last_mlp["mse"] == pytest.approx((error**2).mean(), rel=1e-4)
    assert last_mlp["target_std_train"] == pytest.approx(train["target"].std(ddof=0))
    assert last_mlp["n_train"] == len(train) == 120
    assert last_mlp["n_test"] == len(test) == 30
    assert last_boosting["mae"] != last_mlp["mae"]


def test_rows_with_missing_values_are_left_out(monkeypatch):
    table = pd.DataFrame({"a": [1.0, None] * 10, "b": np.arange(20.0)})
    monkeypatch.setattr(Source, "load", lambda self: (table, table["b"]))
    train, test = generation.split(replace(GS, name="holes", n_samples=20))
    assert len(train) + len(test) == 10
    assert not train.isna().any(axis=None)


# ---- stopped and taken up ------------------------------------------------------------------------


def test_killed_it_goes_on_where_it_stood(finished, tmp_path, monkeypatch):
    whole, _ = finished
    generate, trained = generation.generate, []

    class Killed(BaseException):
        pass

    def spy(generators, device):
        trained.append([(each.model, each.activation, each.seed) for each in generators])
        if len(trained) == 4:
            raise Killed
        return generate(generators, device)

    monkeypatch.setattr(generation, "generate", spy)
    with pytest.raises(Killed):
        run(tmp_path, make_scores())
    rows = pd.read_csv(tmp_path / "rows.csv", dtype=str, keep_default_na=False)
    assert len(rows) == 2 + 8 + 2, "the finished stacks"
    is_lost = (rows["learner"] == "boosting") & (rows["model"] == "tvae")
    rows[~is_lost].to_csv(tmp_path / "rows.csv", index=False)
    fitted = []
    fit = generation.study.fit_networks
    monkeypatch.setattr(
        generation.study, "fit_networks", lambda tasks: fitted.append(len(tasks)) or fit(tasks)
    )
    pd.testing.assert_frame_equal(
        numbers_of(run(tmp_path, make_scores())), numbers_of(whole), check_dtype=False
    )
    stacks = [[("tvae", name, seed) for name in ("relu", "combu")] for seed in (0, 1)]
    assert trained[4:] == stacks
    assert fitted == [0, 4], "the networks of seed 0 were there"
    run(tmp_path, make_scores())
    assert len(trained) == 6, "nothing is trained twice"


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


def handmade(values, model="tvae", data="california_housing"):
    """``values``: activation -> seeds x samples."""
    rows = [
        {
            "data": data, "task": "regression", "model": model, "activation": activation,
            "seed": seed, "sample": sample, "learner": "mlp", "error": "", "mae": value,
            "mse": value**2, "accuracy": math.nan, "f1": math.nan, "fit_seconds": 1.0,
            "seconds": 1.0,
        }
        for activation, table in values.items()
        for seed, line in enumerate(table)
        for sample, value in enumerate(line)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_cells_are_over_seeds_and_samples_inside_them_beside_the_paper_s():
    relu = [[0.470, 0.472], [0.468, 0.470], [0.473, 0.473]]
    combu = [[value + 1 for value in line] for line in relu]
    parts = [
        handmade({"relu": relu, "combu": relu}),
        handmade({"combu": combu}, "tvae-patched"),
        handmade({"real": [[0.267]] * 3}, "real"),
    ]
    table = generation_report.beside_paper(pd.concat(parts), load_expected(7))
    mae = table[table["metric"] == "mae"].set_index(["model", "activation"])
    means = np.array([0.471, 0.469, 0.473])
    cell = mae.loc["tvae", "relu"]
    assert cell["mean"] == pytest.approx(means.mean())
    assert cell["sd"] == pytest.approx(means.std(ddof=1))
    inside = [np.var(line, ddof=1) for line in relu]
    assert cell["sd_samples"] == pytest.approx(np.sqrt(np.mean(inside)))
    assert mae.loc[("real", "real"), "sd"] == 0
    assert mae["paper_mean"].to_dict() == {
        ("tvae", "relu"): 0.471,
        ("tvae", "combu"): 0.460,
        ("tvae-patched", "combu"): 0.460,
        ("real", "real"): 0.267,
    }
    assert cell["reproduced"]
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
    rows = handmade(values)
    means = pd.DataFrame({name: table.mean(axis=1) for name, table in values.items()})
    scores = generation_report.seed_scores(rows, "mae")
    np.testing.assert_allclose(scores[list(values)].to_numpy(), means.to_numpy())
    others = ("relu", "elu", "selu")
    p = {name: stats.ttest_rel(means["combu"], means[name]).pvalue for name in others}
    assert max(p["relu"], p["selu"]) * 3 < 0.05
    assert p["elu"] > 0.05
    found = generation_report.advantages(rows)
    assert found["place"].str.partition(", ")[2].tolist() == ["MAE", "MSE"]
    first = found.iloc[0]
    assert first[["better", "worse", "open", "rival"]].tolist() == [1, 1, 1, "SELU"]
    difference = means["selu"] - means["combu"]
    low, high = stats.t.interval(0.95, 4, difference.mean(), difference.std(ddof=1) / math.sqrt(5))
    assert first["shown"] == f"{difference.mean():+.3f} ({low:+.3f} to {high:+.3f})"
    assert first["best"].startswith("selu has the best mean MAE")
    best, significant = (claim.judge(found) for claim in generation_report.CLAIMS)
    assert (best.numbers, best.parts) == ("in 0 of 2 lines", [False, False])
    assert significant.parts == [False, False]
    ahead = found.assign(lead="+0.100", better=3, worse=0, open=0)
    assert all(all(claim.judge(ahead).parts) for claim in generation_report.CLAIMS)


def test_failed_runs_and_unfinished_seeds_are_not_compared():
    rows = handmade({name: np.full((3, 2), 0.5) for name in ("relu", "elu", "combu")})
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
    assert "where there is one seed over its samples, as the paper's is" in text
    assert "1 s, 1 seeds" in text


def test_report_of_several_seeds_leaves_out_what_has_one(tmp_path):
    several = {"relu": [[0.5, 0.6], [0.7, 0.6]], "combu": [[0.4, 0.5], [0.5, 0.5]]}
    one = {"relu": [[0.5, 0.9]], "combu": [[0.4, 0.5]]}
    rows = pd.concat([handmade(several), handmade(one, "tvae-patched")], ignore_index=True)
    text = write_report(tmp_path, rows)
    assert "| TVAE, ours | 1 s, 2 seeds |" in text
    assert "| TVAE, package patched | 1 s, 1 seeds |" in text
    spread = text.split("What the ± leaves out")[1].split("###")[0]
    assert "TVAE, ours" in spread
    assert "patched" not in spread, "one seed has no spread over seeds"
    assert "| mean rank | ReLU | CombU |" in text
    assert "| TVAE, ours (2 lines) | 2.00 | 1.00 |" in text
