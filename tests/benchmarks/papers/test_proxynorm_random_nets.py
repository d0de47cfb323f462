"""papers/proxynorm/random_nets: its nets against numpy, its numbers against synthetic rows."""

from __future__ import annotations

import argparse
import itertools
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from benchmarks.papers.common.claims import FAILS, HOLDS, UNDECIDED
from benchmarks.papers.proxynorm.random_nets import __main__ as study
from benchmarks.papers.proxynorm.random_nets.claims import (
    RANDOM,
    RESIDUAL,
    Kind,
    bound,
    bound_table,
    comparisons,
    equality_table,
    from_bn,
    power,
)
from benchmarks.papers.proxynorm.random_nets.claims import THEOREMS as THEOREM_CLAIMS
from benchmarks.papers.proxynorm.random_nets.nets import (
    EPS,
    RHO,
    Block,
    Conv,
    Net,
    draw_inputs,
    draw_weight,
    make_steps,
)
from benchmarks.papers.proxynorm.random_nets.theorems import theorem2, theorem3
from combutab.activations import ProxyNorm

EXACT = {"dtype": torch.float64, "eps": 1e-14}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def steps(norm, gamma, beta, groups=2, eps=EPS):
    return make_steps(norm, groups, eps, torch.as_tensor(gamma), torch.as_tensor(beta))


@torch.no_grad()
def test_convolution_is_periodic():
    z = torch.randn(2, 3, 4, 4, generator=generator(1), dtype=torch.float64)
    conv = Conv("LN", 3, 2, 3, padding_mode="circular", generator=generator(), dtype=torch.float64)
    expected = np.zeros((2, 2, 4, 4))
    for i, j, k, m in itertools.product(range(4), range(4), range(3), range(3)):
        taken = z[:, :, (i + k - 1) % 4, (j + m - 1) % 4].numpy()
        expected[:, :, i, j] += taken @ conv.weight[:, :, k, m].numpy().T
    np.testing.assert_allclose(conv(z), expected, atol=1e-12)


def test_weights_are_cut_and_scaled_by_their_fan_in():
    weight = draw_weight((50, 20, 3, 3), generator()) * np.sqrt(180)
    assert 1.95 < weight.abs().max() <= 2
    assert weight.std().item() == pytest.approx(0.880, abs=0.02)  # of a normal cut at 2


def test_standardised_weights():
    conv = Conv("GN+WS+PN", 4, 5, 3, generator=generator(), dtype=torch.float64)
    conv.weight.data += 0.3
    weight = conv.effective_weight().detach().flatten(1)
    np.testing.assert_allclose(weight.mean(1), 0, atol=1e-15)
    np.testing.assert_allclose(weight.square().sum(1), 1)


@pytest.mark.parametrize(
    ("norm", "axes"),
    [("BN", (0, 2, 3)), ("IN", (2, 3)), ("LN", (1, 2, 3)), ("LN+PN", (1, 2, 3))],
)
def test_norms_take_the_statistics_of_their_axes(norm, axes):
    x = torch.randn(5, 6, 3, 3, generator=generator(), dtype=torch.float64).numpy() * 3 + 1
    expected = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    step = steps(norm, np.ones(6), np.zeros(6), eps=1e-14)[0]  # BN takes no 0
    np.testing.assert_allclose(step(torch.from_numpy(x)), expected, atol=1e-12)


@pytest.mark.parametrize("norm", ["LN", "LN+PN"])
def test_activation_step(norm):
    gamma, beta = torch.tensor([1.0, 0.5, -2.0]), torch.tensor([0.0, 1.0, 0.3])
    y = torch.randn(4, 3, 2, 2, generator=generator())
    with torch.no_grad():
        found = nn.Sequential(*steps(norm, gamma, beta)[1:])(y)
    expected = (y * gamma.view(-1, 1, 1) + beta.view(-1, 1, 1)).clamp_min(0)
    if norm == "LN+PN":  # Eq. (7), its moments by sampling
        proxy = gamma * torch.randn(400_000, 1, generator=generator()) + beta
        std, mean = torch.std_mean(proxy.clamp_min(0), dim=0)
        expected = (expected - mean.view(-1, 1, 1)) / (std**2 + 0.03).sqrt().view(-1, 1, 1)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


