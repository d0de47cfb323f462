"""ml_efficacy on what tables hold: missing values, dates, other dtypes, one class."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from combutab.evaluation import ml_efficacy

FAST = ["linear", "hist_gradient_boosting"]
ALL = ["linear", "decision_tree", "random_forest", "hist_gradient_boosting", "mlp"]


def mixed(seed, n=120, labels=("no", "yes")):
    """Numbers, text, truth values and dates, on all of which the class depends."""
    rng = np.random.default_rng(seed)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D")
    table = pd.DataFrame(
        {
            "size": rng.integers(0, 50, n),
            "kind": rng.choice(["u", "v", "w"], n),
            "member": rng.choice([True, False], n),
            "day": day,
        }
    )
    latent = table["size"] / 25 + (table["kind"] == "u") + table["member"] + (day.year == 2021)
    latent = latent + 0.3 * rng.normal(size=n)
    edges = np.quantile(latent, np.linspace(0, 1, len(labels) + 1)[1:-1])
    return table.assign(y=np.array(labels)[np.digitize(latent, edges)])


def run(train, test, synthetic, learners=FAST, target="y", **parameters):
    return ml_efficacy(
        real_train=train, real_test=test, synthetic=synthetic, target=target, learners=learners,
        **parameters,
    )  # fmt: skip


def of(table, metric, column="mean", source="synthetic"):
    return table[(table["metric"] == metric) & (table["source"] == source)][column].tolist()


@pytest.mark.parametrize("labels", [("no", "yes"), (False, True), (1, 2)])
def test_the_same_values_in_other_dtypes_are_the_same_table(labels):
    train, test, made = (mixed(seed, labels=labels) for seed in (0, 1, 2))
    as_text = made.astype(str).assign(size=made["size"].astype(float))
    as_other = made.assign(
        size=made["size"].astype("Int64"),
        kind=made["kind"].astype("category"),
        member=made["member"].astype("boolean"),
        day=made["day"].dt.tz_localize("UTC"),
        y=made["y"].astype("category"),
    )
    synthetic = {"plain": made, "text": as_text, "other": as_other}
    table = run(train, test, synthetic, task="classification")
    plain = table[table["source"] == "plain"].drop(columns="source").reset_index(drop=True)
    for name in ("text", "other"):
        same = table[table["source"] == name].drop(columns="source").reset_index(drop=True)
        pd.testing.assert_frame_equal(same, plain)
    assert max(of(table, "roc_auc", source="plain")) > 0.75


def test_missing_values_unseen_categories_and_empty_columns():
    train, test, made = mixed(0), mixed(1), mixed(2)
    rng = np.random.default_rng(0)
    for table in (test, made):
        for name in ("size", "kind", "day"):
            table[name] = table[name].mask(pd.Series(rng.random(len(table)) < 0.2))
    test["kind"] = test["kind"].where(rng.random(len(test)) < 0.8, "never seen")
    made["member"] = None
    made["size"] = np.where(np.arange(len(made)) % 2, np.nan, 7.0)
    table = run(train, test, [made, made.assign(day=pd.NaT)], learners=ALL)
    assert np.isfinite(table["mean"]).all()
    assert (table["note"] == "").all()
    assert table.loc[table["metric"] != "log_loss", "mean"].between(0, 1).all()


def test_many_categories():
    rng = np.random.default_rng(0)
    train, test = (
        pd.DataFrame({"name": rng.integers(0, 90, n).astype(str), "x": rng.normal(size=n)})
        for n in (400, 200)
    )
    train["y"], test["y"] = (t["x"] + 0.1 * rng.normal(size=len(t)) for t in (train, test))
    table = run(train, test, train)
    assert min(of(table, "r2")) > 0.9


@pytest.mark.parametrize("learner", [*ALL, "paper_mlp"])
def test_one_class_scores_as_the_constant_prediction(learner):
    train, test = mixed(0), mixed(1)
    made = mixed(2).assign(y="yes")
    table = run(train, test, made, learners=learner, pos_label="yes")
    share = (test["y"] == "yes").mean()
    constant = np.full(len(test), "yes")
    assert of(table, "accuracy") == [pytest.approx(share)]
    assert of(table, "roc_auc") == [0.5]
    assert of(table, "log_loss") == [pytest.approx(log_loss(test["y"] == "yes", [1.0] * 120))]
    assert of(table, "f1_macro") == [
        pytest.approx(f1_score(test["y"], constant, average="macro", zero_division=0))
    ]
    assert of(table, "f1_binary") == [pytest.approx(2 * share / (1 + share))]
    (note,) = set(table.loc[table["source"] == "synthetic", "note"])
    assert note == (
        "one class to learn from: the prediction is constant; "
        "no rows to learn a class of the test rows from"
    )
    assert (table.loc[table["source"] == "real", "note"] == "").all()


def test_one_target_value_scores_as_the_constant_prediction():
    train, test = (mixed(seed).assign(y=lambda t: 1.5 * t["size"]) for seed in (0, 1))
    table = run(train, test, train.assign(y=20.0))
    unit = train["y"].std(ddof=0)
    assert of(table, "mae") == [pytest.approx((test["y"] - 20.0).abs().mean() / unit)] * 2
    assert of(table, "mse") == [pytest.approx(((test["y"] - 20.0) ** 2).mean() / unit**2)] * 2
    bias = (test["y"].mean() - 20.0) ** 2 / test["y"].var(ddof=0)
    assert of(table, "r2") == [pytest.approx(-bias)] * 2
    assert set(of(table, "r2", "note")) == {
        "one target value to learn from: the prediction is constant"
    }


def test_classes_that_the_synthetic_table_lacks():
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(3):
        X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
        latent = X["a"] + 0.5 * X["b"] + 0.5 * rng.normal(size=200)
        tables.append(
            X.assign(y=np.array(["low", "mid", "high"])[np.digitize(latent, [-0.5, 0.5])])
        )
    train, test, made = tables
    made = made[made["y"] != "mid"]
    table = run(train, test, made, learners=["linear", "random_forest", "mlp"])
    scale = StandardScaler().fit(made[["a", "b"]])
    model = LogisticRegression().fit(scale.transform(made[["a", "b"]]), made["y"])
    chances = model.predict_proba(scale.transform(test[["a", "b"]]))
    areas = [roc_auc_score(test["y"] == c, chances[:, i]) for i, c in enumerate(model.classes_)]
    assert of(table, "roc_auc")[0] == pytest.approx((sum(areas) + 0.5) / 3, abs=1e-5)
    assert all(0.5 < area < 0.8 for area in of(table, "roc_auc"))
    never = np.insert(chances, list(model.classes_).index("low") + 1, 0.0, axis=1)
    expected = log_loss(test["y"], never, labels=["high", "low", "mid"])
    assert of(table, "log_loss")[0] == pytest.approx(expected, rel=1e-5)
    assert set(of(table, "roc_auc", "note")) == {"no rows to learn a class of the test rows from"}
    assert set(of(table, "roc_auc", "note", "real")) == {""}


def test_classes_of_the_synthetic_table_alone_are_wrong():
    real = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0] * 5, "y": ["a", "a", "b", "b"] * 5})
    made = real.assign(y=["a", "c", "b", "b"] * 5)
    table = run(real, real, made, learners="decision_tree")
    assert of(table, "accuracy") == [0.75]
    # a: precision 1, recall 1/2; b: 1 and 1; c is no class of the test rows
    assert of(table, "f1_macro") == [pytest.approx((2 / 3 + 1) / 2)]
    assert of(table, "roc_auc") == [pytest.approx((0.75 + 1) / 2)]
    assert of(table, "f1_macro", source="real") == [1.0]


@pytest.mark.parametrize(
    ("learner", "n"), [("hist_gradient_boosting", 10500), ("mlp", 30), ("paper_mlp", 30)]
)
def test_a_class_with_one_row_can_be_learned_from(learner, n):
    train, test = mixed(0), mixed(1)
    made = mixed(2, 2 * n)
    made = pd.concat([made[made["y"] == "no"], made[made["y"] == "yes"][:1]])
    table = run(train, test, made, learners=learner)
    assert np.isfinite(table["mean"]).all()
    note = "" if learner == "paper_mlp" else "no early stopping: a class has too few rows"
    assert of(table, "accuracy", "note")[0].partition(";")[0] == note


def test_a_test_side_of_one_class_has_no_area():
    train, test = mixed(0), mixed(1)
    table = run(train, test[test["y"] == "no"], train, learners="linear")
    assert np.isnan(of(table, "roc_auc")).all()
    assert of(table, "roc_auc", "note") == ["one class in the test rows: no ROC AUC"]
    numbers = train.assign(y=train["size"] * 0.5)
    table = run(numbers, numbers.assign(y=3.0), numbers, learners="linear")
    assert np.isnan(of(table, "r2")).all()
    assert np.isfinite(of(table, "mae")).all()


def test_rows_without_a_target_are_left_out():
    train, test, made = mixed(0), mixed(1), mixed(2)
    holes = made.copy()
    holes.loc[::3, "y"] = None
    table = run(train, test, {"holes": holes, "dropped": holes.dropna()})
    assert of(table, "accuracy", source="holes") == of(table, "accuracy", source="dropped")
    assert of(table, "accuracy", "note", "holes")[0] == "40 rows without a target are left out"
    with pytest.raises(ValueError, match=r"no row of synthetic\[1\] has a target: 'y'"):
        run(train, test, [made, made.assign(y=None)])


def test_the_positive_class_is_explicit():
    train, test, made = mixed(0), mixed(1), mixed(2)
    assert "f1_binary" not in run(train, test, made)["metric"].tolist()
    yes, no = (run(train, test, made, pos_label=label) for label in ("yes", "no"))
    assert of(yes, "f1_binary") != of(no, "f1_binary")
    for a, b, both in zip(
        of(yes, "f1_binary"), of(no, "f1_binary"), of(yes, "f1_macro"), strict=True
    ):
        assert (a + b) / 2 == pytest.approx(both)
    with pytest.raises(ValueError, match="pos_label='maybe' is no class of 'y'; there are 'no', "):
        run(train, test, made, pos_label="maybe")
    with pytest.raises(ValueError, match="pos_label='yes' is for a classification"):
        run(train, test, made, target="size", task="regression", pos_label="yes")


def test_the_task_is_inferred_or_said():
    train, test, made = (mixed(seed).assign(y=lambda t: t["size"] % 3) for seed in (0, 1, 2))
    assert "accuracy" in run(train, test, made)["metric"].tolist()
    assert "mae" in run(train, test, made, task="regression")["metric"].tolist()
    with pytest.raises(ValueError, match="a regression needs numbers"):
        run(train, test, made, target="kind", task="regression")
    with pytest.raises(ValueError, match="task must be 'auto'"):
        run(train, test, made, task="clustering")


def test_wrong_columns_are_listed():
    train, test, made = mixed(0), mixed(1), mixed(2)
    with pytest.raises(ValueError, match=r"synthetic lacks \['kind', 'day'\]"):
        run(train, test, made.drop(columns=["kind", "day"]))
    with pytest.raises(ValueError, match=r"bad has besides \['id'\]"):
        run(train, test, {"good": made, "bad": made.assign(id=1)})
    with pytest.raises(ValueError, match=r"real_test lacks \['day'\]"):
        run(train, test.drop(columns="day"), made)
    with pytest.raises(ValueError, match="no column 'z' for a target; there are 'size', 'kind'"):
        run(train, test, made, target="z")
    with pytest.raises(ValueError, match="no column beside the target"):
        run(train[["y"]], test[["y"]], made[["y"]])


def test_what_is_no_synthetic_table_is_refused():
    train = mixed(0)
    with pytest.raises(ValueError, match="'real' is a name of the real rows"):
        run(train, train, {"real": train})
    with pytest.raises(ValueError, match="synthetic is an empty list"):
        run(train, train, [])
    with pytest.raises(ValueError, match="synthetic is empty"):
        run(train, train, {})


def test_errors_are_those_of_other_test_rows():
    """Of many test sets of one distribution, scores and gaps differ by about the errors told."""
    rng = np.random.default_rng(0)

    def draw(n, slope):
        x = rng.normal(size=n)
        return pd.DataFrame({"x": x, "y": np.where(slope * x + rng.normal(size=n) > 0, "a", "b")})

    train, made = draw(400, 1.0), draw(400, 0.3)
    tables = [
        run(train, draw(150, 1.0), made, learners="linear", n_resamples=200) for _ in range(40)
    ]
    for metric in ("accuracy", "roc_auc"):
        rows = pd.concat([table[table["metric"] == metric] for table in tables])
        for source, group in rows.groupby("source"):
            assert group["se"].mean() == pytest.approx(group["mean"].std(ddof=1), rel=0.35)
            if source == "synthetic":
                assert group["gap_se"].mean() == pytest.approx(group["gap"].std(), rel=0.5)
        assert (rows.loc[rows["source"] == "real", "gap_se"] == 0).all()
    assert tables[0].loc[tables[0]["metric"] == "f1_macro", "se"].isna().all()
    with pytest.raises(ValueError, match="n_resamples must be 0 or an integer of at least 2"):
        run(train, made, made, n_resamples=1)
