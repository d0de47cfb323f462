"""Evaluation of databases: findings, scores, requirements, privacy of families, and errors."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from combutab import TabFlow, TabFlowTables
from combutab.reports import RequirementError, evaluate_synthetic, render_report, write_report
from tests.reports.test_synthetic_page import Page

pytestmark = pytest.mark.usefixtures("short_reports")

KEYS = [("visits", "who", "people")]


def draw(n, seed, first=0):
    """People and visits, whose cost depends on the age; a visit has its own number."""
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"who": first + np.arange(n), "age": rng.normal(50, 10, n)})
    row = np.repeat(np.arange(n), rng.poisson(3, n))
    visits = pd.DataFrame({"visit": 1000 * first + np.arange(len(row)), "who": first + row})
    visits["ward"] = rng.choice(["a", "b"], len(row))
    visits["cost"] = people["age"].to_numpy()[row] + rng.normal(0, 2, len(row))
    return {"people": people, "visits": visits}


REAL, HELD_OUT = draw(200, 0), draw(200, 1, 200)


@pytest.fixture(scope="module")
def evaluation():
    return evaluate_synthetic(
        real_train=REAL, synthetic=draw(200, 2, 400), real_test=HELD_OUT, keys=KEYS
    )


@pytest.fixture(scope="module")
def copy():
    """Of a synthetic database that has half of the training families."""
    half = {name: table[table["who"] % 2 == 0] for name, table in REAL.items()}
    return evaluate_synthetic(
        real_train=REAL, synthetic=half, real_test=HELD_OUT, keys=KEYS, order_by={"visits": "cost"}
    )


def test_database_of_the_same_distribution_is_good(evaluation):
    levels = {finding.subject: finding.level for finding in evaluation.findings}
    assert levels == {"keys": "good", "fidelity": "good", "privacy": "good"}
    scores = evaluation.scores
    assert scores["keys_unique"] == 1
    assert scores["orphans"] == scores["copied_families"] == 0
    assert min(scores[f"detection_{name}"] for name in ("rows", "children", "siblings")) > 0.7
    assert min(scores["cardinality"], scores["trends"], scores["columns"]) > 0.85
    assert not any(math.isnan(value) for value in scores.values())


def test_new_numbers_of_rows_are_identifiers(evaluation):
    assert evaluation.tables["visits"].identifiers == ("visit",)
    assert [*evaluation.tables["visits"].kinds] == ["ward", "cost"]


def test_copied_families_are_counted(copy):
    has_children = REAL["people"]["who"].isin(REAL["visits"]["who"])
    n_families = int((has_children & (REAL["people"]["who"] % 2 == 0)).sum())
    person = copy.privacy["people"]
    assert (person.n_families, person.copied_families) == (n_families, n_families)
    assert person.expected_families == 0
    assert copy.findings[2].level == "poor"
    assert copy.scores["membership_tpr@10%"] > 0.4


def test_copied_identifiers_of_children_are_found():
    databases = [draw(200, 0), draw(200, 2, 400), draw(200, 1, 200)]
    rng = np.random.default_rng(0)
    for tables in databases:
        n = len(tables["visits"])
        tables["visits"]["mail"] = [f"{code:x}@mail" for code in rng.integers(0, 2**40, n)]
    real, synthetic, held_out = databases
    tables = {"real_train": real, "synthetic": synthetic, "real_test": held_out, "keys": KEYS}
    assert evaluate_synthetic(**tables).findings[2].level == "good"
    synthetic["visits"].loc[:49, "mail"] = real["visits"]["mail"][:50]
    finding = evaluate_synthetic(**tables).findings[2]
    assert finding.level == "poor"
    assert "'visits.mail'" in finding.sentence


def test_orphans_are_a_poor_finding():
    synthetic = draw(200, 2, 400)
    synthetic["visits"].loc[::4, "who"] = 7
    found = evaluate_synthetic(real_train=REAL, synthetic=synthetic, keys=KEYS)
    assert found.findings[0].level == "poor"
    assert found.scores["orphans"] == pytest.approx(0.25, abs=0.01)
    assert math.isnan(found.scores["membership_auc"])


def test_requirements_on_databases(evaluation):
    assert evaluation.require("orphans<=0", "detection_siblings>=0.5") is evaluation
    with pytest.raises(RequirementError) as error:
        evaluation.require("cardinality>=1.5", "copied_families<=0")
    assert len(error.value.failures) == 1
    with pytest.raises(ValueError, match="detection_rows"):
        evaluation.require("detection>=0.5")


def test_privacy_of_all_roots_must_be_known(evaluation):
    assert evaluation.require("membership_auc<=1") is evaluation
    unknown = replace(evaluation.privacy["people"], attacks={})
    found = replace(evaluation, privacy={**evaluation.privacy, "sites": unknown})
    with pytest.raises(RequirementError, match="membership_auc"):
        found.require("membership_auc<=1")


def test_json_has_scores_and_no_rows(evaluation):
    record = json.loads(evaluation.to_json())
    assert record["scores"]["keys_unique"] == 1
    assert record["databases"]["test"]["n_rows"]["people"] == 200
    assert record["keys"] == ["visits.who -> people.who"]
    assert str(REAL["visits"]["cost"].iloc[0]) not in evaluation.to_json()


def test_printed_figures_are_beside_real_ones(evaluation):
    table = evaluation.formatted()
    key = "visits.who -> people.who"
    real = HELD_OUT["people"]["who"].isin(HELD_OUT["visits"]["who"])
    assert table.loc[(key, "childless"), "real"] == pytest.approx(1 - real.mean())
    assert table.loc[(key, "ROC AUC with siblings"), "synthetic"] < 0.65
    assert str(table.loc[(key, "ks"), "synthetic"].round(3)) in str(evaluation)
    assert "keys" in evaluation._repr_html_()


def test_keys_and_order_come_from_the_generator():
    small = {"epochs": 1, "hidden_layer_sizes": (8,), "early_stopping": False}
    model = TabFlowTables(TabFlow(**small), random_state=0)
    real = {**REAL, "visits": REAL["visits"].drop(columns="visit")}
    model.fit(real, KEYS, order_by={"visits": "cost"})
    found = evaluate_synthetic(real_train=real, synthetic=model.sample(60), generator=model)
    assert found.keys == model.keys_
    assert model.order_by_ == {"visits": "cost"}
    assert "TabFlowTables" in found.settings["Generator"]


def test_lookup_tables_are_not_compared():
    wards = pd.DataFrame({"ward": ["a", "b"], "floor": [1, 2]})
    real, synthetic = ({**tables, "wards": wards} for tables in (REAL, draw(200, 2, 400)))
    keys = [*KEYS, ("visits", "ward", "wards")]
    found = evaluate_synthetic(
        real_train=real, synthetic=synthetic, keys=keys, lookup=["wards"], real_test=None
    )
    assert [*found.tables] == ["people", "visits"]
    assert [*found.privacy] == ["people"]
    assert len(found.keys) == 2
    assert [*found.n_children] == ["visits.who -> people.who"]
    figures = found.formatted().loc["visits.ward -> wards.ward"].index
    assert {"ks", "childless"}.isdisjoint(figures)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "age"}, "target"),
        ({"synthetic": {"people": REAL["people"]}}, "visits"),
        ({"synthetic": {**REAL, "people": REAL["people"][["who"]]}}, "age"),
        ({"order_by": {"visits": "day"}}, "day"),
        ({"identifiers": {"wards": ["ward"]}}, "wards"),
        ({"real_train": REAL["people"], "synthetic": REAL["people"]}, "keys"),
    ],
)
def test_errors_name_table_or_parameter(changes, message):
    with pytest.raises(ValueError, match=message):
        evaluate_synthetic(**{"real_train": REAL, "synthetic": REAL, "keys": KEYS} | changes)


# ---- the page ------------------------------------------------------------------------------------


def test_page_has_findings_schema_and_tables(copy, tmp_path):
    path = tmp_path / "report.html"
    write_report(copy, path)
    page = Page(path.read_text("utf-8"))
    text = " ".join(" ".join(page.text).split()).replace("\u00a0", " ")
    places = [text.index(finding.sentence) for finding in copy.findings]
    assert places == sorted(places)
    titles = [given.get("id") for tag, given in page.elements if tag == "h2"]
    assert titles[:5] == ["keys", "families", "pairs", "tables", "privacy"]
    assert page.says("Tables and foreign keys")
    for words in ("people with visits, as a sequence", "visits: 2 columns", "age", "cost"):
        assert page.says(words)


def test_page_without_held_out_rows_or_keys():
    found = evaluate_synthetic(real_train=REAL, synthetic=draw(200, 2, 400), keys=[])
    assert found.findings[0].level == "unknown"
    page = Page(render_report(found))
    assert page.says("Without held-out rows, nothing else is known.")
    assert len(found.privacy) == 2
