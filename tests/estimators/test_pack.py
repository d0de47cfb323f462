"""Packs of small networks: their members, what they choose, predict and keep; the same again."""

import functools
import operator
import pickle
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold

from combutab import (
    PackClassifier,
    PackRegressor,
    load,
)
from combutab.estimators import _jobs, _pack, _pack_training
from combutab.estimators._pack_training import (
    Pool,
    _fold_weights,
    draw_members,
    select_greedily,
    share_out,
)
from combutab.nn import Member
from combutab.training import (
    BinaryCrossEntropy,
    CrossEntropy,
    GaussianNLL,
    Pinball,
    make_regression_loss,
)

pytestmark = pytest.mark.usefixtures("few_trees")

SMALL = {"hidden_layer_sizes": (8,), "numeric_embedding_dim": 3, "batch_size": 64}


QUICK = {"n_members": 4, "max_iter": 4, "random_state": 0, "member_params": SMALL}
QUICK |= {"boosting": False}  # whose tests are in test_boosting.py


ARRAY, LABELS = make_classification(160, 4, n_informative=3, n_redundant=0, random_state=0)


TABLE = pd.DataFrame(ARRAY.copy(), columns=["a", "b", "c", "d"])


TABLE["kind"] = np.random.default_rng(0).choice(["x", "y", "z"], len(TABLE))


TABLE.loc[::7, "b"] = np.nan


TARGET = ARRAY[:, 0] + 0.3 * ARRAY[:, 1] ** 2


TWO_SHAPES = {name: value for name, value in SMALL.items() if name != "numeric_embedding_dim"}


def classes(n=3):
    return np.array(["no", "perhaps", "yes"])[np.digitize(TARGET, [-0.5, 0.8])[: len(TABLE)] % n]


def by_hand(pack, X):
    """Raw outputs, (n_networks, n, k), of networks that are built one by one; and their weights."""
    table = pack.encoder_.encode(X)
    dense, codes = torch.from_numpy(table.dense).float(), torch.from_numpy(table.codes)
    outputs = []
    for group in pack._groups:
        for state, activation in zip(group._states, group._trained[0], strict=True):
            net = group._spec.build([Member(1, activation)])
            net.load_member(0, {name: torch.from_numpy(value) for name, value in state.items()})
            with torch.no_grad():
                outputs.append(net.eval()(dense[None], codes[None])[0].double())
    weights = np.bincount(pack._selected, minlength=len(outputs)) / len(pack._selected)
    return torch.stack(outputs), torch.from_numpy(weights)


def test_pack_probabilities_are_a_weighted_mean():
    pack = PackClassifier(**QUICK | {"member_params": TWO_SHAPES, "n_members": 6}, cv=3)
    pack.fit(TABLE, classes())
    raw, weights = by_hand(pack, TABLE)
    assert (weights > 0).all()  # no other network is kept
    assert len({group._spec for group in pack._groups}) == len(pack._groups) > 1
    expected = (torch.softmax(raw, -1) * weights[:, None, None]).sum(0)
    np.testing.assert_allclose(pack.predict_proba(TABLE), expected, atol=1e-6)
    assert (pack.predict(TABLE) == pack.classes_[expected.argmax(1)]).all()


@pytest.mark.parametrize("more", [{}, {"init": "data"}, {"normalization": "layer", "init": "ntk"}])
def test_pack_member_equals_plain_estimator(more):
    pack = PackRegressor(**QUICK | {"n_members": 3, "member_params": {**SMALL, **more}})
    pack.fit(TABLE[:100], TARGET[:100], X_val=TABLE[100:], y_val=TARGET[100:])
    for i, plain in enumerate(pack._draw(0)):
        plain.set_params(n_iter_no_change=np.inf)  # asks for no more epochs than there are
        plain.fit(TABLE[:100], TARGET[:100], X_val=TABLE[100:], y_val=TARGET[100:])
        own = pack.history_[pack.history_["member"] == i]
        np.testing.assert_allclose(own["train_loss"], plain.loss_curve_, rtol=1e-4)
        np.testing.assert_allclose(-own["validation_loss"], plain.validation_scores_, rtol=1e-4)


