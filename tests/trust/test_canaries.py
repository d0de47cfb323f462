"""No value that few rows have stands in an estimator's files: canaries are looked for in them."""

from __future__ import annotations

import base64
import datetime
import html
import json
import pickle
import re
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import combutab
from combutab import (
    CTGAN,
    TVAE,
    MLPClassifier,
    MLPRegressor,
    PackRegressor,
    PrivateSynthesizer,
    TabFlow,
    paper_recipe,
)
from combutab.constructions import expression_network
from combutab.generators import Null, suggest_constraints
from combutab.model_selection import compare_activations
from combutab.preprocessing import ModeEncoder, TableEncoder
from combutab.reports import evaluate_synthetic, render_report
from tests.short import BUDGET

pytestmark = pytest.mark.usefixtures("short_reports")

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
    for _, column in table.items():
        rare = column.value_counts()
        rare = rare[(rare > 0) & (rare < FEWEST)].index
        if column.dtype.kind in "mM":
            origin = pd.Timestamp(0) if column.dtype.kind == "M" else pd.Timedelta(0)
            numbers += [(value - origin) / pd.Timedelta(1, "s") for value in rare]
            units = (1, 10**3, 10**6, 10**9, 86400 * 10**9) if len(table) == 1 else (1, 10**3)
            wholes += [(value - origin).value // unit for value in rare for unit in units]
            texts += [value.isoformat() for value in rare]
        elif column.dtype.kind in "if":
            numbers += [float(value) for value in rare if len(repr(float(value))) > 7]
            wholes += [int(value) for value in rare if abs(value) > 10**6 and value == int(value)]
        elif column.dtype.kind == "O":
            texts += [str(value) for value in rare]
            wholes += [int(value) for value in rare if str(value).isdigit()]
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
    few = len(table) < 9  # of many numbers some have by chance the bits of other numbers' bytes
    looked_for = texts[:: len(texts) // 200 + 1] + [t for t in texts if t in CANARIES]
    found = [text for text in looked_for if any(form in data for form in forms(text))]
    written = [float(match.group()) for match in _NUMBER.finditer(data) if len(match.group()) > 5]
    written += [float.fromhex(match.group().decode()) for match in _HEX.finditer(data)]
    found += [f"{x} as text" for x in near(np.array(written), numbers, 1e-9)]
    digits = {int(match.group()) for match in re.finditer(rb"-?\d{5,20}", data)}
    found += [f"{x} as digits" for x in sorted(digits.intersection(wholes.tolist()))]
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
                    single = table.iloc[[0, -1] if few else [0, 7]]
                    single = single.filter(["salary", "balance", "small", "income", "debt"])
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
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    return written | {"pickle": pickle.dumps(model)}


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


# numbers, categories and numbers of rows are independent: each occurs, but not every combination
CASES = [
    (n, numeric, way)
    for i, numeric in enumerate(METHODS)
    for j, way in enumerate(WAYS)
    for k, n in enumerate([30, 300])
    if BUDGET > 1 or ((i + j) % 2 == 0 and j // 2 % 2 == k)
]


@pytest.mark.parametrize(("n", "numeric", "way"), CASES)
def test_estimator_files_hold_no_rare_value(n, numeric, way, tmp_path):
    X = people(n)
    rng = np.random.default_rng(1)
    parameters = QUICK | WAYS[way] | {"numeric_encoding": numeric}
    weight = None if way in ("plain", "codes") else rng.integers(0, 4, n) + rng.random(n)
    kind = MLPClassifier if numeric in ("quantile", "none") else MLPRegressor
    y = np.arange(n) % 2 if kind is MLPClassifier else rng.normal(size=n)
    model = fitted(kind(**parameters), X, y, weight)
    written = files(model, tmp_path)
    assert len(written) == 3
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
    [("quantile", "40MB"), ("standard", "1GB"), ("robust", "40MB")],
)
def test_nor_one_fitted_to_parquet(numeric, memory_limit, tmp_path):
    pytest.importorskip("pyarrow")
    n = 600
    X = people(n).drop(columns=["email"]).assign(zip=lambda t: t["zip"].astype(str))
    X["weight"] = 1 + np.random.default_rng(0).random(n)
    (tmp_path / "table").mkdir()
    X.assign(y=np.arange(n) % 2).to_parquet(tmp_path / "table" / "t.parquet", row_group_size=200)
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
def test_no_column_statistic_is_a_single_row_value(numeric):
    rng = np.random.default_rng(METHODS.index(numeric))
    for _ in range(30 * BUDGET):
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


@pytest.mark.parametrize(
    ("min_frequency", "kept"),
    [(1, 4), (2, 4), (3, 3), (4, 2), (16, 1), (0.01, 4), (0.075, 3), (0.076, 2), (0.5, 1)],
)
def test_min_frequency_is_a_count_or_a_share(min_frequency, kept):
    city = np.repeat(["Rome", "Oslo", "Lima", "Bern"], [20, 15, 3, 2]).astype(object)
    X = pd.DataFrame({"city": city})
    for parts in ([X], [X[:7], X[7:]]):
        encoder = TableEncoder(min_frequency=min_frequency)
        encoder.fit_batches((part, None) for part in parts)
        assert len(encoder.categories_[0]) == kept
        assert encoder.n_dense_ == kept + (kept < 4)


def test_constructed_networks_hold_no_extremes_of_their_table(tmp_path):
    X = people(200)[["salary", "claims"]]
    network = expression_network("2 * salary + claims", X)
    for (low, high), name in zip(network.domain, X, strict=True):
        assert low <= X[name].min() < X[name].max() < high
    settings = QUICK | {"hidden_layer_sizes": "auto", "init": network, "dropout": 0}
    model = MLPRegressor(**paper_recipe("regression", **settings))
    model.fit(X, X["salary"])
    for name, data in files(model, tmp_path).items():
        assert leaks(data, X) == [], name


# ---- One person's values are looked for in all that CTGAN and TVAE write and sample -------------

N = 400

RNG = np.random.default_rng(0)

NARROW = {
    CTGAN: {"generator_dim": (16,), "discriminator_dim": (16,), "pac": 5, "embedding_dim": 8},
    TVAE: {"compress_dims": (16,), "decompress_dims": (16,), "embedding_dim": 8},
    TabFlow: {"hidden_layer_sizes": (16,)},
}

BOTH = pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow])

