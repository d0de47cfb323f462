"""Files of every kind of model, and ways to spoil them, behind their checksum or before it."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import resource
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import combutab
from combutab import (
    CTGAN,
    TVAE,
    CombU,
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    paper_recipe,
)
from combutab.constructions import expression_network
from combutab.core.files import read_tensors, write_tensors

RNG = np.random.default_rng(0)
N = 40
TABLE = pd.DataFrame(
    {
        "size": np.where(np.arange(N) % 7 == 0, np.nan, RNG.normal(size=N).round(2)),
        "kind": RNG.choice(["flat", "house", "boat"], N),
        "street": [f"street {i % 6}" for i in range(N)],
        "day": pd.Timestamp("2020-01-01", tz="Europe/Paris")
        + pd.to_timedelta(RNG.integers(0, 99, N), unit="D"),
        "sold": RNG.random(N) > 0.5,
    }
)
Y = RNG.normal(size=N)
LABELS = RNG.choice(["cheap", "dear", "fair"], N)
QUICK = {
    "hidden_layer_sizes": (6, 4),
    "max_iter": 1,
    "n_iter_no_change": np.inf,
    "max_onehot": 5,
    "random_state": 0,
}
PACK = {
    "n_members": 3,
    "activations": ("relu", "prelu", "pln-2"),
    "max_iter": 1,
    "random_state": 0,
    "member_params": {"hidden_layer_sizes": (6, 4), "max_onehot": 5, "n_frequencies": 3},
}
MADE = {"epochs": 1, "batch_size": 20, "embedding_dim": 4, "random_state": 0}
CTGAN_WIDTHS = {"generator_dim": (6,), "discriminator_dim": (6,), "pac": 2}
TVAE_WIDTHS = {"compress_dims": (6,), "decompress_dims": (6,)}
PAIR = np.column_stack([np.linspace(1, 2, N), np.linspace(3, 4, N)])


def _training():
    return TVAE(**MADE, **TVAE_WIDTHS)


def _fitted():
    half = functools.partial(CombU, ratios={"relu": 0.5, "tanh": 0.5})
    quantile = {"numeric_encoding": "quantile", "loss": "quantile", "quantiles": [0.1, 0.9]}
    start = expression_network("x*y", {"x": (1, 2), "y": (3, 4)})
    law = QUICK | {"hidden_layer_sizes": (8, 4), "dropout": 0, "activation": CombU, "init": start}
    return {
        "classifier": MLPClassifier(**QUICK).fit(TABLE, LABELS),
        "regressor": MLPRegressor(**QUICK, activation=half).fit(TABLE, Y),
        "quantiles": MLPRegressor(**QUICK, **quantile).fit(TABLE, Y),
        "ensemble": MLPClassifier(**QUICK, n_members=3, activation="prelu").fit(TABLE, Y > 0),
        "proxy norm": MLPRegressor(**QUICK, normalization="layer", proxy_norm=True).fit(TABLE, Y),
        "construction": MLPRegressor(**paper_recipe("regression", **law)).fit(PAIR, Y),
        "pack": PackClassifier(**PACK).fit(TABLE, LABELS),
        "CTGAN": CTGAN(**MADE, **CTGAN_WIDTHS).fit(TABLE),
        "TVAE": TVAE(**MADE, **TVAE_WIDTHS, n_members=2).fit(TABLE[["size", "kind"]].to_numpy()),
    }


def make_files(folder):
    """A file of each kind, by its name."""
    paths = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in _fitted().items():
            paths[name] = Path(folder) / f"{name}.safetensors"
            model.save(paths[name])
        paths["checkpoint"] = Path(folder) / "checkpoint.safetensors"
        _training().fit(TABLE, checkpoint=paths["checkpoint"])
    return paths


def load(name, path):
    """What a file of this kind gives; for a checkpoint, the model that its training ends with."""
    if name != "checkpoint":
        return combutab.load(path, device="cpu")
    return _training().fit(TABLE, checkpoint=path)


def answers(model):
    """All that a model says of a table, as one array of text and numbers."""
    if isinstance(model, CTGAN | TVAE):
        return pd.DataFrame(model.sample(9, random_state=0)).astype(str).to_numpy().ravel()
    X = PAIR if model.n_features_in_ == 2 else TABLE
    told = model.predict_proba(X) if isinstance(model, MLPClassifier) else model.predict(X)
    return np.asarray(told).ravel()


# ---- spoiling ----------------------------------------------------------------------------------

GIANT_PROXY_NORM = {"@partial": [{"@activation": "ProxyNorm"}, ["relu"], {"n_samples": 10**9}]}
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 10**9, 10**12, -(10**9), 2**63, 10**40, 0.5),
    *(1e308, -1e308, "", "x", "float32", "S2000000000", "nan", [], {}, [1], [[]], ["a"]),
    *("pln-999999999", "pls-2", "original", "1" * 5000, "é\n\x1b[31m", "\udc80", "now"),
    *("datetime64[ns, dateutil//etc/passwd]", "dateutil//etc/passwd", "/etc/passwd", "U999999999"),
    *({"@float": "nan"}, {"@float": "inf"}, {"@float": "-inf"}, {"@tuple": [1, 2]}, {"@dict": []}),
    *({"@float": "0x1p99999"}, {"@decimal": "1e999999999"}, {"@dtype": "S2000000000"}),
    *({"@arrow dtype": "ff" * 40}, {"@array": "member.0.linears.0.weight"}, {"@float": 1}),
    {"@array": [[1, 2], "S2000000000"]},
    {"@array": [[[1], [2, 3]], "<f8"]},
    {"@array": [["a"], "object"]},
    GIANT_PROXY_NORM,
    {"@partial": [{"@activation": "PLN"}, [], {"norm_size": 10**9}]},
    {"@partial": [{"@activation": "make_activation"}, ["relu"], {}]},
    {"@partial": ["system", ["echo gotcha"], {}]},
    {"@activation": "system"},
    [12000, 12000],
    [10**9] * 3,
    json.loads("[" * 100 + "]" * 100),
]


def _places(value, place=()):
    """The way to everything in JSON."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        if isinstance(each, dict | list) and each:
            yield from _places(each, (*place, key))
        else:
            yield (*place, key)


