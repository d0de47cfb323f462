"""The members of a pack: spread over the recipe's ranges, and made of nothing but it."""

from collections import Counter

import numpy as np
import pytest

from combutab import MLPClassifier, MLPRegressor, PackClassifier, PackRegressor
from combutab.estimators._pack import _OF_THE_PACK
from combutab.estimators._pack_training import CLASSIFIER, Between, Recipe, draw_members

RECIPE = Recipe(
    shared={},
    varied={"dropout": Between(0.0, 0.4), "weight_decay": Between(1e-4, 1.0, log=True)},
    shapes=({"hidden_layer_sizes": (8,)}, {"hidden_layer_sizes": (8, 8)}),
)
NAMES = ("relu", "mish", "selu")
# of other solvers and schedules than the recipes', and what another parameter turns off
NOT_RELIED_ON = {"momentum", "nesterovs_momentum", "power_t", "max_fun"}


@pytest.mark.parametrize("seed", range(3))
def test_each_range_is_covered_evenly(seed):
    n = 8
    members = draw_members(RECIPE, n, NAMES, seed)
    dropouts = np.array([m["dropout"] for m in members]) / 0.4
    decays = np.log10([m["weight_decay"] for m in members]) / 4 + 1
    for shares in (dropouts, decays):
        assert sorted((shares * n).astype(int)) == list(range(n))
    assert list(dropouts) != sorted(dropouts)
    assert Counter(m["hidden_layer_sizes"] for m in members) == {(8,): 4, (8, 8): 4}


def test_a_third_of_the_members_drop_nothing_out():
    dropouts = sorted(m["dropout"] for m in draw_members(CLASSIFIER, 12, NAMES, 0))
    assert dropouts[:4] == [0, 0, 0, 0]
    assert 0 < dropouts[4] < dropouts[-1] <= 0.3


def test_activations_take_turns_and_the_first_are_those_given():
    members = draw_members(RECIPE, 8, NAMES, 0)
    assert [m["activation"] for m in members[:3]] == list(NAMES)
    counts = Counter(m["activation"] for m in members)
    assert max(counts.values()) - min(counts.values()) == 1
    assert [m["activation"] for m in draw_members(RECIPE, 2, NAMES, 0)] == ["relu", "mish"]


def test_a_seed_gives_the_same_members_and_another_others():
    assert draw_members(CLASSIFIER, 6, NAMES, 5) == draw_members(CLASSIFIER, 6, NAMES, 5)
    assert draw_members(CLASSIFIER, 6, NAMES, 5) != draw_members(CLASSIFIER, 6, NAMES, 6)


@pytest.mark.parametrize(
    ("pack", "plain"), [(PackClassifier, MLPClassifier), (PackRegressor, MLPRegressor)]
)
def test_a_member_leaves_nothing_to_the_plain_estimators_defaults(pack, plain):
    recipe = pack._recipe
    said = {*recipe.shared, *recipe.varied, *(name for shape in recipe.shapes for name in shape)}
    assert said | _OF_THE_PACK | {*pack._passed_on} | NOT_RELIED_ON == {*plain().get_params()}
    assert all({*shape} == {*recipe.shapes[0]} for shape in recipe.shapes)
    for member in pack(n_members=4)._draw(0):
        assert member.n_members == 1
        assert member.early_stopping_scoring == "loss"
