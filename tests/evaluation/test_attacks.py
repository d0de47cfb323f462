"""Privacy attacks on synthetic tables of known leakage, and against independent computations."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from combutab.evaluation import attribute_inference, membership_inference, singling_out
from tests.evaluation.leaks import LEAKING, SAFE, leak, people

TRAIN, HOLDOUT = people(300, 10), people(300, 20)
ATTACKS = ["distance", "density_ratio", "local_likelihood_ratio", "classifier"]
FUNCTIONS = (membership_inference, attribute_inference, singling_out)


def attack(function, synthetic, **options):
    return function(**{"real_train": TRAIN, "holdout": HOLDOUT, "synthetic": synthetic} | options)


def worst(table, measure="tpr@10%", rows="all"):
    chosen = (table["attack"] == "worst") & (table["measure"] == measure)
    return table[chosen & (table["rows"] == rows)].iloc[0]


# ---- tables of known leakage -------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEAKING)
def test_membership_of_leaking_rows_is_inferred(kind):
    table = attack(membership_inference, leak(kind, TRAIN))
    for rows, measure in (("all", "tpr@1%"), ("all", "tpr@10%"), ("isolated", "tpr@10%")):
        strongest = worst(table, measure, rows)
        assert strongest["value"] > 0.3  # 0.5 to 1 in all cases
        assert strongest["pvalue"] == 0.001  # none of 999 permutations
        assert strongest["low"] > strongest["reference"]


@pytest.mark.parametrize("kind", SAFE)
def test_membership_of_independent_rows_is_not_inferred(kind):
    table = attack(membership_inference, leak(kind, TRAIN))
    for rows, measure in (("all", "tpr@1%"), ("all", "tpr@10%"), ("isolated", "tpr@10%")):
        strongest = worst(table, measure, rows)
        assert strongest["pvalue"] > 0.05
        assert strongest["low"] <= strongest["reference"]
    assert (table["value"].dropna() < 0.65).all()


@pytest.mark.parametrize("kind", LEAKING)
def test_attributes_of_leaking_rows_are_inferred(kind):
    strongest = attack(attribute_inference, leak(kind, TRAIN)).iloc[-1]
    assert strongest["advantage"] > 0.3
    assert 0.2 < strongest["low"] < strongest["advantage"] < strongest["high"] + 0.05
    assert strongest["pvalue"] < 1e-9


@pytest.mark.parametrize("kind", SAFE)
def test_attributes_of_independent_rows_are_not_inferred(kind):
    strongest = attack(attribute_inference, leak(kind, TRAIN)).iloc[-1]
    assert strongest["low"] < 0 < strongest["high"]
    assert strongest["pvalue"] > 0.05


@pytest.mark.parametrize("kind", ["copies", "bootstrap", "nearest neighbours"])
def test_copied_rows_are_singled_out(kind):
    table = attack(singling_out, leak(kind, TRAIN)).set_index("predicates")
    assert table.loc["multivariate", "advantage"] > 0.3
    assert table.loc["multivariate", "pvalue"] == 0.001


@pytest.mark.parametrize("kind", SAFE)
def test_independent_rows_are_not_singled_out(kind):
    table = attack(singling_out, leak(kind, TRAIN))
    assert (table["pvalue"] > 0.05).all()
    assert (table["advantage"].abs() < 5 * table["se"] + 1e-9).all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_columns_without_values_hide_no_leak(function):
    tables = {"real_train": TRAIN, "holdout": HOLDOUT, "synthetic": leak("bootstrap", TRAIN)}
    table = function(**{name: rows.assign(empty=np.nan) for name, rows in tables.items()})
    assert table.iloc[-1]["pvalue"] <= 0.001


# ---- membership inference ----------------------------------------------------------------------


def numbered(n, seed):
    """Rows of three columns of categories, so that distances are counts of different values."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({name: rng.choice(list("abcdefgh"), n) for name in "uvw"})


def hamming(rows, synthetic):
    return (rows.to_numpy()[:, None] != synthetic.to_numpy()[None]).sum(axis=2).min(axis=1)


def test_distance_attack_against_pairwise_distances():
    train, holdout = numbered(120, 0), numbered(99, 1)
    synthetic = pd.concat([train[:60], numbered(60, 2)], ignore_index=True)
    table = membership_inference(real_train=train, holdout=holdout, synthetic=synthetic)
    values = table[(table["rows"] == "all") & (table["attack"] == "distance")]
    values = values.set_index("measure")["value"]
    near, far = -hamming(train, synthetic), -hamming(holdout, synthetic)
    labels = np.repeat([1, 0], [120, 99])
    assert values["auc"] == pytest.approx(roc_auc_score(labels, np.concatenate([near, far])))
    # Equal distances are ordered at random. Of 99 non-members, a new one exceeds 9 with 10 %.
    rng = np.random.default_rng(0)
    rates = {0: [], 9: []}
    for _ in range(4000):
        members, others = near + rng.random(120) / 2, far + rng.random(99) / 2
        for n_allowed, shares in rates.items():
            shares.append((members > np.sort(others)[::-1][n_allowed]).mean())
    assert values["tpr@1%"] == pytest.approx(np.mean(rates[0]), abs=0.02)
    assert values["tpr@10%"] == pytest.approx(np.mean(rates[9]), abs=0.02)


