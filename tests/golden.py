"""Golden values: what every estimator, generator and score answers, as one digest per case.

A change of the code that is to change no result runs this before and after:

    python -m tests.golden --against HEAD~1

It computes all cases with the package as it was at a revision and as it is here, on this machine,
and names those that differ; nothing is stored, since digests hold for one processor and one build
of torch only. Cases use public names only, so that the code below them can be rebuilt.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

CASES = {}
ROOT = Path(__file__).parents[1]


def case(function):
    """Register a case: a function of a scratch folder that returns what is to stay the same."""
    CASES[function.__name__] = function
    return function


# ---- tables ------------------------------------------------------------------------------------


def table(n=240, seed=0):
    """Numbers, categories, dates, booleans and missing values of every kind."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.gamma(2.0, 30.0, n).round(1),
            "count": rng.integers(0, 40, n),
            "place": rng.choice(["north", "south", "east", None], n),
            "code": pd.Categorical(rng.choice([f"c{i}" for i in range(14)], n)),
            "day": pd.Timestamp("2020-02-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "open": rng.random(n) < 0.6,
        }
    )
    X.loc[::9, "size"] = np.nan
    return X


def number_target(X):
    """A regression target of the table."""
    rng = np.random.default_rng(1)
    size, count = X["size"].fillna(60).to_numpy(), X["count"].to_numpy()
    return 3.0 + 0.05 * size + 0.1 * count * X["open"] + rng.normal(0, 0.3, len(X))


def class_target(X, classes=("low", "mid", "high")):
    """Classes of about equal numbers of rows."""
    bins = np.linspace(0, 1, len(classes) + 1)[1:-1]
    y = number_target(X)
    return np.asarray(classes)[np.digitize(y, np.quantile(y, bins))]


X = table()
Y, C = number_target(X), class_target(X)
NEW = table(60, seed=7)
NUMBERS = np.random.default_rng(3).normal(size=(200, 4))
LAW = np.sin(NUMBERS[:, 0]) + NUMBERS[:, 1] * NUMBERS[:, 2]
FEW = {"hidden_layer_sizes": (16, 8), "max_iter": 6, "random_state": 0}
GENERATOR = {"epochs": 4, "random_state": 0}


# ---- estimators --------------------------------------------------------------------------------


def fitted(model, new=NEW):
    """What a fitted estimator answers and tells of its training."""
    answers = {"predict": model.predict(new)}
    if hasattr(model, "predict_proba"):
        answers["proba"] = model.predict_proba(new)
    names = ("loss_curve_", "validation_scores_", "best_loss_", "n_iter_", "oob_prediction_")
    names += ("oob_decision_function_", "temperature_")
    return answers | {name: getattr(model, name) for name in names if hasattr(model, name)}


def regressions():
    """Regressors' parameters by the name of a case."""
    yield "default", {"max_iter": 6}
    yield (
        "plain",
        {**FEW, "numeric_embedding": "none", "solver": "adam", "learning_rate": "constant"},
    )
    yield "sgd", {**FEW, "solver": "sgd", "learning_rate": "adaptive", "early_stopping": False}
    yield "lbfgs", {**FEW, "solver": "lbfgs", "dropout": 0.0, "weight_decay": 0.0}
    yield "quantile", {**FEW, "loss": "quantile", "quantiles": [0.1, 0.5, 0.9]}
    yield "gaussian", {**FEW, "loss": "gaussian_nll"}
    yield "huber", {**FEW, "loss": "huber"}
    yield "absolute", {**FEW, "loss": "absolute_error"}
    yield "members", {**FEW, "n_members": 3}
    yield "bagging", {**FEW, "n_members": 3, "bagging": "cv"}
    yield "float64", {**FEW, "precision": "float64"}
    yield "piecewise", {**FEW, "numeric_embedding": "piecewise-linear"}
    yield "quantile_encoding", {**FEW, "numeric_encoding": "quantile"}
    yield "normalized", {**FEW, "normalization": "layer", "proxy_norm": True, "activation": "gelu"}
    yield "batch_norm", {**FEW, "normalization": "batch", "activation": "relu"}
    yield "embedded", {**FEW, "max_onehot": 2, "min_frequency": 2}
    yield "paper", {**combutab().paper_recipe("regression"), "max_iter": 6}


def combutab():
    import combutab

    return combutab