def test_inputs_are_centred_digits():
    dense = draw_inputs(Net("dense", 4, 2), generator(), torch.float64)
    assert dense.shape == (64, 64, 1, 1)
    np.testing.assert_allclose(dense.mean(0), 0, atol=1e-12)
    conv = draw_inputs(Net("conv", 4, 2), generator(), torch.float64)
    assert conv.shape == (64, 1, 8, 8)
    assert conv.mean().item() == pytest.approx(0)
    assert conv.square().mean().item() == pytest.approx(1)
    assert (conv.flatten(1).abs().amax(1) > 0).all(), "Definition 1: no input is zero throughout"


@torch.no_grad()
def test_a_random_net_is_the_network_of_numpy():
    """LN, dense: the third layer's output by plain numpy from the layers drawn."""
    network, X = Net("dense", 6, 3, n_inputs=20).build("LN", 5, **EXACT)
    z = X.flatten(1).numpy()
    for conv, _, affine, _ in network[1:]:
        x = z @ conv.weight.flatten(1).numpy().T
        y = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
        z = np.maximum(y * affine.gamma.flatten().numpy() + affine.beta.flatten().numpy(), 0)
    np.testing.assert_allclose(network(X).flatten(1), z, atol=1e-9)


def test_convolutional_nets_halve_the_image_and_have_groups_of_eight_channels():
    network, X = Net("conv", 16, 2, n_inputs=3).build("GN", 0)
    assert network(X).shape == (3, 16, 4, 4)
    assert [m.num_groups for m in network.modules() if isinstance(m, nn.GroupNorm)] == [2, 2]


@torch.no_grad()
def test_measured_powers_are_those_of_y():
    net = Net("conv", 4, 21, ("BN", "LN"), n_inputs=12)
    rows = net.measure(3)
    assert list(rows.index) == net.sites == [(n, d) for n in ("BN", "LN") for d in range(1, 21)]
    for norm, depth in itertools.product(("BN", "LN"), (1, 20)):
        network, X = net.build(norm, 3)
        y = network[depth][:2](network[:depth](X)).double().numpy().reshape(12, 4, 16)
        means, sds = y.mean(2), y.std(2)
        expected = [(means.mean(0) ** 2), means.var(0), (sds.mean(0) ** 2), sds.var(0)]
        for term, values in zip(("P1", "P2", "P3", "P4"), expected, strict=True):
            assert rows.loc[(norm, depth), term] == pytest.approx(values.mean(), abs=1e-9)


def test_proxy_norm_leaves_the_nonlinearity_of_the_first_layer():
    for net in (Net("conv", 4, 1, ("LN", "LN+PN"), n_inputs=12), Net("dense", 8, 1)):
        found = net.measure(3)["nonlinearity"].droplevel(1)
        assert found["LN"] == pytest.approx(found["LN+PN"])
        assert 0.1 < found["LN"] < 1


def test_nets_of_a_draw_share_their_weights():
    first, second = (Net("dense", 8, 2).build(norm, 1)[0] for norm in ("LN", "GN+PN"))
    assert torch.equal(first[2][0].weight, second[2][0].weight)
    assert torch.equal(first[2][2].gamma.flatten(), second[2][2].gamma)
    other, _ = Net("dense", 8, 2).build("LN", 2)
    assert not torch.isclose(first[2][0].weight, other[2][0].weight, rtol=1e-3).any()


def test_theorem2_holds_to_rounding():
    net = Net("conv", 6, 4, n_inputs=16)
    numerics = {"dtype": torch.float64, "eps": 0.0}
    assert max(theorem2(net, 0, **numerics).values()) < 1e-12
    assert theorem2(net, 0, **numerics, norm="LN")["P3"] > 0.1, "the check can fail"


