"""A synthetic table's evaluation: cases whose verdict is known, and what the record holds."""

import functools
import html
import json
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import combutab
from combutab import TVAE, PrivateSynthesizer
from combutab.evaluation import METRICS, detection, fidelity, ml_efficacy, privacy
from combutab.reports import evaluate_synthetic, render_report
from tests import short

QUICK = {"learners": ["linear"]}
SHORT = pytest.mark.usefixtures("short_report")


def people(n, seed, *, gaps=False):
    """Rows of one distribution, whose income follows from the age and the education."""
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 12, n).round(1)
    education = rng.choice(["school", "college", "phd"], n, p=[0.5, 0.4, 0.1])
    income = 20 + 0.5 * age + 10 * (education == "college") + 25 * (education == "phd")
    table = pd.DataFrame(
        {
            "age": age,
            "education": education,
            "income": (income + rng.normal(0, 4, n)).round(2),
            "born": pd.Timestamp("1960") + pd.to_timedelta(rng.integers(0, 9000, n), "D"),
            "one": 1,
        }
    )
    table["rich"] = np.where(table["income"] > 50, "yes", "no")
    if gaps:
        for name in ("age", "education", "born", "rich"):
            table[name] = table[name].where(rng.random(n) < 0.8)
    return table


def noise(n):
    rng = np.random.default_rng(10)
    return pd.DataFrame(
        {
            "age": rng.uniform(-100, 300, n),
            "education": rng.choice(["a", "b", "phd"], n),
            "income": rng.uniform(-500, 500, n),
            "born": pd.Timestamp("1900") + pd.to_timedelta(rng.integers(0, 30000, n), "D"),
            "one": rng.normal(size=n),
            "rich": rng.choice(["yes", "no"], n),
        }
    )


N = 300
TRAIN, TEST, FRESH = people(N, 0), people(N, 1), people(N, 2)


def levels(found):
    assert [finding.subject for finding in found.findings] == ["utility", "fidelity", "privacy"]
    return tuple(finding.level for finding in found.findings)


def evaluate(synthetic, **options):
    options = {"real_train": TRAIN, "real_test": TEST, "target": "rich", **QUICK} | options
    return evaluate_synthetic(synthetic=synthetic, **options)


@functools.cache
def evaluated(rows, target):
    """What is found of these rows, computed once."""
    synthetic = {"fresh": FRESH, "copy": TRAIN, "noise": noise(N)}[rows]
    return evaluate(synthetic, target=target)


# ---- known cases -------------------------------------------------------------------------------


KNOWN = {
    "fresh": ("good", "good", "good"),
    "copy": ("good", "good", "poor"),
    "noise": ("poor", "poor", "good"),
}


def check_known(rows, target):
    found = evaluated(rows, target)
    assert levels(found) == KNOWN[rows]
    assert found.copies == (len(TRAIN) if rows == "copy" else 0)
    assert found.guess == 0.0 or target == "rich"
    closer = "100.0 % of the synthetic rows are closer to a training row"
    assert (closer in found.findings[2].sentence) == (rows == "copy")


def test_fresh_rows_are_good():
    check_known("fresh", "rich")


@SHORT
@pytest.mark.parametrize(
    ("rows", "target"),
    [("copy", "rich"), ("noise", "rich"), ("fresh", "income"), ("copy", "income")],
)
def test_known_tables_in_a_short_report(rows, target):
    check_known(rows, target)


@SHORT
def test_memorized_rows_are_distinguished_from_held_out_rows():
    shifted = TRAIN.assign(age=TRAIN["age"] + 2)  # each row is nearest to its original
    held_out, training = (evaluate(shifted, real_test=t, target=None) for t in (TEST, None))
    assert training.scores["detection_auc"] < 0.5
    assert held_out.scores["detection_auc"] > 0.55
    assert held_out.scores["real_detection_auc"] < held_out.scores["detection_auc"]
    rows = [json.loads(each.to_json())["detection_rows"] for each in (held_out, training)]
    assert rows == ["test", "real"]
    assert "from held-out real rows" in held_out.findings[1].sentence
    assert "from training rows" in training.findings[1].sentence


