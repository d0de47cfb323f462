"""A value that no column can have is refused in words that name its column."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from combutab import CTGAN, MLPClassifier, MLPRegressor
from combutab.preprocessing import ModeEncoder, TableEncoder

N = 20


def with_one(value, others=1.0):
    values = np.full(N, others, dtype=object)
    values[3] = value
    return pd.Series(values, dtype=object)


class Nameless:
    """Without a repr that stays."""


FLOATS = pd.Series([1.0] * (N - 1) + [np.inf])
INFINITE = {
    "float64": FLOATS,
    "float32": -FLOATS.astype("float32"),
    "Float64": FLOATS.astype("Float64"),
    "sparse": FLOATS.astype(pd.SparseDtype(float)),
    "category": FLOATS.astype("category"),
    "objects": with_one(-np.inf),
    "among text": with_one(np.inf, "x"),
    "text": with_one("inf"),
    "decimal": with_one(decimal.Decimal("Infinity")),
    "decimal beyond float64": with_one(decimal.Decimal("1e999")),
}
OTHERS = {
    "complex": pd.Series([1j] * N),
    "complex object": with_one(1j),
    "complex category": pd.Series([1j, 1.0] * (N // 2)).astype("category"),
    "int beyond float64": with_one(10**400),
    "no stable repr": with_one(Nameless(), "x"),
    "beyond pandas' dates": pd.Series([datetime.datetime(9999, 1, 1)] * N, dtype=object),
}


def table(odd):
    return pd.DataFrame(
        {"fine": np.arange(float(N)), "odd one": odd, "word": ["a", "b"] * (N // 2)}
    )


@pytest.mark.parametrize("name", INFINITE)
def test_infinity_names_its_column_and_no_other(name):
    categorical = None if name == "text" else "from_dtype"
    with pytest.raises(ValueError, match=r"infinity") as caught:
        TableEncoder(categorical_features=categorical).fit(
            table(INFINITE[name])[["fine", "odd one"]]
        )
    assert "'odd one'" in str(caught.value)
    assert "'fine'" not in str(caught.value)
    if name not in ("text", "decimal", "decimal beyond float64"):  # categories there
        with pytest.raises(ValueError, match="column 'odd one' has infinite values"):
            ModeEncoder().fit(table(INFINITE[name]))


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_name_their_column(name):
    with pytest.raises((ValueError, TypeError), match="column 'odd one'"):
        TableEncoder().fit(table(OTHERS[name]))


def test_complex_numbers_name_their_column_in_generators():
    with pytest.raises(ValueError, match=r"Complex data not supported: column 'odd one'"):
        CTGAN(epochs=1).fit(table(OTHERS["complex"]))


def test_a_list_of_arrow_is_a_category_as_any_other_list():
    pa = pytest.importorskip("pyarrow")
    lists = pd.Series(pd.arrays.ArrowExtensionArray(pa.array([[1], [2]] * (N // 2))))
    assert len(TableEncoder().fit(table(lists)).categories_[1]) == 2


@pytest.mark.parametrize("kind", ["frame", "array", "sparse", "list", "mixed frame"])
def test_all_infinite_columns_are_named(kind):
    values = np.ones((N, 7))
    values[0, 1] = values[1, 5] = np.inf
    named = pd.DataFrame(values, columns=list("abcdefg"))
    X, names = {
        "frame": (named, "column 'b', column 'f'"),
        "mixed frame": (named.assign(word="x"), "column 'b', column 'f'"),
        "array": (values, "column 1, column 5"),
        "sparse": (scipy.sparse.csr_array(values), "column 1, column 5"),
        "list": (values.tolist(), "column 1, column 5"),
    }[kind]
    with pytest.raises(ValueError, match=f"in {names}; replace it"):
        TableEncoder().fit(X)
    fine = X.copy() if hasattr(X, "copy") else list(X)
    if kind.endswith("frame"):
        fine[["b", "f"]] = 1.0
        fitted = TableEncoder().fit(fine)
        with pytest.raises(ValueError, match=f"in {names}; replace it"):
            fitted.encode(X)


def test_many_infinite_columns_are_counted():
    with pytest.raises(ValueError, match=r"in column 0, .*, column 4 and 35 more; replace"):
        TableEncoder().fit(np.full((3, 40), np.inf))


def test_prediction_names_the_column_too():
    X, y = table(1.0), np.arange(N) % 2
    settings = {"hidden_layer_sizes": (4,), "max_iter": 1, "random_state": 0}
    model = MLPClassifier(**settings, n_iter_no_change=np.inf).fit(X, y)
    X.loc[7, "fine"] = -np.inf
    with pytest.raises(ValueError, match=r"infinity .* in column 'fine';"):
        model.predict(X)


def test_parquet_names_features_and_targets(tmp_path):
    pytest.importorskip("pyarrow")
    fine = pd.DataFrame({"x": np.arange(4.0), "z": np.arange(4.0), "y": np.arange(4.0)})
    for name, what in (("z", "X"), ("y", "y")):
        fine.assign(**{name: [1.0, np.inf, 2.0, 3.0]}).to_parquet(tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=rf"Input {what} contains infinity .*column '{name}'"):
            MLPRegressor(max_iter=1).fit_parquet(tmp_path / "t.parquet", "y")
