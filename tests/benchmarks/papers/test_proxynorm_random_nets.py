"""papers/proxynorm/random_nets: its nets against numpy, its numbers against synthetic rows."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from benchmarks.papers.common.claims import FAILS, HOLDS, UNDECIDED
from benchmarks.papers.proxynorm.random_nets import __main__ as study
from benchmarks.papers.proxynorm.random_nets.claims import RANDOM, RESIDUAL, Kind, bound, power
from benchmarks.papers.proxynorm.random_nets.claims import THEOREMS as THEOREM_CLAIMS
from benchmarks.papers.proxynorm.random_nets.model import (
    NORMS,
    RHO,
    Layer,
    Net,
    activate,
    draw_inputs,
    draw_weight,
    make_norm,
    standardised,
    walk,
)
from benchmarks.papers.proxynorm.random_nets.numbers import (
    bound_table,
    comparisons,
    equality_table,
    from_bn,
)
from benchmarks.papers.proxynorm.random_nets.residual import Block, Residual, build
from benchmarks.papers.proxynorm.random_nets.theorems import theorem2, theorem3
from combutab.activations import ProxyNorm
from tests.benchmarks.quick_forms import run_quick

DENSE = tuple(name for name in NORMS if name != "IN")
EXACT = {"dtype": torch.float64, "eps": 0.0}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def measure(net, draw):
    found = net.measure(draw)
    assert set(found) == set(net.sites)
    return pd.DataFrame([{"norm": n, "depth": d, **found[n, d]} for n, d in net.sites])


def test_convolution_is_periodic():
    weight = torch.randn(2, 3, 3, 3, generator=generator(), dtype=torch.float64)
    z = torch.randn(2, 3, 4, 4, generator=generator(1), dtype=torch.float64)
    layer = Layer(weight, torch.ones(2), torch.zeros(2))
    expected = np.zeros((2, 2, 4, 4))
    for i, j, k, m in itertools.product(range(4), range(4), range(3), range(3)):
        taken = z[:, :, (i + k - 1) % 4, (j + m - 1) % 4].numpy()
        expected[:, :, i, j] += taken @ weight[:, :, k, m].numpy().T
    np.testing.assert_allclose(layer.convolve(z, standardise=False), expected, atol=1e-12)


def test_weights_are_cut_and_scaled_by_their_fan_in():
    weight = draw_weight((50, 20, 3, 3), generator()) * np.sqrt(180)
    assert 1.95 < weight.abs().max() <= 2
    assert weight.std().item() == pytest.approx(0.880, abs=0.02)  # of a normal cut at 2


def test_standardised_weights():
    weight = standardised(draw_weight((5, 4, 3, 3), generator(), torch.float64) + 0.3).flatten(1)
    np.testing.assert_allclose(weight.mean(1), 0, atol=1e-15)
    np.testing.assert_allclose(weight.square().sum(1), 1)


@pytest.mark.parametrize(
    ("norm", "axes"),
    [("BN", (0, 2, 3)), ("IN", (2, 3)), ("LN", (1, 2, 3)), ("LN+PN", (1, 2, 3))],
)
def test_norms_take_the_statistics_of_their_axes(norm, axes):
    x = torch.randn(5, 6, 3, 3, generator=generator(), dtype=torch.float64).numpy() * 3 + 1
    expected = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    step = make_norm(norm, 6, 4, eps=1e-14)  # BN takes no 0
    np.testing.assert_allclose(step(torch.from_numpy(x)), expected, atol=1e-12)


def test_groups_have_eight_channels():
    assert make_norm("GN", 1024, 4).num_groups == 128  # as in the paper
    assert make_norm("GN+PN", 4, 2).num_groups == 1
    with pytest.raises(ValueError, match="'XN'; there are BN"):
        make_norm("XN", 4, 2)


def test_dense_nets_have_no_instance_norm():
    with pytest.raises(ValueError, match="leave it out"):
        Net("dense", 4, 2)


@pytest.mark.parametrize("norm", ["LN", "LN+PN"])
def test_activation_step(norm):
    phi, y = nn.ReLU(), torch.randn(4, 3, 2, 2, generator=generator())
    layer = Layer(torch.empty(3, 3), torch.tensor([1.0, 0.5, -2.0]), torch.tensor([0.0, 1.0, 0.3]))
    with torch.no_grad():
        found = activate(norm, phi, layer, y)
    expected = (y * layer.gamma.view(-1, 1, 1) + layer.beta.view(-1, 1, 1)).clamp_min(0)
    if norm == "LN+PN":  # Eq. (7), its moments by sampling
        proxy = layer.gamma * torch.randn(400_000, 1, generator=generator()) + layer.beta
        std, mean = torch.std_mean(proxy.clamp_min(0), dim=0)
        expected = (expected - mean.view(-1, 1, 1)) / (std**2 + 0.03).sqrt().view(-1, 1, 1)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)


def test_inputs_are_centred_digits():
    dense = draw_inputs(Net("dense", 4, 2, DENSE), generator(), torch.float64)
    assert dense.shape == (64, 64)
    np.testing.assert_allclose(dense.mean(0), 0, atol=1e-12)
    conv = draw_inputs(Net("conv", 4, 2), generator(), torch.float64)
    assert conv.shape == (64, 1, 8, 8)
    assert conv.mean().item() == pytest.approx(0)
    assert conv.square().mean().item() == pytest.approx(1)
    assert (conv.flatten(1).abs().amax(1) > 0).all(), "Definition 1: no input is zero throughout"


def test_walk_is_the_network_of_numpy():
    """LN, dense: the third layer's y by plain numpy from the layers drawn."""
    net = Net("dense", 6, 3, ("LN", "LN+WS"), n_inputs=20)
    layers, given = {}, {}
    for depth, norm, _, x, layer in walk(net, 5, **EXACT):
        layers[depth], given[depth, norm] = layer, x
    z = draw_inputs(net, generator(5), torch.float64).numpy()
    for depth in (1, 2, 3):
        x = z @ layers[depth].weight.numpy().T
        np.testing.assert_allclose(given[depth, "LN"], x, atol=1e-12)
        y = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
        z = np.maximum(y * layers[depth].gamma.numpy() + layers[depth].beta.numpy(), 0)
    first = layers[1].weight.numpy()
    assert np.abs(first.mean(1)).min() > 1e-4
    inputs = draw_inputs(net, generator(5), torch.float64).numpy()
    alone = first / first.std(1, keepdims=True) / np.sqrt(64)
    shift = inputs.sum(1, keepdims=True) * alone.mean(1)
    np.testing.assert_allclose(given[1, "LN+WS"], inputs @ alone.T - shift, atol=1e-12)


