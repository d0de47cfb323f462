"""A synthetic table's evaluation: cases whose verdict is known, and what the record holds."""

import functools
import html
import math
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import combutab
from combutab import TVAE, PrivateSynthesizer
from combutab.evaluation import METRICS, align_tables, detection, fidelity, ml_efficacy, privacy
from combutab.reports import evaluate_synthetic, render_report
from combutab.reports._findings import count_copies, count_values, find_copies
from combutab.reports._yardsticks import share_by_chance

QUICK = {"learners": ["linear"]}


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
    rng = np.random.default_rng(9)
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
def evaluated(rows, target="rich"):
    """What is found of these rows, computed once."""
    synthetic = {"fresh": FRESH, "copy": TRAIN, "noise": noise(N)}[rows]
    return evaluate(synthetic, target=target)


# ---- known cases -------------------------------------------------------------------------------


KNOWN = pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("fresh", ("good", "good", "good")),
        ("copy", ("good", "good", "poor")),
        ("noise", ("poor", "poor", "good")),
    ],
)


def check_known(rows, target, expected):
    found = evaluated(rows, target)
    assert levels(found) == expected
    assert found.copies == (len(TRAIN) if rows == "copy" else 0)
    assert found.guess == 0.0 or target == "rich"
    closer = "100.0 % of the synthetic rows are closer to a training row"
    assert (closer in found.findings[2].sentence) == (rows == "copy")


@KNOWN
def test_known_tables(rows, expected):
    check_known(rows, "rich", expected)


@KNOWN
@pytest.mark.usefixtures("short_report")
def test_known_tables_of_a_regression(rows, expected):
    check_known(rows, "income", expected)


@pytest.mark.slow
def test_a_shuffled_target_teaches_nothing():
    rng = np.random.default_rng(3)
    shuffled = FRESH.assign(rich=rng.permutation(FRESH["rich"]))
    found = evaluate(shuffled)
    assert levels(found)[0] == "poor"
    assert levels(found)[2] == "good"
    # single columns are as before, pairs are not
    assert "the column 'rich' least" not in found.findings[1].sentence
    before = evaluated("fresh")
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


@pytest.mark.usefixtures("short_report")
@pytest.mark.parametrize("n", [300, 1000])
@pytest.mark.parametrize(("shuffled", "level"), [(False, "good"), (True, "poor")])
def test_few_rows_of_uneven_classes_get_a_verdict(n, shuffled, level):
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


@pytest.mark.usefixtures("short_report")
@pytest.mark.parametrize("metric", [*METRICS["classification"], *METRICS["regression"]])
def test_every_metric_may_decide(metric):
    task = "regression" if metric in METRICS["regression"] else "classification"
    target = "rich" if task == "classification" else "income"
    found = evaluate(FRESH, scoring=metric, learners=["linear"], target=target, task=task)
    (real,) = found.efficacy.query("metric == @metric and source == 'real'").to_dict("records")
    assert found.metric == metric
    assert 0 < real["se"] < 1
    ahead = real["mean"] - found.guess
    assert (ahead if METRICS[task][metric].greater_is_better else -ahead) > 0
    assert METRICS[task][metric].title in found.findings[0].figure


@pytest.mark.usefixtures("short_report")
def test_the_metric_is_the_users_choice():
    found = evaluate(FRESH, scoring="log_loss", learners=["linear"])
    assert (found.metric, found.findings[0].level) == ("log_loss", "good")
    assert found.findings[0].sentence.startswith(
        "Log loss of a linear model on 300 held-out real rows: 0."
    )
    assert "Log loss of the linear model: 0." in render_report(found)
    with pytest.raises(ValueError, match="'r2' is a metric of regression, and the task is clas"):
        evaluate(FRESH, scoring="r2")