def test_the_table_of_members_says_what_was_chosen():
    sharp = {**SMALL, "label_smoothing": 0.0}  # else losses are once outputs have been scaled
    pack = PackClassifier(**QUICK | {"member_params": sharp}, activations=("relu", "mish"), cv=None)
    pack.fit(TABLE, LABELS)
    table = pack.members_
    assert table["activation"].tolist()[:2] == ["relu", "mish"]
    assert table["weight"].sum() == pytest.approx(1.0)
    assert table["n_snapshots"].sum() == sum(len(group._states) for group in pack._groups)
    assert ((table["weight"] > 0) == (table["n_snapshots"] > 0)).all()
    assert len(pack._selected) <= pack.max_ensemble_size
    assert pack.activation_weights_.sum() == pytest.approx(1.0)
    assert pack.activation_weights_["mish"] == pytest.approx(
        table.loc[table["activation"] == "mish", "weight"].sum()
    )
    of_each = pack.history_.groupby("member")["validation_loss"].min()
    np.testing.assert_allclose(table["validation_loss"], of_each)
    assert pack.validation_loss_ <= pack.best_member_validation_loss_ < of_each.mean()
    assert pack.best_member_validation_loss_ == pytest.approx(of_each.min(), rel=1e-5)


# ---- losses: what was minimised is the loss of what is predicted --------------------------------


def test_the_validation_loss_is_that_of_the_predictions():
    X, y, X_val, y_val = TABLE[:100], TARGET[:100], TABLE[100:], TARGET[100:]
    pack = PackRegressor(**QUICK, loss="gaussian_nll").fit(X, y, None, X_val, y_val)
    (mean, std), scale = pack.predict(X_val, return_std=True), pack._groups[0].target_.scale[0]
    expected = np.mean(0.5 * (np.log((std / scale) ** 2) + ((mean - y_val) / std) ** 2))
    assert pack.validation_loss_ == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_validation_log_loss_matches_the_probabilities(n_classes):
    y = classes(n_classes)
    pack = PackClassifier(**QUICK).fit(TABLE[:100], y[:100], X_val=TABLE[100:], y_val=y[100:])
    expected = log_loss(y[100:], pack.predict_proba(TABLE[100:]), labels=pack.classes_)
    assert pack.validation_loss_ == pytest.approx(expected, rel=1e-4)


# ---- which rows train ---------------------------------------------------------------------------


@pytest.fixture
def jobs(monkeypatch):
    """The jobs of the next fit."""
    seen, original = [], _pack.train_members

    def watched(members, *arguments):
        seen.extend(member.job for member in members)
        return original(members, *arguments)

    monkeypatch.setattr(_pack, "train_members", watched)
    return seen


@pytest.mark.parametrize("cv", [3, KFold(3)])
def test_pack_folds_partition_the_rows(jobs, cv):
    pack = PackClassifier(**QUICK | {"n_members": 6}, cv=cv).fit(TABLE, LABELS)
    everything = np.arange(len(TABLE))
    held_out = {}
    for i, job in enumerate(jobs):
        (plan,) = job.plans
        assert sorted([*plan.rows.tolist(), *plan.val_rows.tolist()]) == list(everything)
        held_out.setdefault(i % 3, plan.val_rows.tolist())
        assert held_out[i % 3] == plan.val_rows.tolist()
        if cv == 3:
            share = LABELS[plan.val_rows].mean()
            assert share == pytest.approx(LABELS.mean(), abs=0.02)  # stratified
    assert sorted(functools.reduce(operator.iadd, held_out.values(), [])) == list(everything)
    assert pack.members_["fold"].tolist() == [0, 1, 2] * 2
    of_rows = pack.oof_decision_function_
    inverse = [1 / log_loss(LABELS[rows], of_rows[rows]) for rows in held_out.values()]
    weights = pack.members_.groupby("fold")["weight"].sum()  # whole 64ths
    # weights are those of the rows' own choice, which suits them a little better
    np.testing.assert_allclose(weights, inverse / np.sum(inverse), atol=3 / 64)
    mean = np.average(
        1 / np.array(inverse), weights=inverse * np.array([*map(len, held_out.values())])
    )
    assert pack.validation_loss_ == pytest.approx(mean, rel=0.1)
    assert len(_jobs.plan_stacks(jobs)) == 1  # folds of other sizes and scales, one shape
    assert pack.validation_loss_ <= pack.best_member_validation_loss_


