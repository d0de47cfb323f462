"""What holds for all models: parameters, seeds, files, copies, checkpoints, Ctrl-C, containers."""

import copy
import functools
import os
import pickle
import subprocess
import sys
import warnings
from collections import deque
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import estimator_checks_generator
from torch import nn

import combutab
from combutab import (
    CTGAN,
    TVAE,
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    PrivateSynthesizer,
    TabFlow,
    TabFlowImputer,
    TabMClassifier,
    TabMRegressor,
    load,
)
from combutab.preprocessing import TableEncoder
from combutab.training import ProgressBar, TimeLimit
from tests.models import (
    ARRAY,
    INF,
    MADE,
    MODELS,
    NET,
    PRIVATE,
    TABLE,
    VARIANTS,
    WIDTHS,
    Model,
    N,
    Told,
    Z,
    answers,
    assert_same,
    fitted,
    net,
)

pytestmark = pytest.mark.usefixtures("few_trees", "few_steps")  # of packs and private fits
ALL = MODELS | VARIANTS
GENERATORS = ["TabFlow", "CTGAN", "TVAE"]
ESTIMATORS = ["classifier", "regressor", "TabM classifier", "TabM regressor"]
PACKS = ["pack classifier", "pack regressor"]
TRAINED = [*ESTIMATORS, *GENERATORS]  # which take checkpoints and callbacks
SAVED = [*TRAINED, *PACKS, *VARIANTS]
# variants of what training goes on with; all others differ in targets and columns
PARTIAL = ["ensemble", "class weights", "early stopping", "quantiles", "batch norm", "float64"]
SEEDED = [name for name in MODELS if name != "table encoder"]


def each(names):
    return pytest.mark.parametrize("name", list(names))


def assert_same_tables(one, other):
    pd.testing.assert_frame_equal(pd.DataFrame(one), pd.DataFrame(other), check_exact=True)


# ---- parameters ----------------------------------------------------------------------------------


@each(MODELS)
def test_parameters(name):
    model = MODELS[name].make()
    twin = clone(model)
    assert repr(twin.get_params()) == repr(model.get_params())
    assert repr(twin) == repr(model)
    assert twin.set_params(**{MODELS[name].seed: 5} if name in SEEDED else {}) is twin
    with pytest.raises(ValueError, match="Invalid parameter 'alhpa' for estimator"):
        twin.set_params(alhpa=1)
    assert set(model._parameter_constraints) == set(model.get_params(deep=False))
    done = fitted(name)
    assert set(vars(clone(done))) <= set(model.get_params(deep=False)) | {"generator"}
    assert type(model).__name__ in model._repr_html_()
    assert "Not fitted" in model._repr_html_()
    assert "Not fitted" not in done._repr_html_()


@each(MODELS)
def test_what_is_not_fitted_says_so(name, tmp_path):
    model, X = MODELS[name].make(), MODELS[name].X
    calls = {"predict": (X,), "predict_proba": (X,), "predict_log_proba": (X,), "sample": (3,)}
    calls |= {"transform": (X,), "encode": (X,), "save": (tmp_path / "model",), "score": (X, Z)}
    calls = {call: data for call, data in calls.items() if hasattr(model, call)}
    assert calls or name == "search"  # which has none of them yet
    for call, data in calls.items():
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(model, call)(*data)
    assert not list(tmp_path.iterdir())


# ---- seeds ---------------------------------------------------------------------------------------


def states():
    _, keys, *rest = np.random.get_state()
    return [keys.tolist(), rest, torch.get_rng_state().tolist(), torch.get_num_threads(),
            torch.get_default_dtype(), list(warnings.filters)]  # fmt: skip