def test_a_notebook_shows_the_scores_and_the_findings():
    found = evaluated("fresh")
    page = ElementTree.fromstring(found._repr_html_())
    titles = [each.text.split(":")[0] for each in page.iter("title")]
    assert titles == ["linear, real rows", "linear, synthetic rows"]
    lines = [each.text for each in page.iter("li")]
    assert [line.split(":")[0] for line in lines] == ["Utility", "Fidelity", "Privacy"]
    assert all(f.sentence in line for f, line in zip(found.findings, lines, strict=True))


@pytest.mark.usefixtures("short_report")
def test_near_copies_of_a_part_are_found():
    near = TRAIN[:60].assign(income=TRAIN["income"] + 0.001, age=TRAIN["age"] + 0.001)
    found = evaluate(pd.concat([near, FRESH[:240]]))
    assert found.copies == 0
    assert levels(found) == ("good", "good", "poor")


def pairs_of_numbers(n, rng):
    x = rng.normal(size=n)
    return pd.DataFrame({"x": x, "y": x + rng.normal(size=n)})


@pytest.mark.usefixtures("short_report")
@pytest.mark.parametrize("seed", range(3))
def test_near_copies_of_half_of_each_real_table_are_found(seed):
    # as near to the one table as to the other, and no row is equal
    rng = np.random.default_rng(seed)
    train, test, fresh = (pairs_of_numbers(200, rng) for _ in range(3))
    half = pd.concat([train.sample(100, random_state=seed), test.sample(100, random_state=seed)])
    near = half + 1e-3 * rng.normal(size=half.shape) * train.std().to_numpy()
    options = {"real_train": train, "real_test": test, "target": None}
    finding = evaluate(near, **options).findings[2]
    assert finding.level == "poor"
    assert "The generator was probably trained on both real tables." in finding.sentence
    assert "synthetic rows are near copies of a training row" in finding.sentence
    assert "synthetic rows are near copies of a held-out row" in finding.sentence
    assert evaluate(fresh, **options).findings[2].level == "good"


@pytest.mark.usefixtures("short_report")
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


@pytest.mark.usefixtures("short_report")
def test_near_copies_are_found_without_held_out_rows():
    rng = np.random.default_rng(4)
    noisy = {name: TRAIN[name] + rng.normal(0, 0.05, N) for name in ("age", "income")}
    noisy["born"] = TRAIN["born"] + pd.Timedelta(hours=1)
    found = evaluate(TRAIN.assign(**noisy), real_test=None, target=None)
    assert levels(found)[2] == "poor"
    assert "clearly below 0.5" in found.findings[2].sentence
    assert found.findings[1].short.endswith("but may be near copies of them.")


@pytest.mark.usefixtures("short_report")
def test_copies_with_new_identifiers_are_copies():
    def named(table, first):
        return table.assign(id=range(first, first + len(table)))

    real = {"real_train": named(TRAIN, 1000), "real_test": named(TEST, 2000), "target": None}
    found = evaluate(named(TRAIN, 9000), **real)
    assert levels(found)[2] == "poor"
    assert found.copies == N
    assert found.privacy.set_index("measure").loc["copies", "mean"] == N
    assert (
        "Distances and exact duplicates ignore identifier columns: 'id'." in found.findings[2].notes
    )


@pytest.mark.usefixtures("short_report")
def test_missing_values():
    tables = [people(N, seed, gaps=True) for seed in range(3)]
    found = evaluate(tables[2], real_train=tables[0], real_test=tables[1])
    assert levels(found)[1:] == ("good", "good")
    assert "rows without a target are left out" in " ".join(found.findings[0].notes)


ONE = TRAIN[["one"]]
NO = {"real_train": TRAIN.assign(rich="no"), "real_test": TEST.assign(rich="no")}


