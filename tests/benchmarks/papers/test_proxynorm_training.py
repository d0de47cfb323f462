"""papers/proxynorm/training: its nets against torch's own, its numbers against synthetic rows."""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn import metrics
from torch import nn
from torch.nn import functional as F

from benchmarks.papers.common.claims import FAILS, HOLDS
from benchmarks.papers.proxynorm.training import __main__ as training
from benchmarks.papers.proxynorm.training import runs as training_runs
from benchmarks.papers.proxynorm.training.claims import CLAIMS, matches
from benchmarks.papers.proxynorm.training.nets import (
    NORMS,
    Masks,
    NormAct,
    ResidualSpec,
    StackedMap,
)
from benchmarks.papers.proxynorm.training.numbers import (
    Difference,
    adjust,
    by_setting,
    change_with_batch,
    change_with_regularisation,
    contrasts,
    load_paper,
    paired,
    paper_gains,
)
from benchmarks.papers.proxynorm.training.runs import (
    ESTIMATOR_NORMS,
    KEY,
    RECIPES,
    Program,
    Recipe,
    SoftCrossEntropy,
    Split,
    load_split,
    make_estimator,
    rate_factor,
    smoothed,
)
from combutab.activations import ProxyNorm
from combutab.nn import Member, MLPSpec, NetworkSpec, StackedMLP
from tests.benchmarks.quick_forms import run_quick

ROOT = Path(__file__).parents[3]
DATA_HOME = ROOT.parent / "shared" / "data"
RESULTS = Path(training.__file__).parents[1] / "results"
SHAPES = {
    "table": {"n_dense": 5, "groups": 2},
    "image": {"n_dense": 64, "groups": 4, "image": True},
}
SMALL = Recipe(8, 3, n_train=64, n_test=50, epochs=2)


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def spec_of(kind, norm):
    return ResidualSpec(n_outputs=3, norm=norm, width=8, n_blocks=2, **SHAPES[kind])


def build(kind, norm, seeds, activation="relu", dropout=0.0):
    return spec_of(kind, norm).build([Member(seed, activation, dropout) for seed in seeds])


def planes(x):
    """(batch, positions, channels) -> as torch has it, positions last."""
    return x.mT.unflatten(2, (4, 4)) if x.shape[1] == 16 else x[:, 0]


@pytest.mark.parametrize("image", [False, True])
def test_a_stacked_map_is_each_members_own(image):
    stack = StackedMap(3, 4, generators(0, 1), image=image)
    x = torch.randn(2, 5, 16 if image else 1, 3, generator=generators(2)[0])
    y = stack(x)
    for m in range(2):
        own, weight = planes(x[m]), stack.weight[m]
        expected = F.conv2d(own, weight, padding=1) if image else F.linear(own, weight)
        torch.testing.assert_close(planes(y[m]), expected)
    assert stack.weight.std().item() == pytest.approx((27 if image else 3) ** -0.5, rel=0.25)


def test_the_first_map_of_an_image_halves_its_sides():
    stack = StackedMap(1, 4, generators(0), image=True, stride=2)
    x = torch.randn(1, 5, 64, 1, generator=generators(2)[0])
    image = x[0, :, :, 0].unflatten(1, (1, 8, 8))
    expected = F.conv2d(image, stack.weight[0], stride=2, padding=1)
    torch.testing.assert_close(planes(stack(x)[0]), expected)


@pytest.mark.parametrize("image", [False, True])
def test_standardised_weights_against_numpy(image):
    stack = StackedMap(3, 4, generators(0, 1), image=image, standardized=True)
    given = stack.weight.detach().numpy().reshape(8, -1)
    expected = (given - given.mean(1, keepdims=True)) / given.std(1, keepdims=True)
    found = stack.effective_weight().detach().numpy().reshape(8, -1)
    np.testing.assert_allclose(found, expected / np.sqrt(given.shape[1]), atol=1e-5)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", SHAPES)