CANARY = {
    "town": "Canaryton",
    "kind": "canary kind",
    "code": 48151623,
    "income": 987654.25,
    "debt": -876543.75,
    "visits": 7654321,
    "born": pd.Timestamp("1893-04-17"),
    "stay": pd.Timedelta(days=8191),
    "email": "canary@secret.example.org",
    "row": N + 137,  # above all
}


def table_with_canary() -> pd.DataFrame:
    """N people, and the canary among them."""
    table = pd.DataFrame(
        {
            "town": RNG.choice(["Oslo", "Rome", "Bern"], N, p=[0.5, 0.3, 0.2]),
            "kind": pd.Categorical(RNG.choice(["plain kind", "other kind"], N)),
            "code": RNG.choice([11, 22, 33], N),
            "income": RNG.lognormal(10, 0.5, N).round(2),
            "debt": RNG.normal(0, 900, N).round(2),
            "visits": RNG.poisson(30, N),
            "born": pd.Timestamp("1960-01-01") + pd.to_timedelta(RNG.integers(0, 9999, N), "D"),
            "stay": pd.to_timedelta(RNG.integers(4, 90, N), unit="D"),
            "email": [f"person{i}@mail{i % 7}.org" for i in range(N)],
            "row": np.arange(1, N + 1),
        }
    )
    table["kind"] = table["kind"].cat.add_categories(CANARY["kind"])
    return pd.concat([table, table.iloc[[0]].assign(**CANARY)], ignore_index=True).astype(
        {"kind": table["kind"].dtype}
    )


TABLE = table_with_canary()


def make(cls, **params):
    defaults = {"epochs": 2, "batch_size": 50, "random_state": 0}
    return cls(**{**defaults, **NARROW[cls], **params})


def fit(model, table=TABLE, discrete=("town", "kind", "code", "email"), **options):
    with pytest.warns(UserWarning, match="'email', 'row' hold identifiers"):
        return model.fit(table, discrete_columns=list(discrete), **options)