def test_table_of_membership_attacks():
    table = attack(membership_inference, leak("noisy copies", TRAIN))
    assert table["rows"].unique().tolist() == ["all", "isolated"]
    assert table["measure"].unique().tolist() == ["auc", "tpr@1%", "tpr@10%"]
    assert table["attack"].unique().tolist() == [*ATTACKS, "worst"]
    assert table.loc[table["rows"] == "all", ["n_members", "n_non_members"]].eq(300).all(axis=None)
    isolated = table[table["rows"] == "isolated"].iloc[0]
    assert isolated["n_members"] + isolated["n_non_members"] == 60
    # the strongest attack, with a wider interval
    for (_, measure), values in table.groupby(["rows", "measure"]):
        attacks, strongest = values.iloc[:-1], values.iloc[-1]
        if measure == "tpr@1%" and strongest["n_non_members"] < 99:
            assert np.isnan(strongest["value"])
            continue
        name = strongest["note"]
        assert strongest["value"] == attacks["value"].max()
        same = attacks.set_index("attack").loc[name]
        assert strongest["low"] <= same["low"] <= same["value"] <= same["high"]
        assert strongest["pvalue"] >= same["pvalue"]
        assert strongest["reference"] >= attacks["reference"].max()


def test_largest_of_several_attacks_is_compared_with_the_largest_by_chance():
    tables = [
        membership_inference(
            real_train=people(60, 3 * seed),
            holdout=people(60, 3 * seed + 1),
            synthetic=people(60, 3 * seed + 2),
        )
        for seed in range(12)
    ]
    strongest = pd.DataFrame([worst(table) for table in tables])
    # a mean of 12 uniform p-values has a standard deviation of 0.083
    assert 0.2 < strongest["pvalue"].mean() < 0.8
    assert (strongest["reference"] > 0.105).all()


def test_rates_need_enough_held_out_rows():
    table = attack(membership_inference, TRAIN, holdout=HOLDOUT[:60])
    assert np.isnan(worst(table, "tpr@1%")["value"])
    assert worst(table, "tpr@10%")["value"] == 1.0


def persons(n_persons, seed, start=0):
    """Three rows of each person, who differ more from each other than their rows do."""
    rows = people(n_persons, seed).loc[np.repeat(np.arange(n_persons), 3)].reset_index(drop=True)
    rng = np.random.default_rng(seed)
    rows["visits"] += rng.normal(0, 0.05, len(rows))
    return rows.assign(person=[f"p{start + i}" for i in np.repeat(np.arange(n_persons), 3)])


def test_persons_are_the_members():
    train, holdout = persons(120, 0), persons(120, 1, start=110)  # ten persons are in both
    synthetic = train.assign(person=range(len(train)))
    table = membership_inference(
        real_train=train, holdout=holdout, synthetic=synthetic, person="person"
    )
    assert worst(table)[["n_members", "n_non_members"]].tolist() == [120, 110]
    assert "30 held-out rows of persons with training rows left out" in worst(table)["note"]
    assert worst(table)["value"] == 1.0
    for function in (attribute_inference, singling_out):
        table = function(real_train=train, holdout=holdout, synthetic=synthetic, person="person")
        counts = table.iloc[-1][["n_members", "n_non_members"]].tolist()
        assert counts == ([120, 110] if function is attribute_inference else [110, 110])
        assert "person" not in table.get("column", pd.Series(dtype=object)).tolist()
        assert table.iloc[-1]["advantage"] > 0.3


def test_a_person_is_isolated_by_several_rows():
    train, holdout = persons(60, 0), persons(60, 1, start=60)
    tables = {"real_train": train, "holdout": holdout, "synthetic": train[::3]}
    by_row, by_person = (
        singling_out(
            **tables if person else {k: t.drop(columns="person") for k, t in tables.items()},
            person=person,
        ).set_index("predicates")
        for person in (None, "person")
    )
    # three nearly equal rows satisfy most predicates together
    assert by_person.loc["multivariate", "success"] > by_row.loc["multivariate", "success"] + 0.1


@pytest.mark.parametrize("function", FUNCTIONS)
def test_wrong_person(function):
    with pytest.raises(ValueError, match="persno"):
        attack(function, TRAIN, person="persno")
    with pytest.raises(ValueError, match="person='ward' is missing in"):
        attack(function, TRAIN, person="ward")


# ---- attribute inference -----------------------------------------------------------------------


