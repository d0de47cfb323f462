"""No value that few rows have stands in an estimator's files: canaries are looked for in them."""

from __future__ import annotations

import io
import os
import pickle
import re
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest

from combutab import MLPClassifier, MLPRegressor, PackRegressor, load, paper_recipe
from combutab.constructions import expression_network
from combutab.preprocessing import TableEncoder

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))
METHODS = ["standard", "quantile", "robust", "none"]
QUICK = {
    "hidden_layer_sizes": (8,),
    "max_iter": 2,
    "n_iter_no_change": np.inf,
    "random_state": 0,
    "device": "cpu",
}
FEWEST = 5  # the default of min_frequency
CANARIES = ("canary@nest.example", "Canary-Bird", "Canary-Wharf", "5550123")
_NUMBER = re.compile(rb"-?\d+\.?\d*(?:[eE][-+]?\d+)?")
_HEX = re.compile(rb"-?0x1\.[0-9a-f]+p[-+]\d+")


def people(n: int, seed: int = 0) -> pd.DataFrame:
    """A row a person: nearly every cell is that person's alone; the first row is the canary's."""
    rng = np.random.default_rng(seed)
    row = np.arange(n)
    seconds = rng.uniform(0, 1e9, n)
    table = pd.DataFrame(
        {
            "salary": 1e4 * rng.lognormal(sigma=1.0, size=n),
            "balance": rng.normal(5e3, 2e3, n),
            "claims": np.where(rng.random(n) < 0.8, 0.0, 900 * rng.lognormal(size=n)),
            "bonus": np.where((row == n // 2) | (row == n // 3), 7e5 * rng.random(n), np.nan),
            "single": np.where(row == n // 2, 345678.90123, np.nan),
            "born": pd.Timestamp("1950-01-01") + pd.to_timedelta(seconds, unit="s"),
            "stay": pd.to_timedelta(rng.uniform(1e5, 1e6, n), unit="s"),
            "small": (1e4 * rng.random(n)).astype(np.float32),
            "email": [f"person{i}@mail{7 * i}.example" for i in row],
            "surname": [f"Surname-{i // 2:04d}-x" for i in row],
            "city": rng.choice(["Rome-city", "Oslo-city", "Lima-city"], n).astype(object),
            "ward": [f"Ward-{i % (n // 4 or 1):04d}-y" for i in row],
            "zip": pd.Categorical(rng.choice([1234567, 7654321], n).astype(object)),
            "flag": rng.random(n) < 0.5,
        }
    )
    table.loc[3 % n, "balance"] = np.nan
    far = {"salary": 98765432.198765, "balance": -87654321.987654, "claims": 76543219.87654}
    texts = dict(zip(("email", "surname", "city"), CANARIES[:3], strict=True))
    other = {"zip": 5550123, "born": pd.Timestamp("2031-02-03 04:05:06.789012")}
    table["zip"] = table["zip"].cat.add_categories([5550123])
    for name, value in {**far, **texts, **other}.items():
        table.loc[0, name] = value
    return table


def secrets(table: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts, real numbers and whole numbers that fewer than FEWEST rows have."""
    texts: list[str] = []
    numbers, wholes = [], []
    for name, column in table.items():
        rare = column.value_counts()
        rare = rare[(rare > 0) & (rare < FEWEST)].index
        if name in ("email", "surname", "city", "ward", "zip"):
            texts += [str(value) for value in rare]
        elif name in ("born", "stay"):
            origin = pd.Timestamp(0) if name == "born" else pd.Timedelta(0)
            numbers += [(value - origin) / pd.Timedelta(1, "s") for value in rare]
            wholes += [(value - origin).value for value in rare]
            texts += [value.isoformat() for value in rare]
        elif name != "flag":
            numbers += [float(value) for value in rare if len(repr(float(value))) > 7]
        if name == "zip":
            wholes += [int(value) for value in rare]
    return texts, np.sort(np.array(numbers)), np.sort(np.array(wholes, dtype=np.int64))


def near(found: np.ndarray, wanted: np.ndarray, relative: float) -> np.ndarray:
    """Those of the wanted numbers (sorted) that are among those found."""
    found = found[np.isfinite(found)]
    place = np.searchsorted(wanted, found)
    hits = []
    for beside in (np.maximum(place - 1, 0), np.minimum(place, len(wanted) - 1)):
        close = np.abs(found - wanted[beside]) <= relative * np.abs(wanted[beside])
        hits.append(wanted[beside[close]])
    return np.unique(np.concatenate(hits))


def leaks(data: bytes, table: pd.DataFrame) -> list[str]:
    """What of the table's secrets stands in these bytes: as text, as digits, or as binary."""
    texts, numbers, wholes = secrets(table)
    looked_for = texts[:: len(texts) // 200 + 1] + [t for t in texts if t in CANARIES]
    found = [text for text in looked_for if any(form in data for form in forms(text))]
    written = [float(match.group()) for match in _NUMBER.finditer(data) if len(match.group()) > 5]
    written += [float.fromhex(match.group().decode()) for match in _HEX.finditer(data)]
    found += [f"{x} as text" for x in near(np.array(written), numbers, 1e-9)]
    for width, dtypes in ((8, ("<f8", ">f8", "<i8")), (4, ("<f4", ">f4", "<i4"))):
        for offset in range(width):
            whole = data[offset : offset + (len(data) - offset) // width * width]
            for dtype in dtypes:
                values = np.frombuffer(whole, dtype)
                if dtype.startswith("<i"):
                    found += [f"{x} as integer" for x in np.intersect1d(values, wholes)]
                elif width == 8:
                    found += [f"{x} as double" for x in near(values, numbers, 1e-9)]
                else:
                    # of all numbers some have by chance the bits of other numbers' bytes
                    single = table.iloc[[0, 7]].filter(["salary", "balance", "small"])
                    single = single.to_numpy(np.float32)
                    found += [f"{x} as single" for x in np.intersect1d(values, single)]
    return found


def forms(text: str) -> list[bytes]:
    """How text may be written."""
    plain = text.encode()
    return [plain, plain.hex().encode(), text.encode("utf-16-le"), text.encode("utf-32-le")]


def files(model, folder: Path) -> dict[str, bytes]:
    """Every file that an estimator can be written to."""
    model.save(folder / "model.safetensors")
    joblib.dump(model, folder / "model.joblib")
    load(folder / "model.safetensors").save(folder / "again.safetensors")
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        buffer = io.BytesIO()
        pickle.dump(model, buffer, protocol)
        written[f"pickle {protocol}"] = buffer.getvalue()
    return written


def fitted(model, X, *arguments, **named):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="nothing is learned from")
        warnings.filterwarnings("ignore", message="Got `batch_size`")
        return model.fit(X, *arguments, **named)


WAYS = {
    "plain": {},
    "members": {"n_members": 2},
    "early stopping": {"early_stopping": True, "validation_fraction": 0.2},
    "one-hot": {"max_onehot": 10_000},
    "codes": {"max_onehot": 0},
    "share": {"min_frequency": 0.2},
}


# numbers and categories are encoded apart, and of many rows as of few: every pair, not every triple
CASES = [
    (n, numeric, way)
    for i, numeric in enumerate(METHODS)
    for j, way in enumerate(WAYS)
    for k, n in enumerate([30, 300])
    if BUDGET > 1 or (i + j + k) % 2
]


@pytest.mark.parametrize(("n", "numeric", "way"), CASES)
def test_no_file_of_an_estimator_holds_what_few_rows_have(n, numeric, way, tmp_path):
    X = people(n)
    rng = np.random.default_rng(1)
    parameters = QUICK | WAYS[way] | {"numeric_encoding": numeric}
    weight = None if way in ("plain", "codes") else rng.integers(0, 4, n) + rng.random(n)
    kind = MLPClassifier if numeric in ("quantile", "none") else MLPRegressor
    y = np.arange(n) % 2 if kind is MLPClassifier else rng.normal(size=n)
    model = fitted(kind(**parameters), X, y, weight)
    written = files(model, tmp_path)
    assert len(written) == 5
    for name, data in written.items():
        assert b"salary" in data, name  # which is searched for like the rest
        if way != "share":
            assert b"Rome-city" in data, name  # that many have, and the estimator needs
        assert leaks(data, X) == [], name


@pytest.mark.parametrize("cv", [None, 2])
def test_nor_does_one_of_a_pack(cv, tmp_path):
    X, y = people(300), np.random.default_rng(1).normal(size=300)
    small = {"hidden_layer_sizes": (4,), "batch_size": 64}
    pack = PackRegressor(n_members=3, max_iter=2, cv=cv, random_state=0, member_params=small)
    for name, data in files(fitted(pack, X, y, None), tmp_path).items():
        assert b"Rome-city" in data
        assert leaks(data, X) == [], name


def test_the_search_finds_what_is_there():
    X = people(300)
    model = MLPRegressor(**QUICK, numeric_encoding="quantile", min_frequency=1, max_onehot=1000)
    model.fit(X, np.arange(300.0))
    found = leaks(pickle.dumps(model), X)
    wanted = ["canary@nest.example", "Canary-Wharf", "5550123 as integer"]
    for canary in [*wanted, "98765432.198765 as double"]:
        assert canary in found
    assert "5550123" in leaks(b'["int", "5550123"]', X)
    assert len([each for each in found if each.endswith("as double")]) > 1000
    x = X["salary"][7]
    assert leaks(repr(x).encode(), X) == [f"{x} as text"]
    assert leaks(x.hex().encode(), X) == [f"{x} as text"]
    assert leaks(b"abc" + np.float32(x).tobytes(), X)
    assert leaks(X["born"].to_numpy()[7].tobytes(), X)


@pytest.mark.parametrize(
    ("numeric", "memory_limit"),  # which bounds the rows in memory, not what is learned of them
    [
        *[("quantile", "1GB"), ("quantile", "40MB"), ("standard", "1GB")],
        *[("robust", "40MB"), ("none", "40MB")],
    ],
)
def test_nor_one_fitted_to_parquet(numeric, memory_limit, tmp_path):
    pytest.importorskip("pyarrow")
    n = 1500
    X = people(n).drop(columns=["email"]).assign(zip=lambda t: t["zip"].astype(str))
    X["weight"] = 1 + np.random.default_rng(0).random(n)
    (tmp_path / "table").mkdir()
    X.assign(y=np.arange(n) % 2).to_parquet(tmp_path / "table" / "t.parquet", row_group_size=500)
    model = MLPClassifier(**QUICK, numeric_encoding=numeric, early_stopping=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="nothing is learned from")
        model.fit_parquet(
            tmp_path / "table", "y", sample_weight="weight", memory_limit=memory_limit
        )
    (tmp_path / "out").mkdir()
    for name, data in files(model, tmp_path / "out").items():
        assert b"Rome-city" in data
        assert leaks(data, X.drop(columns="weight")) == [], name


@pytest.mark.parametrize("numeric", METHODS)
def test_no_statistic_of_any_column_is_one_rows_value(numeric):
    rng = np.random.default_rng(METHODS.index(numeric))
    for _ in range(60 * BUDGET):
        n = int(rng.integers(1, 80))
        scale = 10.0 ** rng.integers(-9, 9)
        shapes = [rng.normal(size=n), rng.lognormal(sigma=3, size=n), rng.random(n) + 1e4]
        shapes += [np.where(rng.random(n) < p, 0.0, rng.normal(size=n)) for p in (0.5, 0.9)]
        X = scale * np.column_stack(shapes)
        X[rng.random(X.shape) < rng.choice([0, 0.3, 0.95])] = np.nan
        weight = rng.random(n) + 0.1 if rng.random() < 0.5 else None
        encoder = TableEncoder(numeric=numeric)
        encoder.fit_encode(X, weight)
        arrays = encoder.to_state()[0]
        floats = [a for a in arrays.values() if a.dtype.kind == "f"]
        for j, column in enumerate(X.T):
            held = np.concatenate([a.reshape(-1, X.shape[1])[:, j] for a in floats])
            values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
            rare = values[(counts < FEWEST) & (values != 0)]
            if len(rare):
                assert near(held, rare, 1e-12).tolist() == [], (n, scale, j)


def test_what_is_left_of_rare_categories(tmp_path):
    rng = np.random.default_rng(0)
    city = np.repeat(["Rome", "Oslo", "Lima", "Bern"], [20, 15, 3, 2]).astype(object)
    X = pd.DataFrame({"city": city, "code": np.repeat([f"k{i}" for i in range(8)], 5)})
    encoder = TableEncoder(max_onehot=4).fit(X)
    assert encoder.categories_ == {0: ["Oslo", "Rome"], 1: [f"k{i}" for i in range(8)]}
    assert encoder.get_feature_names_out().tolist() == [
        "city_Oslo", "city_Rome", "city_rare", "code",
    ]  # fmt: skip
    later = pd.DataFrame(
        {"city": ["Rome", "Lima", "never", None], "code": ["k0", "k7", "no", None]}
    )
    encoded = encoder.encode(later)
    assert encoded.dense.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    assert encoded.codes[:, 0].tolist() == [1, 8, 0, 0]
    X.loc[:7, "city"] = None  # missing keeps a column of its own, rare or not
    encoder = TableEncoder(max_onehot=4).fit(X)
    assert encoder.get_feature_names_out().tolist()[:4] == [
        "city_Oslo", "city_Rome", "city_rare", "city_nan",
    ]  # fmt: skip
    assert encoder.encode(later).dense.tolist() == [
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]
    model = MLPRegressor(**QUICK, max_onehot=4).fit(X, rng.normal(size=40))
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.min_frequency == 5
    np.testing.assert_array_equal(again.predict(later), model.predict(later))
    assert b"Bern" not in (tmp_path / "m.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("min_frequency", "kept"),
    [(1, 4), (2, 4), (3, 3), (4, 2), (16, 1), (0.01, 4), (0.075, 3), (0.076, 2), (0.5, 1)],
)
def test_min_frequency_counts_rows_or_a_share_of_them(min_frequency, kept):
    city = np.repeat(["Rome", "Oslo", "Lima", "Bern"], [20, 15, 3, 2]).astype(object)
    X = pd.DataFrame({"city": city})
    for parts in ([X], [X[:7], X[7:]]):
        encoder = TableEncoder(min_frequency=min_frequency)
        encoder.fit_batches((part, None) for part in parts)
        assert len(encoder.categories_[0]) == kept
        assert encoder.n_dense_ == kept + (kept < 4)


@pytest.mark.parametrize("kind", [TableEncoder, MLPRegressor, MLPClassifier])
@pytest.mark.parametrize("wrong", [0, -1, 1.0, 1.5, 0.0, "5", None])
def test_other_values_of_min_frequency_are_refused(kind, wrong):
    with pytest.raises(ValueError, match="min_frequency"):
        kind(min_frequency=wrong).fit([[1.0], [2.0]], [0, 1])


def test_a_column_that_loses_all_its_categories_is_named_once():
    X = people(100)[["email", "surname", "city", "salary"]]
    message = (
        r"^nothing is learned from column 'email', column 'surname': nearly every row has a value "
        r"of its own, .*; leave them out$"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        MLPRegressor(**QUICK).fit(X, X["salary"])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MLPRegressor(**QUICK, min_frequency=1, max_onehot=100).fit(X, X["salary"])
        MLPRegressor(**QUICK).fit(X[["city", "salary"]], X["salary"])
        MLPRegressor(**QUICK).fit(X[["salary"]].assign(same="one"), X["salary"])


@pytest.mark.parametrize("numeric", ["quantile", "robust"])
@pytest.mark.parametrize("n", [50, 300, 5000])
def test_the_encoding_is_nearly_that_of_exact_quantiles(numeric, n):
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.normal(size=n),
            rng.lognormal(sigma=2, size=n),
            np.where(rng.random(n) < 0.6, 0.0, rng.gamma(2, size=n)),
            1e9 + rng.random(n),
        ]
    )
    coarse = TableEncoder(numeric=numeric).fit_transform(X)
    exact = TableEncoder(numeric=numeric, min_frequency=1).fit_transform(X)
    difference = np.sqrt(((coarse - exact) ** 2).mean(axis=0))
    assert (difference < {50: 0.25, 300: 0.06, 5000: 0.03}[n]).all(), difference
    order = np.argsort(X, axis=0)
    assert (np.diff(np.take_along_axis(coarse, order, 0), axis=0) >= -1e-6).all()


def test_a_table_given_as_a_networks_domain_leaves_no_extremes(tmp_path):
    X = people(200)[["salary", "claims"]]
    network = expression_network("2 * salary + claims", X)
    for (low, high), name in zip(network.domain, X, strict=True):
        assert low <= X[name].min() < X[name].max() < high
    settings = QUICK | {"hidden_layer_sizes": "auto", "init": network, "dropout": 0}
    model = MLPRegressor(**paper_recipe("regression", **settings))
    model.fit(X, X["salary"])
    for name, data in files(model, tmp_path).items():
        assert leaks(data, X) == [], name
