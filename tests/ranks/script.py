"""What each rank does under torchrun; test_ranks.py starts it, and looks at what it has written."""

import faulthandler
import hashlib
import json
import os
import signal
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold
from torch import nn

from combutab import (
    CTGAN,
    TVAE,
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabFlow,
    TabMRegressor,
    _model_files,
)
from combutab.estimators import _pack_training, _streaming
from combutab.estimators._streaming import MemoryPlan
from combutab.preprocessing import TableEncoder
from combutab.training import Callback, unshared
from tests.short import few_trees

HOME, RANK = Path(sys.argv[-1]), int(os.environ.get("RANK", "-1"))
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "x": RNG.normal(size=211),
        "z": RNG.normal(size=211),
        "kind": RNG.choice(list("abcdefghijkl"), 211),
        "side": RNG.choice(["left", "right"], 211),
    }
)
Y = (TABLE["x"] * TABLE["z"] + (TABLE["kind"] < "e")).to_numpy()
WEIGHT = RNG.uniform(0.5, 2.0, 211)
ROWS = TABLE[["x", "z", "side"]]
QUICK = {
    "hidden_layer_sizes": (12, 12),
    "max_iter": 4,
    "batch_size": 64,
    "random_state": 0,
    "n_iter_no_change": np.inf,
    "n_members": 1,  # whose rows are shared out
    "precision": "float64",
}
DRAWN = {"epochs": 2, "batch_size": 50, "random_state": 0, "precision": "float64"}


class Told(Callback):
    """Notes the epochs that it is told of, encodes a table of its own, and stops at one."""

    def __init__(self, last=10**9):
        self.epochs, self.last = [], last

    def on_epoch_end(self, report):
        self.epochs.append(report.epoch)
        TableEncoder(numeric="quantile").fit_encode(ROWS, owner=MLPRegressor())
        return report.epoch >= self.last


class KillOnce(Callback):
    """Kills rank 1 in the middle of the first attempt."""

    def on_epoch_end(self, report):
        if report.epoch == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(int((HOME / "rank 1").read_text()), signal.SIGKILL)


def quick(cls, **changes):
    return cls(**QUICK | changes)


BAGS = {"n_members": 3, "bagging": "cv", "calibration": "temperature", "batch_size": 50}
BAGS |= {"label_smoothing": 0.1, "callbacks": [Told()]}
SCORED = {"early_stopping_scoring": "roc_auc", "solver": "sgd"}
SCORED |= {"numeric_encoding": "quantile", "numeric_embedding": "piecewise-linear"}
ALL = {"max_onehot": 4, "dropout": 0.2, "max_grad_norm": 0.5, "alpha": 0.1}
ONE = {"batch_size": 1, "max_iter": 1, "early_stopping": False}
TWO = {"n_members": "auto"}  # the default: each sets other rows aside
TOGETHER = {"n_members": 2, "normalization": "batch"}
ESTIMATORS = {  # with a target, and weights
    "rows: weights, dropout, clipping, embeddings": (quick(MLPRegressor, **ALL), Y, WEIGHT),
    "rows: members of unequal folds, calibration": (quick(MLPClassifier, **BAGS), Y > 0, None),
    "rows: own scoring, quantiles": (quick(MLPClassifier, **SCORED), Y > 0, WEIGHT),
    "rows: heads": (quick(TabMRegressor, n_heads=3), Y, None),
    "rows: fewer than ranks": (quick(MLPRegressor, **ONE), Y, None),
    "rows: two networks, watched": (quick(MLPRegressor, **TWO | {"callbacks": [Told()]}), Y, None),
    "members: two networks": (quick(MLPClassifier, **TWO), Y > 0, WEIGHT),
    "members: one more than ranks": (quick(MLPRegressor, n_members=3), Y, None),
    "members: batch normalisation": (quick(MLPRegressor, **TOGETHER), Y, None),
    "members: lbfgs": (quick(MLPRegressor, solver="lbfgs", max_iter=3, n_members=2), Y, None),
}
ENDS = {  # members that stop at epochs of their own
    "solver": "sgd",
    "max_iter": 30,
    "n_iter_no_change": 1,
    "learning_rate_init": 0.1,
    "n_members": 4,
    "batch_size": 64,
    "hidden_layer_sizes": (8,),
    "early_stopping": True,
    "random_state": 0,
    "precision": "float64",
}
WARNED = r"lbfgs failed|Stochastic Optimizer|.*kept though|The classifier predicts"
LOSSES = {  # with a rate
    "squared_error": 0.1,
    "quantile": 0.1,
    "gaussian_nll": 0.01,  # two outputs
}
ENDING = {
    **{
        f"ends apart: {loss}": (
            MLPRegressor(**{**ENDS, "learning_rate_init": rate}, loss=loss),
            abs(Y),
        )
        for loss, rate in LOSSES.items()
    },
    "ends apart: without calibration": (MLPClassifier(**ENDS, calibration=None), Y > 0),
    "ends apart: calibration": (MLPClassifier(**ENDS, calibration="temperature"), Y > 0),
    "ends apart: own scoring": (
        MLPClassifier(**ENDS, calibration=None, early_stopping_scoring="roc_auc"),
        Y > 0,
    ),
    "ends apart: training loss": (MLPRegressor(**{**ENDS, "early_stopping": False}), Y),
}
STREAMED = {  # window by window, of each rank's own copy of the files
    "rows: Parquet files": quick(
        MLPRegressor, batch_size=48, max_onehot=4, dropout=0.2, early_stopping=True
    ),
    "members: Parquet files": quick(MLPRegressor, max_iter=2, n_members=3),
}