def add_estimators():
    for name, params in list(regressions()):

        def fit_regressor(folder, params=params):
            return fitted(combutab().MLPRegressor(**{"random_state": 0, **params}).fit(X, Y))

        CASES[f"regressor_{name}"] = fit_regressor
    for activation in sorted(combutab().ACTIVATIONS):

        def fit_activation(folder, activation=activation):
            return fitted(combutab().MLPClassifier(activation=activation, **FEW).fit(X, C))

        CASES[f"classifier_{activation}"] = fit_activation


@case
def classifier_default(folder):
    return fitted(combutab().MLPClassifier(max_iter=6, random_state=0).fit(X, C))


@case
def classifier_binary_weights(folder):
    weight = np.random.default_rng(5).random(len(X))
    model = combutab().MLPClassifier(class_weight="balanced", **FEW)
    return fitted(model.fit(X, C == "high", sample_weight=weight))


@case
def classifier_multilabel(folder):
    model = combutab().MLPClassifier(**FEW)
    return fitted(model.fit(NUMBERS, np.c_[LAW > 0, LAW > 1].astype(int)), NUMBERS[:40])


@case
def classifier_bagging(folder):
    model = combutab().MLPClassifier(n_members=3, bagging="cv", **FEW)
    return fitted(model.fit(X, C))


@case
def classifier_validation_set(folder):
    late = X[180:], C[180:]
    model = combutab().MLPClassifier(**FEW)
    return fitted(model.fit(X[:180], C[:180], X_val=late[0], y_val=late[1]))


@case
def classifier_partial_fit(folder):
    model = combutab().MLPClassifier(**{**FEW, "early_stopping": False})
    for part in (slice(0, 120), slice(120, 240)):
        model.partial_fit(X[part], C[part], classes=np.unique(C))
    return fitted(model)


@case
def regressor_warm_start(folder):
    model = combutab().MLPRegressor(warm_start=True, **FEW)
    return fitted(model.fit(X, Y).fit(X, Y))


@case
def regressor_outputs(folder):
    model = combutab().MLPRegressor(**FEW)
    return fitted(model.fit(NUMBERS, np.c_[LAW, -LAW, LAW**2]), NUMBERS[:40])


@case
def regressor_sparse(folder):
    from scipy import sparse

    rows = sparse.random(150, 20, 0.2, random_state=0, format="csr")
    y = np.asarray(rows.sum(1)).ravel()
    return fitted(combutab().MLPRegressor(**FEW).fit(rows, y), rows[:30])


@case
def regressor_file(folder):
    model = combutab().MLPRegressor(**FEW).fit(X, Y)
    model.save(folder / "model.safetensors")
    return fitted(combutab().load(folder / "model.safetensors"))


@case
def regressor_checkpoint(folder):
    model = combutab().MLPRegressor(**FEW)
    return fitted(model.fit(X, Y, checkpoint=folder / "fit.ckpt"))


@case
def regressor_parquet(folder):
    X.assign(y=Y).to_parquet(folder / "rows.parquet", row_group_size=50)
    model = combutab().MLPRegressor(**FEW).fit_parquet(folder / "rows.parquet", "y")
    NEW.to_parquet(folder / "new.parquet")
    return fitted(model) | {"parquet": model.predict_parquet(folder / "new.parquet")}


@case
def classifier_parquet(folder):
    X.assign(y=C).to_parquet(folder / "rows.parquet", row_group_size=50)
    model = combutab().MLPClassifier(**{**FEW, "n_members": 2})
    return fitted(model.fit_parquet(folder / "rows.parquet", "y"))


@case
def regressor_onnx(folder):
    from onnxruntime import InferenceSession

    model = combutab().MLPRegressor(**FEW).fit(NUMBERS, LAW)
    session = InferenceSession(model.to_onnx().SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: NUMBERS[:40]})


@case
def classifier_torch(folder):
    model = combutab().MLPClassifier(**FEW).fit(X, C)
    module = model.to_torch()
    return {name: value.numpy() for name, value in module.state_dict().items()}


@case
def tabm_classifier(folder):
    model = combutab().TabMClassifier((16, 16), n_heads=4, max_iter=5, random_state=0)
    return fitted(model.fit(X, C))


@case
def tabm_regressor_quantile(folder):
    sizes = {"hidden_layer_sizes": (16, 16), "n_heads": 4, "max_iter": 5, "random_state": 0}
    return fitted(combutab().TabMRegressor("quantile", **sizes).fit(X, Y))