@pytest.mark.usefixtures("short_report")
@pytest.mark.parametrize(
    ("synthetic", "options", "expected"),
    [
        (FRESH.assign(rich="no"), {}, ("poor", ..., ...)),
        (FRESH.assign(rich=None), {}, ("poor", ..., ...)),
        (FRESH.assign(rich="no"), NO, ("unknown", "good", "good")),
        (ONE, {"real_train": ONE, "real_test": ONE, "target": None}, ("unknown", "good", "good")),
        (FRESH, {"target": None}, ("unknown", "good", "good")),
        # the held-out rows are others: fresh rows are closer to the training rows
        (FRESH, {"real_test": TEST.assign(age=TEST["age"] + 25.0)}, (..., ..., "unknown")),
        (TRAIN, {"real_test": None}, (..., ..., "poor")),
        # copies would be told from nothing: the held-out rows are copies as well
        (TRAIN, {"real_test": TRAIN[:200]}, (..., ..., "poor")),
        (FRESH, {"real_test": TRAIN[:200]}, (..., ..., "unknown")),
        (FRESH[:1], {"target": None}, (..., ..., "unknown")),
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


@pytest.mark.usefixtures("short_report")
def test_without_held_out_rows():
    found = evaluate(FRESH, real_test=None)
    assert levels(found) == ("good", "good", "unknown")
    assert found.test is None
    assert found.privacy is None
    assert set(found.fidelity["source"]) == set(found.detection["source"]) == {"synthetic"}
    assert "on 300 real rows" in found.findings[0].sentence  # each fifth in turn
    assert "one fifth at a time" in found.findings[0].notes[0]


@pytest.mark.usefixtures("short_report")
@pytest.mark.parametrize(  # each two of them
    ("n", "tested", "target"),
    [
        *[(1, True, "rich"), (2, True, "income"), (3, True, None), (6, True, "rich")],
        *[(1, False, "income"), (2, False, "rich"), (3, False, "rich"), (6, False, "income")],
        *[(1, True, None), (2, False, None), (3, True, "income"), (6, False, None)],
    ],
)
def test_tiny_tables_are_no_error_and_no_praise(n, tested, target):
    found = evaluate(
        FRESH[:n],
        real_train=TRAIN[: n + 1],
        real_test=TEST[:n] if tested else None,
        target=target,
    )
    assert levels(found)[0] == "unknown"
    assert levels(found)[2] == "unknown"
    assert all(finding.sentence.endswith(".") for finding in found.findings)


# ---- what is wrong is said ---------------------------------------------------------------------


def test_a_missing_column_is_named_with_its_table():
    names = {"real": "people.csv", "synthetic": "made.csv"}
    with pytest.raises(ValueError, match=r"not those of people\.csv: made\.csv lacks \['rich'\]"):
        evaluate(FRESH.drop(columns="rich"), names=names)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "wealth"}, "no column 'wealth' for a target; there are 'age', 'education'"),
        ({"task": "ranking"}, "task must be 'auto', 'classification' or 'regression', got 'rank"),
        ({"target": "born"}, "the target 'born' holds dates; set task='classification'"),
        ({"target": "education", "task": "regression"}, "a regression needs numbers"),
        ({"real_test": TEST.assign(rich=None)}, "no row of real_test has a target"),
        ({"learners": "oracle"}, "unknown learner 'oracle'"),
        ({"real_test": TEST.assign(age=1e200)}, "'age' of held-out real table has absolute values"),
        ({"min_frequency": 0}, "min_frequency must be an integer of at least 1, or a"),
        ({"min_frequency": 1.5}, "min_frequency must be an integer of at least 1, or a"),
        ({"categorical": ["shoe"]}, r"there is no column \['shoe'\]"),
    ],
)
def test_bad_arguments(options, says):
    with pytest.raises(ValueError, match=says):
        evaluate(FRESH, **options)


# ---- the record --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record():
    return evaluate(FRESH, made={"Generator": "a die"}, names={"real": "r.csv"}, random_state=3)


