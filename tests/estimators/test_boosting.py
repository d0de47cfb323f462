"""Boosted trees in a pack: scikit-learn's own numbers, which rows they see, and when they count."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification

from combutab import MLPClassifier, MLPRegressor, PackClassifier, PackRegressor, load
from combutab.estimators import _boosting, _pack_training
from combutab.estimators._base import check_data, encode_data
from combutab.estimators._boosting import Trees, boost, can_boost
from combutab.estimators._fitted import raw_outputs

pytestmark = pytest.mark.usefixtures("few_trees")
RNG = np.random.default_rng(0)
N = 240
ARRAY = make_classification(N, 4, n_informative=3, n_redundant=0, random_state=0)[0]
TABLE = pd.DataFrame(ARRAY.copy(), columns=["a", "b", "c", "d"])
TABLE["kind"] = RNG.choice(["u", "v", "w", "x", "y"], N)
TABLE["place"] = RNG.choice([f"town {i}" for i in range(16)], N)
TABLE.loc[::9, "b"] = np.nan
STEPS = 2.0 * (ARRAY[:, 0] > 0) + (TABLE["kind"].isin(["u", "x"])) + (ARRAY[:, 1] > 0.3)
STEPS = STEPS.to_numpy()
KINDS = np.array(["no", "perhaps", "yes"])[np.digitize(STEPS, [0.5, 2.5])]
# a step function of two-valued columns, which such short training does not find
BITS = RNG.integers(0, 2, (400, 8)).astype(float)
LABELS = (BITS[:, 0] != BITS[:, 1]) & (BITS[:, 2] > 0) | (BITS[:, 3] > 0)

SMALL = {"hidden_layer_sizes": (8,), "numeric_embedding_dim": 3, "batch_size": 64}
QUICK = {"n_members": 2, "max_iter": 2, "random_state": 0, "member_params": SMALL}


# ---- the numbers of scikit-learn's own model -----------------------------------------------------


def encoded(estimator, X, y, weight=None):
    """The data of a fit in which all rows train."""
    return encode_data(estimator, check_data(estimator, X, y, weight))


def boosted(estimator, y, *, weight=None, train=None, X=TABLE):
    """Trees of an encoded table, the model that they are from, and the rows as it takes them."""
    prepared = encoded(estimator, X, y, weight)
    train = np.arange(0, N, 2) if train is None else train
    held_out = np.setdiff1d(np.arange(N), train)
    models, original = [], _boosting._as_arrays

    def watched(model, *arguments):
        models.append(model)
        return original(model, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_boosting, "_as_arrays", watched)
        trees = boost(
            prepared.rows,
            torch.from_numpy(train),
            torch.from_numpy(held_out),
            prepared.encoder.cardinalities_,
            prepared.target,
            0,
            max_steps=30,
        )
    return trees, models[0], prepared.rows


def both_ways(trees, rows):
    """By scikit-learn's predictors, and by torch's operations, which add up in another order."""
    codes = None if rows.codes is None else rows.codes.numpy()
    found = trees.predict(rows.dense.numpy(), codes).numpy()
    np.testing.assert_allclose(trees(rows.dense, rows.codes), found, rtol=1e-12, atol=1e-12)
    return found


def as_model_takes(rows):
    codes = np.empty((len(rows.dense), 0)) if rows.codes is None else rows.codes.numpy()
    return np.concatenate([codes, rows.dense.double().numpy()], 1)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (TABLE, KINDS),
        (TABLE, KINDS == "yes"),
        (TABLE[["a", "b", "c"]], KINDS == "yes"),
        (TABLE[["kind", "place"]], KINDS),
    ],
)
def test_raw_outputs_of_classes_are_scikit_learns(X, y):
    trees, model, rows = boosted(MLPClassifier(), y, X=X)
    found = both_ways(trees, rows)
    expected = model.decision_function(as_model_takes(rows))
    np.testing.assert_array_equal(found, expected.reshape(len(found), -1))
    assert trees.n_steps == model.n_iter_


def test_unseen_categories_match_scikit_learn():
    train = np.flatnonzero(~TABLE["place"].isin(["town 0", "town 1"]))
    y = STEPS + 3.0 * (TABLE["place"].str[5:].astype(int) % 2)
    trees, model, rows = boosted(MLPRegressor(), y, train=train)
    assert (trees.arrays()["categories"] >= 0).any()  # some splits are by categories
    unseen = set(rows.codes[:, -1].tolist()) - set(rows.codes[train, -1].tolist())
    assert unseen
    assert (both_ways(trees, rows)[:, 0] == model.predict(as_model_takes(rows))).all()


@pytest.mark.parametrize("n_classes", [3, 4])
def test_a_class_that_does_not_train_is_improbable(n_classes):
    y = KINDS if n_classes == 3 else np.where(np.arange(N) % 4 == 1, "other", KINDS)
    missing = "perhaps"
    train = np.flatnonzero(y != missing)[::2]
    trees, model, rows = boosted(MLPClassifier(), y, train=train)
    found, names = both_ways(trees, rows), np.unique(y)
    probabilities = torch.softmax(torch.from_numpy(found), 1).numpy()
    assert (probabilities[:, names == missing] < 0.1).all()
    rest = probabilities[:, names != missing]
    expected = model.predict_proba(as_model_takes(rows))
    np.testing.assert_allclose(rest / rest.sum(1, keepdims=True), expected, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson"])
def test_raw_outputs_of_numbers_are_scikit_learns(loss):
    weight = RNG.uniform(0.1, 5.0, N)
    trees, model, rows = boosted(MLPRegressor(loss=loss), STEPS, weight=weight)
    expected = model.predict(as_model_takes(rows))
    found = both_ways(trees, rows)[:, 0]
    if loss == "poisson":
        np.testing.assert_allclose(np.exp(found), expected, rtol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)
    assert trees.n_steps == model.n_iter_
    unweighted = boosted(MLPRegressor(loss=loss), STEPS)[0]
    assert not np.array_equal(unweighted.arrays()["value"], trees.arrays()["value"])


def test_constant_targets_have_no_trees():
    rows = encoded(MLPClassifier(), ARRAY, STEPS > 0)
    one = torch.from_numpy(np.flatnonzero(STEPS > 0))
    arguments = (), rows.target, 0
    assert boost(rows.rows, one, one, *arguments) is None
    both, third = torch.tensor([0, 1, 2, 3]), encoded(MLPClassifier(), ARRAY, KINDS)
    y = third.rows.y.numpy()
    both = torch.from_numpy(np.flatnonzero(y != 2))
    assert (
        boost(third.rows, both, torch.from_numpy(np.flatnonzero(y == 2)), (), third.target, 0)
        is None
    )
    counts = encoded(MLPRegressor(loss="poisson"), ARRAY, STEPS)
    zeros = torch.from_numpy(np.flatnonzero(STEPS == 0))
    assert boost(counts.rows, zeros, zeros, (), counts.target, 0) is None


def test_which_targets_have_trees():
    two = np.column_stack([STEPS, STEPS])
    for loss, can in [
        *(("squared_error", True), ("absolute_error", True), ("poisson", True)),
        *(("huber", False), ("quantile", False), ("gaussian_nll", False)),
    ]:
        assert can_boost(encoded(MLPRegressor(loss=loss), ARRAY, STEPS).target) == can
    assert not can_boost(encoded(MLPRegressor(), ARRAY, two).target)
    assert not can_boost(encoded(MLPClassifier(), ARRAY, two > 1).target)
    pack = PackClassifier(**QUICK).fit(ARRAY, (two > 1).astype(int))
    assert "boosting" not in set(pack.members_["activation"])
    assert pack.oof_decision_function_.shape == (N, 2)


# ---- trees in a pack -----------------------------------------------------------------------------


def tree_weight(pack):
    return float(pack.activation_weights_.get("boosting", 0.0))


def test_trees_are_weighted_by_accuracy():
    right = PackClassifier(**QUICK).fit(BITS, LABELS)
    assert tree_weight(right) > 0.5
    rows = right.members_[right.members_["activation"] == "boosting"]
    assert sorted(rows["fold"].unique()) == [0, 1]
    assert ((rows["weight"] > 0) == (rows["n_snapshots"] == 1)).all()
    assert right.members_["weight"].sum() == pytest.approx(1)
    assert len(right._selected) == right.max_ensemble_size
    assert right.n_iter_ == 2  # epochs, not steps of boosting
    alone = PackClassifier(**QUICK, boosting=False).fit(BITS, LABELS)
    assert right.validation_loss_ < alone.validation_loss_
    assert "boosting" not in set(alone.members_["activation"])
    assert not alone._trees

    plane = np.random.default_rng(1).normal(size=(200, 6))
    lines = plane @ np.arange(1.0, 7.0)
    smooth = {**SMALL, "learning_rate_init": 0.02, "numeric_encoding": "standard", "batch_size": 16}
    smooth |= {"dropout": 0.0, "weight_decay": 0.0}
    pack = PackRegressor(**QUICK | {"member_params": smooth, "max_iter": 40}).fit(plane, lines)
    assert tree_weight(pack) == 0
    assert not pack._trees


def test_bad_trees_are_dropped_after_one_fold(monkeypatch):
    monkeypatch.setattr(_pack_training, "_BEHIND", 1e-9)
    pack = PackClassifier(**QUICK).fit(BITS, LABELS)
    rows = pack.members_[pack.members_["activation"] == "boosting"]
    assert rows["fold"].tolist() == [0]
    assert rows["weight"].tolist() == [0]


def test_small_ensemble_includes_a_network():
    for size in (1, 2, 3):
        pack = PackClassifier(**QUICK, max_ensemble_size=size).fit(BITS, LABELS)
        assert len(pack._selected) == size
        assert len(pack._groups) > 0
        assert tree_weight(pack) == pytest.approx((size - 1) / size)


@pytest.fixture
def seen(monkeypatch):
    """Each call of ``boost``: the rows that train and are held out, and the trees."""
    calls, original = [], _pack_training.boost

    def watched(rows, train, held_out, *arguments):
        trees = original(rows, train, held_out, *arguments)
        calls.append((train.numpy(), held_out.numpy(), trees, rows))
        return trees

    monkeypatch.setattr(_pack_training, "boost", watched)
    return calls


def test_oof_predictions_use_unseen_trees_and_networks(seen):
    y = 2.0 * LABELS + BITS[:, 4]
    pack = PackRegressor(**QUICK | {"max_iter": 1}).fit(BITS, y)
    assert len(seen) == 2  # folds
    scale, centre = pack._groups[0].target_.scale[0], y.mean()
    networks = []
    for group in pack._groups:
        raws = raw_outputs(group, pack.encoder_.encode(BITS, owner=pack))
        networks += [raw[:, 0].numpy() for raw in raws]
    assert len(networks) == 2
    owners = []
    for fold in (0, 1):
        train, held_out, boosted_trees, rows = seen[fold]
        assert sorted([*train, *held_out]) == list(range(len(y)))
        trees = boosted_trees.predict(rows.dense.numpy(), None)[:, 0].numpy()
        found = (pack.oof_prediction_[held_out] - centre) / scale
        errors = []
        for network in networks:
            columns = np.column_stack([network, trees])[held_out]
            shares, *_ = np.linalg.lstsq(columns, found, rcond=None)
            wrong = np.abs(columns @ shares - found).max()
            errors.append(wrong + abs(shares.sum() - 1) + max(0, -shares.min()))
        owners.append(int(np.argmin(errors)))
        assert min(errors) < 1e-4
    assert sorted(owners) == [0, 1]


@pytest.mark.parametrize("weighted", ["sample_weight", "class_weight"])
def test_weights_reach_the_trees(weighted, seen):
    y = np.where(LABELS, "yes", "no")
    if weighted == "sample_weight":
        weight = np.where(np.arange(len(y)) % 10 == 0, 0.0, 1.0 + LABELS)
        pack = PackClassifier(**QUICK).fit(BITS, y, weight)
        kept = weight > 0
        assert np.isnan(pack.oof_decision_function_).any(1).tolist() == (~kept).tolist()
        expected = weight[kept]
    else:
        pack = PackClassifier(**QUICK, class_weight={"yes": 3.0, "no": 1.0}).fit(BITS, y)
        expected = np.where(LABELS, 3.0, 1.0)
    given = seen[0][3].weight.numpy()  # of the rows that train and of those that stop them
    np.testing.assert_allclose(given / given.mean(), expected / expected.mean(), rtol=1e-6)


def test_the_same_again_whatever_the_threads():
    packs = [PackClassifier(**QUICK, n_jobs=n).fit(TABLE, KINDS) for n in (1, 2, 1)]
    packs.append(clone(packs[0]).fit(TABLE, KINDS))
    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else 1)
    packs[0].predict_proba(TABLE)
    torch.set_num_threads(before)
    for pack in packs[1:]:
        pd.testing.assert_frame_equal(pack.members_, packs[0].members_)
        assert (pack.predict_proba(TABLE) == packs[0].predict_proba(TABLE)).all()
        assert (pack.oof_decision_function_ == packs[0].oof_decision_function_).all()


def test_the_random_state_of_trees_is_the_packs():
    packs = [PackClassifier(**QUICK | {"random_state": s}).fit(TABLE, KINDS) for s in (0, 1)]
    assert (packs[0].predict_proba(TABLE) != packs[1].predict_proba(TABLE)).any()


# ---- ends before the end -------------------------------------------------------------------------


def test_without_time_there_are_no_trees():
    pack = PackClassifier(**QUICK, max_time=1e-9).fit(BITS, LABELS)
    assert "boosting" not in set(pack.members_["activation"])
    assert np.isfinite(pack.predict_proba(BITS)).all()


@pytest.mark.parametrize("n_done", [0, 1])
def test_interrupt_of_trees_keeps_the_networks(n_done, monkeypatch):
    calls, original = [], _pack_training.boost

    def interrupted(*arguments):
        if len(calls) == n_done:
            raise KeyboardInterrupt
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(_pack_training, "boost", interrupted)
    pack = PackClassifier(**QUICK)
    with pytest.warns(UserWarning, match="interrupted"):
        pack.fit(BITS, LABELS)
    assert tree_weight(pack) == 0
    assert pack.n_iter_ == 2
    assert np.isfinite(pack.predict_proba(BITS)).all()


# ---- copies and files ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packs():
    found = {
        "classes": PackClassifier(**QUICK).fit(TABLE, KINDS),
        "two classes": PackClassifier(**QUICK).fit(TABLE, KINDS == "yes"),
        "numbers": PackRegressor(**QUICK).fit(TABLE, STEPS),
        "counts": PackRegressor(**QUICK, loss="poisson").fit(TABLE[["a", "c"]], STEPS),
    }
    assert all(tree_weight(pack) > 0 for pack in found.values())
    return found


NAMES = ["classes", "two classes", "numbers", "counts"]
NEW = TABLE.assign(kind=np.where(np.arange(N) % 3, TABLE["kind"], "never seen"), a=np.arange(N) / 9)


def answers(pack):
    X = NEW[list(pack.feature_names_in_)]
    return pack.predict_proba(X) if hasattr(pack, "predict_proba") else pack.predict(X)


@pytest.mark.parametrize("name", NAMES)
def test_files_and_copies_predict_the_same(name, packs, tmp_path):
    pack = packs[name]
    expected = answers(pack)
    pack.save(tmp_path / "pack.safetensors")
    loaded = load(tmp_path / "pack.safetensors")
    for other in (loaded, pickle.loads(pickle.dumps(pack)), copy.deepcopy(pack)):
        assert (answers(other) == expected).all()
    pd.testing.assert_frame_equal(loaded.members_, pack.members_)
    loaded.save(tmp_path / "again.safetensors")
    assert (answers(load(tmp_path / "again.safetensors")) == expected).all()


@pytest.mark.parametrize("name", NAMES)
def test_modules_predict_the_same(name, packs):
    pack, X = packs[name], NEW[list(packs[name].feature_names_in_)]
    module = pack.to_torch()
    for dtype, atol in ((None, 1e-6), (torch.float32, 1e-4)):
        if dtype is not None:
            module = module.to(dtype)
        found = module(*module.encode(X)).detach().numpy()
        np.testing.assert_allclose(found, answers(pack), atol=atol, rtol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "two classes", "counts"])
def test_onnx_files_predict_the_same(name, packs):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    pack = packs[name]
    X = NEW[list(pack.feature_names_in_)]
    session = runtime.InferenceSession(pack.to_onnx().SerializeToString())
    types = {"tensor(string)": object, "tensor(double)": np.float64, "tensor(float)": np.float32}
    given = {
        each.name: X[each.name].to_numpy().reshape(-1, 1).astype(types[each.type])
        for each in session.get_inputs()
    }
    found = session.run(None, given)[-1]
    np.testing.assert_allclose(found.reshape(answers(pack).shape), answers(pack), atol=1e-5)


def damage(arrays, name, place, value):
    arrays[name] = arrays[name].copy()
    arrays[name][place] = value


DAMAGED = {
    "a cycle": (lambda a: damage(a, "left", 0, 0), "do not lead from their roots"),
    "a way back": (lambda a: damage(a, "right", 2, 0), "do not lead from their roots"),
    "one way twice": (lambda a: damage(a, "right", 0, a["left"][0]), "do not lead from their"),
    "into another tree": (lambda a: damage(a, "right", 0, len(a["left"]) - 1), "do not lead from"),
    "beyond the end": (lambda a: damage(a, "left", 0, 10**9), "do not lead from their roots"),
    "before the start": (lambda a: damage(a, "left", 0, -5), "do not lead from their roots"),
    "no root at first": (lambda a: damage(a, "roots", 0, 1), "do not lead from their roots"),
    "roots in disorder": (lambda a: damage(a, "roots", 1, 0), "do not lead from their roots"),
    "a root beyond": (lambda a: damage(a, "roots", -1, 10**9), "do not lead from their roots"),
    "no trees": (
        lambda a: a.update({n: a[n][:0] for n in ("roots", "outputs")}),
        "do not lead from their roots",
    ),
    "no nodes": (
        lambda a: a.update(
            {
                n: v[:0]
                for n, v in a.items()
                if n not in ("roots", "outputs", "baseline", "left_codes")
            }
        ),
        "do not lead from their roots",
    ),
    "a column too many": (lambda a: damage(a, "feature", 0, 99), "columns, outputs or categories"),
    "a negative column": (lambda a: damage(a, "feature", 0, -1), "columns, outputs or categories"),
    "an output too many": (lambda a: damage(a, "outputs", 0, 3), "columns, outputs or categories"),
    "categories beyond": (lambda a: damage(a, "categories", 0, 10**6), "outputs or categories"),
    "categories below": (lambda a: damage(a, "categories", 0, -2), "outputs or categories"),
    "unequal lengths": (lambda a: a.update(value=a["value"][:-1]), "do not fit one another"),
    "a number for nodes": (lambda a: a.update(left=np.array(3)), "do not fit one another"),
    "a number for codes": (lambda a: a.update(left_codes=np.array(True)), "do not fit one another"),
    "short codes": (
        lambda a: a.update(left_codes=a["left_codes"][:, :8]),
        "do not fit one another",
    ),
    "a baseline too long": (lambda a: a.update(baseline=np.zeros(9)), "do not fit one another"),
    "short numbers": (lambda a: a.update(value=a["value"].astype(np.float32)), "other dtypes"),
    "short places": (lambda a: a.update(left=a["left"].astype(np.int32)), "other dtypes"),
    "unsigned places": (lambda a: a.update(right=a["right"].astype(np.uint64)), "other dtypes"),
    "codes as bytes": (
        lambda a: a.update(left_codes=a["left_codes"].astype(np.uint8)),
        "other dtypes",
    ),
    "no values": (lambda a: a.pop("value"), "trees have the arrays"),
    "more": (lambda a: a.update(more=a["value"]), "trees have the arrays"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_trees_are_refused(name, packs):
    pack = packs["classes"]
    n_dense, n_codes = pack._groups[0]._spec.n_dense, len(pack.encoder_.cardinalities_)
    arrays = pack._trees[0].arrays()
    Trees(arrays, n_dense, n_codes, 3)
    change, message = DAMAGED[name]
    change(arrays)
    with pytest.raises(ValueError, match=message):
        Trees(arrays, n_dense, n_codes, 3)