@pytest.fixture(scope="module", params=[CTGAN, TVAE, TabFlow], ids=["CTGAN", "TVAE", "TabFlow"])
def generator(request, tmp_path_factory):
    """A model, and the file of its checkpoint."""
    checkpoint = tmp_path_factory.mktemp("checkpoint") / "checkpoint"
    return fit(make(request.param), checkpoint=checkpoint), checkpoint


def test_the_search_finds_the_canary_in_an_encoder():
    """The test of the test: with all values kept, the canary is there."""
    encoder = ModeEncoder(discrete_columns=["town", "kind", "code", "email"]).fit(TABLE)
    texts = {"Canaryton", "canary kind"}
    numbers = [48151623, 7654321, -2420668800000000000, 707702400000000000]  # the moments' in ns
    found = leaks(json.dumps(encoder.to_state()[1]).encode(), TABLE.tail(1))
    wanted = {*texts, "canary@secret.example.org", "987654.25 as text", "-876543.75 as text"}
    assert wanted | {f"{number} as digits" for number in numbers} <= set(found)
    found = leaks(pickle.dumps(encoder), TABLE.tail(1))
    wanted = {*texts, "canary@secret.example.org", "987654.25 as double", "-876543.75 as double"}
    assert wanted | {f"{number} as integer" for number in numbers} <= set(found)
    days = np.array([(CANARY["born"] - pd.Timestamp(0)).days]).tobytes()
    assert set(leaks(b"a" + days, TABLE.tail(1))) == {"-28017 as integer"}


def test_no_file_holds_the_canary(generator, tmp_path):
    model, checkpoint = generator
    model.sample(10)
    model.save(tmp_path / "model")
    for name, content in {
        "model": (tmp_path / "model").read_bytes(),
        "checkpoint": checkpoint.read_bytes(),
        "pickle": pickle.dumps(model),
        "losses": model.loss_values.to_csv().encode() + model.history_.to_csv().encode(),
    }.items():
        assert leaks(content, TABLE.tail(1)) == [], name
        for value in TABLE["email"]:
            assert value.encode() not in content
    # nor any array a number of it, in any precision
    rare = [float(CANARY[name]) for name in ("code", "income", "debt", "visits")]
    for path in (tmp_path / "model", checkpoint):
        for name, array in load_file(path).items():
            near_one = [np.isclose(array.astype(float), value, rtol=1e-6, atol=0) for value in rare]
            assert not np.any(near_one), name


def test_no_row_holds_the_canary(generator):
    model, _ = generator
    made = model.sample(20_000 * BUDGET, random_state=1)
    for name, value in CANARY.items():
        assert not (made[name] == value).any(), name
        assert value not in getattr(made[name].dtype, "categories", ())
    assert set(made["town"]) == {"Oslo", "Rome", "Bern"}
    assert set(made["code"]) == {11, 22, 33}
    rest = TABLE[:-1]
    for name in ("income", "debt", "visits", "born", "stay"):  # nor anything near it
        spread = rest[name].max() - rest[name].min()
        assert made[name].between(rest[name].min() - spread, rest[name].max() + spread).all()
    assert (made["income"] > 0).all()
    assert made.dtypes.drop("kind").to_dict() == TABLE.dtypes.drop("kind").to_dict()


def test_dictionaries_of_arrow_hold_no_rare_value():
    pa = pytest.importorskip("pyarrow")
    towns = pa.array(["Oslo", "Rome"] * 30 + ["Canaryton"]).dictionary_encode()
    X = pd.DataFrame({"town": pd.Series(pd.arrays.ArrowExtensionArray(towns))})
    encoder = ModeEncoder(min_frequency=5).fit(X)
    rows = encoder.decode(np.empty((2, 0)), np.array([[0], [1]]))
    assert rows["town"].tolist() == ["Oslo", "Rome"]
    assert rows["town"].dtype == X["town"].dtype
    for data in (pickle.dumps(encoder), pickle.dumps(rows)):
        assert b"Rome" in data
        assert b"Canaryton" not in data


def test_attributes_of_the_table_are_not_kept():
    X = pd.DataFrame({"town": ["Oslo", "Rome"] * 30})
    X.attrs["source"] = "Canaryton"
    data = pickle.dumps(ModeEncoder(min_frequency=5).fit(X))
    assert b"Rome" in data
    assert b"Canaryton" not in data