def test_the_tables_are_the_evaluators(record):
    tables = {"real_train": TRAIN, "synthetic": FRESH}
    options = {"target": "rich", "random_state": 3, "n_resamples": 100, **QUICK}
    expected = ml_efficacy(real_test=TEST, **tables, **options)
    pd.testing.assert_frame_equal(record.efficacy, expected)
    pd.testing.assert_frame_equal(record.privacy, privacy(holdout=TEST, random_state=3, **tables))
    sources = {"synthetic": FRESH, "held-out real": TEST}
    for table, evaluator in ((record.fidelity, fidelity), (record.detection, detection)):
        expected = evaluator(real=TRAIN, synthetic=sources, random_state=3)
        pd.testing.assert_frame_equal(table, expected)


# ---- what the generator's fit promises ---------------------------------------------------------


@pytest.mark.usefixtures("short_report")
def test_a_report_says_whether_the_generator_promises_differential_privacy():
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
    with pytest.raises(TypeError, match="fitted generator, such as TabFlow, got 'TVAE'"):
        evaluate(FRESH, generator="TVAE")
    with pytest.raises(NotFittedError, match="TVAE instance is not fitted"):
        evaluate(FRESH, generator=TVAE())


# ---- copies and chance -------------------------------------------------------------------------


def rows_of(table):
    """Rows as tuples, None where missing."""
    return [
        tuple(None if pd.isna(value) else value for value in row)
        for row in table.astype(object).itertuples(index=False, name=None)
    ]


def aligned(*tables):
    named = dict(zip("abc", tables, strict=False))
    return list(align_tables(named, reference="a").tables.values())


@pytest.mark.parametrize("tested", [True, False])
def test_copies_are_counted_as_a_loop_does(tested):
    def draw(n, seed):
        rng = np.random.default_rng(seed)
        return pd.DataFrame(
            {
                "x": rng.choice([-0.0, 0.0, 1.5, np.nan], n),
                "c": rng.choice(["a", "b", None], n),
                "t": rng.choice(pd.to_datetime(["2020-01-01", "2021-01-01", None]), n),
                "n": rng.integers(0, 6, n),
            }
        )

    train, made, test = aligned(draw(80, 0), draw(150, 1), draw(60, 2))
    found = count_copies(train, made, test if tested else None)
    counts = {}
    for row in rows_of(train):
        counts[row] = counts.get(row, 0) + 1
    assert found.rows == sum(row in counts for row in rows_of(made))
    assert found.of_single == sum(counts.get(row) == 1 for row in rows_of(made))
    if tested:
        hits, n = sum(counts.get(row) == 1 for row in rows_of(test)), 60
    else:
        hits, n = sum(count == 2 for count in counts.values()), 40
    assert found.expected == pytest.approx(150 * hits / n)
    total, share = found.of_single + hits, Fraction(150, 150 + n)
    pvalue = sum(
        math.comb(total, k) * share**k * (1 - share) ** (total - k)
        for k in range(found.of_single, total + 1)
    )
    assert found.pvalue == pytest.approx(float(pvalue))
    if tested:
        table = privacy(real_train=train, synthetic=made, holdout=test).set_index("measure")
        assert found.rows == table.loc["copies", "mean"]


def test_copies_by_chance_are_estimated_from_the_table_itself():
    # 3000 draws of 4000 equally likely rows; of 3000 more, some meet one that is there once
    rng = np.random.default_rng(0)
    train, made, test = (
        pd.DataFrame({"x": rng.integers(0, 4000, 3000).astype(float)}) for _ in "123"
    )
    for found in (count_copies(train, made), count_copies(train, made, test)):
        assert found.of_single == pytest.approx(found.expected, rel=0.1)
        assert found.by_chance
    assert not count_copies(train, train).by_chance


