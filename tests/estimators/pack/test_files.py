"""Packs in files and pickles: the chosen networks alone, and the same predictions to the bit."""

import json
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import KFold

from combutab import PackClassifier, PackRegressor, load
from combutab.activations import CombU
from tests.estimators.test_files import header_of

X, Y = load_iris(return_X_y=True)
TABLE = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 0] > 5.5, "long", "short"))
NAMES = np.array(["se", "ve", "vi"])[Y]
QUICK = {
    "n_members": 5,
    "max_iter": 4,
    "random_state": 0,
    "member_params": {"batch_size": 64, "learning_rate_init": 0.01},
}


@pytest.fixture(scope="module")
def packs():
    packs = [
        PackClassifier(**QUICK, activations=("relu", CombU, "pln-8"), cv=3).fit(TABLE, NAMES),
        PackRegressor(**QUICK, loss="gaussian_nll", cv=2).fit(TABLE, X[:, 0]),
    ]
    assert len(packs[0]._groups) > 1
    return packs


def told(pack):
    if isinstance(pack, PackClassifier):
        return pack.predict_proba(TABLE)
    return np.column_stack(pack.predict(TABLE, return_std=True))


@pytest.mark.parametrize("which", [0, 1])
def test_a_file_holds_all_that_is_needed(packs, which, tmp_path):
    pack = packs[which]
    pack.save(tmp_path / "pack")
    for loaded in (load(tmp_path / "pack"), type(pack).load(tmp_path / "pack", device="cpu")):
        assert (told(loaded) == told(pack)).all()
        pd.testing.assert_frame_equal(loaded.members_, pack.members_)
        pd.testing.assert_frame_equal(loaded.history_, pack.history_)
        pd.testing.assert_series_equal(loaded.activation_weights_, pack.activation_weights_)
        for name in ("validation_loss_", "best_member_validation_loss_", "n_features_in_"):
            assert getattr(loaded, name) == getattr(pack, name)
        assert loaded.feature_names_in_.tolist() == [*TABLE.columns]
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "pack").read_bytes()
    with pytest.raises(ValueError, match="not a"):
        (PackRegressor if which == 0 else PackClassifier).load(tmp_path / "pack")


@pytest.mark.parametrize("which", [0, 1])
def test_pickles_and_clones(packs, which, tmp_path):
    pack = packs[which]
    joblib.dump(pack, tmp_path / "joblib")
    for copied in (pickle.loads(pickle.dumps(pack)), joblib.load(tmp_path / "joblib")):
        assert (told(copied) == told(pack)).all()
    assert clone(pack).get_params() == pack.get_params()
    assert not hasattr(clone(pack), "members_")


def test_networks_that_are_not_chosen_are_dropped(packs):
    pack = packs[0]
    n_kept = sum(len(group._states) for group in pack._groups)
    assert n_kept == pack.members_["n_snapshots"].sum() == len(set(pack._selected))
    one = sum(array.nbytes for array in pack._states[0].values())
    largest = max(sum(a.nbytes for a in state.values()) for state in pack._states)
    assert one <= largest
    assert len(pickle.dumps(pack)) < 1.2 * n_kept * largest + 100_000


def test_a_fit_again_forgets_the_first(packs):
    pack = clone(packs[0]).fit(TABLE, NAMES)
    assert (told(pack) == told(packs[0])).all()
    pack.fit(X, Y)
    assert not hasattr(pack, "feature_names_in_")
    assert pack.classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="contains NaN"):
        pack.fit(X, np.where(Y == 0, np.nan, Y))
    with pytest.raises(ValueError, match="not fitted"):
        pack.predict(X)


def test_folds_of_ones_own_are_not_for_files(tmp_path):
    quick = {**QUICK, "member_params": {"hidden_layer_sizes": (4,)}}
    pack = PackRegressor(**quick, cv=KFold(2)).fit(X, Y)
    with pytest.raises(ValueError, match=r"cv=KFold.* cannot be saved; set_params\(cv=None\)"):
        pack.save(tmp_path / "pack")
    before = pack.predict(X)
    pack.set_params(cv=None).save(tmp_path / "pack")
    assert (load(tmp_path / "pack").predict(X) == before).all()


FORGED = {
    "selected in the header must be": lambda h: h["selected"].append(99),
    "selected in the header must": lambda h: h.update(selected=[]),
    "groups in the header must be": lambda h: h.update(groups=[]),
    "groups differ in their target": lambda h: h["groups"][0]["target_state"]["classes"].update(
        array=["x", "y", "z"]
    ),
    "unknown": lambda h: h["groups"][0].update(more=1),
    "its header asks for": lambda h: h["groups"].pop(),
    "n_members in a group must be": lambda h: h["groups"][0].update(n_members=10**9),
    "weight": lambda h: h["members"].update(weight=["a"]),
    "equally long": lambda h: h["members"]["weight"].append(0.5),
    "validation_loss_": lambda h: h["fitted"].update(validation_loss_="low"),
    "a pack sets itself": lambda h: h["params"]["member_params"]["dict"].append(["device", 0]),
    "no parameter of MLPClassifier": lambda h: h["params"].update(
        member_params={"dict": [["bogus", 1]]}
    ),
    "lacks": lambda h: h["fitted"].pop("validation_loss_"),
}


@pytest.mark.parametrize("words", FORGED)
def test_a_forged_file_is_refused(packs, words, tmp_path):
    path = tmp_path / "pack"
    packs[0].save(path)
    header, arrays = header_of(path), safetensors.numpy.load_file(path)
    FORGED[words](header)
    safetensors.numpy.save_file(arrays, path, {"combutab": json.dumps(header)})
    with pytest.raises(ValueError, match=words):
        load(path)