def test_suggested_constraints_name_no_rare_value():
    state = np.where(np.arange(300) % 2 == 0, "open", "done").astype(object)
    state[5] = "canary kind"
    end = np.where(state == "done", np.arange(300) % 7, np.nan)
    found = suggest_constraints(pd.DataFrame({"state": state, "end": end}))
    assert found == [Null("end", when="state == 'open'")]


def test_extremes_of_single_rows_occur_only_by_chance(generator):
    """Numbers that were brought to a bound came out as that row's own, in 3 % of the rows."""
    made = generator[0].sample(20_000 * BUDGET, random_state=2)
    for name in ("income", "debt", "visits", "born", "stay"):
        for extreme in (TABLE[name].min(), TABLE[name].max()):
            if (TABLE[name] == extreme).sum() < 5:
                chance = 0.02 if name in ("visits", "stay") else 0.001  # of some 80 values
                assert (made[name] == extreme).mean() < chance, (name, extreme)


def test_identifiers_are_new_and_unique(generator):
    made = generator[0].sample(5000)
    for name in ("email", "row"):
        assert made[name].is_unique
        assert not set(made[name]) & set(TABLE[name])
    assert made["email"].str.endswith("@example.invalid").all()
    assert (made["row"] > TABLE["row"].max()).all()
    for conditions in ({"email": CANARY["email"]}, {"row": (1, 9)}, {"row": 5}):
        with pytest.raises(ValueError, match="identifiers"):
            generator[0].sample(1, conditions=conditions)


def test_conditions_do_not_reveal_rare_values(generator):
    says = []
    for town in (CANARY["town"], "Nowhereton"):
        with pytest.raises(ValueError, match="min_frequency") as caught:
            generator[0].sample(1, conditions={"town": town})
        says.append(str(caught.value).replace(town, ""))
    assert says[0] == says[1]
    with pytest.raises(ValueError, match="min_frequency"):
        generator[0].sample_from(pd.DataFrame({"code": [CANARY["code"]]}))


@pytest.mark.slow
def test_private_generator_discloses_the_canary_nowhere(tmp_path):
    pytest.importorskip("opendp", reason="needs the extra private")
    day, one = pd.Timestamp, pd.Timedelta(1, "D")
    model = PrivateSynthesizer(
        epsilon=20.0,
        bounds={
            "income": (0, 200_000),
            "debt": (-5000, 5000),
            "visits": (0, 100),
            "born": (day("1950-01-01"), day("2000-01-01")),
            "stay": (one, 100 * one),
        },
        categories={"kind": ["plain kind", "other kind"]},  # town and code are learned
        identifiers=["email", "row"],
        n_components=20,
        epochs=2,
        random_state=0,
    ).fit(TABLE, discrete_columns=["code"])
    made = model.sample(5000, random_state=1)
    report = evaluate_synthetic(
        real_train=TABLE, synthetic=made[: len(TABLE)], generator=model, learners="linear"
    )
    model.save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    # noise differs from run to run: bytes of arrays could equal a number's by chance
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    told = model.ledger_.to_csv() + model.history_.to_csv() + model._repr_html_() + repr(model)
    for name, content in {
        "header": header,
        "words": told.encode(),
        "page": render_report(report).encode(),
    }.items():
        assert leaks(content, TABLE.tail(1)) == [], name
    for content in (data, pickle.dumps(model)):
        assert b"plain kind" in content
        for value in (CANARY["town"], CANARY["kind"], *TABLE["email"]):
            assert value.encode() not in content
    rare = [float(CANARY[name]) for name in ("code", "income", "debt", "visits")]
    for name, array in load_file(tmp_path / "model").items():
        near_one = [np.isclose(array.astype(float), value, rtol=1e-6, atol=0) for value in rare]
        assert not np.any(near_one), name
    for name in CANARY.keys() - {"row"}:
        assert not (made[name] == CANARY[name]).any(), name
        assert CANARY[name] not in getattr(made[name].dtype, "categories", ())
    assert set(made["code"]) <= {11, 22, 33}
    assert set(made["town"].dropna()) <= {"Oslo", "Rome", "Bern"}
    for name, (low, high) in model.bounds.items():
        assert made[name].between(low, high).all()
    assert not set(made["email"]) & set(TABLE["email"])


# ---- identifiers and other ways out --------------------------------------------------------------