def test_given_folds_pass_over_rows_of_no_weight(jobs):
    weight = np.ones(len(TABLE))
    weight[[0, 5, 100]] = 0
    folds = [(np.arange(80), np.arange(80, 160)), (np.arange(80, 160), np.arange(80))]
    PackRegressor(**QUICK, cv=folds).fit(ARRAY, TARGET, weight)
    assert [len(jobs[0].plans[0].rows), len(jobs[1].plans[0].rows)] == [78, 79]
    rows = jobs[1].rows.y[jobs[1].plans[0].rows].ravel().numpy()
    kept = TARGET[80:][weight[80:] > 0]
    np.testing.assert_allclose(np.corrcoef(rows, kept)[0, 1], 1.0)


def test_few_rows_give_equal_member_weights():
    pack = PackClassifier(**QUICK).fit(TABLE[:20], LABELS[:20])
    assert pack.members_["weight"].tolist() == [0.25] * 4
    assert pack.validation_loss_ is None
    assert pack.members_["n_iter"].tolist() == [4] * 4
    raw, _ = by_hand(pack, TABLE)
    expected = torch.sigmoid(raw[..., 0]).mean(0)
    np.testing.assert_allclose(pack.predict_proba(TABLE)[:, 1], expected, atol=1e-6)


def test_rare_class_does_not_prevent_hold_out():
    y = np.where(np.arange(len(TABLE)) == 3, "rare", classes())
    assert set(PackClassifier(**QUICK).fit(TABLE, y).classes_) == set(y)


def test_pack_without_validation_rows_has_no_trees():
    pack = PackClassifier(**QUICK | {"boosting": True}).fit(TABLE[:49], LABELS[:49])
    assert pack.validation_loss_ is None
    assert "boosting" not in set(pack.members_["activation"])
    assert not hasattr(pack, "oof_decision_function_")


@pytest.mark.parametrize(
    ("n_rows", "n_members", "n_folds"), [(49, 3, 0), (50, 3, 3), (51, 9, 8), (160, 1, 1)]
)
def test_auto_cv_has_at_most_eight_folds(jobs, n_rows, n_members, n_folds):
    pack = PackRegressor(**QUICK | {"n_members": n_members, "max_iter": 1})
    pack.fit(ARRAY[:n_rows], TARGET[:n_rows])
    held_out = {
        None if (rows := job.plans[0].val_rows) is None else (*rows.tolist(),) for job in jobs
    }
    assert len(held_out - {None}) == n_folds
    assert pack.members_["fold"].nunique() == max(1, n_folds)
    assert hasattr(pack, "oof_prediction_") == (n_folds > 0)


def test_auto_goes_by_rows_that_are_given(jobs):
    pack = PackRegressor(**QUICK)
    pack.fit(ARRAY[:100], TARGET[:100], X_val=ARRAY[100:], y_val=TARGET[100:])
    assert {len(job.plans[0].val_rows) for job in jobs} == {60}
    wrong = pack.predict(ARRAY[100:]) - TARGET[100:]
    scale = pack._groups[0].target_.scale[0]
    assert pack.validation_loss_ == pytest.approx(np.mean((wrong / scale) ** 2) / 2, rel=1e-4)