def codes(n, seed):
    """Rows of few categories, of which many are equal."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.integers(0, 3, (n, 5)), columns=list("abcde")).astype(str)


@pytest.mark.usefixtures("short_report")
def test_equal_rows_of_few_categories_are_chance():
    found = evaluate(codes(300, 2), real_train=codes(300, 0), real_test=codes(300, 1), target=None)
    assert found.copies > 100
    assert levels(found)[2] == "good"


@pytest.mark.parametrize("seed", range(3))
def test_equal_rows_are_chance_where_real_ones_were_removed(seed):
    """No two real rows are equal, so that a held-out row never equals a training row."""
    real = codes(2000, 3 * seed).drop_duplicates(ignore_index=True)[:160]
    fresh = codes(200, 3 * seed + 1)
    of_train, of_test = find_copies(*aligned(real[:80], fresh, real[80:]))
    assert min(of_train.of_single, of_test.of_single) > 20
    assert max(of_train.expected, of_test.expected) == 0.0
    for copies in (of_train, of_test):
        assert copies.by_chance
        assert not copies.unexplained
    # held-out rows of another distribution show nothing either
    shown = find_copies(*aligned(codes(300, 0), codes(300, 1), codes(300, 2) + "x"), differ=True)
    assert shown[0].by_chance
    # rows of one side only are met
    of_train, of_test = find_copies(*aligned(real[:80], real[:80], real[80:]))
    assert not of_train.by_chance
    assert of_test.rows == 0


def test_rows_that_differ_in_one_column_bound_what_chance_does():
    train = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": list("wxyz"), "c": list("wxyz")})
    test = pd.DataFrame({"a": [1.0, 9.0, 3.0], "b": list("wyw"), "c": list("qyq")})
    ours, made, others = aligned(train, train[:2], test)
    found = count_copies(ours, made, others)
    assert (found.of_single, found.expected) == (2, 0.0)
    # (1, w, q) and (9, y, y) are one column off; of 4 rows that are met 2 or more are among 2 of 5
    assert found.near_pvalue == pytest.approx(1 - 0.6**4 - 4 * 0.4 * 0.6**3)
    assert not found.unexplained
    # within the table itself, and none at all
    assert count_copies(ours, made).near_pvalue == 0.0
    assert count_copies(ours, made).unexplained
    assert not count_copies(ours, aligned(train, test)[1]).unexplained
    # of two columns both count: rows of a small space are equal anyway
    rare = pd.DataFrame({"a": list("xxxxz"), "b": list("yyyyz")})
    ours, made, others = aligned(rare, rare[4:], rare[:4])
    assert not count_copies(ours, made, others).unexplained
    assert count_copies(ours[4:], made, others).unexplained


def test_running_numbers_in_one_range_are_no_copied_values():
    order = np.random.default_rng(0).permutation(600)
    numbers = pd.DataFrame({"id": order.astype(float)})
    ours, others, made = numbers[:300], numbers[300:], pd.DataFrame({"id": np.arange(300.0)})
    assert list(count_values(ours, made, others)) == ["id"]
    assert count_values(ours, made, others, identifiers=["id"]) == {}
    assert list(count_values(ours, ours, others, identifiers=["id"])) == ["id"]


def test_chance_grows_where_a_few_rows_are_nearest_to_all():
    train, test, fresh = aligned(*(people(600, seed)[["age"]] for seed in range(3)))
    options = {"categorical": [], "random_state": 0, "n_jobs": None}
    near = share_by_chance(train, test, fresh, **options)
    # each real row is the nearest to some: about 0.5 / sqrt(600) and a little
    assert 0.005 < near < 0.05
    # all are nearest to the same one, which is on one side or the other
    far = share_by_chance(train, test, fresh + 1000.0, **options)
    assert far == pytest.approx(0.5)


@pytest.mark.usefixtures("short_report")
def test_new_names_of_rows_do_not_tell_synthetic_rows_from_real_ones():
    def numbered(seed, first):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=300)
        return pd.DataFrame(
            {"order": range(first, first + 300), "x": x, "y": x + rng.normal(size=300)}
        )

    found = evaluate_synthetic(real_train=numbered(0, 1000), synthetic=numbered(1, 9000))
    (fidelity,) = [each for each in found.findings if each.subject == "fidelity"]
    assert fidelity.level == "good"
    assert (
        "Identifier columns are left out, because their values should differ: 'order'."
        in fidelity.notes
    )
    assert "order" in set(found.fidelity["column"])  # it is measured, and decides nothing
