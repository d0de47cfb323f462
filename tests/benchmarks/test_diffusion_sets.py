"""The benchmark of the diffusion literature: its tables and splits, its scores, its page."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from benchmarks.quality import diffusion_scores as scores
from benchmarks.quality import diffusion_sets as sets
from benchmarks.quality import diffusion_tables as tables

# ---- tables and splits --------------------------------------------------------------------------


def test_seed_grows_until_categories_are_complete():
    kinds = ["a"] * 50 + [f"rare {i}" for i in range(10)]
    table = pd.DataFrame({"kind": pd.Categorical(kinds)})
    state = np.random.get_state()
    order, seed = np.arange(60), 1234
    while True:  # as process_dataset.py does, with numpy's global state
        np.random.seed(seed)
        np.random.shuffle(order)
        if len({kinds[i] for i in order[:54]}) == 11:
            break
        seed += 1
    np.random.set_state(state)
    assert seed > 1234, "a first split that lacks a category"
    train, test = tables.random_split(table, ["kind"])
    np.testing.assert_array_equal(train, order[:54])
    np.testing.assert_array_equal(test, order[54:])
    unique = pd.DataFrame({"kind": pd.Categorical(map(str, range(60)))})
    with pytest.raises(ValueError, match=r"'kind'"):
        tables.random_split(unique, ["kind"])


def test_beijing_drops_gaps_and_has_categories(tmp_path):
    rng = np.random.default_rng(0)
    columns = tables.LAYOUTS["beijing"].columns
    rows = pd.DataFrame({name: rng.integers(1, 3, 200) for name in columns})
    rows["pm2.5"] = np.where(np.arange(200) % 4 == 0, np.nan, rng.normal(size=200))
    rows.insert(0, "No", range(200))
    rows.to_csv(tmp_path / "beijing.csv", index=False)
    data = tables.load("beijing", str(tmp_path))
    assert not data.classify
    assert (len(data.train), len(data.test)) == (135, 15)
    assert list(data.train.select_dtypes("category")) == ["year", "month", "day", "hour", "cbwd"]
    assert set(data.train["year"]) == {"1", "2"}
    train, _ = tables.random_split(pd.DataFrame(index=range(150)), [])
    np.testing.assert_allclose(data.train["pm2.5"], rows["pm2.5"].dropna().to_numpy()[train])


def test_missing_files_and_columns_are_named_first(tmp_path):
    pd.DataFrame({"x": [1.0], "y": [2.0]}).to_csv(tmp_path / "magic.csv", index=False)
    message = r"'magic' has no column \['class'\].*: \['x', 'y'\]"
    with pytest.raises(SystemExit, match=message):
        sets.STUDY.main(["--quick", "--data-home", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(ValueError, match=r"'shoppers'.*\['magic'\]"):
        tables.load("shoppers", str(tmp_path))


# ---- scores -------------------------------------------------------------------------------------


def test_detection_score_by_hand():
    # a real row is 1 with probability 3/4, a made one with 1/4: the area is 3/4, the score 1/2
    real = pd.DataFrame({"x": [1.0, 1.0, 1.0, 0.0] * 300})
    made = 1.0 - real
    state = np.random.get_state()[1].copy()
    found = scores.c2st(real, made, 0)
    assert found["logistic_c2st"] == pytest.approx(0.5, abs=0.01)
    assert scores.c2st(real, real, 0)["logistic_c2st"] == 1.0
    assert scores.c2st(real, real + 9.0, 0)["logistic_c2st"] == 0.0
    assert found == scores.c2st(real, made, 0)
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    assert scores.has_xgboost() == ("xgb_c2st" in found)
    if scores.has_xgboost():
        assert found["xgb_c2st"] == pytest.approx(0.5, abs=0.01)


def test_dependency_gap_lies_between_real_and_shuffled_rows():
    pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    x = rng.normal(size=1500)
    kinds = pd.Categorical(np.where(x > 0, "up", "down"))
    rows = pd.DataFrame({"x": x, "y": x + rng.normal(0, 0.1, 1500), "kind": kinds})
    data = tables.Data(rows[:1000], rows[1000:], "kind", True)
    found = scores.dependency_gap(data, rows[500:1000], 0)
    assert found["gap_auc"] == pytest.approx(0.5, abs=0.08)
    assert found["gap_auc_real"] == pytest.approx(0.5, abs=0.08)
    assert found["gap_auc_shuffled"] > 0.9
    assert found == scores.dependency_gap(data, rows[500:1000], 0)
    # a real row is 1 with probability 3/4, a made one with 1/4
    real = pd.DataFrame({"x": [1.0, 1.0, 1.0, 0.0] * 300, "kind": pd.Categorical(["a"] * 1200)})
    made = real.assign(x=1.0 - real["x"])
    assert scores.real_or_made_auc(real, made) == pytest.approx(0.75, abs=0.02)
    assert scores.real_or_made_auc(real[:400], made) == pytest.approx(0.75, abs=0.05)


def test_page_shows_dependency_gaps_with_published_ones(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    stored = Path(sets.__file__).parent / "results" / f"{sets.ROWS.name}.csv.gz"
    rows = pd.read_csv(stored)
    gaps = {"gap_auc": 0.55, "gap_auc_real": 0.51, "gap_auc_shuffled": 0.98}
    rows.assign(**gaps).to_csv(folder / stored.name, index=False)
    sets.STUDY.main(["--report", "--out", str(folder), "--data-home", str(tmp_path)])
    page = (folder / f"{sets.STUDY.name}.md").read_text("utf-8")
    section = page.split("## Dependency gap by table")[1].split("\n## ")[0]
    lines = [line.split("|") for line in section.splitlines() if line.startswith("|")]
    cells = {line[1].strip(): [cell.strip() for cell in line[2:-1]] for line in lines}
    column = cells["model"].index("default")
    assert cells["TabbyFlow, published"][column] == "0.613"
    assert cells["TabDiff, published"][column] == "0.596"
    assert cells["combutab TabFlow"][column] == "0.550"
    assert cells["training rows, columns shuffled"][column] == "0.980"
    assert "TabbyFlow" not in page.replace(section, "")


def test_precision_and_recall_are_those_of_their_definition(monkeypatch):
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"x": rng.normal(size=150), "kind": pd.Categorical(list("aab") * 50)})
    made = pd.DataFrame({"x": rng.normal(0.5, 2, 150), "kind": pd.Categorical(list("abb") * 50)})
    low, high = real["x"].min(), real["x"].max()
    X, Z = (
        np.column_stack([*(1.0 * (t["kind"] == k) for k in "ab"), (t["x"] - low) / (high - low)])
        for t in (real, made)
    )
    levels, precision, recall = np.linspace(0, 1, 30), [], []
    to_real = np.sort(cdist(X, X), axis=1)[:, 1]
    to_made, nearest = cdist(X, Z).min(axis=1), cdist(X, Z).argmin(axis=1)
    of_made = np.linalg.norm(Z - Z.mean(axis=0), axis=1)[nearest]
    for level in levels:
        ball = np.quantile(np.linalg.norm(X - X.mean(axis=0), axis=1), level)
        precision.append(np.mean(np.linalg.norm(Z - X.mean(axis=0), axis=1) <= ball))
        recall.append(np.mean((to_made <= to_real) & (of_made <= np.quantile(of_made, level))))
    expected = [1 - np.abs(levels - curve).sum() / levels.sum() for curve in (precision, recall)]
    found = scores.precision_recall(real, made, 0)
    assert list(found.values()) == pytest.approx(expected, abs=0.005)
    assert found == scores.precision_recall(real.iloc[::-1], made, 1), "no draw where all are taken"
    monkeypatch.setattr(scores, "MOST_NEIGHBORS", 100)
    assert found != scores.precision_recall(real, made, 0)


def data_of(train, test, target, classify):
    kinds = dict.fromkeys(train.select_dtypes(object), "category")
    return tables.Data(train.astype(kinds), test.astype(kinds), target, classify)


class Constant:
    """A regressor of one value, or a classifier that is right or wrong."""

    def __init__(self, max_depth, **options):
        assert options["n_jobs"] == 1
        self.value = max_depth

    def fit(self, X, y):
        self.n_rows, self.y = len(X), y
        return self

    def predict(self, X):
        return np.full(len(X), float(self.value))

    def predict_proba(self, X):
        first = X[:, 0] > 0
        shares = np.where(first == (self.value > 0), 0.9, 0.1)
        return np.column_stack([1 - shares, shares])


def test_mle_selects_on_validation_rows(monkeypatch):
    fake = SimpleNamespace(XGBRegressor=Constant, XGBClassifier=Constant)
    monkeypatch.setitem(sys.modules, "xgboost", fake)
    rows = pd.DataFrame({"a": np.arange(90.0), "y": 50.0})
    data = data_of(rows, rows[:9].assign(y=np.e**2), "y", False)
    # raw targets are 50: the model of 40 is nearest, not that of log(50) = 3.9
    assert scores.mle(data, rows, {"max_depth": [4, 40]}, 0) == pytest.approx(38.0)
    x = np.tile([-1.0, 1.0], 45)
    rows = pd.DataFrame({"a": x, "y": np.where(x > 0, "up", "down")})
    wrong = rows.assign(y=rows["y"].to_numpy()[::-1])
    kinds = {"y": "category"}
    data = data_of(rows, rows[:20], "y", True)
    assert scores.mle(data, rows.astype(kinds), {"max_depth": [-1, 1]}, 0) == 1.0
    assert scores.mle(data, wrong.astype(kinds), {"max_depth": [-1, 1]}, 0) == 0.0
    one = rows.assign(y=pd.Categorical(["up"] * 90, ["down", "up"]))
    assert scores.mle(data, one, {"max_depth": [1]}, 0) == 0.5