def test_norms_against_torch(name, kind):
    spec, norm = spec_of(kind, name), NORMS[name]
    step = NormAct(spec, [Member(0, "relu"), Member(1, "relu")], 0)
    x = 3 * torch.randn(2, 6, spec.positions, 8, generator=generators(3)[0]) + 1
    for m in range(2):
        if norm.kind == "batch":
            alone = (nn.BatchNorm2d if spec.image else nn.BatchNorm1d)(8, eps=1e-6)
        else:
            alone = nn.GroupNorm(1 if name.startswith("LN") else spec.groups, 8, eps=1e-6)
        act = ProxyNorm("relu", 8, dim=1) if norm.proxy else nn.ReLU()
        torch.testing.assert_close(planes(step(x)[m]), act(alone(planes(x[m]))))


def test_batch_norm_predicts_by_running_statistics():
    step = NormAct(spec_of("table", "BN"), [Member(0, "relu")], 0)
    x = torch.randn(1, 50, 1, 8, generator=generators(3)[0]) + 2
    step(x)
    expected = 0.03 * x.mean((1, 2))
    torch.testing.assert_close(step.norm.running_mean, expected)
    step.eval()
    first = step(x[:, :1])
    torch.testing.assert_close(first, step(x)[:, :1])


def test_the_last_proxy_norm_of_images_only_centres():
    for kind, scales in (("image", False), ("table", True)):
        net = build(kind, "LN+PN", [0])
        *sites, end = [site.activation.kinds[0].skeleton.scale for site in net.sites]
        assert end is scales
        assert all(sites)


def test_members_of_combu_have_partitions_of_their_own():
    net = build("table", "GN+PN", [0, 1], "combu")
    for first, second in zip(*(state_of(net, m, "partition") for m in range(2)), strict=True):
        assert first.bincount().tolist() == second.bincount().tolist() == [4, 2, 2]
        assert not torch.equal(first, first.sort().values)
        assert not torch.equal(first, second)
    alone = build("table", "GN+PN", [1], "combu")
    assert all(map(torch.equal, state_of(alone, 0, "partition"), state_of(net, 1, "partition")))


def state_of(net, member, ending):
    return [value for name, value in net.member_state(member).items() if name.endswith(ending)]


@pytest.mark.parametrize("activation", ["relu", "combu"])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("kind", SHAPES)
def test_members_do_not_see_each_other(kind, name, activation):
    x = torch.randn(3, 6, SHAPES[kind]["n_dense"], generator=generators(9)[0])
    together = build(kind, name, [4, 5, 6], activation)(x)
    alone = build(kind, name, [5], activation)(x[1:2])
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", SHAPES)
def test_masks_drop_branches_and_features(kind):
    """Without branches only the first map is left; without features only the bias."""
    net = build(kind, "LN", [4])
    x = torch.randn(1, 6, net.spec.n_dense, generator=generators(9)[0])
    depth, features = torch.zeros(1, 6, 2), torch.ones(1, 6, 8)
    stem = net.stem(x.unsqueeze(3 if kind == "image" else 2))
    expected = net.classifier(net.sites[-1](stem).mean(2, keepdim=True)).squeeze(2)
    torch.testing.assert_close(net(x, None, [depth, features]), expected)
    assert not torch.equal(net(x), expected)
    net.bias.data.fill_(0.5)
    assert (net(x, None, [1 + depth, 0 * features]) == 0.5).all()


def test_equal_seeds_begin_with_equal_weights_whatever_the_norm():
    first, second = (build("table", name, [7]) for name in ("BN", "GN+WS+PN"))
    assert torch.equal(first.maps[3].weight, second.maps[3].weight)
    assert torch.equal(first.classifier.weight, second.classifier.weight)


def test_a_spec_without_fields_is_not_read_from_a_file():
    with pytest.raises(ValueError, match=r"'n_blocks'.*unknown"):
        NetworkSpec.from_json(spec_of("table", "LN").to_json())


@pytest.mark.parametrize("norm", NORMS)
def test_all_parameters_decay_and_are_what_the_spec_says(norm):
    spec = spec_of("image", norm)
    net = spec.build([Member(0, "relu"), Member(1, "relu")])
    own = sum(p.numel() for p in net.parameters() if p.requires_grad) / 2
    assert net.n_decayed == spec.n_weights == own