@BOTH
def test_new_identifiers_keep_their_dtype(cls, tmp_path):
    n = 60
    table = pd.DataFrame(
        {
            "x": np.random.default_rng(5).normal(size=n),
            "int32": np.arange(n, dtype=np.int32),
            "nullable": pd.array([*range(100, 100 + n - 10), *[None] * 10], dtype="Int64"),
            "text": pd.array([f"key {i}" for i in range(n - 6)] + [None] * 6, dtype="string"),
            "category": pd.Categorical([f"cat {i}" for i in range(n)]),
            "id": [*np.arange(n - 3) * 1000.0, *[np.nan] * 3],
        }
    )
    with pytest.warns(UserWarning, match="'int32', 'nullable', 'text', 'category', 'id' hold"):
        model = make(cls).fit(table)
    model.save(tmp_path / "model")
    for each in (model, combutab.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        made = each.sample(500, random_state=0)
        assert made.dtypes.drop("category").to_dict() == table.dtypes.drop("category").to_dict()
        assert isinstance(made["category"].dtype, pd.CategoricalDtype)
        for name in table.columns[1:]:
            there = made[name].dropna()
            assert there.is_unique
            assert not set(there) & set(table[name].dropna())
        assert 0 < made["nullable"].isna().mean() < 1
        assert 0 < made["text"].isna().mean() < 1
        assert made["id"].notna().all()  # 3 rows are rare
        assert made["nullable"].isna().equals(each.sample(500, random_state=0)["nullable"].isna())
        assert each.sample(20, conditions={"x": (0, None)})["text"].dropna().is_unique


def test_text_in_an_array_is_not_cut_short():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.choice(["a", "b"], 90), [f"p{i}" for i in range(90)]])
    with pytest.warns(UserWarning, match="1 holds identifiers"):
        made = make(TVAE).fit(X).sample(50)
    assert made[0, 1] == "id-000001"
    assert len(set(made[:, 1])) == 50


@BOTH
def test_unlearnable_tables_are_refused_with_a_way_out(cls):
    names = [f"Person {i}" for i in range(40)]  # too few to be sure that they are identifiers
    table = pd.DataFrame({"x": np.random.default_rng(7).normal(size=40), "name": names})
    with pytest.raises(ValueError, match=r"'name'.*5 rows.*min_frequency=1"):
        make(cls).fit(table)
    with pytest.raises(ValueError, match=r"n_samples=4.*min_frequency=5"):
        make(cls).fit(table[:4])
    with pytest.warns(UserWarning, match="'name'.*once"):
        made = make(cls, min_frequency=1).fit(table).sample(50)
    assert set(made["name"]) <= set(names)
    with pytest.warns(UserWarning, match="'name' holds identifiers"):
        made = make(cls, identifiers=["name"]).fit(table).sample(50)
    assert not set(made["name"]) & set(names)


# ---- Canaries in tables: what one row alone has is in no page, no finding and no text of a


N_RESIDENTS = 120

# one row of each table has such values
PLANTED = {
    "real": ("zq-anna-41", "Vossgasse 7", "unheard", 918273645.4321, 871263549, "1931-07-19"),
    "held": ("zq-berta-42", "Xylopark 9", "unseen", -827364519.8765, 964127385, "2087-11-23"),
    "made": ("zq-carla-43", "Quarzweg 3", "unborn", 736451982.2468, 758392641, "1899-03-28"),
}


