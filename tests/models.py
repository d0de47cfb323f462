"""Every kind of model: how to make a small and quick one, what it is fitted to, what it answers."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from combutab import (
    CTGAN,
    TVAE,
    CombU,
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    PrivateSynthesizer,
    StackedGridSearchCV,
    TabFlow,
    TabFlowImputer,
    TabFlowTables,
    TabMClassifier,
    TabMRegressor,
)
from combutab.preprocessing import ModeEncoder, TableEncoder
from combutab.training import Callback

INF = float("inf")
N = 120
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "size": np.where(np.arange(N) % 7 == 0, np.nan, RNG.normal(size=N).round(2)),
        "rooms": RNG.integers(1, 6, N),
        "kind": RNG.choice(["flat", "house", "boat"], N).astype(object),
        "street": [f"street {i % 20}" for i in range(N)],  # embedded
        "sold": RNG.random(N) > 0.5,
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 99, N), unit="D"),
    }
)
TABLE.loc[::9, "kind"] = None
Z = TABLE["size"].fillna(0).to_numpy() + TABLE["rooms"].to_numpy() * TABLE["sold"].to_numpy()
CODES = np.digitize(Z, [0.5, 2.0])
LABELS = np.array(["cheap", "fair", "dear"])[CODES]
RENTS = pd.DataFrame({"house": np.repeat(np.arange(N), np.arange(N) % 3)})
RENTS["rent"] = RENTS["house"] % 7 + np.arange(len(RENTS)) % 5 / 10
ARRAY = np.column_stack([RNG.normal(size=(N, 3)), np.arange(N) % 4])

NET = {
    "hidden_layer_sizes": (8, 6),
    "max_iter": 3,
    "n_iter_no_change": INF,
    "max_onehot": 5,
    "min_frequency": 2,
    "numeric_embedding_dim": 3,
    "batch_size": 30,
    "random_state": 0,
}
PACK = {
    "n_members": 3,
    "max_iter": 2,
    "random_state": 0,
    "member_params": {"hidden_layer_sizes": (6,), "max_onehot": 5, "batch_size": 50},
}
MADE = {"epochs": 3, "batch_size": 50, "random_state": 0}
PRIVATE = {"epsilon": 100.0, "epochs": 2, "n_components": 20, "n_bins": 6}
BOUNDS = {"size": (-4, 4), "rooms": (1, 5), "day": ("2020-01-01", "2020-04-09")}
WIDTHS = {
    CTGAN: {"generator_dim": (8,), "discriminator_dim": (8,), "pac": 5, "embedding_dim": 4},
    TVAE: {"compress_dims": (8,), "decompress_dims": (8,), "embedding_dim": 4},
    TabFlow: {"hidden_layer_sizes": (8,), "early_stopping": False, "dropout": 0.1},
}


@dataclass(frozen=True)
class Model:
    """A class, its parameters, and what it is fitted to."""

    cls: Any
    params: dict[str, Any]
    X: Any = None
    y: Any = None
    seed: str = "random_state"  # the name of the parameter

    def make(self, **changes):
        return clone(self.cls(**self.params)).set_params(**changes)

    def fit(self, model=None, **options):
        data = [self.X] if self.y is None else [self.X, self.y]
        return (model or self.make()).fit(*data, **options)

    @functools.cached_property
    def epochs(self):
        """The name of the parameter that says how many there are."""
        return "epochs" if "epochs" in self.params else "max_iter"


def net(cls, X=TABLE, y=None, **changes):
    """A row of the table of models: an estimator of networks."""
    y = y if y is not None else LABELS if "Classifier" in cls.__name__ else Z
    return Model(cls, (PACK if "Pack" in cls.__name__ else NET) | changes, X, y)


def generator(cls, X=TABLE, **changes):
    return Model(cls, MADE | WIDTHS[cls] | changes, X)


_GRID = {"alpha": [0.0, 1.0]}
_TINY_TVAE = TVAE(**MADE | WIDTHS[TVAE])
MODELS = {
    "classifier": net(MLPClassifier),
    "regressor": net(MLPRegressor),
    "TabM classifier": net(TabMClassifier, n_heads=3, n_bins=6),
    "TabM regressor": net(TabMRegressor, n_heads=3, n_bins=6, activation="combu-random"),
    "pack classifier": net(PackClassifier, activations=("relu", CombU, "pln-2"), cv=2),
    "pack regressor": net(PackRegressor, loss="gaussian_nll"),
    "search": Model(
        *(StackedGridSearchCV, {"estimator": MLPClassifier(**NET), "param_grid": _GRID, "cv": 2}),
        *(TABLE, LABELS, "estimator__random_state"),
    ),
    **{cls.__name__: generator(cls) for cls in (TabFlow, CTGAN)},
    "TVAE": generator(TVAE, activation="combu-random"),
    "imputer": Model(
        TabFlowImputer, {"generator": _TINY_TVAE, "n_draws": 2, "random_state": 0}, TABLE
    ),
    "table encoder": Model(TableEncoder, {"max_onehot": 5}, TABLE),
    "mode encoder": Model(ModeEncoder, {"random_state": 0}, TABLE),
}

_half_tanh = functools.partial(CombU, ratios={"relu": 0.5, "tanh": 0.5})
SEVERAL = np.column_stack([Z, -Z, Z**2])
# what else a network may be, of which the contracts about files are asked as well
VARIANTS = {
    "int labels": net(MLPClassifier, y=CODES - 1),
    "object labels": net(MLPClassifier, y=LABELS.astype(object)),
    "bool labels": net(MLPClassifier, y=CODES == 1),
    "float labels": net(MLPClassifier, y=CODES * -2.0),
    "one label": net(MLPClassifier, y=CODES * 0),
    "multi-label": net(MLPClassifier, ARRAY, np.eye(3, dtype=int)[CODES]),
    "ensemble": net(MLPClassifier, n_members=3),
    "class weights": net(MLPClassifier, ARRAY, class_weight={"cheap": 1, "fair": 2.5, "dear": 1}),
    "early stopping": net(MLPClassifier, early_stopping=True),
    "generator": net(MLPClassifier, random_state=np.random.default_rng(0)),
    "array": net(MLPRegressor, ARRAY, Z * 1e6),
    "several targets": net(MLPRegressor, y=SEVERAL),
    "quantiles": net(MLPRegressor, loss="quantile", quantiles=[0.1, 0.9]),
    "gaussian": net(MLPRegressor, loss="gaussian_nll", n_members=2),
    "poisson": net(MLPRegressor, y=np.abs(Z), loss="poisson"),
    "batch norm": net(MLPRegressor, normalization="batch", n_members=2),
    "proxy norm": net(MLPRegressor, normalization="layer", proxy_norm=True, activation="relu"),
    "combu-random": net(MLPRegressor, activation="combu-random", n_members=2),
    "prelu": net(MLPRegressor, activation="prelu"),
    "partial": net(MLPRegressor, activation=_half_tanh),
    "class of ours": net(MLPRegressor, activation=CombU),
    "ntk": net(MLPRegressor, init="ntk"),
    "float64": net(MLPRegressor, precision="float64"),
    "bf16": net(MLPRegressor, precision="bf16-mixed"),
    "numpy parameters": net(MLPRegressor, alpha=np.float32(0.5), n_members=np.int64(2)),
    "quantile encoding": net(MLPRegressor, numeric_encoding="quantile"),
    "robust encoding": net(MLPRegressor, numeric_encoding="robust"),
    "named categories": net(MLPRegressor, categorical_features=["rooms", "kind", "street"]),
    "array of TabFlow": generator(TabFlow, ARRAY),
    "stack of CTGAN": generator(CTGAN, n_members=2, activation="prelu"),
    "private": Model(PrivateSynthesizer, PRIVATE | {"bounds": BOUNDS, "random_state": 0}, TABLE),
    "several tables": Model(
        TabFlowTables,
        {"generator": TabFlow(**MADE | WIDTHS[TabFlow]), "random_state": 0},
        {"houses": TABLE.assign(house=range(N)), "rents": RENTS},
        [("rents", "house", "houses")],
    ),
    "constant of TVAE": generator(TVAE, TABLE.assign(size=1)[["size"]]),
}


def answers(model, X):
    """All that a fitted model says of a table, as tables."""
    if hasattr(model, "sample"):
        rows = model.sample(30, random_state=1)
        told = [*rows.values()] if isinstance(rows, dict) else [rows]
    elif hasattr(model, "predict"):
        told = [model.predict(X)]
        if hasattr(model, "predict_proba"):
            told.append(model.predict_proba(X))
        elif model.loss == "quantile":
            told.append(model.predict(X, quantiles=model.quantiles).reshape(len(X), -1))
        elif model.loss == "gaussian_nll":
            told += model.predict(X, return_std=True)
    elif hasattr(model, "transform"):
        told = [model.transform(X)]
    else:
        rows = model.encode(X, random_state=0)
        told = [model.decode(rows.values, rows.codes)]
    return [pd.DataFrame(each) for each in told]


def assert_same(model, other, X):
    """Two models say the same, bit for bit."""
    for one, two in zip(answers(model, X), answers(other, X), strict=True):
        pd.testing.assert_frame_equal(one, two, check_exact=True)


@functools.cache
def fitted(name):
    """A model that is fitted once, for tests that leave it as it is."""
    model = (MODELS | VARIANTS)[name]
    return model.fit()


class Told(Callback):
    """Keeps what it is told; ends the training at an epoch by an error, or by a wish."""

    def __init__(self, error=None, at=None, stop=None):
        self.error, self.at, self.stop, self.calls, self.reports = error, at, stop, [], []

    def on_train_begin(self, n_members, max_epochs):
        self.calls.append(("begin", n_members, max_epochs))
        if self.at == 0:
            raise self.error

    def on_epoch_end(self, report):
        self.reports.append(report)
        if report.epoch == self.at:
            raise self.error
        return report.epoch == self.stop

    def on_train_end(self):
        self.calls.append("end")