def test_groups_must_divide_the_width():
    with pytest.raises(ValueError, match="groups=3"):
        ResidualSpec(5, 3, "GN", width=8, n_blocks=1, groups=3)


def test_losses_against_cross_entropy():
    logits = torch.randn(2, 6, 4, generator=generators(0)[0])
    target = torch.randint(4, (6,), generator=generators(1)[0])
    none = torch.zeros(6, 1)
    rows = smoothed(Split(none, target, none, target, 4))
    loss, y = SoftCrossEntropy(), rows.y.view(2, 6, 4)
    found = loss.rows(logits, y).mean(1)
    for m, smoothing in enumerate((0.0, 0.1)):
        expected = F.cross_entropy(logits[m], target, label_smoothing=smoothing)
        torch.testing.assert_close(found[m], expected)
        right = (logits[m].argmax(-1) == target).float()
        assert torch.equal(loss.metric(logits, y)[m], right)


def program(net="CNN", data="digits", norm="LN+PN", batch_size=16, seeds=(0, 1), recipe=SMALL):
    return Program(net, data, norm, batch_size, seeds, recipe)


def train(program):
    """The rows as they are kept."""
    job = training.job(program)
    return [own | found for own, found in zip(job.wanted, job.run(), strict=True)]


def test_the_sum_of_rates_does_not_depend_on_the_batch():
    programs = [program(batch_size=b, recipe=RECIPES["CNN"]) for b in (8, 32, 128, 512)]
    assert [p.epochs for p in programs] == [6, 12, 24, 48]
    assert [p.steps for p in programs] == [768, 384, 192, 96]
    sums = [p.learning_rate * p.steps for p in programs]
    np.testing.assert_allclose(sums, sums[0])
    rates = [rate_factor(step / 768) for step in range(768)]
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert np.mean(rates) == pytest.approx(0.5, abs=0.01)


def test_masks_are_for_extra_regularisation_alone_and_keep_means():
    spec = ResidualSpec(5, 3, "LN", width=40, n_blocks=20, groups=2)
    members = [Member(seed, "relu", rate) for rate in (0.0, 0.25) for seed in (0, 1)]
    depth, features = Masks(spec, members).draw(torch.tensor([5, 6, 7, 8]), 500)
    assert depth.shape == (4, 500, 20)
    assert features.shape == (4, 500, 40)
    assert (depth[:2] == 1).all()
    assert (features[:2] == 1).all()
    for kept, rate in ((depth[2:], 26 / 256), (features[2:], 0.25)):  # 0.1 in bytes
        np.testing.assert_allclose(kept.unique(), [0, 1 / (1 - rate)], rtol=1e-6)
        assert (kept == 0).float().mean() == pytest.approx(rate, abs=0.01)
    assert not torch.equal(depth[2], depth[3]), "each seed has its own"
    both = torch.stack([depth[2:, :, 0].flatten(), features[2:, :, 0].flatten()])
    assert both.corrcoef()[0, 1].abs() < 0.1, "a branch and a feature do not go together"


def test_batches_must_be_full():
    with pytest.raises(ValueError, match="batches of 48"):
        program(batch_size=48)


def test_both_regularisations_see_the_same_rows(monkeypatch):
    """Without dropout and smoothing nothing else is left that tells them apart."""
    monkeypatch.setattr(training_runs, "DROPOUT", 0.0)
    monkeypatch.setattr(training_runs, "SMOOTHING", 0.0)
    losses = [float(row["train_loss"]) for row in train(program())]
    assert losses[:2] == pytest.approx(losses[2:], rel=1e-4)
    assert abs(losses[0] - losses[1]) > 1e-3