def test_theorem3_needs_its_conditions():
    usual = {"n_points": 4001, "n_proxy": 256, "draw": 0}
    normal = theorem3("relu", "normal", **usual)
    assert normal["P1"] < 1e-5
    assert normal["P"] < 0.01
    laplace = theorem3("relu", "Laplace", **usual)
    assert laplace["P1"] > 1e-3
    assert laplace["P"] > 0.1
    exact = theorem3("gelu", "normal", **{**usual, "n_proxy": 4001})
    assert exact["P"] < theorem3("gelu", "normal", **usual)["P"] / 3


@torch.no_grad()
@pytest.mark.parametrize("norm", ["LN", "LN+PN"])
def test_block_is_a_residual_one(norm):
    def block(width_in, width, stride):
        made = Block(
            lambda *shape: Conv(norm, *shape, generator=generator()),
            lambda *affine: steps(norm, *affine),
            width_in,
            width,
            stride,
        )
        nn.init.zeros_(made.branch[-1].weight)
        return made

    x = torch.randn(2, 8, 4, 4, generator=generator(1))
    torch.testing.assert_close(block(8, 2, 1)(x), x)
    wider = block(8, 4, 2)
    skipped = nn.functional.conv2d(wider.first(x), wider.skip.weight, stride=2)
    torch.testing.assert_close(wider(x), skipped)
    n_proxies = sum(isinstance(m, ProxyNorm) for m in wider.modules())
    assert n_proxies == (3 if norm == "LN+PN" else 0)