def test_single_member_trains_on_given_fold(jobs):
    fold = np.arange(0, 160, 2), np.arange(1, 160, 2)
    PackRegressor(**QUICK | {"n_members": 1}, cv=[fold]).fit(ARRAY, TARGET)
    (job,) = jobs
    for part, rows in zip(fold, (job.plans[0].rows, job.plans[0].val_rows), strict=True):
        own = job.rows.y[rows].ravel().numpy()
        np.testing.assert_allclose(np.corrcoef(own, TARGET[part])[0, 1], 1.0)


@pytest.mark.parametrize("zeros", [False, True])
def test_pack_oof_predictions_use_unseen_networks(jobs, zeros):
    weight = np.ones(len(TABLE))
    weight[::10] = 1 - zeros
    pack = PackClassifier(**QUICK | {"n_members": 3, "max_iter": 1}).fit(TABLE, classes(), weight)
    found, kept = pack.oof_decision_function_, np.flatnonzero(weight)
    assert found.shape == (len(TABLE), 3)
    assert np.isnan(found).any(1).tolist() == (weight == 0).tolist()
    probabilities = torch.softmax(by_hand(pack, TABLE)[0], -1).numpy()
    owners = []
    for job in jobs:
        rows = kept[job.plans[0].val_rows]
        errors = np.abs(probabilities[:, rows] - found[rows]).max((1, 2))
        owners.append(int(errors.argmin()))
        # networks' outputs are scaled without each part of the rows
        assert errors.min() < 0.03
    assert sorted(owners) == [0, 1, 2]


def test_fold_without_networks_is_left_out(monkeypatch):
    original = _pack_training.MemberHistory.end_epoch

    def end_epoch(track, *arguments):
        if track.fold != 0:
            original(track, *arguments)

    monkeypatch.setattr(_pack_training.MemberHistory, "end_epoch", end_epoch)
    pack = PackClassifier(**QUICK | {"n_members": 3, "boosting": True}).fit(TABLE, LABELS)
    assert set(pack.members_.loc[pack.members_["weight"] > 0, "fold"]) == {1, 2}
    assert np.isnan(pack.oof_decision_function_).any(1).mean() == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("n_rare", [1, 2, 7, 9])
def test_auto_folds_spread_rare_classes(n_rare, jobs):
    y = np.where(np.arange(len(TABLE)) < n_rare, "rare", classes())
    pack = PackClassifier(**QUICK | {"n_members": 8, "max_iter": 1}).fit(TABLE, y)
    assert len(jobs) == 8
    assert pack.oof_decision_function_.shape == (160, len(pack.classes_))
    if n_rare == 9:  # a class of at least as many rows as folds is in each of them
        assert all((y[job.plans[0].val_rows] == "rare").any() for job in jobs)


def test_without_smoothed_labels_outputs_stay_as_they_are():
    X, y = ARRAY[:100], LABELS[:100]
    losses = {}
    for smoothing in (0.0, 0.1):
        pack = PackClassifier(**QUICK, max_ensemble_size=1)
        pack.set_params(member_params={**SMALL, "label_smoothing": smoothing})
        pack.fit(X, y, X_val=ARRAY[100:], y_val=LABELS[100:])
        losses[smoothing] = pack.validation_loss_, pack.members_["validation_loss"].min()
    assert losses[0.0][0] == pytest.approx(losses[0.0][1], rel=1e-5)
    assert losses[0.1][0] != pytest.approx(losses[0.1][1], rel=1e-3)


@pytest.mark.parametrize("total", [1, 2, 7, 64])
def test_whole_numbers_are_shared_out_by_weights(total):
    weights = dict(enumerate(np.random.default_rng(total).random(9)))
    counts = share_out(weights, total)
    assert counts.total() == total
    exact = {key: weight / sum(weights.values()) * total for key, weight in weights.items()}
    assert all(abs(counts[key] - exact[key]) < 1 for key in weights)


@pytest.mark.parametrize("losses", [[0.5, 1.0, 2.0], [1e-12, 1.0], [0.0, 1.0], [-0.5, 1.0]])
def test_folds_count_by_one_over_their_losses(losses):
    weights = _fold_weights(np.array(losses))
    assert weights.sum() == pytest.approx(1)
    if min(losses) <= 0:
        assert len(set(weights)) == 1
    elif min(losses) > 1e-3:
        np.testing.assert_allclose(weights * losses, (weights * losses)[0])
    else:  # no fold takes all for ever
        assert weights.max() < 1