def test_the_recorded_loss_is_without_the_penalty(monkeypatch):
    """At a rate of next to nothing it is that of the first weights, of the rows as they are."""
    recipe = replace(SMALL, learning_rate=1e-12)
    own = program(norm="LN", recipe=recipe, seeds=(3,))
    row = train(own)[0]
    split = load_split("digits", recipe)
    net = own.spec(split).build([Member(3, "relu")])
    logits = net.predict(split.X_train, None, 500)[0]
    expected = F.cross_entropy(logits, split.y_train).item()
    assert float(row["train_loss"]) == pytest.approx(expected, rel=1e-4)
    right = (logits.argmax(-1) == split.y_train).float().mean().item()
    assert float(row["train_accuracy"]) == pytest.approx(right)


def test_a_member_trains_as_if_alone():
    settings = {"norm": "GN+PN"}
    both, one = train(program(**settings)), train(program(seeds=(1,), **settings))
    for name in ("log_loss", "train_loss"):
        found = [float(row[name]) for row in both if row["seed"] == "1"]
        np.testing.assert_allclose(found, [float(row[name]) for row in one], rtol=1e-3)
    plain, extra = (float(row["train_loss"]) for row in one)
    assert plain != extra
    assert len({tuple(row[name] for name in KEY) for row in both}) == 4


@pytest.mark.parametrize("norm", ESTIMATOR_NORMS)
def test_the_estimators_networks(norm):
    own = program("plain MLP", norm=norm, recipe=RECIPES["plain MLP"])
    plain, extra = (make_estimator(own, kind, 3) for kind in ("plain", "extra"))
    assert (plain.dropout, extra.dropout) == (0.0, 0.02)
    assert (plain.label_smoothing, extra.label_smoothing) == (0.0, 0.1)
    net = MLPSpec(4, plain.hidden_layer_sizes, 2, (), 8, plain.normalization, plain.proxy_norm)
    first = StackedMLP(net, [Member(0, "relu")])
    kind = {"BN": "batch", "LN": "layer", "GN": "group"}[norm[:2]]
    assert [step.kind for step in first.norms] == [kind] * 10
    assert (first.norms[0].gain is None) is norm.endswith("PN")


def test_the_estimators_scores():
    if not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    recipe = Recipe(8, 2, 4e-3, n_train=256, n_test=200, epochs=10)
    own = Program("plain MLP", "california_housing", "LN+PN", 32, (0, 1), recipe, "relu", DATA_HOME)
    rows = train(own)
    assert [(row["regularisation"], row["seed"]) for row in rows] == [
        ("plain", "0"),
        ("plain", "1"),
        ("extra", "0"),
        ("extra", "1"),
    ]
    split = load_split("california_housing", recipe, DATA_HOME)
    net = make_estimator(own, "extra", 1).fit(split.X_train.numpy(), split.y_train.numpy())
    probability = net.predict_proba(split.X_test.numpy())
    assert float(rows[3]["accuracy"]) == pytest.approx(
        metrics.accuracy_score(split.y_test, probability.argmax(1)), abs=0.011
    )
    assert float(rows[3]["log_loss"]) == pytest.approx(
        metrics.log_loss(split.y_test, probability), rel=0.01
    )


def test_training_learns():
    recipe = Recipe(8, 3, n_train=512, epochs=30)
    rows = train(program(norm="BN", batch_size=64, seeds=(0,), recipe=recipe))
    assert float(rows[0]["accuracy"]) > 0.85
    assert float(rows[0]["fit_accuracy"]) > 0.95


def test_split_of_digits():
    split = load_split("digits", RECIPES["CNN"])
    assert split.X_train.shape == (1024, 64)
    assert 500 < len(split.y_test) <= 1797 - 1024
    assert split.X_train.mean().abs() < 1e-5
    assert split.n_classes == 10
    both = torch.cat([split.X_train, split.X_test])
    assert len(both.unique(dim=0)) == len(both)


def test_unknown_data_and_too_few_rows():
    with pytest.raises(ValueError, match="'letters'"):
        load_split("letters", SMALL)
    with pytest.raises(ValueError, match="n_train=1797"):
        load_split("digits", Recipe(8, 3, n_train=1797))


