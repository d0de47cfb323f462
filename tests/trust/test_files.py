"""Files that were changed: refused in clear words, or loaded to the same answers."""

import collections
import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from numpy.testing import assert_array_equal

from combutab import MLPRegressor
from combutab.constructions import ConstructedNetwork, exp_network
from combutab.preprocessing import ModeEncoder, TableEncoder
from tests.trust.forged_files import BUDGET, SECONDS, TABLE, answers, load, outcome, spoil

KINDS = (
    *("classifier", "regressor", "quantiles", "ensemble", "proxy norm", "construction"),
    *("CTGAN", "TVAE", "checkpoint", "pack"),
)
MUTATIONS = 45 * BUDGET  # of each kind


@pytest.mark.parametrize("name", KINDS)
def test_spoilt_files_are_refused_or_load_to_the_same_answers(name, paths, tmp_path):
    expected = answers(load(name, paths[name]))
    rng = np.random.default_rng(KINDS.index(name))
    spoilt = tmp_path / "spoilt.safetensors"
    tally, wrong, slowest = collections.Counter(), [], 0.0
    for number in range(MUTATIONS):
        forged = spoil(paths[name], spoilt, rng)
        said, seconds = outcome(name, spoilt, forged, expected)
        slowest = max(slowest, seconds)
        if said not in ("refused", "same", "another"):
            wrong.append((number, forged, said[:300]))
            spoilt.rename(tmp_path / f"wrong{number}")
            said = "wrong"
        tally[said] += 1
    print(f"{name}: {dict(tally)}, the slowest {slowest:.2f} s")
    assert not wrong, "\n".join(map(str, wrong))
    assert tally["refused"] > MUTATIONS // 3
    assert slowest < SECONDS


# ---- the checksum, and files without one -------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_bit_of_a_weight_or_of_the_header_is_found(name, paths, tmp_path):
    data = bytearray(paths[name].read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    text = data.index(b"version")
    for at in (start, (start + len(data)) // 2, len(data) - 1, text + 14):
        spoilt = bytearray(data)
        spoilt[at] ^= 1
        (tmp_path / "spoilt").write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"spoilt .*"):
            load(name, tmp_path / "spoilt")


@pytest.mark.parametrize("name", KINDS)
def test_files_of_before_the_checksum_still_load(name, paths, tmp_path):
    with safetensors.safe_open(paths[name], "numpy") as file:  # any reader reads them
        metadata = file.metadata()
    assert set(metadata) == {"combutab", "sha256"}
    del metadata["sha256"]
    arrays = safetensors.numpy.load_file(paths[name])
    safetensors.numpy.save_file(arrays, tmp_path / "old", metadata)
    expected = answers(load(name, paths[name]))
    assert_array_equal(answers(load(name, tmp_path / "old")), expected)
    arrays[next(n for n in arrays if n.endswith("linears.0.weight"))][0, 0] = np.nan
    safetensors.numpy.save_file(arrays, tmp_path / "old", metadata)
    with pytest.raises(ValueError, match=r"old .*not finite"):
        load(name, tmp_path / "old")


# ---- states that are passed without a file -----------------------------------------------------


def test_states_of_encoders_and_constructions_are_checked(paths):
    arrays, meta = TableEncoder(numeric="quantile").fit(TABLE).to_state()
    for name, wrong in (
        ("centre", arrays["centre"][:-1]),
        ("scale", -arrays["scale"]),
        ("fill", arrays["fill"] * np.nan),
        ("knots", arrays["knots"][::-1]),
        ("missing", arrays["missing"].astype(float)),
        ("more", np.ones(3)),
    ):
        with pytest.raises(ValueError, match="the encoder's state"):
            TableEncoder.from_state({**arrays, name: wrong}, meta)
    for key, value in (
        ("kinds", ["number"]),
        ("kinds", ["number"] * 9),
        ("feature_names", ["a"]),
        ("categories", []),
        ("scaling", "median"),
        ("more", 1),
    ):
        with pytest.raises(ValueError, match="encoder"):
            TableEncoder.from_state(arrays, {**meta, key: value})
    arrays, meta = ModeEncoder().fit(TABLE).to_state()
    for name, wrong in (
        *((name, arrays[name] * np.inf) for name in arrays if "weights" in name),
        *((name, 0 * arrays[name]) for name in arrays if "sds" in name),
        *((name, -arrays[name]) for name in arrays if "counts" in name),
        *((name, arrays[name].astype(float)) for name in arrays if "counts" in name),
        ("more", np.ones(3)),
    ):
        with pytest.raises(ValueError, match="the encoder's state"):
            ModeEncoder.from_state({**arrays, name: wrong}, meta)
    state = exp_network((0, 1)).to_state()
    for change in (
        lambda plan: plan["hidden"][0][1].append(0),
        lambda plan: plan["hidden"][0][1].__setitem__(0, 7),
        lambda plan: plan["last"][0].append([1.0]),
        lambda plan: plan["last"].__setitem__(1, [float("nan")]),
        lambda plan: plan["domain"].append([0.0, 1.0]),
    ):
        wrong = json.loads(json.dumps(state))
        change(wrong["plan"])
        with pytest.raises(ValueError, match=r"construction|inhomogeneous"):
            ConstructedNetwork.from_state(wrong)
    with pytest.raises(ValueError, match="names of 1 inputs"):
        ConstructedNetwork.from_state({**state, "inputs": ["x", "y"]})


def test_a_model_that_answers_nothing_is_not_saved(tmp_path):
    model = MLPRegressor(hidden_layer_sizes=(4,), max_iter=1, n_iter_no_change=np.inf)
    model.fit(np.arange(20.0)[:, None], np.arange(20.0))
    model._states[0]["linears.0.weight"][0, 0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