@case
def pack_classifier(folder):
    pack = combutab().PackClassifier(n_members=4, max_iter=5, random_state=0).fit(X, C)
    pack.save(folder / "pack.safetensors")
    return fitted(pack) | {"loaded": combutab().load(folder / "pack.safetensors").predict(NEW)}


@case
def pack_regressor(folder):
    return fitted(combutab().PackRegressor(n_members=4, max_iter=5, random_state=0).fit(X, Y))


@case
def pack_folds(folder):
    pack = combutab().PackRegressor(n_members=3, cv=2, max_iter=4, random_state=0)
    return fitted(pack.fit(X, Y))


@case
def pack_scoring(folder):
    weight = np.random.default_rng(5).random(len(X))
    pack = combutab().PackClassifier(
        n_members=4, cv=2, max_iter=4, random_state=0, scoring="roc_auc", class_weight="balanced"
    )
    pack.fit(X, C, sample_weight=weight)
    return fitted(pack) | {"oof": pack.oof_decision_function_, "members": pack.members_}


@case
def table_encoder(folder):
    from combutab.preprocessing import TableEncoder

    encoders = [TableEncoder(numeric=each) for each in ("standard", "quantile", "robust", "none")]
    return [[each.fit(X).transform(NEW), each.get_feature_names_out()] for each in encoders]


# ---- searches, comparisons, statistics ---------------------------------------------------------


@case
def grid_search(folder):
    grid = {
        "activation": ["relu", "combu"],
        "learning_rate_init": [0.002, 0.01],
        "dropout": [0, 0.2],
    }
    search = combutab().StackedGridSearchCV(combutab().MLPRegressor(**FEW), grid, cv=3)
    search.fit(X, Y)
    scores = {k: v for k, v in search.cv_results_.items() if "test" in k}
    return [scores, search.best_params_, search.predict(NEW)]


@case
def comparison(folder):
    from combutab.model_selection import compare_activations

    found = compare_activations(
        X,
        C,
        activations=["relu", "pln-4"],
        seeds=2,
        folds=2,
        epochs=3,
        hidden=(8, 8),
        recipe="paper",
    )
    scores = found.results[["activation", "seed", "fold", found.metric]]
    return [scores, found.sentences, found.best]


@case
def comparison_tables(folder):
    from sklearn.model_selection import TimeSeriesSplit

    from combutab.model_selection import compare_activations

    settings = {"activations": ["relu", "combu"], "seeds": 2, "folds": 3, "epochs": 3}
    settings |= {"hidden": (8, 8)}
    by_group = compare_activations(X, C, **settings, groups=np.arange(len(X)) % 20)
    by_time = compare_activations(X, Y, **settings, cv=TimeSeriesSplit(3), test="wilcoxon")
    tables = []
    for comparison in (by_group, by_time):
        tables += [comparison.results, comparison.summary]
        tables += [comparison.baselines, comparison.baseline_results]
        tables.append(comparison.best_estimator.predict(NEW))
    return [table.drop(columns="seconds") if "seconds" in table else table for table in tables]


@case
def statistics(folder):
    from combutab import evaluation

    scores = pd.DataFrame(np.random.default_rng(4).random((12, 4)), columns=list("abcd"))
    return [
        evaluation.friedman(scores),
        evaluation.nemenyi(scores).p,
        evaluation.mean_ranks(scores),
        evaluation.bootstrap_interval(scores["a"] - scores["b"], random_state=0),
        evaluation.t_interval(scores["a"]),
        evaluation.holm([0.01, 0.04, 0.03]),
    ]


@case
def networks(folder):
    from combutab import evaluation

    model = combutab().MLPClassifier(normalization="layer", **FEW).fit(X, C)
    return [
        evaluation.power_decomposition(model, NEW),
        evaluation.activation_stats(model, NEW).layers,
    ]


@case
def robustness(folder):
    from combutab import evaluation

    model = combutab().MLPClassifier(**FEW).fit(X, C)
    return evaluation.robustness(model, X, C, severities=(1, 3)).scores


@case
def constructions(folder):
    from combutab.constructions import expression_network, lipschitz_network

    net = expression_network("x * y + 2 * x", {"x": (0.5, 2.0), "y": (0.5, 2.0)})
    cone = lipschitz_network(lambda x: abs(x - 0.4), 1.0, 0.2)
    return [value.numpy() for each in (net, cone) for value in each.state_dict().values()]


# ---- generators --------------------------------------------------------------------------------


def make(name, **params):
    small = {"TabFlow": {"hidden_layer_sizes": (16, 16), "n_bins": 8}}.get(name, {})
    generator = getattr(combutab(), name)(**{**GENERATOR, **small, **params})
    return generator.fit(X.assign(y=C))


