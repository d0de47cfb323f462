"""Packs in files and pickles: the chosen networks alone, and the same predictions to the bit."""

import json
import pickle
import struct

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

from combutab import PackClassifier, PackRegressor, load
from combutab.activations import CombU

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
    return [
        PackClassifier(**QUICK, activations=("relu", CombU, "pln-8")).fit(TABLE, NAMES),
        PackRegressor(**QUICK, loss="gaussian_nll", cv=2).fit(TABLE, X[:, 0]),
    ]


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
    assert n_kept == pack.members_["n_snapshots"].sum() == len(set(pack._picks))
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


def changed(path, change):
    """The file with its header changed."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    ours = json.loads(header["__metadata__"]["combutab"])
    change(ours)
    header["__metadata__"]["combutab"] = json.dumps(ours)
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    path.write_bytes(struct.pack("<Q", len(packed)) + packed + raw[8 + length :])


FORGED = {
    "picks in the header must be": lambda h: h["picks"].append(99),
    "picks in the header must": lambda h: h.update(picks=[]),
    "groups in the header must be": lambda h: h.update(groups=[]),
    "groups differ in classes_": lambda h: h["groups"][-1]["fitted"].update(classes_=[0]),
    "unknown": lambda h: h["groups"][0].update(more=1),
    "asks for|networks": lambda h: h["groups"].pop(),
    "n_members": lambda h: h["groups"][0].update(n_members=10**9),
    "weight": lambda h: h["members"].update(weight=["a"]),
    "equally long": lambda h: h["members"]["weight"].append(0.5),
    "validation_loss_": lambda h: h["fitted"].update(validation_loss_="low"),
    "lacks": lambda h: h["fitted"].pop("validation_loss_"),
}


@pytest.mark.parametrize("words", FORGED)
def test_a_forged_file_is_refused(packs, words, tmp_path):
    path = tmp_path / "pack"
    packs[0].save(path)
    changed(path, FORGED[words])
    with pytest.raises(ValueError, match=words):
        load(path)