def residents(seed, canary=None, *, n=N_RESIDENTS):
    """Rows with a name, an address, a class, a sum, an account and a birthday; one is a canary."""
    rng = np.random.default_rng(seed)
    income = np.exp(rng.normal(10, 0.5, n)).round(4)
    table = pd.DataFrame(
        {
            "name": [f"person {seed} {i}" for i in range(n)],
            "street": rng.choice([f"street {i}" for i in range(30)], n),
            "district": rng.choice(["north", "south", "harbour"], n),
            "income": income,
            "saved": np.where(rng.random(n) < 0.9, 0.0, income),
            "account": 200_000_000 + rng.permutation(10**6)[:n],
            "born": pd.Timestamp("1960-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), "D"),
            "rooms": rng.integers(1, 5, n),
            "label": np.where(income + rng.normal(0, 4000, n) > 22000, "yes", "no"),
        }
    )
    if canary is not None:
        name, street, label, number, account, date = PLANTED[canary]
        row = n // 2
        table.loc[row, ["name", "street", "district", "label"]] = [name, street, label, label]
        table.loc[row, ["income", "saved"]] = number
        table.loc[row, "account"] = account
        table.loc[row, "born"] = pd.Timestamp(date)
        table.loc[row, "rooms"] = 77313
    return table


def planted_forms():
    """Every text in which a canary might be found."""
    for name, street, label, number, account, date in PLANTED.values():
        yield from (name, street, label)
        for value in (number, account, 77313):
            size = abs(value)
            yield from (f"{size:.0f}", f"{size:,.0f}", f"{int(size)}", f"{int(size):,}")
            yield from (f"{size:.4g}", f"{size:.5g}", f"{size:.6g}", f"{size:.3e}")
        day = datetime.date.fromisoformat(date)
        yield from (date, f"{day:%Y%m%d}", f"{day:%d.%m.%Y}", f"{day:%m/%d/%Y}")


def planted_values_in(text):
    """Canaries in a text: as it is, unescaped, and in whatever of it is base64."""
    texts = [text, html.unescape(text), re.sub(r"\s+", " ", html.unescape(text))]
    for piece in re.findall(r"[A-Za-z0-9+/]{24,}={0,2}", text):
        texts.append(base64.b64decode(piece + "=" * (-len(piece) % 4)).decode("latin-1"))
    return sorted({form for form in planted_forms() if any(form in each for each in texts)})


def tables():
    return {
        "real": residents(0, "real"),
        "held": residents(1, "held"),
        "made": residents(2, "made"),
    }


def test_the_search_finds_what_it_looks_for():
    for table in tables().values():
        assert len(planted_values_in(table.to_csv(index=False))) >= 7
    hidden = base64.b64encode(b"the address is Vossgasse 7 in town").decode()
    assert planted_values_in(f"<img src='data:image/png;base64,{hidden}'>") == ["Vossgasse 7"]
    assert planted_values_in("Vossgasse&#32;7") == ["Vossgasse 7"]


@pytest.mark.parametrize(("target", "held"), [("income", True), ("district", False)])
def test_a_report_holds_no_canary(target, held):
    given = tables()
    found = evaluate_synthetic(
        real_train=given["real"],
        synthetic=given["made"],
        real_test=given["held"] if held else None,
        target=target,
        learners=["linear"],
    )
    if held:
        assert found.findings[2].level == "good"  # of fresh rows, unlike the copied ones below
    page = render_report(found)
    assert planted_values_in(page) == []
    for text in (repr(found), str(found), repr(found.findings), f"{found}"):
        assert planted_values_in(text) == []
    # the page shows values that many have
    assert all(word in page for word in ("harbour", "south"))
    assert "(left out of all scores)" in page  # identifiers
    assert not any(name in page for name in ("person 0 ", "person 1 ", "person 2 "))


def test_memorised_canary_is_not_shown_in_a_report():
    # one real row, and 40 synthetic ones that copy it: still one row's own
    given = tables()
    copied = pd.concat(
        [given["made"][:80], *[given["real"][N_RESIDENTS // 2 : N_RESIDENTS // 2 + 1]] * 40]
    )
    found = evaluate_synthetic(
        real_train=given["real"], synthetic=copied, real_test=given["held"], learners="linear"
    )
    assert planted_values_in(render_report(found)) == []
    assert found.findings[2].level == "poor"  # and it is told, not by its value
    assert planted_values_in(repr(found)) == []


@pytest.mark.parametrize("target", ["income", "label"])
def test_a_comparison_holds_no_canary(target):
    table = residents(0, "real", n=80).drop(columns=["account", "saved"])
    if target == "label":  # a class of one row is in no fold, and refused
        table = table.assign(label=np.where(table["label"] == "unheard", "no", table["label"]))
    with pytest.warns(UserWarning, match="'name'") as told:
        found = compare_activations(
            table.drop(columns=target),
            table[target],
            activations=["relu", "tanh"],
            seeds=1,
            folds=2,
            epochs=2,
            hidden=[4],
            refit=False,
        )
    assert planted_values_in(" ".join(str(each.message) for each in told)) == []
    assert planted_values_in(render_report(found)) == []
    assert planted_values_in(found.sentences) == []
    assert planted_values_in(repr(found)) == []
