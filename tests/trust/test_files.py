"""Files that were changed: refused in clear words, or loaded to the same answers."""

import collections
import json
import os
import pickle
import re
import sys
import time
import zoneinfo
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from numpy.testing import assert_array_equal

import combutab
from combutab import MLPRegressor
from combutab.constructions import ConstructedNetwork, exp_network
from combutab.core.files import write_tensors
from combutab.preprocessing import ModeEncoder, TableEncoder
from tests.short import BUDGET
from tests.trust.forged_files import (
    GIANT_PROXY_NORM,
    SECONDS,
    TABLE,
    answers,
    forge,
    load,
    make_files,
    outcome,
    spoil,
)
from tests.trust.forked import Forked, needs_fork

KINDS = (
    *("classifier", "regressor", "quantiles", "ensemble", "proxy norm", "construction"),
    *("CTGAN", "TVAE", "checkpoint", "pack"),
)

MUTATIONS = 30 * BUDGET  # of each kind


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Files of every kind of model, made once."""
    return make_files(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("name", KINDS)
def test_spoilt_files_are_refused_or_predict_the_same(name, paths, tmp_path):
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
def test_changed_bits_are_detected(name, paths, tmp_path):
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
def test_files_without_a_checksum_are_refused(name, paths, tmp_path):
    with safetensors.safe_open(paths[name], "numpy") as file:  # any reader reads them
        metadata = file.metadata()
    assert set(metadata) == {"combutab"}
    arrays = safetensors.numpy.load_file(paths[name])
    safetensors.numpy.save_file(arrays, tmp_path / "same", metadata)
    assert_array_equal(answers(load(name, tmp_path / "same")), answers(load(name, paths[name])))
    metadata["combutab"] = metadata["combutab"][64:]
    safetensors.numpy.save_file(arrays, tmp_path / "stripped", metadata)
    with pytest.raises(ValueError, match=r"stripped is damaged"):
        load(name, tmp_path / "stripped")


# ---- states that are passed without a file -----------------------------------------------------


def test_states_of_encoders_and_constructions_are_checked(paths):
    arrays, meta = TableEncoder(numeric="quantile").fit(TABLE).to_state()
    for name, wrong in (
        ("scaler.centre", arrays["scaler.centre"][:-1]),
        ("scaler.scale", -arrays["scaler.scale"]),
        ("scaler.fill", arrays["scaler.fill"] * np.nan),
        ("scaler.knots", arrays["scaler.knots"][::-1]),
        ("scaler.missing", arrays["scaler.missing"].astype(float)),
        ("more", np.ones(3)),
    ):
        with pytest.raises(ValueError, match="the encoder's state"):
            TableEncoder.from_state({**arrays, name: wrong}, meta)
    for key, value in (
        ("kinds", ["number"]),
        ("feature_names", ["a"]),
        ("categories", []),
        ("scaler", "median"),
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
        with pytest.raises(ValueError, match="state"):
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


# ---- Files of strangers: known attacks are refused, quickly, in little memory, and run nothing ---


def _set(*way, value):
    def change(header, arrays):
        for key in way[:-1]:
            header = header[key]
        header[way[-1]] = value

    return change


def _drop(*way):
    def change(header, arrays):
        for key in way[:-1]:
            header = header[key]
        del header[way[-1]]

    return change


def _partial(name):
    return {"@partial": [{"@activation": name}, ["echo gotcha"], {}]}


def _classes(part, *, value):
    """The class labels, 0, or their dtype, 1."""
    return _set("target_state", "classes", "@array", part, value=value)


def _scale(value):
    return _set("target_state", "scale", "@array", 0, value=value)


# of a kind of file, what is changed in it, and the words that refuse it
FORGERIES = {
    "class os.system": ("classifier", _set("class", value="os.system"), "holds a os.system, which"),
    **{
        f"partial of {name}": ("classifier", _set(*way, value=_partial(name)), "is not a class")
        for name, *way in [
            ("os.system", "params", "activation"),
            ("__builtins__", "params", "activation"),
            ("_combu", "params", "activation"),
            ("eval", "target_state", "classes"),
        ]
    },
    **{
        f"{name} is replaced": (
            *("classifier", _set("fitted", name, value={})),
            f"sets '{name}', which no",
        )
        for name in ("predict", "__class__", "__dict__")
    },
    "unknown parameter": ("classifier", _set("params", "bogus", value=1), r"lacks: \['bogus'\]"),
    "wrong parameter": ("classifier", _set("params", "dropout", value=7.0), "'dropout' parameter"),
    "format of the future": ("classifier", _set("format", value=99), "has format 99, this version"),
    "no parameters": ("classifier", _drop("params"), "damaged"),
    "shape with more": ("classifier", _set("shape", "bogus", value=1), "damaged"),
    "other widths": ("classifier", _set("shape", "hidden", value=[6, 5]), "shape"),
    "other depth": ("classifier", _set("shape", "hidden", value=[6]), "does not fit the network"),
    "unknown value": ("classifier", _set("params", "alpha", value={"@bogus": 1}), "damaged"),
    "a network too many": ("pack", lambda h, a: h["selected"].append(99), "selected in the header"),
    "groups of other classes": (
        *(
            "pack",
            _set("groups", 0, "target_state", "classes", "@array", 0, value=["alpha", "b", "c"]),
        ),
        "groups differ in their target",
    ),
    "a group too few": ("pack", lambda h, a: h["groups"].pop(), "trees have the arrays"),
    "a giant group": ("pack", _set("groups", 0, "n_members", value=10**9), "n_members in a group"),
    "a weight too many": ("pack", lambda h, a: h["members"]["weight"].append(0.5), "equally long"),
    "a loss is text": ("pack", _set("fitted", "validation_loss_", value="low"), "validation_loss_"),
    "a device of members": (
        "pack",
        lambda h, a: h["params"]["member_params"].update(device=0),
        "a pack sets itself",
    ),
    "a member's parameter": (
        *("pack", _set("params", "member_params", value={"bogus": 1})),
        "no parameter of MLPClassifier",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_files_are_refused_in_clear_words(forgery, paths, tmp_path):
    name, change, words = FORGERIES[forgery]
    forge(paths[name], tmp_path / "forged", change)
    with pytest.raises(ValueError, match=words):
        combutab.load(tmp_path / "forged")


def test_files_that_are_no_models(paths, tmp_path):
    path, good = tmp_path / "model", paths["classifier"]
    whole = good.read_bytes()
    for data in (b"hello", whole[:5], whole[:300], whole[:-10], pickle.dumps(3), b"{}" * 99):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="cut short"):
            combutab.load(path)
    safetensors.numpy.save_file({"a": np.zeros(3)}, path)
    with pytest.raises(ValueError, match="not a model"):
        combutab.load(path)
    for header, words in [("{", "not JSON"), ("[1]", "damaged"), ("3", "damaged"), ("{}", "dam")]:
        write_tensors(path, "combutab", header, {"a": np.zeros(3)})
        with pytest.raises(ValueError, match=words):
            combutab.load(path)
    with pytest.raises(FileNotFoundError, match=r"no such file.*nowhere"):
        combutab.load(tmp_path / "nowhere")
    for call in (combutab.load, combutab.load(good).save):
        with pytest.raises(IsADirectoryError, match="is a directory"):
            call(tmp_path)
    with pytest.raises(ValueError, match="device must be"):
        combutab.load(good, device="toaster")


def _in_shape(name, value):
    def change(header, arrays):
        header["as_fitted"][name] = value

    return change


def _giant_residual(header, arrays):
    """Few weights in the file, but each block of so many passes all before it on."""
    _in_shape("generator_dim", {"@tuple": [1] * 30_000})(header, arrays)


def _giant_product(header, arrays):
    arrays["member.0.linears.0.weight"] = np.zeros((1, 20_000), np.float32)
    _in_shape("generator_dim", {"@tuple": [20_000]})(header, arrays)


def _values(part, *, value):
    """The values, 0, of the categories of a column, or their dtype, 1."""
    way = ("encoder", "columns", 1, "@CategoryColumn", "values", "@series")
    return _set(*way, part, value=value)


def _format(name, *, value):
    way = ("encoder", "columns", 0, "@NumberColumn", "format", "@FloatFormat")
    return _set(*way, name, value=value)


def _twin_units(header, arrays):
    """Equal units, whose merging would take the square of their number."""
    plan = header["params"]["init"]["@construction"]["plan"]
    (weight, bias, error, bias_error), kinds = plan["hidden"][0]
    n = 20_000
    plan["hidden"][0][0][:] = [[part[0]] * n for part in (weight, bias, error, bias_error)]
    kinds[:] = [kinds[0]] * n


ATTACKS = {
    "no member, no weights": (
        "classifier",
        lambda header, arrays: (
            header.update(n_members=0),
            [arrays.pop(n) for n in list(arrays) if n.startswith("member")],
        ),
    ),
    "members without end": ("ensemble", _set("n_members", value=10**9)),
    "a giant": ("classifier", _set("shape", "hidden", value=[12_000, 12_000])),
    "giant embeddings": ("classifier", _set("shape", "cardinalities", value=[10**9])),
    "widths are truths": ("classifier", _set("shape", "hidden", value=[True, True])),
    "a giant generator": ("CTGAN", _in_shape("generator_dim", {"@tuple": [12_000, 12_000]})),
    "a giant by blocks": ("CTGAN", _giant_residual),
    "a giant by a narrow file": ("CTGAN", _giant_product),
    "generators without end": ("TVAE", _in_shape("n_members", 10**9)),
    "unknown activation": ("classifier", _set("fitted", "_trained", value=[["gotcha"], "float32"])),
    "wide groups": ("classifier", _set("fitted", "_trained", value=[["pln-1"], "float32"])),
    "many samples": (
        "proxy norm",
        _set("fitted", "_trained", value=[[GIANT_PROXY_NORM], "float32"]),
    ),
    "texts of 2 GB": (
        "classifier",
        _classes(1, value="S2000000000"),
    ),
    "many arrays of long texts": (
        *(
            "classifier",
            _set("params", "activation", value=[{"@array": [["a"], "<U8388608"]}] * 99),
        ),
    ),
    "equal labels": (
        "classifier",
        _classes(0, value=["a", "b", "a"]),
    ),
    "an array of texts of 2 GB": (
        "TVAE",
        _set("encoder", "schema", "@TableSchema", "array_dtype", value={"@dtype": "S2000000000"}),
    ),
    "a dtype of texts of 2 GB": ("CTGAN", _values(1, value={"@dtype": "S2000000000"})),
    "a zone that is a file": (
        "CTGAN",
        _values(1, value={"@dtype": "datetime64[ns, dateutil//etc/passwd]"}),
    ),
    **{
        f"a name for the dtype of {kind}": ("CTGAN", _values(1, value=value))
        for kind, value in {
            "values": "S2000000000",
            "values, a zone that is a file": "datetime64[ns, dateutil//etc/passwd]",
            "categories": {"@category dtype": [["a", "b", "c"], "S2000000000", False]},
        }.items()
    },
    "a name for the dtype of names": (
        *("CTGAN", _set("encoder", "schema", "@TableSchema", "names", "@index", 1, value="object")),
    ),
    "a dtype of pyarrow": ("CTGAN", _values(1, value={"@arrow dtype": "ff" * 100})),
    "an unknown kind of value": ("CTGAN", _values(0, value=[{"@object": 1}, "b", "c"])),
    "a decimal without end": ("CTGAN", _values(0, value=[{"@decimal": "1e99999999"}, "b", "c"])),
    "a category twice": ("CTGAN", _values(0, value=["a", "b", "a"])),
    "a moment that is now": (
        "regressor",
        _set(
            *("encoder", "categories", 0, "@CategoryMap", "keys", "@tuple"),
            value=[{"@timestamp": ["now", None]}] * 3,
        ),
    ),
    "a category of an estimator twice": (
        "regressor",
        _set(
            *("encoder", "categories", 0, "@CategoryMap", "keys", "@tuple"), value=["a", "b", "a"]
        ),
    ),
    "a format of floats beyond": ("CTGAN", _format("exponent", value=99999999)),
    "bounds turned around": ("CTGAN", _format("low", value=512.0)),
    "equal units": ("construction", _twin_units),
    "NaN scale of the target": (
        "regressor",
        _scale([{"@float": "nan"}]),
    ),
    "zero scale of the target": (
        "regressor",
        _scale([0.0]),
    ),
    "crossing quantiles": (
        "quantiles",
        _set("target_state", "quantiles", "@tuple", value=[0.9, 0.1]),
    ),
    "method for a loss": ("regressor", _set("fitted", "loss_", value="x")),
    "negative epochs": ("checkpoint", _set("checkpoint", "epochs", value=-1)),
    "epochs without losses": ("checkpoint", _set("checkpoint", "epochs", value=10**9)),
    "a negative seed": ("checkpoint", _set("checkpoint", "seed", value=-1)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_known_attacks_are_refused(attack, paths, tmp_path):
    name, change = ATTACKS[attack]
    forge(paths[name], tmp_path / "forged", change)
    assert (tmp_path / "forged").stat().st_size < 3e6
    said, seconds = outcome(name, tmp_path / "forged", True, [])
    assert said == "refused"
    assert seconds < SECONDS


WITH_WEIGHTS = pytest.mark.parametrize(
    "name", ["classifier", "ensemble", "CTGAN", "TVAE", "checkpoint"]
)


@WITH_WEIGHTS
@pytest.mark.parametrize(
    "spoil_one",
    [
        lambda a: np.full_like(a, np.nan),
        lambda a: np.full_like(a, np.inf),
        lambda a: a[:, :-1],
        lambda a: a.astype(np.float16),
        lambda a: a[None],
        None,
    ],
    ids=["NaN", "infinite", "narrower", "float16", "another axis", "missing"],
)
def test_weights_that_are_none_are_refused(name, spoil_one, paths, tmp_path):
    def change(header, arrays):
        key = sorted(n for n in arrays if n.endswith("linears.1.weight"))[-1]
        old = arrays.pop(key)
        if spoil_one is not None:
            arrays[key] = spoil_one(old)

    forge(paths[name], tmp_path / "forged", change)
    with pytest.raises(ValueError, match="forged "):
        load(name, tmp_path / "forged")


@WITH_WEIGHTS
def test_arrays_that_no_network_has_are_refused(name, paths, tmp_path):
    forge(paths[name], tmp_path / "more", lambda header, arrays: arrays.update(x=np.ones(3)))
    with pytest.raises(ValueError, match="more "):
        load(name, tmp_path / "more")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500_000,
        '{"format": 3, "class": "TVAE", "x": ' + "[" * 70 + "]" * 70 + "}",
        '{"format": 3, "class": "TVAE", "class": "CTGAN"}',
        '{"format": 3, "class": "TVAE", "x": NaN}',
        '{"format": 3, "class": "TVAE", "x": 1e999}',
        '{"format": 3, "class": "TVAE", "x": ' + "9" * 100_000 + "}",
        '{"format": 3, "class": "' + "x" * 10**6 + '"}',
        '{"format": 1' + "0" * 4000 + ', "class": "TVAE"}',
        "\\" * 100_000,
        '"\\"' * 50_000,
    ],
    ids=range(10),
)
def test_headers_that_readers_of_json_fall_over(text, tmp_path):
    write_tensors(tmp_path / "forged", "combutab", text, {})
    started = time.process_time()
    with pytest.raises(ValueError, match="forged ") as error:
        combutab.load(tmp_path / "forged")
    assert len(str(error.value)) < 1000
    assert time.process_time() - started < SECONDS


def _raw(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _array(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        (2**63).to_bytes(8, "little") + b"{}",
        _raw(b"{" * 10**6),
        _raw({"__metadata__": {"combutab": 3}}),
        _raw(_array(shape=[10**12], offsets=[0, 4 * 10**12])),
        _raw(_array(shape=[2**62, 4], offsets=[0, 0])),
        _raw(_array(shape=[-2], offsets=[0, 8]), bytes(8)),
        _raw(_array(), bytes(7)),
        _raw({**_array(), "b": _array()["a"]}, bytes(8)),
        _raw(_array(dtype="S2000000000"), bytes(8)),
        _raw(b'{"a": {}, "a": {}}'),
    ],
    ids=range(11),
)
def test_containers_that_claim_what_they_do_not_hold(data, tmp_path):
    (tmp_path / "forged").write_bytes(data)
    with pytest.raises(ValueError, match=r"forged.*cut short"):
        combutab.load(tmp_path / "forged")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes in the file system")
def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/tty")):
        with pytest.raises(OSError, match=re.escape(str(path))):
            combutab.load(path)


def load_all(folder):
    """Load what is whole, then all that is in a folder; print how many are refused, and events."""
    seen = []
    allowed = (sys.prefix, sys.base_prefix, "/usr", "/proc", str(folder.resolve()))
    allowed += tuple(str(Path(module.__file__).parent) for module in (combutab, zoneinfo))
    others = ("socket", "subprocess", "ftplib", "urllib", "http", "ctypes", "os.system", "os.exec")
    others += ("os.posix_spawn", "os.fork", "pickle.find_class")

    def watch(event, arguments):
        opened = event == "open" and isinstance(arguments[0], str)
        elsewhere = opened and not os.path.realpath(arguments[0]).startswith(allowed)
        if elsewhere or (event.startswith(others) and event != "ctypes.dlsym"):
            seen.append((event, arguments))

    combutab.load(folder / "whole")
    sys.addaudithook(watch)
    refused = 0
    for path in sorted(folder.iterdir()):
        try:
            combutab.load(path)
        except ValueError:
            refused += 1
    print(refused, seen)


@needs_fork
def test_loading_runs_no_code_and_opens_nothing_else(paths, tmp_path):
    for i, (name, change) in enumerate(ATTACKS.values()):
        if name != "checkpoint":
            forge(paths[name], tmp_path / f"forged{i}", change)
    n_forged = len(list(tmp_path.iterdir()))
    (tmp_path / "whole").write_bytes(paths["CTGAN"].read_bytes())
    out, err = Forked(lambda: load_all(tmp_path), tmp_path).communicate()
    assert out == f"{n_forged} []\n", err