@each(MODELS)
def test_only_the_seed_decides_results(name):
    model = MODELS[name]
    X = model.X.copy()
    first = fitted(name)
    np.random.seed(7)
    torch.manual_seed(7)
    set_to, again = states(), model.fit()
    answers(again, X)
    assert states() == set_to
    assert_same(again, first, X)
    pd.testing.assert_frame_equal(model.X, X)
    if name in SEEDED:
        for seed in (1, None):
            other = model.fit(model.make(**{model.seed: seed}))
            pairs = zip(answers(other, X), answers(first, X), strict=True)
            if name != "mode encoder":  # whose mixtures start from no random numbers
                assert not all(one.equals(two) for one, two in pairs)


# ---- files and copies ----------------------------------------------------------------------------


@each(SAVED)
def test_a_file_gives_the_model_back(name, tmp_path):
    model, X, path = fitted(name), ALL[name].X, tmp_path / "model"
    model.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    for again in (load(path), type(model).load(str(path), device="cpu")):
        assert type(again) is type(model)
        assert_same(again, model, X)
        lost = {"random_state", "activation", "activations", "device", "generator"}
        kept = {
            n: value for n, value in model.get_params().items() if n.split("__")[-1] not in lost
        }
        assert {n: again.get_params()[n] for n in kept} == kept
        if name != "several tables":  # whose generators have histories
            pd.testing.assert_frame_equal(again.history_, model.history_)
        again.save(tmp_path / "again")
        first, second = map(safetensors.numpy.load_file, (path, tmp_path / "again"))
        assert first.keys() == second.keys()
        assert all(np.array_equal(second[n], array) for n, array in first.items())
    wrong = PackRegressor if type(model) is not PackRegressor else PackClassifier
    with pytest.raises(ValueError, match=f"holds a {type(model).__name__}, not a {wrong.__name__}"):
        wrong.load(path)