# ---- the same again -----------------------------------------------------------------------------


@pytest.mark.usefixtures("single_stacks")
def test_threads_change_nothing():
    packs = [
        PackClassifier(**QUICK | {"n_members": 6}, n_jobs=n_jobs).fit(TABLE, LABELS)
        for n_jobs in (1, 2)
    ]
    pd.testing.assert_frame_equal(packs[0].members_, packs[1].members_)
    assert (packs[0].predict_proba(TABLE) == packs[1].predict_proba(TABLE)).all()


# ---- ends before the end ------------------------------------------------------------------------


@pytest.mark.usefixtures("single_stacks")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_max_time_leaves_a_model(n_jobs):
    pack = PackClassifier(**QUICK | {"n_members": 12, "max_iter": 500}, max_time=1e-9)
    pack.set_params(n_jobs=n_jobs).fit(TABLE, LABELS)
    assert set(pack.members_["n_iter"]) == {0, 1}  # some have not begun
    assert (pack.members_.loc[pack.members_["n_iter"] == 0, "weight"] == 0).all()
    assert np.isfinite(pack.predict_proba(TABLE)).all()


@pytest.mark.parametrize(("max_time", "sizes"), [(600, [1] * 4), (None, [4])])
def test_time_limit_trains_one_member_after_another(max_time, sizes, monkeypatch):
    trained, original = [], _pack_training.train_one_stack

    def watched(jobs, stack, callbacks):
        trained.append(len(stack))
        return original(jobs, stack, callbacks)

    monkeypatch.setattr(_pack_training, "train_one_stack", watched)
    PackClassifier(**QUICK, max_time=max_time).fit(TABLE, LABELS)
    assert trained == sizes


def test_members_end_with_a_cycle_that_gains_little():
    noise = np.random.default_rng(0).normal(size=len(TABLE))
    pack = PackRegressor(**QUICK | {"max_iter": 60, "n_iter_no_change": 99}).fit(ARRAY, noise)
    assert set(pack.members_["n_iter"]) <= {12, 28, 60}
    assert (pack.members_["n_iter"] == 12).any()
    pack.set_params(n_iter_no_change=np.inf).fit(ARRAY, noise)
    assert set(pack.members_["n_iter"]) == {60}


def test_an_interrupt_keeps_what_there_is(monkeypatch):
    original = _pack_training.MemberHistory.end_epoch

    def interrupted(track, report, *arguments):
        if report.epoch == 3:
            raise KeyboardInterrupt
        original(track, report, *arguments)

    monkeypatch.setattr(_pack_training.MemberHistory, "end_epoch", interrupted)
    pack = PackRegressor(**QUICK | {"max_iter": 100})
    with pytest.warns(UserWarning, match="interrupted"):
        pack.fit(TABLE, TARGET)
    assert pack.n_iter_ == 2
    assert np.isfinite(pack.predict(TABLE)).all()