def spoil_header(header, rng):
    """Change a header in one to three places: what stands there goes, or is something else."""
    header = copy.deepcopy(header)
    for _ in range(rng.integers(1, 4)):
        places = list(_places(header))
        *way, last = places[rng.integers(len(places))]
        parent = functools.reduce(lambda found, key: found[key], way, header)
        old, how = parent[last], rng.integers(6)
        if how == 0:
            del parent[last]
        elif how == 1 and type(old) is int:
            parent[last] = int(old * rng.choice([-1, 2, 10, 10**6]) + rng.integers(-1, 2))
        elif how == 2 and isinstance(old, str) and old:
            parent[last] = old[:-1] + rng.choice(["", "0", "ÿ", "9" * 50])
        else:
            parent[last] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return header


def spoil_arrays(arrays, rng):
    """Change one array: its numbers, dtype, shape, name or presence."""
    arrays = dict(arrays)
    name = sorted(arrays)[rng.integers(len(arrays))]
    array, how = arrays.pop(name).copy(), rng.integers(8)
    if how < 3 and array.size:
        odd = [np.nan, np.inf, 1e38, 0.0] if array.dtype.kind == "f" else [-1, 0, 2**62]
        odd = [True, False] if array.dtype.kind == "b" else odd
        array.reshape(-1)[rng.integers(array.size)] = rng.choice(odd)
    elif how == 3:
        array = array.T.copy() if array.ndim > 1 else array.reshape(-1)[:-1]
    elif how == 4:
        with np.errstate(all="ignore"):
            array = array.astype(rng.choice(["<f8", "<f4", "<i8", "|u1", "<f2"]))
    elif how == 5:
        array = array[None]
    elif how == 6:
        return arrays
    else:
        name = rng.choice(["member.0.extra", name + "x", "member.9." + name, ""])
    return arrays | {name: array}


def spoil_bytes(data, rng):
    """Change bytes, as a bad disk or a bad copy does."""
    data = bytearray(data)
    at, how = int(rng.integers(len(data))), rng.integers(4)
    if how < 2:
        at = at if how else at % 400
        data[at] ^= int(rng.integers(1, 256))
    elif how == 2:
        del data[at:]
    else:
        del data[at : at + int(rng.integers(1, 100))]
    return bytes(data)


@functools.cache
def _parts(path):
    text, arrays = read_tensors(path, "combutab")
    return json.loads(text), arrays


def spoil(path, target, rng):
    """Write a spoilt copy; returns whether an attacker made it, who puts a new checksum on it."""
    header, arrays = _parts(path)
    how = rng.integers(9)
    if how < 3:
        target.write_bytes(spoil_bytes(path.read_bytes(), rng))
        return False
    if how < 7:
        header = spoil_header(header, rng)
    else:
        arrays = spoil_arrays(arrays, rng)
    write_tensors(target, "combutab", json.dumps(header), arrays)
    return True


def forge(source, target, change):
    """A copy whose header and arrays were changed, with the checksum of what it became."""
    text, arrays = read_tensors(source, "combutab")
    header = json.loads(text)
    change(header, arrays)
    write_tensors(target, "combutab", json.dumps(header), arrays)


# ---- what comes of it --------------------------------------------------------------------------

SECONDS, MEGABYTES = 10.0, 100  # the first of this process: others may keep the machine busy


class Hangs(BaseException):
    """Loading took far too long."""


def _peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _now():
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    return _peak()


def outcome(name, path, forged, expected):
    """refused, same, another (an attacker's own model), or wrong and why."""

    def alarm(*args):
        raise Hangs

    signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    before, started = _now(), time.process_time()
    try:
        model = load(name, path)
    except (ValueError, OSError) as error:
        said = "refused" if path.name in str(error) else f"unnamed: {error!r}"
    except Hangs:
        said = "hangs"
    except BaseException as error:
        said = f"raises {error!r}"
    else:
        said = ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds, megabytes = time.process_time() - started, _peak() - before
    if megabytes > MEGABYTES:
        return f"takes {megabytes:.0f} MiB", seconds
    if said:
        return said, seconds
    try:
        told = answers(model)
    except ValueError as error:  # a model of another table says so
        return ("another" if forged else f"loads, then {error!r}"), seconds
    except Exception as error:
        return f"loads, then {error!r}", seconds
    if len(told) == len(expected) and (told == expected).all():
        return "same", seconds
    if not forged and told.dtype.kind == "f" and not np.isfinite(told).all():
        return "answers what is no number", seconds  # an attacker's weights may be as large
    return ("another" if forged else "answers otherwise"), seconds
