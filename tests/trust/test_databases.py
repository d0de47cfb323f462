"""Values of single parents and families are in no file of TabFlowTables, although they repeat."""

import warnings

import numpy as np
import pandas as pd
import pytest

from combutab import TabFlow, TabFlowTables
from tests.trust.test_canaries import FEWEST, files, leaks

KEYS = [("visits", "patient", "patients"), ("visits", "doctor", "doctors")]
CANARY_FAMILY = 7


def make_people(n, title, rng):
    """People with a key, a name, an e-mail address and numbers of their own."""
    people = pd.DataFrame(
        {
            "key": pd.Categorical([f"{title}-key-{i:03d}" for i in range(n)]),
            "name": [f"{title}-name-{i:03d}" for i in range(n)],
            "email": [f"{title}{7 * i}@mail{i}.example" for i in range(n)],
            "ward": [f"{title}-ward-{i % 3}" for i in range(n)],
            "degree": [f"{title}-degree-{i % 2}" for i in range(n)],
            "salary": rng.lognormal(10, 0.5, n),
            "born": pd.Timestamp("1950-01-01")
            + pd.to_timedelta(rng.uniform(0, 1e9, n).round(), unit="s"),
        }
    )
    people.loc[3, "degree"] = f"{title}-canary-degree"
    people.loc[3, "salary"] = 98765432.198765
    people.loc[3, "born"] = pd.Timestamp("1893-04-17 04:05:06")
    return people


def make_database(n_patients=60, n_doctors=55, orphans=0):
    """Patients and doctors with at least FEWEST visits each."""
    rng = np.random.default_rng(0)
    patients = make_people(n_patients, "patient", rng)
    doctors = make_people(n_doctors, "doctor", rng)
    patient = np.repeat(np.arange(n_patients), rng.integers(FEWEST + 1, 14, n_patients))
    n = len(patient)
    visits = pd.DataFrame(
        {
            "patient": patients["key"].take(patient).reset_index(drop=True),
            "doctor": doctors["key"].take(rng.permutation(n) % n_doctors).reset_index(drop=True),
            "reason": rng.choice(["flu", "cut", "check"], n),
            "weight": np.where(rng.random(n) < 0.5, rng.normal(70, 9, n), np.nan),
        }
    )
    first = int(np.argmax(patient == CANARY_FAMILY))  # the only weight of its family
    visits.loc[patient == CANARY_FAMILY, "weight"] = np.nan
    visits.loc[patient == CANARY_FAMILY, "reason"] = "flu"
    visits.loc[first, ["reason", "weight"]] = ["visit-canary", 543.2109876]
    visits.loc[rng.permutation(np.delete(np.arange(n), first))[:orphans], "patient"] = None
    visits.loc[n - 3 :, "doctor"] = None
    return {"patients": patients, "doctors": doctors, "visits": visits}


def fit(tables, **options):
    small = {"epochs": 2, "hidden_layer_sizes": (8,), "early_stopping": False, "batch_size": 50}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*hold identifiers")
        return TabFlowTables(TabFlow(**small), random_state=0).fit(tables, KEYS, **options)


@pytest.fixture(scope="module", params=[0, 40], ids=["with parents", "some without"])
def fitted(request):
    tables = make_database(orphans=request.param)
    return tables, fit(tables)


def test_files_have_no_values_of_single_parents(fitted, tmp_path):
    tables, model = fitted
    model.sample(10)
    for path, content in files(model, tmp_path).items():
        for table in ("patients", "doctors"):
            assert f"{table[:-1]}-ward-1".encode() in content, path  # which a third of them have
            assert leaks(content, tables[table].drop(columns="key")) == [], path
            for column in ("key", "name", "email"):
                assert not any(value.encode() in content for value in tables[table][column]), path
        assert b"visit-canary" not in content, path
        first = tables["visits"]["reason"] == "visit-canary"
        assert leaks(content, tables["visits"].loc[first, ["reason", "weight"]]) == [], path


def test_samples_have_no_values_of_single_parents(fitted):
    tables, model = fitted
    drawn = model.sample(200, random_state=1)
    for table in ("patients", "doctors"):
        for column in ("key", "name", "email", "salary"):
            assert not drawn[table][column].isin(tables[table][column]).any(), column
        assert f"{table[:-1]}-canary-degree" not in set(drawn[table]["degree"])
        assert drawn[table]["born"].min() > pd.Timestamp("1900-01-01")
    for column, table in (("patient", "patients"), ("doctor", "doctors")):
        keys = drawn["visits"][column]
        assert keys.dropna().isin(drawn[table]["key"]).all()
        assert not set(keys.cat.categories) & set(tables[table]["key"])
    assert "visit-canary" not in set(drawn["visits"]["reason"])


def test_frequent_values_of_parents_still_choose_them():
    rng = np.random.default_rng(0)
    tables = make_database(n_patients=150)
    doctors, visits = tables["doctors"], tables["visits"]
    ward = visits["doctor"].map(doctors.set_index("key")["ward"]).astype(object)
    visits["room"] = ward.str[-1].fillna("2").map(lambda digit: f"room {digit}")
    visits["weight"] = rng.normal(70, 9, len(visits))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*hold identifiers")
        generator = TabFlow(epochs=40, hidden_layer_sizes=(32,), early_stopping=False)
        model = TabFlowTables(generator, random_state=0).fit(tables, KEYS)
    drawn = model.sample(random_state=0)
    joined = drawn["visits"].merge(drawn["doctors"], left_on="doctor", right_on="key")
    assert (joined["room"].str[-1] == joined["ward"].str[-1]).mean() > 0.6  # by chance 0.33


def test_a_lookup_table_keeps_all_rows():
    tables = make_database()
    model = fit(tables, lookup=["doctors"])
    drawn = model.sample(10)
    pd.testing.assert_frame_equal(drawn["doctors"], tables["doctors"])
    assert drawn["visits"]["doctor"].dropna().isin(tables["doctors"]["key"]).all()


def test_share_as_min_frequency_counts_parents():
    tables = make_database()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*hold identifiers")
        generator = TabFlow(epochs=1, hidden_layer_sizes=(8,), min_frequency=0.2)
        model = TabFlowTables(generator, random_state=0).fit(tables, KEYS)
    learned = model.generators_["visits"].encoder_.categories_
    assert learned["cell doctor: ward"] == [f"doctor-ward-{i}" for i in range(3)]
    assert learned["parent ward"] == [f"patient-ward-{i}" for i in range(3)]