def test_an_interrupt_before_any_epoch_ends_the_program(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(_pack_training.MemberHistory, "end_epoch", interrupted)
    pack = PackRegressor(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        pack.fit(TABLE, TARGET)
    assert not hasattr(pack, "members_")


def test_an_interrupt_between_threads_keeps_what_is_trained(monkeypatch, single_stacks):
    def interrupted(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(_pack, "print", interrupted, raising=False)
    pack = PackRegressor(**QUICK | {"n_members": 8}, n_jobs=2, verbose=True)
    with pytest.warns(UserWarning, match="interrupted by user"):
        pack.fit(TABLE, TARGET)
    assert pack.members_["weight"].sum() == pytest.approx(1.0)


def test_members_that_diverge_have_no_part():
    wild = {**SMALL, "solver": "sgd", "learning_rate": "constant", "learning_rate_init": 1e30}
    pack = PackRegressor(**QUICK | {"member_params": wild})
    with pytest.raises(ValueError, match="max_grad_norm"):
        pack.fit(TABLE, TARGET)


def test_a_line_is_printed_when_asked_for(capsys):
    PackClassifier(**QUICK).fit(TABLE, LABELS)
    assert capsys.readouterr().out == ""
    PackClassifier(**QUICK, verbose=True).fit(TABLE, LABELS)
    assert "4 of 4 members trained, best loss = 0." in capsys.readouterr().out


# ---- the members: spread over their ranges ------------------------------------------------------


NAMES = ("relu", "mish", "selu")


@pytest.mark.parametrize("seed", range(3))
def test_each_range_is_covered_evenly(seed):
    n = 12
    members = draw_members(n, NAMES, seed)
    decays = np.log10([m["weight_decay"] for m in members]) / 2 + 1.5  # from 1e-3 to 1e-1
    rates = np.log([m["learning_rate_init"] / 1e-3 for m in members]) / np.log(6)
    for shares in (decays, rates):
        assert sorted((shares * n).astype(int)) == list(range(n))
    assert list(decays) != sorted(decays)
    depths = Counter(len(m["hidden_layer_sizes"]) for m in members)
    assert depths == {1: 4, 2: 4, 3: 4}


def test_a_third_of_the_members_drop_nothing_out():
    dropouts = sorted(m["dropout"] for m in draw_members(12, NAMES, 0))
    assert dropouts[:4] == [0, 0, 0, 0]
    assert 0 < dropouts[4] < dropouts[-1] <= 0.3


def test_activations_take_turns_in_given_order():
    members = draw_members(8, NAMES, 0)
    assert [m["activation"] for m in members[:3]] == list(NAMES)
    counts = Counter(m["activation"] for m in members)
    assert max(counts.values()) - min(counts.values()) == 1
    assert [m["activation"] for m in draw_members(2, NAMES, 0)] == ["relu", "mish"]


# ---- the greedy selection, against plain numpy on pools that are small enough to try all --------


N_ROWS, N_NETWORKS = 9, 5


QUANTILES = (0.1, 0.5, 0.9)


def mean_log_loss(probabilities, y, weight):
    return np.average(-np.log(probabilities[np.arange(len(y)), y]), weights=weight)


def draw(seed=0):
    """Logits of a few networks for three classes, none of which is good everywhere."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N_NETWORKS, N_ROWS, 3)) * 2, rng.integers(0, 3, N_ROWS)


def softmax(logits):
    raised = np.exp(logits)
    return raised / raised.sum(-1, keepdims=True)


def class_pool(logits, y, weight=None):
    y, loss = torch.from_numpy(y), CrossEntropy()
    raw = torch.from_numpy(logits)
    averaged = torch.stack([loss.averaged(one, y) for one in raw])
    return Pool(loss, averaged, y, None if weight is None else torch.from_numpy(weight))


@pytest.mark.parametrize("weight", [None, np.arange(1.0, N_ROWS + 1)])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_selection_adds_the_best_network(seed, weight):
    logits, y = draw(seed)
    selected, losses = select_greedily(class_pool(logits, y, weight).losses_after, 8)
    probabilities, before = softmax(logits), []
    for pick, loss in zip(selected, losses, strict=True):
        tried = [
            mean_log_loss(probabilities[[*before, k]].mean(0), y, weight) for k in range(N_NETWORKS)
        ]
        assert pick == int(np.argmin(tried))
        assert loss == pytest.approx(min(tried))
        before.append(pick)
    assert len(set(selected)) < len(selected)  # with replacement


def test_greedy_selection_breaks_ties_and_skips_nan():
    logits, y = draw()
    same = np.stack([np.full_like(logits[1], np.nan), logits[1], logits[1]])
    assert select_greedily(class_pool(same, y).losses_after, 3)[0] == [1, 1, 1]


def test_a_large_pool_is_looked_at_in_parts(monkeypatch):
    whole = select_greedily(class_pool(*draw()).losses_after, 6)
    monkeypatch.setattr(_pack_training, "_VALUES", 1)
    assert select_greedily(class_pool(*draw()).losses_after, 6) == whole


LOSSES = [
    CrossEntropy(),
    BinaryCrossEntropy(),
    GaussianNLL(),
    *(make_regression_loss(n, ()) for n in ("squared_error", "absolute_error", "huber", "poisson")),
    make_regression_loss("quantile", QUANTILES),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_ensemble_of_one_has_its_loss(loss):
    generator = torch.Generator().manual_seed(0)
    n_outputs = 3 if isinstance(loss, CrossEntropy) else 2 * loss.n_per_target
    raw = torch.randn(N_ROWS, n_outputs, generator=generator, dtype=torch.float64)
    if isinstance(loss, CrossEntropy):
        y = torch.randint(0, 3, (N_ROWS,), generator=generator)
    else:
        y = torch.randint(0, 2, (N_ROWS, 2), generator=generator).double()
    if isinstance(loss, Pinball):  # which rearranges quantiles that cross
        raw = raw.unflatten(-1, (2, -1)).sort(-1).values.flatten(-2)
    averaged = loss.averaged(raw, y)
    torch.testing.assert_close(loss.rows_of_average(averaged, y), loss.rows(raw, y))


def test_two_networks_quantiles_are_averaged_in_their_order():
    loss, y = make_regression_loss("quantile", (0.2, 0.6)), torch.tensor([[2.0]])
    raws = torch.tensor([[[3.0, 1.0]], [[0.0, 5.0]]])  # the first network's cross
    average = torch.stack([loss.averaged(raw, y) for raw in raws]).mean(0)
    assert average.tolist() == [[0.5, 4.0]]
    expected = (0.2 * (2.0 - 0.5) + 0.4 * (4.0 - 2.0)) / 2
    assert float(loss.rows_of_average(average, y)) == pytest.approx(expected)


def test_two_normals_average_to_their_mixtures_moments():
    loss, y = GaussianNLL(), torch.tensor([[0.5]], dtype=torch.float64)
    raws = torch.tensor([[[0.0, 0.0]], [[2.0, 1.0]]], dtype=torch.float64)
    average = torch.stack([loss.averaged(raw, y) for raw in raws]).mean(0)
    var = (np.exp([float(loss.moments(raw)[1]) for raw in raws])).mean() + 1.0  # between: 1
    expected = 0.5 * (np.log(var) + (0.5 - 1.0) ** 2 / var)
    assert float(loss.rows_of_average(average, y)) == pytest.approx(expected)


# ---- what is kept -------------------------------------------------------------------------------


def test_networks_that_are_not_chosen_are_dropped():
    pack = PackClassifier(**QUICK | {"member_params": {"batch_size": 64}}, cv=3)
    pack.fit(TABLE, classes())
    n_kept = sum(len(group._states) for group in pack._groups)
    assert n_kept == pack.members_["n_snapshots"].sum() == len(set(pack._selected))
    largest = max(sum(a.nbytes for a in state.values()) for state in pack._states)
    assert len(pickle.dumps(pack)) < 1.2 * n_kept * largest + 100_000


def test_a_fit_again_forgets_the_first(tmp_path):
    pack = PackClassifier(**QUICK).fit(TABLE, classes()).fit(ARRAY, LABELS)
    assert not hasattr(pack, "feature_names_in_")
    assert pack.classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="contains NaN"):
        pack.fit(ARRAY, np.where(LABELS == 0, np.nan, LABELS))
    with pytest.raises(ValueError, match="not fitted"):
        pack.predict(ARRAY)
    folds = PackRegressor(**QUICK, cv=KFold(2)).fit(ARRAY, TARGET)
    with pytest.raises(ValueError, match=r"cv=KFold.*set_params.*cv=None\)"):
        folds.save(tmp_path / "pack")
    folds.set_params(cv=None).save(tmp_path / "pack")
    assert (load(tmp_path / "pack").predict(ARRAY) == folds.predict(ARRAY)).all()