def test_attribute_inference_by_hand():
    train = pd.DataFrame({"a": list("pqrs"), "b": list("pqrs"), "secret": list("uvwx")})
    holdout = pd.DataFrame({"a": list("pqrs"), "b": list("zzzz"), "secret": list("uuuu")})
    synthetic = pd.DataFrame({"a": list("pqrs"), "b": list("pqrs"), "secret": list("uvwu")})
    table = attribute_inference(
        real_train=train, holdout=holdout, synthetic=synthetic, secret=["secret"]
    )
    first, last = table.iloc[0], table.iloc[1]
    # training rows: u, v, w are right, x is not; held-out rows: the same guesses u, v, w, u
    assert first[["success", "holdout_success"]].tolist() == [0.75, 0.5]
    assert first["advantage"] == pytest.approx(0.25)
    # (3 + 1) / 6 and (2 + 1) / 6, by Agresti and Caffo
    middle, error = 1 / 6, np.sqrt(2 / 3 * 1 / 3 / 6 + 0.25 / 6)
    assert first[["low", "high"]].tolist() == pytest.approx(
        [middle - 1.96 * error, middle + 1.96 * error], abs=1e-3
    )
    assert last["column"] is None
    assert last["note"] == "secret"


def test_guessed_numbers_may_be_off_by_a_twentieth():
    numbers = np.arange(100.0)
    real = pd.DataFrame({"key": [f"k{i}" for i in range(100)], "secret": numbers})
    for shift, share in ((3.0, 1.0), (8.0, 0.0)):
        synthetic = real.assign(secret=(numbers + shift) % 100)
        table = attribute_inference(
            real_train=real, holdout=real, synthetic=synthetic, secret=["secret"]
        )
        assert table.loc[0, "success"] == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"secret": ["wrad"]}, "'wrad'"), ({"max_rows": 1}, "max_rows")],
)
def test_wrong_arguments_of_attribute_inference(options, text):
    with pytest.raises(ValueError, match=text):
        attack(attribute_inference, TRAIN, **options)


def test_a_single_column_cannot_be_guessed():
    one = {"real_train": TRAIN[["age"]], "holdout": HOLDOUT[["age"]]}
    with pytest.raises(ValueError, match="no column beside 'age'"):
        attribute_inference(synthetic=TRAIN[["age"]], **one)
    assert worst(membership_inference(synthetic=TRAIN[["age"]], **one))["value"] == 1.0


# ---- singling out ------------------------------------------------------------------------------


def test_univariate_predicates_by_hand():
    train = pd.DataFrame({"age": [10.0, 20, 30, 40, 95], "ward": list("abbbb")})
    holdout = pd.DataFrame({"age": [11.0, 21, 31, 41, 42], "ward": list("bbbbb")})
    synthetic = pd.DataFrame({"age": [5.0, 20, 20, 20, 90], "ward": list("abbbb")})
    table = singling_out(real_train=train, holdout=holdout, synthetic=synthetic)
    univariate = table.set_index("predicates").loc["univariate"]
    # age <= 5 isolates no row, age >= 90 and ward == a one training row
    assert univariate["n_predicates"] == 3
    assert univariate[["success", "holdout_success"]].tolist() == pytest.approx([2 / 3, 0.0])


def test_numbers_of_predicates_and_rows():
    table = attack(singling_out, TRAIN, holdout=HOLDOUT[:200], n_predicates=50)
    assert table["n_predicates"].tolist()[1] == 50
    assert table[["n_members", "n_non_members"]].eq(200).all(axis=None)
    assert table["note"].str.contains("200 of these 300").all()
    with pytest.raises(ValueError, match="n_predicates"):
        attack(singling_out, TRAIN, n_predicates=0)


# ---- all attacks -------------------------------------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
def test_attacks_are_repeatable_and_leave_global_random_state(function):
    before = np.random.get_state()[1].copy()
    first, again = (attack(function, leak("smote", TRAIN), random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_sampled_rows_are_noted(function):
    table = attack(function, TRAIN, max_rows=100)
    note = table["note"].iloc[-1]
    for name in ("real_train", "holdout", "synthetic"):
        assert f"100 of 300 rows of {name}" in note


@pytest.mark.parametrize("function", FUNCTIONS)
def test_too_few_held_out_rows(function):
    with pytest.raises(ValueError, match="at least 4 rows of real_train and of holdout, got 300"):
        attack(function, TRAIN, holdout=HOLDOUT[:3])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_constant_and_empty_columns(function):
    odd = {"one": 1, "empty": None, "text": "same"}
    real = [table[["age", "ward"]].assign(**odd) for table in (TRAIN, HOLDOUT)]
    table = function(real_train=real[0], holdout=real[1], synthetic=real[0])
    values = table["value" if "value" in table else "advantage"]
    assert np.isfinite(values.dropna()).all()
    assert values.max() > 0.2