@SHORT
def test_each_column_is_the_target_in_turn():
    rng = np.random.default_rng(3)
    shuffled = FRESH.assign(income=rng.permutation(FRESH["income"]))
    found = evaluate(shuffled, target="all", learners="standard")
    table = found.targets.set_index("target")
    assert set(table.index) == set(TRAIN)
    assert table.index[0] == "income"
    assert table["level"]["income"] == "poor"
    assert table["metric"]["income"] == table["metric"]["born"] == "r2"
    assert table["metric"]["education"] == table["metric"]["rich"] == "roc_auc"
    assert table["level"]["one"] == "unknown"
    assert "'one'" in table["note"]["one"]
    row = table.loc["rich"]
    single = evaluate(shuffled, target="rich", learners="hist_gradient_boosting").efficacy
    means = single.query("metric == 'roc_auc'").set_index("source")["mean"]
    assert (row["real"], row["synthetic"]) == (means["real"], means["synthetic"])
    skill = ((table[["real", "synthetic"]].T - table["guess"]) / (1 - table["guess"])).T
    kept = skill.clip(lower=0).sum()
    assert found.scores["utility"] == pytest.approx(kept["synthetic"] / kept["real"])
    assert (found.findings[0].level, found.target) == ("poor", None)
    assert json.loads(found.to_json())["targets"][0]["target"] == "income"
    page = render_report(found)
    assert "Utility: each column as the target" in page
    assert page.index(">income</th>") < page.index(">rich</th>")


@SHORT
def test_a_column_named_all_is_a_target():
    tables = [t.rename(columns={"rich": "all"}) for t in (TRAIN, TEST, FRESH)]
    options = {"real_train": tables[0], "real_test": tables[1], "target": "all"}
    assert evaluate(tables[2], **options).target == "all"


@pytest.mark.slow
def test_a_shuffled_target_teaches_nothing():
    rng = np.random.default_rng(3)
    shuffled = FRESH.assign(rich=rng.permutation(FRESH["rich"]))
    found = evaluate(shuffled)
    assert levels(found)[0] == "poor"
    assert levels(found)[2] == "good"
    # single columns are as before, pairs are not
    assert "the column 'rich' least" not in found.findings[1].sentence
    before = evaluated("fresh", "rich")
    pairs = [
        f.fidelity.query("aspect == 'pairs' and source == 'synthetic'") for f in (found, before)
    ]
    assert pairs[0]["mean"].mean() < pairs[1]["mean"].mean()