def test_measured_powers_are_those_of_y():
    net = Net("conv", 4, 21, ("BN", "LN"), n_inputs=12)
    rows = measure(net, 3)
    assert rows.groupby("norm")["depth"].apply(list).to_dict() == {
        name: list(range(1, 21)) for name in ("BN", "LN")
    }
    seen = {(depth, norm): step(x) for depth, norm, step, x, _ in walk(net, 3)}
    for row in rows[rows["depth"].isin([1, 20])].to_dict("records"):
        y = seen[row["depth"], row["norm"]].double().numpy().reshape(12, 4, 16)
        means, sds = y.mean(2), y.std(2)
        expected = [(means.mean(0) ** 2), means.var(0), (sds.mean(0) ** 2), sds.var(0)]
        for term, values in zip(("P1", "P2", "P3", "P4"), expected, strict=True):
            assert row[term] == pytest.approx(values.mean(), abs=1e-9)


def test_nets_of_a_draw_share_their_weights():
    alone = measure(Net("dense", 8, 3, ("LN",)), 1)
    among = measure(Net("dense", 8, 3, DENSE), 1)
    among = among[among["norm"] == "LN"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, among)
    other = measure(Net("dense", 8, 3, ("LN",)), 2)
    assert not np.isclose(alone["P1"], other["P1"], rtol=1e-3).any()


