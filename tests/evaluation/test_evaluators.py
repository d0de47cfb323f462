"""What holds for every evaluator of synthetic tables: samples, dtypes, names, seeds, refusals."""

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import detection, fidelity, ml_efficacy, privacy


def table_of(seed, n=90):
    rng = np.random.default_rng(seed)
    size, kind = rng.normal(size=n).round(3), rng.choice(["u", "v", "w"], n)
    y = np.where(size + (kind == "u") + 0.5 * rng.normal(size=n) > 0, "yes", "no")
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    table = pd.DataFrame({"size": size, "kind": kind, "member": kind == "v", "day": day, "y": y})
    table.loc[::9, "size"] = np.nan
    return table


def _efficacy(real, held_out, synthetic, **options):
    tables = {"real_train": real, "real_test": held_out, "synthetic": synthetic}
    return ml_efficacy(**tables, **{"target": "y", "learners": ["decision_tree"]} | options)


def _detection(real, held_out, synthetic, **options):
    return detection(real=real, synthetic=synthetic, **{"learners": "decision_tree"} | options)


def _fidelity(real, held_out, synthetic, **options):
    return fidelity(real=real, synthetic=synthetic, **{"max_rows": 40} | options)


def _privacy(real, held_out, synthetic, **options):
    tables = {"real_train": real, "holdout": held_out, "synthetic": synthetic}
    return privacy(**tables, **{"max_rows": 40} | options)


EVALUATORS = {
    "ml_efficacy": _efficacy,
    "detection": _detection,
    "fidelity": _fidelity,
    "privacy": _privacy,
}
every = pytest.mark.parametrize("evaluate", EVALUATORS.values(), ids=EVALUATORS)
REAL, HELD_OUT = table_of(0), table_of(1)
MADE = pd.concat([table_of(2, 85), REAL[:5]], ignore_index=True)


def of(table, source):
    return table[table["source"] == source].reset_index(drop=True)


@every
def test_samples_are_averaged_and_generators_named(evaluate):
    samples = [table_of(seed, 80) for seed in (3, 4, 5)]
    together = evaluate(REAL, HELD_OUT, {"x": samples, "y": samples[1]})
    alone = [of(evaluate(REAL, HELD_OUT, each), "synthetic") for each in samples]
    means = np.array([table["mean"] for table in alone])
    np.testing.assert_allclose(of(together, "x")["mean"], means.mean(axis=0))
    np.testing.assert_allclose(of(together, "x")["sd"], means.std(axis=0, ddof=1), atol=1e-12)
    assert (of(together, "x")["n_tables"] == 3).all()
    np.testing.assert_array_equal(of(together, "y")["mean"], means[1])
    assert of(together, "y")["sd"].isna().all()


@every
def test_other_dtypes_of_one_table_score_alike(evaluate):
    pl = pytest.importorskip("polars")
    expected = evaluate(REAL, HELD_OUT, MADE)
    values = {
        name: [None if pd.isna(each) else each for each in column] for name, column in MADE.items()
    }
    for form in (
        MADE.astype({"kind": "category", "member": str, "size": "Float64", "day": str}),
        MADE.assign(member=MADE["member"].astype("boolean"), day=MADE["day"].dt.tz_localize("UTC")),
        MADE[MADE.columns[::-1]],
        pl.DataFrame(values),
    ):
        pd.testing.assert_frame_equal(evaluate(REAL, HELD_OUT, form), expected)


@pytest.mark.parametrize("evaluate", [_efficacy, _detection])
def test_columns_may_have_any_names(evaluate):
    names = dict(zip(REAL, [("a", 1), 0, "0", 1.5, "y"], strict=True))
    odd = [table.set_axis(list(names.values()), axis=1) for table in (REAL, HELD_OUT, MADE)]
    pd.testing.assert_frame_equal(evaluate(*odd), evaluate(REAL, HELD_OUT, MADE))


@every
def test_seed_decides_and_inputs_stay_unchanged(evaluate):
    np.random.seed(3)
    state = np.random.get_state()[1].copy()
    before = [table.copy() for table in (REAL, HELD_OUT, MADE)]
    first = evaluate(REAL, HELD_OUT, MADE, random_state=1)
    pd.testing.assert_frame_equal(evaluate(REAL, HELD_OUT, MADE, random_state=np.int64(1)), first)
    other = evaluate(REAL, HELD_OUT, MADE, random_state=np.random.default_rng(2))
    assert not other["mean"].equals(first["mean"])
    assert (np.random.get_state()[1] == state).all()
    for table, copy in zip((REAL, HELD_OUT, MADE), before, strict=True):
        pd.testing.assert_frame_equal(table, copy)


@pytest.mark.slow
@pytest.mark.parametrize("evaluate", [_efficacy, _detection, _privacy])
def test_processes_find_the_same(evaluate):
    runs = [evaluate(REAL, HELD_OUT, [MADE, HELD_OUT], n_jobs=n_jobs) for n_jobs in (None, 2)]
    pd.testing.assert_frame_equal(*runs)


@every
@pytest.mark.parametrize(
    ("synthetic", "says"),
    [
        (MADE.drop(columns=["kind", "day"]), r"synthetic lacks \['kind', 'day'\]"),
        ({"good": MADE, "bad": MADE.assign(id=1)}, r"bad has besides \['id'\]"),
        ([], "synthetic is an empty list"),
        ({}, "synthetic is empty"),
        ({"real": MADE}, "'real' is a name of the real rows"),
    ],
)
def test_what_cannot_be_compared_is_refused(evaluate, synthetic, says):
    with pytest.raises(ValueError, match=says):
        evaluate(REAL, HELD_OUT, synthetic)