def add_generators():
    for name in ("TabFlow", "CTGAN", "TVAE"):

        def sample(folder, name=name):
            made = make(name)
            made.save(folder / "made.safetensors")
            again = combutab().load(folder / "made.safetensors")
            return [made.sample(50), again.sample(50, random_state=3), made.loss_values]

        def conditions(folder, name=name):
            made = make(name)
            one = made.sample(20, conditions={"place": "north"}, random_state=1)
            both = {"y": "low", "count": (5, 30)}
            many = made.sample(20, conditions=both, random_state=1, on_shortfall="return")
            rows = pd.DataFrame({"place": ["north", "south"], "y": ["low", "high"]})
            each = made.sample_from(rows, random_state=1)
            beside = made.sample(seed_data=X[["place", "open"]].iloc[:9], random_state=1)
            return [one, many, made.sample(30, balance="y", random_state=2), each, beside]

        def members(folder, name=name):
            return make(name, n_members=2, epochs=2).sample(30, random_state=0)

        def stops(folder, name=name):
            return make(name, early_stopping=True, epochs=5).sample(30, random_state=0)

        def parquet(folder, name=name):
            X.assign(y=C).to_parquet(folder / "rows.parquet", row_group_size=60)
            small = {"TabFlow": {"hidden_layer_sizes": (16, 16)}}.get(name, {})
            generator = getattr(combutab(), name)(**GENERATOR, **small)
            return generator.fit_parquet(folder / "rows.parquet").sample(30, random_state=0)

        for each in (sample, conditions, members, stops, parquet):
            CASES[f"{name.lower()}_{each.__name__}"] = each