def churners(n, seed):
    """Rows of which one in five is "yes", never with more than even chances."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    chance = np.where(table["a"] > 0.5, 0.5, 0.03)
    return table.assign(churned=np.where(rng.random(n) < chance, "yes", "no"))


@SHORT
@pytest.mark.parametrize(("shuffled", "level"), [(False, "good"), (True, "poor")])
def test_few_rows_of_uneven_classes_get_a_verdict(shuffled, level):
    n = 300
    real, rows = churners(n, 20), churners(n, 21)
    if shuffled:
        rng = np.random.default_rng(4)
        rows = pd.DataFrame({name: rng.permutation(rows[name]) for name in rows})
    options = {"target": "churned", "learners": ["linear"]}
    found = evaluate(rows, real_train=real[n // 5 :], real_test=real[: n // 5], **options)
    utility = found.findings[0]
    assert utility.level == level
    assert utility.sentence.startswith("ROC AUC of a linear model on ")
    assert utility.figure.startswith("difference of ROC AUC ")
    assert "(95 % interval " in utility.figure


@SHORT
@pytest.mark.parametrize("metric", ["f1", "average_precision", "log_loss", "mae", "rmse"])
def test_a_metric_of_each_kind_may_decide(metric):
    task = "regression" if metric in METRICS["regression"] else "classification"
    target = "rich" if task == "classification" else "income"
    found = evaluate(FRESH, scoring=metric, learners=["linear"], target=target, task=task)
    (real,) = found.efficacy.query("metric == @metric and source == 'real'").to_dict("records")
    assert found.metric == metric
    assert 0 < real["se"] < 1
    ahead = real["mean"] - found.guess
    assert (ahead if METRICS[task][metric].greater_is_better else -ahead) > 0
    assert METRICS[task][metric].title in found.findings[0].figure


@SHORT
def test_guess_of_average_precision_is_the_share_of_the_rarer_class():
    train, test, fresh = (
        table.assign(rich=np.where(table["rich"] == "yes", "a", "b"))
        for table in (TRAIN, TEST, FRESH)
    )
    found = evaluate_synthetic(
        real_train=train, real_test=test, synthetic=fresh, target="rich", learners="linear",
        scoring="average_precision",
    )  # fmt: skip
    shares = test["rich"].value_counts(normalize=True)
    assert found.guess == pytest.approx(shares.min())


@SHORT
def test_the_metric_is_the_users_choice():
    found = evaluate(FRESH, scoring="log_loss", learners=["linear"])
    assert (found.metric, found.findings[0].level) == ("log_loss", "good")
    assert found.findings[0].sentence.startswith(
        "Log loss of a linear model on 300 held-out real rows: 0."
    )
    assert "Log loss of the linear model: 0." in render_report(found)
    with pytest.raises(ValueError, match="'r2'"):
        evaluate(FRESH, scoring="r2")


def test_a_notebook_shows_the_scores_and_the_findings():
    found = evaluated("fresh", "rich")
    levels_shown = "utility='good', fidelity='good', privacy='good'"
    assert repr(found) == f"SyntheticEvaluation({levels_shown}, n_synthetic={N})"
    page = ElementTree.fromstring(found._repr_html_())
    titles = [each.text.split(":")[0] for each in page.iter("title")]
    assert titles == ["linear, real rows", "linear, synthetic rows"]
    lines = [each.text for each in page.iter("li")]
    assert [line.split(":")[0] for line in lines] == ["Utility", "Fidelity", "Privacy"]
    assert all(f.sentence in line for f, line in zip(found.findings, lines, strict=True))


@SHORT
def test_near_copies_of_a_part_are_found():
    near = TRAIN[:60].assign(income=TRAIN["income"] + 0.001, age=TRAIN["age"] + 0.001)
    found = evaluate(pd.concat([near, FRESH[:240]]))
    assert found.copies == 0
    assert levels(found) == ("good", "good", "poor")


def pairs_of_numbers(n, rng):
    x = rng.normal(size=n)
    return pd.DataFrame({"x": x, "y": x + rng.normal(size=n)})


@SHORT
def test_near_copies_of_both_real_tables_are_found():
    # as near to the one table as to the other, and no row is equal
    rng = np.random.default_rng(0)
    train, test, fresh = (pairs_of_numbers(200, rng) for _ in range(3))
    half = pd.concat([train.sample(100, random_state=0), test.sample(100, random_state=0)])
    near = half + 1e-3 * rng.normal(size=half.shape) * train.std().to_numpy()
    options = {"real_train": train, "real_test": test, "target": None}
    finding = evaluate(near, **options).findings[2]
    assert finding.level == "poor"
    assert "The generator was probably trained on both real tables." in finding.sentence
    assert "synthetic rows are near copies of a training row" in finding.sentence
    assert "synthetic rows are near copies of a held-out row" in finding.sentence
    assert evaluate(fresh, **options).findings[2].level == "good"


@SHORT
def test_rows_are_looked_for_in_both_real_tables():
    swapped = "Either the two real tables are swapped, or the generator was trained on the held-out"
    for found in (
        evaluate(TEST, target=None),
        evaluate(TRAIN, real_train=TEST, real_test=TRAIN, target=None),
        evaluate(TEST.assign(born=FRESH["born"], age=TEST["age"] + 0.01), target=None),
    ):
        assert levels(found)[2] == "poor"
        assert swapped in found.findings[2].sentence
        assert found.findings[2].short == "Held-out rows or values are copied."
        assert found.copies == 0
    both = evaluate(pd.concat([TRAIN[:150], TEST[150:]]), target=None).findings[2]
    assert both.level == "poor"
    assert "The generator was probably trained on both real tables." in both.sentence


@SHORT
def test_near_copies_are_found_without_held_out_rows():
    rng = np.random.default_rng(4)
    noisy = {name: TRAIN[name] + rng.normal(0, 0.05, N) for name in ("age", "income")}
    noisy["born"] = TRAIN["born"] + pd.Timedelta(hours=1)
    finding = evaluate(TRAIN.assign(**noisy), real_test=None, target=None).findings[2]
    assert finding.level == "poor"
    assert "are near copies of a training row" in finding.sentence


@SHORT
def test_copies_with_new_identifiers_are_copies():
    def named(table, first):
        return table.assign(id=range(first, first + len(table)))

    real = {"real_train": named(TRAIN, 1000), "real_test": named(TEST, 2000), "target": None}
    found = evaluate(named(TRAIN, 9000), **real)
    assert levels(found)[2] == "poor"
    assert found.copies == N
    assert found.privacy.set_index("measure").loc["copies", "mean"] == N
    assert found.identifiers == ("id",)
    assert "Identifier columns are left out: 'id'." in found.findings[2].notes


@SHORT
def test_missing_values():
    tables = [people(N, seed, gaps=True) for seed in range(3)]
    found = evaluate(tables[2], real_train=tables[0], real_test=tables[1])
    assert levels(found)[1:] == ("good", "good")
    assert "rows without a target are left out" in " ".join(found.findings[0].notes)


ONE = TRAIN[["one"]]
NO = {"real_train": TRAIN.assign(rich="no"), "real_test": TEST.assign(rich="no")}


@SHORT
@pytest.mark.parametrize(
    ("synthetic", "options", "expected"),
    [
        (FRESH.assign(rich="no"), {}, ("poor", ..., ...)),
        (FRESH.assign(rich=None), {}, ("poor", ..., ...)),
        (FRESH.assign(rich="no"), NO, ("unknown", "good", "good")),
        (ONE, {"real_train": ONE, "real_test": ONE, "target": None}, ("unknown", "good", "good")),
        # the held-out rows are others: fresh rows are closer to the training rows
        (FRESH, {"real_test": TEST.assign(age=TEST["age"] + 25.0)}, (..., ..., "unknown")),
        # copies would be told from nothing: the held-out rows are copies as well
        (TRAIN, {"real_test": TRAIN[:200]}, (..., ..., "poor")),
        (FRESH, {"real_test": TRAIN[:200]}, (..., ..., "unknown")),
        (FRESH[:3], {"target": None}, (..., ..., "unknown")),
        (pd.concat([TRAIN[:1], FRESH[1:]]), {"target": None}, (..., ..., "fair")),
        (pd.concat([TEST[:1], FRESH[1:]]), {"target": None}, (..., ..., "fair")),
    ],
)
def test_levels(synthetic, options, expected):
    found = evaluate(synthetic, **options)
    pairs = zip(levels(found), expected, strict=True)
    assert [level for level, wanted in pairs if wanted not in (level, ...)] == []
    assert (found.task is None) == (found.efficacy is None) == ("ml_efficacy" not in found.seconds)


# ---- tables that are not there, or small -------------------------------------------------------


@SHORT
def test_without_held_out_rows():
    found = evaluate(FRESH, real_test=None)
    assert levels(found) == ("good", "good", "unknown")
    assert found.test is None
    assert found.privacy is None
    assert set(found.fidelity["source"]) == set(found.detection["source"]) == {"synthetic"}
    assert "on 300 real rows" in found.findings[0].sentence  # each fifth in turn
    assert "one fifth at a time" in found.findings[0].notes[0]


@SHORT
@pytest.mark.parametrize(  # each two of them
    ("n", "tested", "target"),
    [
        *[(1, True, "rich"), (2, True, "income"), (6, True, None)],
        *[(1, False, "income"), (3, False, "rich")],
    ],
)
def test_tiny_tables_are_no_error_and_no_praise(n, tested, target):
    found = evaluate(
        FRESH[:n], real_train=TRAIN[: n + 1], real_test=TEST[:n] if tested else None, target=target
    )
    assert levels(found)[0] == "unknown"
    assert levels(found)[2] == "unknown"
    assert all(finding.sentence.endswith(".") for finding in found.findings)


# ---- what is wrong is said ---------------------------------------------------------------------


def test_a_missing_column_is_named_with_its_table():
    names = {"real": "people.csv", "synthetic": "made.csv"}
    with pytest.raises(ValueError, match="'rich'"):
        evaluate(FRESH.drop(columns="rich"), names=names)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "wealth"}, "'wealth'"),
        ({"task": "ranking"}, "task must"),
        ({"target": "born"}, "'born'"),
        ({"target": "education", "task": "regression"}, "a regression needs numbers"),
        ({"real_test": TEST.assign(rich=None)}, "no row of real_test has a target"),
        ({"learners": "oracle"}, "unknown learner 'oracle'"),
        ({"real_test": TEST.assign(age=1e200)}, "'age'"),
        ({"min_frequency": 0}, "min_frequency must"),
        ({"min_frequency": 1.5}, "min_frequency must"),
        ({"target": "all", "scoring": "r2"}, "target='all'"),
        ({"categorical": ["shoe"]}, r"there is no column \['shoe'\]"),
    ],
)
def test_bad_arguments(options, says):
    with pytest.raises(ValueError, match=says):
        evaluate(FRESH, **options)


# ---- the record --------------------------------------------------------------------------------


def test_the_tables_are_the_evaluators():
    record = evaluate(FRESH, random_state=3)
    tables = {"real_train": TRAIN, "synthetic": FRESH}
    options = {"target": "rich", "random_state": 3, "n_resamples": 100, **QUICK}
    expected = ml_efficacy(real_test=TEST, **tables, **options)
    pd.testing.assert_frame_equal(record.efficacy, expected)
    pd.testing.assert_frame_equal(record.privacy, privacy(holdout=TEST, random_state=3, **tables))
    sources = {"synthetic": FRESH, "held-out real": TEST}
    expected = fidelity(real=TRAIN, synthetic=sources, random_state=3)
    pd.testing.assert_frame_equal(record.fidelity, expected)
    sources = {"synthetic": FRESH, "held-out real": TRAIN}
    expected = detection(real=TEST, synthetic=sources, random_state=3)
    pd.testing.assert_frame_equal(record.detection, expected)


# ---- what the generator's fit promises ---------------------------------------------------------


@SHORT
def test_report_names_the_differential_privacy_promise():
    pytest.importorskip("opendp", reason="needs the extra private")
    fits = {
        "guaranteed, epsilon=2, delta=1e-07": PrivateSynthesizer(
            2.0, 1e-7, bounds={"age": (0, 120)}, epochs=1, n_components=20, random_state=0
        ),
        "not guaranteed": TVAE(epochs=1, batch_size=50, random_state=0),
    }
    table = TRAIN[["age", "rich"]]
    for promise, generator in fits.items():
        generator.fit(table).set_params(epochs=3)
        if promise != "not guaranteed":
            generator.set_params(epsilon=0.1)  # what the fit promised remains
        made = generator.sample(200, random_state=0)
        found = evaluate_synthetic(
            real_train=table, synthetic=made, generator=generator, made={"By": "us"}
        )
        name = type(generator).__name__
        assert found.made["Generator"] == f"{name} of combutab {combutab.__version__}"
        assert found.made["Differential privacy"] == promise
        assert (found.made["epochs"], found.made["By"]) == ("3", "us")
        note = f"Differential privacy of the generator: {promise}."
        assert found.findings[2].notes[-1].startswith(note)
        page = render_report(found)
        assert note in html.unescape(page).replace("\u00a0", " ")
    without = evaluate_synthetic(real_train=table, synthetic=made)
    assert without.made == {}
    assert not any("Differential" in note for note in without.findings[2].notes)


def test_a_generator_is_one_and_fitted():
    with pytest.raises(TypeError, match="'TVAE'"):
        evaluate(FRESH, generator="TVAE")
    with pytest.raises(NotFittedError, match=r"TVAE.*not fitted"):
        evaluate(FRESH, generator=TVAE())


# ---- copies and chance -------------------------------------------------------------------------


def codes(n, seed):
    """Rows of few categories, of which many are equal."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.integers(0, 3, (n, 5)), columns=list("abcde")).astype(str)