@pytest.mark.filterwarnings("ignore:this generator was fitted before")  # and budgets add up
@each(ALL)
def test_copies_are_the_model_and_independent(name, tmp_path):
    model, X = fitted(name), ALL[name].X
    joblib.dump(model, tmp_path / "model", compress=3)
    copies = [pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model")]
    for twin in (*copies, copy.deepcopy(model)):
        assert_same(twin, model, X)
    if name in MODELS:
        before = answers(model, X)
        ALL[name].fit(copies[0])
        for one, two in zip(answers(model, X), before, strict=True):
            assert_same_tables(one, two)


def test_another_process_reads_files_and_pickles(tmp_path):
    expected = {}
    for name in (*TRAINED, *PACKS):
        joblib.dump(fitted(name), tmp_path / f"{name}.joblib")
        fitted(name).save(tmp_path / f"{name}.model")
        expected[name] = answers(fitted(name), TABLE)[-1]
    code = (
        "import sys, joblib, pandas, combutab\n"
        "from pathlib import Path\n"
        "from tests.models import TABLE, answers\n"
        "for path in Path(sys.argv[1]).iterdir():\n"
        "    read = joblib.load if path.suffix == '.joblib' else combutab.load\n"
        "    answers(read(path), TABLE)[-1].to_pickle(f'{path}.answers')\n"
    )
    root = Path(__file__).parents[1]
    paths = os.pathsep.join([str(Path(combutab.__file__).parents[1]), str(root)])
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment)
    for name, wanted in expected.items():
        for kind in ("joblib", "model"):
            got = pd.read_pickle(tmp_path / f"{name}.{kind}.answers")
            pd.testing.assert_frame_equal(got, wanted, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
@each([*ESTIMATORS, *PARTIAL])
def test_a_loaded_model_goes_on_training(name, tmp_path):
    model, X, y = fitted(name), ALL[name].X, ALL[name].y
    model.save(tmp_path / "model")
    warm = load(tmp_path / "model").set_params(warm_start=True).fit(X, y)
    assert len(warm.loss_curve_) == 2 * len(model.loss_curve_)
    assert warm.t_ == 2 * model.t_
    if model.early_stopping is False:
        assert load(tmp_path / "model").partial_fit(X, y).n_iter_ == model.n_iter_ + 1
    assert len(load(tmp_path / "model").fit(X, y).loss_curve_) == 3


def test_files_hold_no_row_of_the_table(tmp_path):
    sizes, marker = [], 1234567.890123
    for n in (6000, 12_000):  # more than 1,000 rows are set aside: scores have 1,000 levels
        rng = np.random.default_rng(0)
        rows, y = rng.normal(size=(n, 3)), rng.normal(size=n)
        rows[7, 1], y[9] = marker, -marker
        model = MLPRegressor(**NET | {"hidden_layer_sizes": (8,)}, numeric_encoding="none")
        model.set_params(early_stopping=True).fit(rows, y, sample_weight=np.full(n, 0.5))
        model.save(tmp_path / "model")
        saved, pickled = (tmp_path / "model").read_bytes(), pickle.dumps(model)
        for data in (saved, pickled):
            for value in (marker, -marker):
                assert str(value).encode() not in data
                assert not any(t(value).tobytes() in data for t in (np.float64, np.float32))
        # a pickle has a prediction of each row that was set aside
        held_out = model.oof_prediction_.nbytes + model.oof_folds_.nbytes
        sizes.append((len(saved), len(pickled) - held_out))
    assert np.abs(np.subtract(*sizes)).max() < 200


class Square(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return x * x


def test_classes_that_cannot_be_saved_are_named(tmp_path):
    days = np.array(["2020-01-01", "2021-01-01"] * 15, dtype="M8[s]")
    model = MLPClassifier(hidden_layer_sizes=(4,), max_iter=1).fit(np.arange(30.0)[:, None], days)
    with pytest.raises(ValueError, match=r"datetime64\[s\]"):
        model.save(tmp_path / "model")


def test_ranges_and_sets_are_saved_as_lists(tmp_path):
    X, y = pd.DataFrame({"a": np.arange(30.0), "b": [0, 1] * 15, "c": [3, 4, 5] * 10}), range(30)
    model = MLPRegressor(
        hidden_layer_sizes=range(3, 5),
        categorical_features={"c", "b"},
        max_iter=1,
        n_iter_no_change=np.inf,
    ).fit(X, y)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.hidden_layer_sizes == [3, 4]
    assert loaded.categorical_features == ["b", "c"]
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    model.set_params(categorical_features=deque(["b"])).fit(X, y)
    with pytest.raises(ValueError, match=r"categorical_features=deque.* a deque: .*pickle"):
        model.save(tmp_path / "model")


@each(["regressor", "TVAE"])
@pytest.mark.parametrize("activation", [Square, functools.partial(Square)])
def test_what_cannot_be_saved_leaves_the_old_file(name, activation, tmp_path, monkeypatch):
    path = tmp_path / "model"
    fitted(name).save(path)
    before = path.read_bytes()
    model = MODELS[name].fit(MODELS[name].make(activation=activation))
    with pytest.raises(ValueError, match=r"activation=.*pickle"):
        model.save(path)
    assert_same(pickle.loads(pickle.dumps(model)), model, TABLE)
    with pytest.raises(FileNotFoundError, match=r"no does not exist"):
        fitted(name).save(tmp_path / "no" / "model")

    def full_disk(place, key, text, tensors):
        place.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("combutab.core.files.write_tensors", full_disk)
    with pytest.raises(OSError, match="No space left"):
        fitted(name).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


@each(["classifier", "regressor", "TabM regressor"])
def test_skops_keeps_a_fitted_estimator(name):
    skops = pytest.importorskip("skops.io", reason="needs skops")
    data = skops.dumps(fitted(name))
    unknown = skops.get_untrusted_types(data=data)
    assert all(each.startswith("combutab.") for each in unknown)  # to be trusted, ours alone
    assert_same(skops.loads(data, trusted=unknown), fitted(name), TABLE)


# ---- checkpoints and Ctrl-C ----------------------------------------------------------------------


def assert_same_training(model, other, X):
    for state, expected in zip(model._states, other._states, strict=True):
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value)
    pd.testing.assert_frame_equal(model.history_, other.history_)
    assert_same(model, other, X)


_ENDS = {"n_iter_no_change": 1, "max_iter": 12, "tol": 1e-3, "n_members": 4, "bagging": "cv"}
_ENDS |= {"learning_rate": "constant", "learning_rate_init": 0.02}
_FALLS = {"solver": "sgd", "learning_rate": "adaptive", "tol": 10.0, "early_stopping": False}
CHECKPOINTED = {
    **{name: MODELS[name] for name in TRAINED},
    "members": net(MLPRegressor, n_members=2, track_metric=True),
    "members that end": net(MLPRegressor, activation="prelu", **_ENDS),
    "a rate that falls": net(MLPRegressor, **_FALLS | {"n_iter_no_change": 1}),
    "batch norm": VARIANTS["batch norm"],
    **{
        f"{cls.__name__}, {norm} norm": Model(
            cls, MADE | WIDTHS[cls] | {"n_members": 2, "normalization": norm}, TABLE
        )
        for cls, norm in ((TabFlow, "batch"), (CTGAN, "layer"), (TVAE, "layer"))
    },
}
ERRORS = [(name, RuntimeError("stopped")) for name in CHECKPOINTED]
ERRORS += [(name, KeyboardInterrupt()) for name in ("classifier", "members that end", "TVAE")]


@pytest.mark.usefixtures("every_epoch")
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer", "ignore:Training interrupted")
@pytest.mark.parametrize(("name", "error"), ERRORS)
def test_a_stopped_training_goes_on(name, error, tmp_path):
    """To the model of one go; an error loses what is in memory, as a kill does."""
    model, path = CHECKPOINTED[name], tmp_path / "training"
    longest = 12 if name == "members that end" else 6
    made = model.make(**{model.epochs: longest})
    whole = model.fit(clone(made))
    for epoch in (2, 8 if longest == 12 else 4):  # members have ended then, of those that do
        stopped = clone(made).set_params(callbacks=[Told(error, epoch)])
        try:
            model.fit(stopped, checkpoint=path)
        except RuntimeError:
            assert not isinstance(error, KeyboardInterrupt)
        assert [file.name for file in tmp_path.iterdir()] == ["training"]
    assert_same_training(model.fit(clone(made), checkpoint=path), whole, model.X)
    before = path.read_bytes()
    assert_same_training(model.fit(clone(made), checkpoint=path), whole, model.X)
    assert path.read_bytes() == before  # nothing was left to train
    if longest == 12:
        n_epochs = whole.history_["member"].value_counts()
        assert n_epochs.min() < 8 < n_epochs.max()


@pytest.mark.usefixtures("every_epoch")
@each(["regressor", "TVAE"])
def test_checkpoints_without_seeds_and_on_full_disks(name, tmp_path, monkeypatch):
    model, path = MODELS[name], tmp_path / "training"
    stopped = model.fit(model.make(callbacks=[TimeLimit(1e-9)]), checkpoint=path)
    assert stopped.n_iter_ == 1
    assert_same_training(model.fit(checkpoint=path), fitted(name), TABLE)
    path.unlink()
    first, again = (model.fit(model.make(random_state=None), checkpoint=path) for _ in "ab")
    assert_same_training(again, first, TABLE)  # the seed is the file's
    path.unlink()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("combutab._model_files.write_model", full)
    with pytest.warns(UserWarning, match="No space left"):
        done = model.fit(checkpoint=path)
    assert_same_training(done, fitted(name), TABLE)
    assert not list(tmp_path.iterdir())


OTHERS = {
    "another parameter": ("regressor", {"alpha": 1.0}, r"alpha=0\.\d*, this one has alpha=1\.0"),
    "another network": ("TVAE", {"embedding_dim": 9}, "=4, this one has embedding_dim=9"),
    "no epochs": ("regressor", {"solver": "lbfgs"}, "takes no checkpoint"),
    "a warm start": ("regressor", {"warm_start": True}, "takes no checkpoint"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_checkpoints_of_others_are_refused(other, tmp_path):
    name, changes, words = OTHERS[other]
    model, path = MODELS[name], tmp_path / "training"
    model.fit(checkpoint=path)
    before = path.read_bytes()
    near = {"regressor": "classifier", "TVAE": "CTGAN"}[name]
    backwards = Model(model.cls, model.params, TABLE[::-1], model.y)
    for call, error, says in [
        (lambda: model.fit(model.make(**changes), checkpoint=path), ValueError, words),
        (lambda: backwards.fit(checkpoint=path), ValueError, "another table"),
        (lambda: MODELS[near].fit(checkpoint=path), ValueError, f"class '{model.cls.__name__}'"),
        (lambda: load(path), ValueError, "is a checkpoint of a training"),
        (lambda: model.fit(checkpoint=tmp_path / "no" / "a"), FileNotFoundError, "create it first"),
    ]:
        with pytest.raises(error, match=says):
            call()
    assert path.read_bytes() == before
    path.write_bytes(before[:-40])
    with pytest.raises(ValueError, match="cut short"):
        model.fit(checkpoint=path)
    fitted(name).save(path)
    with pytest.raises(ValueError, match="is a model, not a checkpoint"):
        model.fit(checkpoint=path)


@pytest.mark.parametrize("n_members", [1, 2])
@each(TRAINED)
def test_ctrl_c_keeps_what_was_learned(name, n_members):
    model = MODELS[name]
    told = Told(KeyboardInterrupt(), 2)
    with pytest.warns(UserWarning, match="interrupted by user"):
        stopped = model.fit(model.make(callbacks=[told], n_members=n_members))
    assert told.calls[-1] == "end"
    two = model.fit(model.make(**{model.epochs: 2}, n_members=n_members))
    assert stopped.n_iter_ == 2
    if name in GENERATORS or model.make().early_stopping is False:
        assert_same_training(stopped, two, TABLE)


@each(GENERATORS)
def test_early_ctrl_c_leaves_no_generator(name):
    model = MODELS[name].make(callbacks=[Told(KeyboardInterrupt(), 0)])
    with pytest.raises(KeyboardInterrupt):
        model.fit(TABLE)
    with pytest.raises(NotFittedError):
        model.sample(3)


# ---- callbacks -----------------------------------------------------------------------------------


@each(TRAINED)
def test_callbacks_see_every_epoch_and_stop(name):
    model, told = MODELS[name], Told()
    done = model.fit(model.make(callbacks=[told, ProgressBar()], n_members=2))
    assert told.calls == [("begin", 2, 3), "end"]
    assert [report.epoch for report in told.reports] == [1, 2, 3]
    assert all(report.members == (0, 1) and report.max_epochs == 3 for report in told.reports)
    seconds = [report.seconds for report in told.reports]
    assert seconds == sorted(seconds)
    losses = [report.train_loss[0] for report in told.reports]
    if name in ESTIMATORS:
        assert losses == done.loss_curve_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = model.fit(model.make(callbacks=(Told(stop=1),)))
    assert stopped.n_iter_ == 1
    assert model.fit(model.make(callbacks=[TimeLimit(0.0)])).n_iter_ == 1
    broken = Told(RuntimeError("broken"), 1)
    with pytest.raises(RuntimeError, match="broken"):
        model.fit(model.make(callbacks=[broken]))
    assert broken.calls[-1] == "end"


# ---- tables --------------------------------------------------------------------------------------


def _polars(table):
    pl = pytest.importorskip("polars")
    lists = {n: [None if pd.isna(v) else v for v in column] for n, column in table.items()}
    return pl.DataFrame(lists)


CONTAINERS = {
    "nullable": lambda table: table.convert_dtypes(),
    "arrow": lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
    "polars": _polars,
    "pyarrow": lambda table: pytest.importorskip("pyarrow").Table.from_pandas(table),
    "objects": lambda table: table.astype(object),
}
OF_ROWS = [name for name in MODELS if name not in (*GENERATORS, "imputer", "mode encoder")]


@pytest.mark.parametrize(  # all models read tables by the same code
    ("name", "container"),
    [("classifier", container) for container in CONTAINERS]
    + [(name, "arrow") for name in OF_ROWS if name != "classifier"],
)
def test_every_container_of_one_table_gives_one_model(name, container):
    pytest.importorskip("pyarrow")
    model, table = MODELS[name], CONTAINERS[container](TABLE)
    found = model.make().fit(*[table] if model.y is None else [table, model.y])
    for got in (answers(found, table), answers(fitted(name), table)):
        for one, two in zip(got, answers(fitted(name), TABLE), strict=True):
            np.testing.assert_array_equal(one, two)


def _strict(array):
    """An array of a library that does what the standard says, and nothing else."""
    return pytest.importorskip("array_api_strict", reason="is not installed").asarray(array)


@each(["classifier", "pack regressor", "TVAE", "table encoder", "mode encoder"])
def test_arrays_of_other_libraries_are_tables(name):
    model = MODELS[name]
    data = [ARRAY] if model.y is None else [ARRAY, np.arange(N) % 3]
    expected = answers(model.make().fit(*data), ARRAY)
    for convert in (torch.tensor, np.ndarray.tolist, _strict):
        found = answers(model.make().fit(*map(convert, data)), convert(ARRAY))
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, two)


@each([name for name in OF_ROWS if name != "search"])
def test_columns_must_be_those_of_the_fit(name):
    model = fitted(name)
    assert model.n_features_in_ == 6
    assert model.feature_names_in_.tolist() == [*TABLE]
    ask = getattr(model, "predict", None) or model.transform
    for table, words in [
        (TABLE[TABLE.columns[::-1]], r"(?s)feature names.*must be in the same order"),
        (TABLE.rename(columns={"size": "size2"}), r"(?s)unseen at fit time.*size2.*missing.*size"),
        (TABLE.drop(columns="day"), r"(?s)seen at fit time, yet now missing.*- day"),
        (TABLE.assign(day=1.5), "column 'day' holds datetimes"),
        (TABLE.assign(rooms="x"), "'rooms' is numeric, but 'x' could not be converted"),
        (TABLE.assign(rooms=pd.Timestamp("2020")), "'rooms' holds numbers, got dates"),
        (TABLE.assign(rooms=INF), "infinity .* in column 'rooms'"),
        (TABLE.assign(rooms=1j), "Complex data not supported"),
        (TABLE[:0], r"0 sample\(s\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            ask(table)


REFUSED = {
    "no rows": (TABLE[:0], "0 sample"),
    "no columns": (TABLE[[]], r"0 feature\(s\)"),
    "an array without columns": (ARRAY[:, :0], r"0 feature\(s\)"),
    "one dimension": (ARRAY[:, 0], "Expected 2D array, got 1D array instead|dimension"),
    "three dimensions": (ARRAY[None], "dim 3|dimension"),
    "complex": (ARRAY + 1j, "[Cc]omplex"),
    "infinite": (np.where(ARRAY > 2, INF, ARRAY), "infinit"),
    "twice a name": (TABLE.set_axis([*"aabcde"], axis=1), "duplicate|more than once|twice"),
    "integers that are one float": (TABLE.assign(rooms=np.arange(N) + 2**60), "'rooms' holds num"),
}


@pytest.mark.parametrize("kind", REFUSED)
@each([name for name in OF_ROWS if name != "search"])
def test_tables_that_cannot_be_learned_are_refused(name, kind):
    table, words = REFUSED[kind]
    model = MODELS[name]
    y = None if model.y is None else model.y[: len(table)]
    made = model.make()
    with pytest.raises(ValueError, match=words):
        made.fit(*[table] if y is None else [table, y])
    with pytest.raises(NotFittedError):
        answers(made, TABLE)


@each([*ESTIMATORS, *PACKS])
def test_one_row_constant_and_missing_columns(name):
    model = MODELS[name]
    only = model.make(batch_size=1) if name in ESTIMATORS else model.make()
    if name == "pack classifier":
        only.set_params(cv=None)
    only.fit(TABLE[:1], model.y[:1])
    assert answers(only, TABLE)[0].notna().all(axis=None)
    constant = TABLE.assign(rooms=7.0, kind="boat", size=np.nan, nothing=None)
    model = model.make().fit(constant, model.y)
    assert all(np.isfinite(each).all(axis=None) for each in answers(model, constant)[1:])
    assert_same_tables(model.predict(constant.assign(rooms=8.0)), model.predict(constant))


@each(["classifier", "TabM classifier", "pack classifier"])
def test_one_class(name):
    model = MODELS[name].make().fit(TABLE, ["only"] * N)
    assert model.predict(TABLE).tolist() == ["only"] * N
    assert model.predict_proba(TABLE).tolist() == [[1.0]] * N


@each([*ESTIMATORS, *PACKS])
def test_copies_in_single_precision_count_as_the_numbers(name):
    numbers = np.random.default_rng(0).choice([0.1, 0.4, 0.7], size=(90, 2))
    made, quantile = MODELS[name].make(), {"numeric_encoding": "quantile"}
    made.set_params(**quantile if name in ESTIMATORS else {"member_params": quantile})
    model = made.fit(numbers, (numbers[:, 0] == 0.4) + 0)
    for one, two in zip(
        answers(model, numbers.astype(np.float32)), answers(model, numbers), strict=True
    ):
        assert_same_tables(one, two)


# ---- scikit-learn's own estimator checks: every one, none expected to fail -----------------------

# A dropout mask is a function of a row's position, so a row of weight 2 and the same row twice are
# two things; float32 rounds beyond the checks' rtol of 1e-7; and quantiles lie between means of
# min_frequency rows, whatever these weigh. All hold with dropout=0, float64 and min_frequency=1,
# where these checks run and pass.
WEIGHTS_AS_COPIES = {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}
EXACT = {"dropout": 0.0, "precision": "float64", "max_iter": 5, "learning_rate_init": 0.01}
EXACT |= {"min_frequency": 1}
NARROW = {"hidden_layer_sizes": (32,), "learning_rate_init": 0.03}
# quantiles of groups of rows count rows, not their weights
TABM = EXACT | {"hidden_layer_sizes": (16,), "n_heads": 3, "n_bins": 6, "numeric_embedding_dim": 4}
TABM |= {"learning_rate_init": 0.05, "max_iter": 10}
OF_PACKS = {"hidden_layer_sizes": (16,), "batch_size": 256, "numeric_embedding_dim": 4}
OF_PACKS |= {"numeric_encoding": "standard", "learning_rate_init": 0.03}
OF_PACKS |= {"dropout": 0.0, "precision": "float64", "learning_rate_factors": None}
TINY_PACK = {"n_members": 3, "max_iter": 12, "activations": ("relu", "combu")}
TINY_PACK |= {"member_params": OF_PACKS}
# folds and the leaves of trees count rows, not their weights: the checks of copies need neither,
# and all others run with both
FOLDED_PACK = {**TINY_PACK, "max_iter": 6}
TINY_PACK |= {"cv": None, "boosting": False}
TINY = {cls: {"epochs": 1, **widths} for cls, widths in WIDTHS.items()}
TINY[CTGAN] = TINY[CTGAN] | {"batch_size": 20, "pac": 10}
# Every class has all checks once. Slow tests are those that another class of the same base has as
# well, and those of other settings: each loss, solver, normalisation and encoding has the checks
# of what training computes, as all others see only parameters, names and shapes. Exact instances
# have those of copies, which hold for them alone. Some settings share an instance. Where a check
# asks for a score after few epochs, the rate or the batches are such as reach it.
COMPUTED = WEIGHTS_AS_COPIES | {
    "check_classifiers_classes",
    "check_classifiers_multilabel_output_format_predict_proba",
    "check_classifiers_multilabel_representation_invariance",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_train",
    "check_decision_proba_consistency",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_non_transformer_estimators_n_iter",
    "check_regressor_multioutput",
    "check_regressors_int",
    "check_regressors_train",
    "check_transformer_general",
}
WHOLE = [
    (MLPClassifier, NARROW | {"max_iter": 10}),
    (MLPRegressor, NARROW | {"max_iter": 10}),
    (TabMClassifier, TABM),
    (TabMRegressor, TABM),
    (PackClassifier, FOLDED_PACK),
    (PackRegressor, FOLDED_PACK),
    *TINY.items(),
    (TabFlowImputer, {"generator": TVAE(**TINY[TVAE], random_state=0), "n_draws": 2}),
    (PrivateSynthesizer, PRIVATE),
    (TableEncoder, {"numeric": "standard"}),
]
EXACT_ONES = [
    (MLPClassifier, EXACT | NARROW | {"max_iter": 20}),
    (MLPRegressor, EXACT | NARROW),
    (PackClassifier, TINY_PACK),
    (PackRegressor, TINY_PACK),
]
VARIED = [
    (MLPClassifier, NARROW | {"normalization": "batch", "batch_size": 5, "max_iter": 4}),
    (
        MLPClassifier,
        EXACT
        | NARROW
        | {"n_members": 2, "solver": "sgd", "learning_rate_init": 0.2, "max_iter": 8},
    ),
    (MLPClassifier, NARROW | {"solver": "lbfgs", "max_iter": 20}),
    (MLPRegressor, EXACT | NARROW | {"loss": "quantile", "activation": "prelu", "max_iter": 15}),
    (
        MLPRegressor,
        EXACT
        | NARROW
        | {"max_iter": 10, "loss": "gaussian_nll", "normalization": "layer"}
        | {"proxy_norm": True},
    ),
    *((TableEncoder, {"numeric": how}) for how in ("quantile", "robust", "none")),
    (TableEncoder, {"categorical_features": [0], "max_onehot": 1}),
]


SAME_BASE = (TabMClassifier, TabMRegressor, PackRegressor, CTGAN, TVAE)


def _checks_of(cls, settings, names):
    """Parameters of the test: an estimator and a check; of the named checks one of each name."""
    is_exact = names is WEIGHTS_AS_COPIES or settings.get("precision") == "float64"
    found = {}
    for i, (estimator, check) in enumerate(estimator_checks_generator(cls(**settings))):
        name = getattr(check, "func", check).__name__
        if (is_exact or name not in WEIGHTS_AS_COPIES) and (names is None or name in names):
            key = f"{name}-{i}" if names is None else name
            is_repeated = cls in SAME_BASE and name not in COMPUTED
            is_varied = names is COMPUTED and cls is not TableEncoder
            marks = [pytest.mark.slow] if is_repeated or is_varied else []
            label = f"{cls.__name__}-{key}"
            found[key] = pytest.param(estimator, check, id=label, marks=marks)
    return found.values()


CHECKS = [
    check
    for settings, names in ((WHOLE, None), (EXACT_ONES, WEIGHTS_AS_COPIES), (VARIED, COMPUTED))
    for cls, params in settings
    for check in _checks_of(cls, params, names)
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:this generator was fitted before")  # and budgets add up
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learn_check(estimator, check):
    check(estimator)