def own_activation(width):
    return nn.Tanh()


PACKED = {"n_members": 7, "max_iter": 5, "random_state": 0}
PACKED |= {"member_params": {"hidden_layer_sizes": (12,)}}
PACKS = {
    "pack: lines, own activations": (
        PackRegressor(**PACKED, verbose=True, activations=["relu", own_activation, "pln-8"]),
        Y,
    ),
    "pack: folds, weights of classes": (
        PackClassifier(**PACKED, cv=2, class_weight="balanced", max_time="10min"),
        Y > 0,
    ),
    "pack: folds without a seed": (PackRegressor(**PACKED, cv=KFold(2, shuffle=True)), Y),
    "pack: fewer members than ranks": (PackRegressor(**{**PACKED, "n_members": 1}), Y),
}
GENERATORS = {
    "rows: TVAE": TVAE(**DRAWN, embedding_dim=4, compress_dims=(8,), decompress_dims=(8,)),
    "rows: TabFlow": TabFlow(**DRAWN, hidden_layer_sizes=(12,), early_stopping=True, dropout=0.1),
    "members: CTGAN": CTGAN(
        **DRAWN, embedding_dim=4, generator_dim=(8,), discriminator_dim=(8,), n_members=2
    ),
}


def digest(model):
    """A digest of all numbers that a model has learned."""
    found = hashlib.sha256()
    for state in model._states:
        for name in sorted(state):
            found.update(name.encode() + state[name].tobytes())
    found.update(model.history_.to_csv().encode())
    return found.hexdigest()


def farthest(model, other):
    """The largest difference of two models' weights and curves."""
    pairs = [
        (state[name], expected[name])
        for state, expected in zip(model._states, other._states, strict=True)
        for name in expected
    ]
    curves = [m.history_.select_dtypes("number").fillna(0.0).to_numpy() for m in (model, other)]
    assert curves[0].shape == curves[1].shape, (curves[0].shape, curves[1].shape)
    return max(float(np.abs(a - b).max(initial=0.0)) for a, b in [*pairs, tuple(curves)])


def compare(fit):
    found = {"digest": digest(shared := fit())}
    if RANK == 0:  # the other has the same digest
        with unshared():
            found["far"] = farthest(shared, fit())
    return found


def ends_apart(name, model, y):
    """Members leave their stack at epochs of their own, each time with all that is theirs."""
    by_file = clone(model).fit(ROWS, y, checkpoint=HOME / name.replace(":", ""))
    told_of = clone(model).set_params(verbose=True).fit(ROWS, y)
    found = {"digest": digest(by_file) + digest(told_of)}
    if RANK == 0:
        with unshared():
            alone = clone(model).fit(ROWS, y)
        found["far"] = max(farthest(by_file, alone), farthest(told_of, alone))
        found["epochs"] = alone.history_.groupby("member").size().tolist()
    return found


def packed(model, y):
    """A pack that ranks share, one process's, and how many members this rank has trained."""
    trained, held_out, trains = [], [], _pack_training.train_jobs

    def train_jobs(jobs, stacks, *args, **settings):
        trained.append(sum(map(len, stacks)))
        held_out.extend(job.plans[0].val_rows.tolist() for job in jobs)
        return trains(jobs, stacks, *args, **settings)

    with mock.patch.object(_pack_training, "train_jobs", train_jobs):
        shared = clone(model).fit(TABLE, y)
    packs = {"shared": shared}
    if RANK == 0:
        with unshared():
            packs["alone"] = clone(model).fit(TABLE, y)
    words = {
        name: digest(p) + str((p._selected, p.validation_loss_, p.members_.to_csv()))
        for name, p in packs.items()
    }
    return {**words, "trained": trained, "held_out": held_out}