def contracts(n=200, seed=4):
    """A table whose rows meet a constraint of every kind."""
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D")
    end = start + pd.to_timedelta(rng.geometric(0.05, n), "D")
    status, months = rng.choice(["open", "done"], n), rng.integers(1, 13, n)
    net = rng.integers(100, 9000, n) / 100
    tax = np.round(net * 0.19, 2)
    country = {"Oslo": "Norway", "Bergen": "Norway", "Rome": "Italy", "Lyon": "France"}
    city, colour = rng.choice(list(country), n), rng.choice(["red", "green", "blue"], n)
    bill = np.round((net + tax) * months, 2)
    columns = {"start": start, "end": pd.Series(end).where(status == "done"), "status": status}
    columns |= {"net": net, "tax": tax, "total": np.round(net + tax, 2), "months": months}
    columns |= {"bill": bill, "paid": np.where(rng.random(n) < 0.4, bill, np.round(bill * 0.3))}
    columns |= {"city": city, "country": [country[name] for name in city]}
    columns |= {name: (colour == name).astype("int64") for name in ("red", "green", "blue")}
    chairs = rng.permutation(4 * n)[:n]
    columns |= {"desk": chairs // 10, "seat": chairs % 10}
    columns |= {"key": [f"contract-{i:05d}" for i in rng.permutation(n)]}
    return pd.DataFrame(columns)


def constrain(name, **params):
    """A generator of contracts under constraints."""
    from combutab import generators

    kinds = ("Sum", "Formula", "Inequality", "FixedCombinations", "OneOf", "Null", "Unique")
    total, formula, inequality, combinations, one_of, null, unique = (
        getattr(generators, kind) for kind in kinds
    )
    constraints = [
        total(["net", "tax"], "total"),
        formula("bill", "total * months"),
        inequality("start", "<", "end"),
        combinations("city", "country"),
        one_of("red", "green", "blue"),
        null("end", when="status == 'open'"),
        unique("desk", "seat"),
    ]
    small = {"TabFlow": {"hidden_layer_sizes": (16, 16), "n_bins": 8}}.get(name, {})
    settings = {**GENERATOR, **small, "constraints": constraints, **params}
    return getattr(combutab(), name)(**settings)


def add_constraints():
    options = {"random_state": 1, "on_shortfall": "return", "max_tries": 20}
    for name in ("TabFlow", "CTGAN", "TVAE"):

        def requests(folder, name=name):
            model = constrain(name).fit(contracts())
            model.save(folder / "model.safetensors")
            again = combutab().load(folder / "model.safetensors")
            model.sample(30, random_state=5, out=folder / "rows.parquet")
            model.sample(20, conditions={"status": "open"}, out=folder / "open.parquet", **options)
            wishes = [{"total": 50.0}, {"end": (pd.Timestamp("2021-06-01"), None), "red": 1}]
            wishes += [{"city": ["Oslo", "Rome"], "bill": (100, 300)}]
            rows = [model.sample(20, conditions=wish, **options) for wish in wishes]
            files = [pd.read_parquet(folder / f"{file}.parquet") for file in ("rows", "open")]
            return [model.sample(40), again.sample(20, random_state=3), *rows, *files]

        def shares(folder, name=name):
            model = constrain(name).fit(contracts())
            status = {"open": 0.75, "done": 0.25}
            ranges = {(None, 40): 0.5, (40, None): 0.5}
            wishes = [{"status": status}, {"status": status, "net": ranges}]
            wishes += [{"country": {"Norway": 0.6}, "status": status}]
            rows = [model.sample(24, shares=wish, **options) for wish in wishes]
            return [*rows, model.sample(30, balance="city", **options)]

        def partial_rows(folder, name=name):
            table = contracts()
            model = constrain(name).fit(table)
            wishes = table[["status", "city", "months"]].iloc[:20].copy()
            wishes.loc[::3, "city"] = None
            seeds = table[["total", "country", "red", "desk", "seat"]].iloc[:15].copy()
            seeds.loc[3, "total"] = 1000.0
            holes = table.iloc[:60].copy().astype({"red": "float64", "blue": "float64"})
            holes.loc[::4, ["total", "city"]] = None
            holes.loc[1::5, ["net", "country", "red", "blue"]] = None
            holes.loc[2::5, ["start", "status"]] = None
            return [
                model.sample_from(wishes, **options),
                model.sample(seed_data=seeds, **options),
                model.sample(seed_data=table[["key", "red"]].iloc[:9], **options),
                model.impute(holes, random_state=2, n_draws=2),
            ]

        for case in (requests, shares, partial_rows):
            CASES[f"{name.lower()}_constraints_{case.__name__}"] = case


@case
def tabflow_unique(folder):
    from combutab.generators import Unique

    few = pd.DataFrame({"room": np.arange(90) % 9, "day": np.arange(90) // 9, "x": LAW[:90]})
    few = few.astype({"room": "category", "day": "category"})
    both = [Unique("room", "day"), Unique("day", "x")]
    models = [
        combutab().TabFlow((16,), epochs=3, random_state=0, constraints=constraints).fit(few)
        for constraints in (both[:1], both)
    ]
    holes = few.copy()
    holes.loc[::2, "room"] = None
    rows = [model.sample(60, random_state=2) for model in models]
    rows += [model.impute(holes, random_state=2) for model in models]
    return rows + [model.sample_from(few[["room"]].iloc[:60], random_state=1) for model in models]


@case
def tabflow_resample_unique(folder):
    table = contracts()
    labels = np.where(np.arange(len(table)) < 140, "often", "rare")
    return constrain("TabFlow").fit_resample(table.drop(columns="key"), labels)


@case
def tabflow_imputer_constraints(folder):
    generator = constrain("TabFlow", epochs=2)
    table = contracts().drop(columns="key")
    holes = table.copy()
    holes.loc[::4, ["total", "city"]] = None
    imputer = combutab().TabFlowImputer(generator, random_state=0)
    return imputer.fit(table).transform(holes)


@case
def array_constraints(folder):
    from combutab.generators import Inequality, Sum, suggest_constraints

    array = np.abs(np.c_[NUMBERS[:, :2], NUMBERS[:, :2].sum(axis=1)]).round(2)
    array = np.c_[array[:, :2], array[:, 0] + array[:, 1], array[:, 0] + 0.5].round(2)
    constraints = [Sum([0, 1], 2), Inequality(0, "<", 3)]
    model = combutab().TVAE(epochs=2, random_state=0, constraints=constraints).fit(array)
    suggestions = suggest_constraints(contracts(400))
    found = [repr(suggestions), repr(suggest_constraints(array))]
    return [model.sample(20), model.sample(9, conditions={2: (1.0, 2.0)}, random_state=1), found]


@case
def tabflow_repetitions(folder):
    table = contracts()[["bill", "paid", "status", "start"]]
    model = combutab().TabFlow((16, 16), epochs=4, random_state=0).fit(table)
    ranges = {"bill": (100.0, 300.0), "paid": (50.0, None)}
    wishes = [{"paid": (100.0, 200.0)}, ranges, {"bill": 120.5}]
    rows = [model.sample(20, conditions=wish, random_state=1) for wish in wishes]
    holes = table.copy()
    holes.loc[::3, "paid"] = None
    shares = {"paid": {(None, 100.0): 0.5, (100.0, None): 0.5}}
    rows += [model.sample(20, shares=shares, random_state=1), model.impute(holes, random_state=1)]
    return [*rows, model.sample_from(table[["bill"]].iloc[:9], random_state=1)]


@case
def tabflow_fills(folder):
    made = make("TabFlow")
    holes = NEW.assign(y=class_target(NEW))
    holes.loc[::3, "place"] = None
    return [made.impute(holes, random_state=0), made.fit_resample(X, C)]


@case
def imputer(folder):
    generator = combutab().TabFlow((16, 16), epochs=3)
    return combutab().TabFlowImputer(generator, random_state=0).fit(X).transform(NEW)


@case
def synthetic_scores(folder):
    from combutab import evaluation

    synthetic = table(200, seed=11)
    pair = {"real": X, "synthetic": synthetic}
    learners = {"learners": ["linear"], "random_state": 0}
    rows = (
        X.assign(y=C),
        synthetic.assign(y=class_target(synthetic)),
        NEW.assign(y=class_target(NEW)),
    )
    return [
        evaluation.fidelity(**pair),
        evaluation.detection(**pair, learners=["linear"]),
        evaluation.privacy(real_train=X, synthetic=synthetic, holdout=NEW),
        evaluation.ml_efficacy(
            real_train=rows[0], real_test=rows[2], synthetic=rows[1], target="y", **learners
        ),
    ]


@case
def report(folder):
    from combutab.reports import evaluate_synthetic

    synthetic = table(200, seed=11)
    judged = evaluate_synthetic(
        real_train=X, real_test=NEW, synthetic=synthetic, target="open", learners=["linear"]
    )
    return [[each.subject, each.level, each.sentence] for each in judged.findings]


@case
def formulas(folder):
    from combutab.datasets import make_formula

    return [make_formula(name, n_samples=50, random_state=0) for name in ("ns", "gs")]


# ---- digests -----------------------------------------------------------------------------------


def feed(digest, thing):
    """Add a thing to a digest: its type, and its values to the last bit."""
    digest.update(type(thing).__name__.encode())
    if isinstance(thing, pd.DataFrame):
        for name in thing.columns:
            feed(digest, [str(name), thing[name]])
    elif isinstance(thing, pd.Series):
        feed(digest, [str(thing.dtype), list(thing.index), list(thing)])
    elif isinstance(thing, np.ndarray) and thing.dtype != object:
        digest.update(f"{thing.dtype}{thing.shape}".encode())
        digest.update(np.ascontiguousarray(thing).tobytes())
    elif isinstance(thing, dict):
        for key, value in thing.items():
            feed(digest, [str(key), value])
    elif isinstance(thing, list | tuple | np.ndarray):
        for each in thing:
            feed(digest, each)
    else:
        digest.update(repr(thing).encode())


def compute(names):
    """Digest of each case, or its error; what is printed goes to stderr."""
    digests = {}
    for name in names:
        digest = hashlib.sha256()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                feed(digest, CASES[name](Path(folder)))
                digests[name] = digest.hexdigest()
            except Exception as error:
                digests[name] = f"{type(error).__name__}: {error}"
        print(name, digests[name][:100], file=sys.stderr, flush=True)
    return digests


def compute_at(tree, names):
    """As ``compute``, in a process of its own with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, str(Path(__file__).resolve()), *names]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, cwd=tree)
    return json.loads(ran.stdout)


def differences(before, after):
    """Names of cases whose digests differ."""
    return [name for name in before if before[name] != after[name]]


add_estimators()
add_generators()
add_constraints()


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="cases to compute (default: all)")
    parser.add_argument("--against", metavar="REV", help="a revision of git to compare with")
    options = parser.parse_args(arguments)
    names = options.names or list(CASES)
    if options.against is None:
        print(json.dumps(compute(names), indent=1))
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), options.against], check=True)
        try:
            before, after = compute_at(tree, names), compute_at(ROOT, names)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    changed = differences(before, after)
    for name in changed:
        print(f"{name}: {before[name][:60]} -> {after[name][:60]}")
    failed = [name for name in names if len(after[name]) != 64]
    print(f"{len(names)} cases: {len(changed)} differ, {len(failed)} fail here")
    sys.exit(bool(changed or failed))


if __name__ == "__main__":
    main()