def test_paired_differences():
    d = [0.01, 0.03, 0.02, 0.00]
    found = paired(d)
    expected = stats.ttest_rel(np.add(d, 0.5), np.full(4, 0.5))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert (paired([0.0, 0.0]).p, paired([0.1, 0.1]).p) == (1.0, 0.0)


def test_outcomes_and_matching():
    def judged(mean, low, high, p):
        return Difference(mean, low, high, p)

    assert judged(0.01, 0.005, 0.02, 0.01).outcome == "higher"
    assert judged(-0.01, -0.02, -0.005, 0.01).outcome == "lower"
    assert judged(0.0, -0.009, 0.009, 0.5).outcome == "equal within a point"
    assert judged(0.0, -0.009, 0.011, 0.5).outcome == "not significantly different"
    assert matches(judged(-0.004, -0.009, 0.001, 0.5)) is True
    assert matches(judged(-0.02, -0.03, -0.01, 0.01)) is False
    assert matches(judged(-0.02, -0.05, 0.01, 0.2)) is None
    assert str(judged(-0.00001, -0.02, 0.0123, 0.0312)) == "+0.00 [-2.00, +1.23], p = 0.031"
    assert -judged(0.01, 0.005, 0.02, 0.01) == judged(-0.01, -0.02, -0.005, 0.01)
    found = adjust({"a": judged(0, 0, 0, 0.01), "b": judged(0, 0, 0, 0.04)})
    assert {name: d.p for name, d in found.items()} == {"a": 0.02, "b": 0.04}


# accuracy of each norm over that of LN, with extra regularisation, at batches 8 and 32
EFFECTS = {
    "BN": (0.00, 0.04),
    "BN+PN": (0.00, 0.04),
    "LN": (0.00, 0.00),
    "LN+PN": (0.05, 0.05),
    "GN": (0.01, 0.01),
    "GN+PN": (0.05, 0.05),
    "GN+WS": (0.03, 0.03),
    "GN+WS+PN": (0.05, 0.05),
}


def synthetic(noise=0.001):
    rng = np.random.default_rng(0)
    lines = []
    for seed in range(6):
        base = rng.normal(0.7, 0.05)  # shared by the norms: tests that are not paired see nothing
        for data in ("a", "b"):
            for kind in ("plain", "extra"):
                for norm, effects in EFFECTS.items():
                    for size, effect in zip((8, 32), effects, strict=True):
                        share = 0.5 if norm.endswith("PN") and kind == "plain" else 1.0
                        score = base + share * effect + rng.normal(0, noise)
                        values = (data, kind, norm, size, seed, score, score)
                        lines.append(("MLP", "relu", *values))
    names = ("net", "activation", "data", "regularisation", "norm", "batch_size", "seed")
    return pd.DataFrame(lines, columns=[*names, "accuracy", "train_accuracy"])


def test_contrasts_of_synthetic_rows():
    found = contrasts(synthetic(), [("LN+PN", "LN"), ("BN+PN", "BN"), ("IN", "BN")])
    assert list(dict.fromkeys(pair for pair, _ in found)) == ["LN+PN - LN", "BN+PN - BN"]
    assert {size for _, size in found} == {8, 32, "all"}
    assert found["LN+PN - LN", "all"].mean == pytest.approx(0.0375, abs=0.002)
    assert found["LN+PN - LN", 8].outcome == "higher"
    assert found["BN+PN - BN", 8].outcome == "equal within a point"
    own = by_setting(synthetic(), ("LN+PN", "LN"))
    assert len(own) == 8
    assert own["a", "extra", 8].mean == pytest.approx(0.05, abs=0.003)
    assert own["a", "plain", 8].mean == pytest.approx(0.025, abs=0.003)
    assert by_setting(synthetic(), ("IN", "BN")) == {}


def test_changes_of_synthetic_rows():
    rows = synthetic()
    assert change_with_batch(rows, "LN", "BN").mean == pytest.approx(0.04, abs=0.002)
    found = change_with_regularisation(rows, "LN+PN", "LN")
    assert found.mean == pytest.approx(0.025, abs=0.002)