def test_residual_network_is_resnet_50():
    network, X = Net("residual", 4, 16, n_inputs=1).build("GN", 0)
    norms = [m for m in network.modules() if isinstance(m, nn.GroupNorm)]
    assert (len(network), len(norms)) == (17, 48)
    sizes = {m.num_channels // m.num_groups for m in norms}
    assert (min(sizes), max(sizes)) == (2, 64), "ResNet-50's in 32 groups"
    assert network(X).shape == (1, 128, 4, 4)


def test_residual_powers_are_pooled_by_block():
    net = Net("residual", 2, 4, ("BN", "LN"), n_inputs=16)
    rows = net.measure(0)
    assert list(rows.index) == net.sites
    np.testing.assert_allclose(rows["P"], 1, atol=1e-4)
    assert rows.loc["BN", "P1"].max() < 1e-10


def synthetic(p1, *, net="dense", width=8, draws=9, depth=20, phi="relu"):
    """Rows with ``p1[norm]`` at the last depth, rising from 0 at the first, and the rest in P2."""
    rows = []
    for (norm, last), draw, level in itertools.product(
        p1.items(), range(draws), range(1, depth + 1)
    ):
        at = last * (level - 1) / (depth - 1)
        at = at * (1 + 0.01 * draw) if at < 0.9 else at
        powers = {"P": 1.0, "P1": at, "P2": 1 - at, "P3": 0.0, "P4": 0.0}
        where = {"net": net, "width": width, "phi": phi, "norm": norm, "inputs": 4}
        share = {"nonlinearity": 0.4 * (1 - at) ** 3}
        rows.append({**where, "draw": draw, "depth": level, **powers, **share})
    return pd.DataFrame(rows)


PAPER = {"BN": 0.0, "LN": 0.95, "GN": 0.8, "LN+PN": 0.02, "GN+PN": 0.01, "LN+WS": 0.2}
THEOREMS = pd.DataFrame(
    [
        (2, "float64, eps 0", 0, "P1", 1e-30),
        (2, "float32, eps 1e-06", 0, "P1", 1e-6),
        (3, "relu, normal", 0, "P", 1e-3),
        (3, "relu, normal", 0, "P1", 1e-6),
        (3, "relu, Laplace", 0, "P", 0.3),
        (3, "relu, normal, proxy of 9", 0, "P", 1e-3),
    ],
    columns=["theorem", "case", "draw", "term", "error"],
)


def test_bound_table_counts_what_is_above():
    rows = synthetic({"LN": 0.0}, draws=2, depth=3)  # P - P1 = 1 throughout
    (line,) = bound_table(rows).to_dict("records")
    assert line["cells"] == 6
    assert line["above the bound"] == 4, "at l = 1 the bound is 1"
    assert line["worst excess"] == pytest.approx(1 - RHO**2)
    assert line["at depth"] == 3
    rows["P2"] = RHO ** (rows["depth"] - 1.0) - 1e-3
    (line,) = bound_table(rows).to_dict("records")
    assert (line["above the bound"], line["worst excess"]) == (0, 0.0)
    assert pytest.approx(1.04 / 1.08) == RHO


def test_equality_table():
    rows = synthetic({"LN": 0.0}, draws=2, depth=4, phi="identity")
    rows["P2"] = RHO ** (rows["depth"] - 1.0) + np.where(rows["draw"] == 0, 0.02, -0.01)
    (line,) = equality_table(rows).to_dict("records")
    assert line["largest error"] == pytest.approx(0.015)
    assert line["of all draws"] == pytest.approx(0.02)


def test_bound_is_judged_up_to_constants_and_says_what_is_above():
    def judged(**excess):
        others = synthetic({norm: p1 for norm, p1 in PAPER.items() if norm != "LN"}, width=16)
        parts = [synthetic({"LN": 0.0}, width=width) for width in (16, 8)]
        for part, by in zip(parts, excess.values(), strict=True):
            part["P2"] = RHO ** (part["depth"] - 1.0) + by
        return bound.judge(Kind(pd.concat([others, *parts], ignore_index=True)))

    strictly = judged(widest=-0.001, narrowest=0.1)
    assert strictly.verdict == HOLDS
    assert strictly.numbers.startswith("0 of 180")
    up_to_constants = judged(widest=0.005, narrowest=0.1)
    assert up_to_constants.verdict == HOLDS
    assert up_to_constants.numbers.startswith("180 of 180")
    assert judged(widest=0.05, narrowest=0.1).verdict == "holds in part"
    assert judged(widest=0.2, narrowest=0.1).verdict == FAILS


def test_equality_is_judged_over_widths():
    def of(width, error):
        rows = synthetic({"LN": 0.0}, width=width, phi="identity", depth=4)
        return rows.assign(P2=RHO ** (rows["depth"] - 1.0) + error)

    def judged(*parts):
        found = judge(pd.concat([synthetic(PAPER), *parts], ignore_index=True))
        return next(v for claim, v in found.items() if claim.startswith("Proposition 6"))

    assert judged(of(8, 0.1), of(16, 0.005)) == HOLDS
    assert judged(of(8, 0.1), of(16, 0.05)) == "holds in part"
    assert judged(of(8, 0.05), of(16, 0.1)) == FAILS


def test_comparisons_are_exact_and_adjusted():
    found = comparisons(synthetic(PAPER), 20).set_index(["higher", "lower"])
    assert len(found) == 5
    assert found.loc[("LN", "LN+PN"), "p (Holm)"] == pytest.approx(5 * 2 / 2**9)
    assert found["draws"].eq("9 of 9").all()
    upside_down = comparisons(synthetic({**PAPER, "LN+PN": 0.97}), 20)
    assert upside_down.set_index(["higher", "lower"])["draws"]["LN", "LN+PN"] == "0 of 9"


def test_distance_from_bn():
    far = from_bn(synthetic({"BN": 0.0, "LN": 0.5}, draws=1), 20)
    assert far.iloc[0].to_dict() == pytest.approx({"BN": 0.0, "LN": 0.5})


def judge(rows, theorems=THEOREMS):
    """The verdict on each claim of which the rows of some kind speak."""
    judged = [(claim, theorems) for claim in THEOREM_CLAIMS] + [(power, rows)]
    for kind, part in rows.groupby("net"):
        judged += [(claim, Kind(part)) for claim in (RESIDUAL if kind == "residual" else RANDOM)]
    found = {f"{claim.where}: {claim.text}": claim.judge(sample) for claim, sample in judged}
    return {name: finding.verdict for name, finding in found.items() if finding}


def test_verdicts_on_rows_as_the_paper_has_them():
    found = judge(synthetic(PAPER))
    # P - P1 falls more slowly than rho^(l-1) in these rows
    wrong = {claim for claim, verdict in found.items() if verdict != HOLDS}
    assert len(found) == 8
    assert all(claim.startswith("Theorem 1") for claim in wrong), wrong


def test_verdicts_on_rows_without_collapse():
    found = judge(synthetic({**PAPER, "LN": 0.01, "GN": 0.009, "LN+WS": 0.001}))
    cured = next(v for claim, v in found.items() if "resemble" in claim)
    lesser = next(v for claim, v in found.items() if "LN+WS" in claim)
    assert cured == lesser == FAILS
    collapse = next(v for claim, v in found.items() if "channels collapse" in claim)
    assert collapse == "holds in part", "BN keeps its power"


def test_verdicts_on_residual_rows():
    rows = synthetic({**PAPER, "LN": 0.6, "GN": 0.5, "LN+WS": 0.03}, net="residual", depth=16)
    rows = pd.concat([synthetic(PAPER), rows], ignore_index=True)
    assert [v for claim, v in judge(rows).items() if claim.startswith("Figure 6")] == [HOLDS, HOLDS]
    rows.loc[(rows["net"] == "residual") & (rows["norm"] == "LN+WS"), "P1"] = 0.5
    assert [v for claim, v in judge(rows).items() if "both keep" in claim] == ["holds in part"]


def test_few_draws_are_no_verdict():
    found = judge(synthetic(PAPER, draws=3))
    assert next(v for claim, v in found.items() if "resemble" in claim) == UNDECIDED


def test_theorems_may_fail():
    broken = THEOREMS.assign(error=0.5)
    found = judge(synthetic(PAPER), broken)
    assert {found[claim] for claim in found if claim.startswith(("Theorem 2", "Theorem 3"))} == {
        FAILS
    }


def test_proposition_3_catches_a_power_that_is_not_1():
    rows = synthetic(PAPER)
    rows.loc[7, "P"] = 0.9
    found = judge(rows)
    assert next(v for claim, v in found.items() if claim.startswith("Proposition 3")) == FAILS


def test_quick_form(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "benchmarks.papers.proxynorm.random_nets.__main__")
    monkeypatch.setattr(sys, "argv", ["random_nets", "--quick", "--out", str(tmp_path)])
    runpy.run_module("benchmarks.papers.proxynorm.random_nets", run_name="__main__")
    said = capsys.readouterr().out
    assert "10 of 10 to go" in said
    assert "torch" in said, "the machine is described"
    rows = pd.read_csv(tmp_path / "proxynorm_random_nets.csv")
    assert len(rows) == 2 * sum(len(net.sites) for net in study.QUICK)
    assert rows[["P", "P1", "P2", "P3", "P4", "torch"]].notna().all(axis=None)
    text = (tmp_path / "proxynorm_random_nets.md").read_text()
    assert "Theorem 1" in text
    assert "python -m benchmarks.papers.proxynorm.random_nets --quick" in text
    assert str(tmp_path) not in text
    for picture in ("theorem1", "power_conv", "power_dense", "power_residual"):
        assert f"proxynorm_random_nets_{picture}.png" in text
        assert (tmp_path / f"proxynorm_random_nets_{picture}.png").exists()
    for experiment in study.STUDY.experiments:
        experiment.complete(argparse.Namespace(quick=True, out=tmp_path))
    assert "to go" not in capsys.readouterr().out, "nothing is measured twice"


def test_quick_results_are_not_written_over_the_full_ones():
    with pytest.raises(SystemExit, match="choose a folder"):
        study.STUDY.main(["--quick"])


def test_the_results_that_are_kept_are_those_of_the_full_study():
    """Nothing is to go: the file has each row that a run would begin with."""
    arguments = argparse.Namespace(quick=False)
    for experiment in study.STUDY.experiments:
        rows = experiment.store(Path(study.__file__).parents[1] / "results").read().astype(str)
        wanted = [row for job in experiment.jobs(arguments) for row in job.wanted]
        kept = list(rows[list(experiment.settings)].itertuples(index=False, name=None))
        assert kept == [tuple(row[name] for name in experiment.settings) for row in wanted]


def test_full_nets_are_measured_where_the_report_looks():
    conv, dense = study.FULL[:2]
    assert {1, 5, 10, 20, 50, 100, 200} <= set(conv.depths("GN"))
    assert len(dense.depths("LN")) == 200