@SHORT
def test_equal_rows_of_few_categories_are_chance():
    found = evaluate(codes(300, 2), real_train=codes(300, 0), real_test=codes(300, 1), target=None)
    assert found.copies > 100
    assert levels(found)[2] == "good"


@SHORT
def test_running_identifiers_do_not_affect_fidelity():
    def numbered(seed, first):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=300)
        return pd.DataFrame(
            {"order": range(first, first + 300), "x": x, "y": x + rng.normal(size=300)}
        )

    found = evaluate_synthetic(real_train=numbered(0, 1000), synthetic=numbered(1, 9000))
    (fidelity,) = [each for each in found.findings if each.subject == "fidelity"]
    assert fidelity.level == "good"
    assert found.identifiers == ("order",)
    assert any("left out of all scores" in note and "'order'" in note for note in fidelity.notes)
    assert set(found.fidelity["column"].dropna()) == {"x", "y"}


def with_reference(table, seed, *, low=0, size=10**8, name="ref"):
    numbers = low + np.random.default_rng(seed).choice(size, len(table), replace=False)
    return table.assign(**{name: numbers})


@pytest.fixture(scope="module")
def without_identifiers():
    with short.short_reports():
        return evaluate(FRESH, target=None)


@SHORT
@pytest.mark.parametrize(
    ("name", "low", "size", "options"),
    [
        ("ref", 0, 10**8, {}),  # the synthetic ones are beyond the real ones
        ("tweet_id", 15 * 10**17, 10**15, {}),  # floats do not hold them
        ("code", 0, 2000, {"identifiers": ["code"]}),  # named, and in the same range
    ],
)
def test_sparse_identifiers_are_left_out(name, low, size, options, without_identifiers):
    def numbered(table, seed, start=0):
        return with_reference(table, seed, low=low + start, size=size, name=name)

    start = 0 if name == "code" else 2 * size
    real = {"real_train": numbered(TRAIN, 1), "real_test": numbered(TEST, 2), "target": None}
    copy = evaluate(numbered(TRAIN, 3, start), **real, **options)
    assert copy.identifiers == (name,)
    assert copy.copies == N
    assert levels(copy)[2] == "poor"
    fresh = evaluate(numbered(FRESH, 3, start), **real, **options)
    assert levels(fresh)[1:] == ("good", "good")
    for scores in ("fidelity", "detection", "privacy"):
        expected = getattr(without_identifiers, scores)
        pd.testing.assert_frame_equal(getattr(fresh, scores), expected)