def told():
    """Rank 0 alone is told of epochs, and stops them all."""
    callback = Told(last=2)
    model = MLPRegressor(**QUICK, callbacks=[callback]).fit(ROWS, Y)
    return {"epochs": callback.epochs, "n_iter": model.n_iter_, "digest": digest(model)}


def seedless():
    models = (
        MLPRegressor(**{**QUICK, **TWO, "random_state": None}).fit(ROWS, Y),
        PackRegressor(**{**PACKED, "random_state": None}).fit(ROWS, Y),
    )
    return {"digest": "".join(map(digest, models))}


def error_of(call):
    started = time.monotonic()
    try:
        call()
    except Exception as error:
        return {
            "error": f"{type(error).__name__}: {error}",
            "seconds": time.monotonic() - started,
        }
    return {"error": None}


def broken():
    Y_HERE = Y.copy()
    Y_HERE[3] = np.nan if RANK == 1 else Y[3]
    MLPRegressor(**QUICK).fit(ROWS, Y_HERE)


def streamed(model, rows=slice(None), limit="100MB"):
    path = HOME / f"{RANK} {rows.start}.parquet"
    table = TABLE.assign(y=Y, weight=WEIGHT)[rows]
    if not path.exists():
        table.to_parquet(path, row_group_size=40)
    with mock.patch.object(_streaming, "plan_memory", return_value=MemoryPlan(30, 2, 96)):
        return clone(model).fit_parquet(path, "y", sample_weight="weight", memory_limit=limit)


def fit(model, X=ROWS, y=Y):
    return lambda: model.fit(X, y)


RATE, ALPHA = 0.001 * (RANK + 1), {"alpha": 0.1 * RANK}
REFUSED = {
    "refused: batch normalisation": fit(quick(MLPRegressor, normalization="batch")),
    "refused: lbfgs": fit(quick(MLPRegressor, solver="lbfgs")),
    "refused: CTGAN": lambda: CTGAN(**DRAWN).fit(ROWS),
    "refused: another table": fit(quick(MLPRegressor), ROWS[RANK:], Y[RANK:]),
    "refused: other parameters": fit(quick(MLPRegressor, learning_rate_init=RATE)),
    "refused: another file": lambda: streamed(quick(MLPRegressor), slice(RANK, None)),
    "refused: another limit": lambda: streamed(quick(MLPRegressor), limit=10**8 + RANK),
    "refused: a pack of other parameters": fit(PackRegressor(**PACKED | {"member_params": ALPHA})),
    "an error of one rank": broken,
}


@few_trees()
def main():
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=WARNED)
    found = {}
    for name, call in REFUSED.items():  # and what follows is shared all the same
        found[name] = error_of(call)
    for name, (model, y, weight) in ESTIMATORS.items():
        X = TABLE if "embeddings" in name else ROWS
        if "fewer" in name:
            X, y = X[:30], y[:30]
        found[name] = compare(lambda m=model, X=X, y=y, w=weight: clone(m).fit(X, y, w))
    for name, model in STREAMED.items():
        found[name] = compare(partial(streamed, model))
    for name, model in GENERATORS.items():
        found[name] = compare(lambda m=model: clone(m).fit(ROWS))
    for name, (model, y) in ENDING.items():
        found[name] = ends_apart(name, model, y)
    for name, (model, y) in PACKS.items():
        found[name] = packed(model, y)
    found["told"], found["seedless"] = told(), seedless()
    (HOME / f"found {RANK}.json").write_text(json.dumps(found))


def taken_up():
    """A fit of which rank 1 is killed, and all ranks are started once more."""
    _model_files.SECONDS = 0.0
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    model = MLPRegressor(**{**QUICK, "max_iter": 6}, callbacks=[KillOnce()])
    shared = clone(model).fit(ROWS, Y, checkpoint=HOME / "training")
    with unshared():
        alone = clone(model).fit(ROWS, Y)
    found = {"far": farthest(shared, alone), "digest": digest(shared)}
    (HOME / f"attempt {attempt} of {RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    faulthandler.dump_traceback_later(1500, exit=True)  # a rank that waits for ever says where
    (HOME / f"rank {RANK}").write_text(str(os.getpid()))
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        main()
    taken_up()