def test_theorem2_holds_to_rounding():
    worst = theorem2(Net("conv", 6, 4, ("IN",), n_inputs=16), 0, **EXACT)
    assert max(worst.values()) < 1e-12
    with_others = theorem2(Net("conv", 6, 4, ("LN",), n_inputs=16), 0, **EXACT)
    assert with_others["P3"] > 0.1, "the check can fail"


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


def test_block_is_a_residual_one():
    block = Block("LN", 1, 8, 2, 1, generator())
    x = torch.randn(2, 8, 4, 4, generator=generator(1))
    nn.init.zeros_(block.convs[2].weight)
    torch.testing.assert_close(block(x), x)
    wider = Block("LN+PN", 1, 4, 2, 2, generator())
    nn.init.zeros_(wider.convs[2].weight)
    x = torch.randn(2, 4, 4, 4, generator=generator(1))
    z = wider.activations[0](wider.norms[0](x))
    torch.testing.assert_close(wider(x), nn.functional.conv2d(z, wider.skip.weight, stride=2))
    assert [type(step) for step in wider.activations] == [ProxyNorm] * 3


def test_residual_network_is_resnet_50():
    net = Residual(4)
    network = build(net, "GN", generator())
    assert net.depth == 16
    norms = [m for m in network.modules() if isinstance(m, nn.GroupNorm)]
    assert len(norms) == 48
    sizes = {m.num_channels // m.num_groups for m in norms}
    assert (min(sizes), max(sizes)) == (2, 64), "ResNet-50's in 32 groups"
    assert network(torch.zeros(1, 1, 8, 8)).shape == (1, 128, 4, 4)


def test_residual_powers_are_pooled_by_block():
    rows = measure(Residual(2, (1, 1, 1, 1), ("BN", "LN"), 16), 0)
    assert rows.groupby("norm")["depth"].apply(list).to_dict() == {
        name: [1, 2, 3, 4] for name in ("BN", "LN")
    }
    np.testing.assert_allclose(rows["P"], 1, atol=1e-4)
    assert rows.loc[rows["norm"] == "BN", "P1"].max() < 1e-10


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


def test_quick_form(tmp_path, capsys):
    arguments = ["--quick", "--out", str(tmp_path)]
    said = run_quick("papers.proxynorm.random_nets", tmp_path)
    assert "10 of 10 to go" in said
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
    for again in ([], ["--report"]):
        study.STUDY.main([*arguments, *again])
        assert "to go" not in capsys.readouterr().out, "nothing is measured twice"
        assert (tmp_path / "proxynorm_random_nets.md").read_text() == text


def test_quick_results_are_not_written_over_the_full_ones():
    with pytest.raises(SystemExit, match="choose a folder"):
        study.STUDY.main(["--quick"])


def test_normalisations_are_compared_over_draws(tmp_path, capsys):
    with pytest.raises(SystemExit):
        study.STUDY.main(["--draws", "1", "--out", str(tmp_path)])
    assert "--draws: takes 2 or more, not 1" in capsys.readouterr().err


def test_the_results_that_are_kept_are_those_of_the_full_study():
    """Nothing is to go: the file has each row that a run would begin with."""
    arguments = argparse.Namespace(quick=False, draws=None)
    for experiment in study.STUDY.experiments:
        rows = experiment.store(Path(study.__file__).parents[1] / "results").read().astype(str)
        wanted = [row for job in experiment.jobs(arguments) for row in job.wanted]
        kept = set(rows[list(experiment.settings)].itertuples(index=False, name=None))
        assert kept == {tuple(row[name] for name in experiment.settings) for row in wanted}


def test_full_nets_are_measured_where_the_report_looks():
    conv, dense = study.FULL[:2]
    assert {1, 5, 10, 20, 50, 100, 200} <= {depth for norm, depth in conv.sites if norm == "GN"}
    assert len([norm for norm, _ in dense.sites if norm == "LN"]) == 200