@SHORT
def test_identifiers_do_not_change_the_utility():
    # the label follows from the running number in the training rows alone
    tables = [people(N, seed).sort_values("income", ignore_index=True) for seed in range(3)]
    numbered = [t.assign(row=range(k * N, k * N + N)) for k, t in enumerate(tables)]
    found = evaluate(numbered[2], real_train=numbered[0], real_test=numbered[1])
    expected = evaluate(tables[2], real_train=tables[0], real_test=tables[1])
    assert found.identifiers == ("row",)
    pd.testing.assert_frame_equal(found.efficacy, expected.efficacy)
    assert "row (left out of all scores)" in " ".join(render_report(found).split())


@SHORT
def test_columns_that_the_generator_replaces_are_left_out():
    table = TRAIN[["age", "income"]].assign(ref=np.random.default_rng(0).permutation(N) * 1_000)
    generator = TVAE(epochs=1, batch_size=50, identifiers=["ref"], random_state=0)
    with pytest.warns(UserWarning, match="'ref' holds identifiers"):
        generator.fit(table)
    found = evaluate_synthetic(
        real_train=table, synthetic=generator.sample(N, random_state=0), generator=generator
    )
    assert found.identifiers == ("ref",)


@SHORT
def test_measurements_are_no_identifiers():
    rng = np.random.default_rng(0)

    def measured(table):
        return table[["age"]].assign(
            population=rng.lognormal(12, 1, N).round(),
            pay=rng.normal(5e4, 1e4, N),
            second=1_600_000_000 + rng.choice(30_000_000, N, replace=False),
        )

    found = evaluate(measured(FRESH), real_train=measured(TRAIN), real_test=None, target=None)
    assert found.identifiers == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"identifiers": ["shoe"]}, "'shoe'"),
        ({"identifiers": ["rich"]}, "'rich'"),
        ({"identifiers": "age"}, "identifiers must"),
        ({"identifiers": [*TRAIN], "target": None}, "identifiers lists all columns"),
    ],
)
def test_wrong_identifiers_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        evaluate(FRESH, **options)