def test_verdicts_of_synthetic_rows():
    rows = synthetic()
    judged = {claim.text: claim.judge(rows).verdict for claim in CLAIMS}
    expected = {
        "PN raises the accuracy of LN": HOLDS,
        "PN adds more to LN": HOLDS,
        "LN+PN and GN+PN match": HOLDS,
        "... where the batch": HOLDS,
        "BN loses": HOLDS,
        "PN adds most with extra": HOLDS,
        "PN raises training": HOLDS,
        "... but not that of BN": HOLDS,
        "LN and GN alone stay below": HOLDS,
    }
    for start, verdict in expected.items():
        assert [v for text, v in judged.items() if text.startswith(start)] == [verdict], start
    swap = {"LN": "LN+PN", "LN+PN": "LN", "GN": "GN+PN", "GN+PN": "GN"}
    reversed_rows = rows.assign(norm=rows["norm"].replace(swap))
    verdicts = [claim.judge(reversed_rows).verdict for claim in CLAIMS]
    assert verdicts[0] == verdicts[-2] == FAILS
    without = [claim.judge(rows[rows["norm"] != "BN"]) is None for claim in CLAIMS]
    assert without == [False] * 3 + [True] * 5 + [False] * 2 + [True]
    assert not any(claim.judge(rows[rows["seed"] == 0]) for claim in CLAIMS)


def test_the_papers_cells():
    paper = load_paper()
    cell = paper.set_index(["table", "net", "norm", "groups", "regularisation"])["mean"]
    assert cell["2 and 6", "RN50", "LN+PN", 1, "extra"] == 76.5
    assert cell["9", "RN50", "GN+WS", 8, "plain"] == 80.1
    keys = ["net", "norm", "groups", "metric", "regularisation"]
    assert not paper.duplicated(keys).any()
    assert paper["mean"].isna().eq(paper["note"] == "lost in the text").all()
    gains = paper_gains("accuracy").set_index(["net", "regularisation", "pair", "groups"])["gain"]
    assert gains["RN50", "extra", "LN+PN - LN", 1] == pytest.approx(1.9)
    assert gains["RN101", "extra", "GN+PN - GN", 32] == pytest.approx(1.2)


def test_quick_form(tmp_path, capsys):
    if not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    data = ["--data", "california_housing", "digits", "--data-home", str(DATA_HOME)]
    said = run_quick("papers.proxynorm.training", tmp_path, *data)
    assert "42 of 42 to go" in said
    rows = pd.read_csv(tmp_path / "proxynorm_training.csv")
    assert rows.groupby("net").size().to_dict() == {"CNN": 64, "MLP": 64, "plain MLP": 40}
    assert rows["accuracy"].between(0, 1).all()
    page = (tmp_path / "proxynorm_training.md").read_text()
    assert "python -m benchmarks.papers.proxynorm.training --quick" in page
    assert "PN adds nothing to BN" in page
    assert str(tmp_path) not in page
    assert (tmp_path / "proxynorm_training_train.png").stat().st_size > 10_000
    training.STUDY.main(["--quick", "--out", str(tmp_path), *data])
    assert "to go" not in capsys.readouterr().out, "nothing is trained twice"


def test_quick_results_have_a_folder_of_their_own():
    with pytest.raises(SystemExit, match="--out"):
        training.STUDY.main(["--quick"])


def test_the_results_that_are_kept_are_those_of_the_full_study():
    """Nothing is to go: the file has each row that a run would begin with."""
    (experiment,) = training.STUDY.experiments
    parser = argparse.ArgumentParser()
    training.add_arguments(parser)
    arguments = parser.parse_args([], argparse.Namespace(quick=False))
    with open(RESULTS / "proxynorm_training.csv", newline="") as file:
        kept = [[row[n] for n in experiment.settings] for row in csv.DictReader(file)]
    wanted = [row for job in experiment.jobs(arguments) for row in job.wanted]
    assert sorted(kept) == sorted([row[n] for n in experiment.settings] for row in wanted)
    assert len(experiment.store(RESULTS).read()) == len(wanted)
