"""Scores of an evaluation by name, and requirements on them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from combutab.core.requirements import SCORES, Requirement, parse_requirement, unmet_requirements
from combutab.reports import RequirementError, evaluate_synthetic
from tests.evaluation.leaks import leak, people

pytestmark = pytest.mark.usefixtures("short_report")


@pytest.fixture(scope="module")
def tables():
    train = people(200, 0)
    return {"real_train": train, "real_test": people(200, 1), "synthetic": leak("smote", train)}


@pytest.fixture(scope="module")
def evaluation(tables):
    return evaluate_synthetic(**tables, target="ill", learners=["linear"])


@pytest.mark.parametrize(
    ("text", "value", "is_met"),
    [
        ("detection>=0.8", 0.8, True),
        ("detection>0.8", 0.8, False),
        ("copies <= 3", 3.0, True),
        ("copies < 3", 3.0, False),
        ("membership_tpr@1%<=0.03", math.nan, False),
        ("pairs>=-1e-3", 0.0, True),
    ],
)
def test_signs_and_bounds(text, value, is_met):
    requirement = parse_requirement(text)
    assert (unmet_requirements({requirement.name: value}, [requirement]) == []) == is_met


def test_failures_have_the_value_or_the_reason():
    requirements = [Requirement("pairs", ">=", 0.9), Requirement("utility", ">=", 0.9)]
    scores = {"pairs": 0.81234, "utility": math.nan}
    first, second = unmet_requirements(scores, requirements)
    assert first == "pairs>=0.9: it is 0.8123"
    assert second.startswith("utility>=0.9: it is not known, because it needs a target")


WRONG = ["", "detection", "detection=0.8", "0.8<=detection", "copies<=nan", 3]


@pytest.mark.parametrize("text", WRONG)
def test_wrong_requirements(text):
    with pytest.raises(ValueError, match="requirement"):
        parse_requirement(text)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="membership_tpr@1%") as caught:
        parse_requirement("privacy>=0.9")
    assert all(name in str(caught.value) for name in SCORES)


def test_scores_are_those_of_the_tables(evaluation):
    scores = evaluation.scores
    assert list(scores) == list(SCORES)
    assert np.isfinite(list(scores.values())).sum() >= len(SCORES) - 1  # few isolated rows
    detection = evaluation.detection.query("learner == 'hist_gradient_boosting'")
    area = detection.set_index("source")["mean"]["synthetic"]
    assert scores["detection_auc"] == area
    assert scores["detection"] == pytest.approx(min(1.0, 2 - 2 * area))
    worst = evaluation.attacks["membership inference"].query("attack == 'worst' and rows == 'all'")
    rates = worst.set_index("measure")["value"]
    assert scores["membership_tpr@10%"] == rates["tpr@10%"] > 0.5
    areas = evaluation.efficacy.query("metric == 'roc_auc'").set_index("source")["mean"]
    kept = (areas["synthetic"] - 0.5) / (areas["real"] - 0.5)
    assert scores["utility"] == pytest.approx(kept)
    assert scores["copies"] == evaluation.copies


@pytest.mark.parametrize(("improvement", "error"), [(0.01, 0.0), (0.06, 0.04)])
def test_utility_without_skill_is_not_known(evaluation, improvement, error):
    efficacy = evaluation.efficacy.copy()
    is_real = efficacy["source"] == "real"
    efficacy.loc[is_real, ["mean", "se"]] = evaluation.guess + improvement, error
    assert math.isnan(replace(evaluation, efficacy=efficacy).scores["utility"])


def test_require_returns_or_raises(evaluation):
    assert evaluation.require() is evaluation
    assert evaluation.require("columns>=0.5", "copies<=0") is evaluation
    with pytest.raises(RequirementError) as caught:
        evaluation.require("columns>=0.5", "membership_tpr@10%<=0.2", "detection_auc<0")
    assert [failure.split(":")[0] for failure in caught.value.failures] == [
        "membership_tpr@10%<=0.2",
        "detection_auc<0",
    ]
    with pytest.raises(ValueError, match="write a score"):
        evaluation.require("columns")


def test_scores_that_need_held_out_rows_are_not_known(tables):
    evaluation = evaluate_synthetic(
        real_train=tables["real_train"], synthetic=tables["synthetic"][:100]
    )
    unknown = {name for name, value in evaluation.scores.items() if math.isnan(value)}
    assert unknown == {name for name, score in SCORES.items() if score.needs}
    with pytest.raises(RequirementError, match="it needs more held-out rows"):
        evaluation.require("membership_tpr@1%<=0.03")


def test_json_has_scores_and_no_rows(evaluation, tables):
    record = json.loads(evaluation.to_json())
    assert record["levels"] == {found.subject: found.level for found in evaluation.findings}
    assert record["scores"]["copies"] == 0
    assert list(record["attacks"]) == list(evaluation.attacks)
    assert record["tables"]["real"]["n_rows"] == 200
    assert str(tables["real_train"]["weight"].iloc[0]) not in evaluation.to_json()
