"""Train a program, all seeds of one norm and batch size with and without extra regularisation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit
from torch import Tensor
from torch.nn import functional as F

from benchmarks.papers.combu.sources import Source
from benchmarks.papers.common.results import Row
from benchmarks.papers.proxynorm.training.nets import NORMS, ResidualSpec
from combutab import MLPClassifier
from combutab.estimators import FitTask, fit_stacked
from combutab.nn import Member
from combutab.preprocessing import TableEncoder
from combutab.training import Loss, MemberPlan, OptimizerConfig, Rows, TrainConfig, train_stack

TABLES = {"california_housing": 4, "PhishingWebsites": 0, "wine_quality": 3}  # bins of the target
DATA = ("california_housing", "digits", "PhishingWebsites")
NETS = {
    "MLP": "residual MLPs on tables",
    "CNN": "residual CNN on digits",
    "plain MLP": "deep MLP without skip connections",  # by the estimator
}
REGULARISATION = ("plain", "extra")
KEY = ("net", "data", "activation", "norm", "batch_size", "regularisation", "seed")
# The paper's on CIFAR: label smoothing and dropout; its momentum and weight decay
SMOOTHING, DROPOUT = 0.1, 0.25
SGD_MOMENTUM, WEIGHT_DECAY, WARM_UP = 0.9, 1e-4, 0.1
DROPOUT_PLAIN = 0.02  # after each of ten layers
ESTIMATOR_NORMS = ("BN", "LN", "LN+PN", "GN", "GN+PN")


@dataclass(frozen=True)
class Recipe:
    """Sizes of networks and trainings; ``layers`` are the maps before the classifier's.

    ``epochs`` and ``learning_rate`` are those of a batch of 128. Others have both in proportion to
    the square root of the batch, so that the sum of the steps' rates is the same.
    """

    width: int
    layers: int
    learning_rate: float = 0.1
    n_train: int = 1024
    n_test: int = 3000
    epochs: int = 24


RECIPES = {"MLP": Recipe(48, 13), "CNN": Recipe(16, 7), "plain MLP": Recipe(48, 10, 4e-3)}


@dataclass(frozen=True)
class Split:
    """Encoded rows, the same for all; those of images are 8 x 8 pixels."""

    X_train: Tensor
    y_train: Tensor
    X_test: Tensor
    y_test: Tensor
    n_classes: int


@dataclass(frozen=True)
class Program:
    """Members that train as one: ``members`` are regularisations by seeds."""

    net: str
    data: str
    norm: str
    batch_size: int
    seeds: tuple[int, ...]
    recipe: Recipe
    activation: str = "relu"
    data_home: str | None = None

    def __post_init__(self) -> None:
        if self.recipe.n_train % self.batch_size:
            raise ValueError(f"batches of {self.batch_size} do not fill {self.recipe.n_train=}")

    @property
    def members(self) -> list[tuple[str, int]]:
        return [(kind, seed) for kind in REGULARISATION for seed in self.seeds]

    @property
    def epochs(self) -> int:
        return max(1, round(self.recipe.epochs * math.sqrt(self.batch_size / 128)))

    @property
    def steps(self) -> int:
        return self.epochs * (self.recipe.n_train // self.batch_size)

    @property
    def learning_rate(self) -> float:
        return self.recipe.learning_rate * math.sqrt(self.batch_size / 128)

    @property
    def groups(self) -> int:
        """Of group norm: of 8 units on tables, as the estimator's."""
        return 4 if self.net == "CNN" else self.recipe.width // 8

    def spec(self, split: Split) -> ResidualSpec:
        """Of its networks with skip connections."""
        return ResidualSpec(
            split.X_train.shape[1],
            split.n_classes,
            self.norm,
            self.recipe.width,
            n_blocks=(self.recipe.layers - 1) // 2,
            groups=self.groups,
            image=self.net == "CNN",
        )

    @property
    def settings(self) -> list[Row]:
        """Each member's, as a row of the results begins."""
        own = {name: getattr(self, name) for name in (*KEY[:5], "epochs", "steps")}
        own |= {name: getattr(self.recipe, name) for name in ("n_train", "width", "layers")}
        own["learning_rate"] = f"{self.learning_rate:.6g}"
        rows = [{**own, "regularisation": kind, "seed": seed} for kind, seed in self.members]
        return [{name: str(value) for name, value in row.items()} for row in rows]


@lru_cache(maxsize=4)
def load_split(data: str, recipe: Recipe, data_home: str | None = None) -> Split:
    """One random split; rows of equal features stay on one side of it.

    Raises
    ------
    ValueError
        The data are unknown, or have too few rows.
    """
    if data == "digits":
        pixels, labels = load_digits(return_X_y=True)
        X, y, groups = pd.DataFrame(pixels), pd.Series(labels), np.arange(len(labels))
    elif data in TABLES:
        source = Source("openml", data, "classification", data_home=data_home)
        X, y = source.load()
        groups = source.row_groups()
        if TABLES[data]:  # a number's quantile bins, of all rows
            y = pd.qcut(y, TABLES[data], labels=False, duplicates="drop")
    else:
        raise ValueError(f"data must be digits or one of {list(TABLES)}, got {data!r}")
    if len(X) <= recipe.n_train:
        raise ValueError(f"{data} has {len(X)} rows, too few for {recipe.n_train=} and a test")
    # groups are counted, not rows: a share that has rows to spare
    share = min(0.9, 1.2 * recipe.n_train / len(X))
    splitter = GroupShuffleSplit(1, train_size=share, random_state=0)
    train, test = next(splitter.split(X, groups=groups))
    rng = np.random.default_rng(0)
    train, test = rng.permutation(train)[: recipe.n_train], rng.permutation(test)[: recipe.n_test]
    if len(train) < recipe.n_train:
        raise ValueError(f"{data} gave {len(train)} rows of {recipe.n_train}; lower n_train")
    if data == "digits":
        images = torch.tensor(pixels, dtype=torch.float32)
        mean, std = images[train].mean(), images[train].std()
        first, second = (images[train] - mean) / std, (images[test] - mean) / std
    else:
        encoder = TableEncoder().fit(X.iloc[train])
        first, second = (
            torch.as_tensor(encoder.transform(X.iloc[rows]), dtype=torch.float32)
            for rows in (train, test)
        )
    codes, classes = pd.factorize(y, sort=True)
    target = torch.from_numpy(codes.astype(np.int64))
    return Split(first, target[train], second, target[test], len(classes))


def rate_factor(fraction: float) -> float:
    """Of the largest rate at a fraction of the steps: up in a line, down by half a cosine.

    >>> [round(rate_factor(t), 3) for t in (0.0, 0.05, 0.1, 0.55, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if fraction < WARM_UP:
        return fraction / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (fraction - WARM_UP) / (1 - WARM_UP)))


class SoftCrossEntropy(Loss):
    """Cross-entropy of targets that are a distribution over the classes, (M, rows, classes)."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:
        return -(y * F.log_softmax(raw, dim=-1)).sum(-1)

    def metric(self, raw: Tensor, y: Tensor) -> Tensor:
        return (raw.argmax(-1) == y.argmax(-1)).to(raw.dtype)


def smoothed(split: Split) -> Rows:
    """The training rows with hard labels, and all of them again with smoothed ones."""
    hard = F.one_hot(split.y_train, split.n_classes).float()
    soft = hard.lerp(torch.full_like(hard, 1 / split.n_classes), SMOOTHING)
    return Rows(split.X_train.repeat(2, 1), torch.cat([hard, soft]))


def train(program: Program) -> list[Row]:
    """Train networks with skip connections, and score them: a row each, as in ``members``."""
    started, size = time.perf_counter(), program.batch_size
    split = load_split(program.data, program.recipe, program.data_home)
    spec, n = program.spec(split), len(split.y_train)
    members, plans = [], []
    for kind, seed in program.members:
        extra = kind == "extra"
        members.append(Member(seed, program.activation, DROPOUT * extra))
        rows = torch.arange(n) + n * extra  # both regularisations share a seed's shuffles
        # a penalty of alpha / 2 |w|^2 / (rows of a batch) has the gradient of torch's weight decay
        plans.append(MemberPlan(seed, rows, program.learning_rate, alpha=WEIGHT_DECAY * size))
    config = TrainConfig(
        SoftCrossEntropy(),
        OptimizerConfig("sgd", momentum=SGD_MOMENTUM, nesterov=False, rate_last=True),
        size,
        program.epochs,
        learning_rate=rate_factor,
        n_iter_no_change=math.inf,
        track_metric=True,
    )
    results = train_stack(spec.build(members), smoothed(split), plans, config)
    nets = spec.build(members)
    for i, result in enumerate(results):
        nets.load_member(i, result.state)
    nets.train(False)
    # the loop's loss is with the penalty at an epoch's end
    penalty = 0.5 * WEIGHT_DECAY * nets.flat.values.double().square().sum(1)
    logits = nets.predict(split.X_test, None, 500)
    fit_logits = nets.predict(split.X_train, None, 500)
    seconds = (time.perf_counter() - started) / len(members)
    return [
        _row(
            split,
            logits[i],
            fit_logits[i],
            train_accuracy=result.train_metric[-1],
            train_loss=result.train_loss[-1] - penalty[i].item(),
            groups=NORMS[program.norm].groups or program.groups,
            seconds=seconds,
        )
        for i, result in enumerate(results)
    ]


def train_plain(program: Program) -> list[Row]:
    """Train deep MLPs without skip connections by the estimator, and score them, as `train`.

    Raises
    ------
    ValueError
        A network diverged.
    """
    split = load_split(program.data, program.recipe, program.data_home)
    X, y = split.X_train.numpy(), split.y_train.numpy()
    nets = [make_estimator(program, kind, seed) for kind, seed in program.members]
    rows = []
    for net, outcome in zip(
        nets, fit_stacked([FitTask(net, X, y, data_key=0) for net in nets]), strict=True
    ):
        if outcome.error is not None:
            raise outcome.error
        log_p = (np.log(np.maximum(net.predict_proba(A), 1e-12)) for A in (split.X_test.numpy(), X))
        rows.append(
            _row(
                split,
                *map(torch.from_numpy, log_p),
                train_accuracy=net.history_["train_metric"].iloc[-1],
                train_loss=net.history_["train_loss"].iloc[-1],
                groups=program.groups if program.norm.startswith("GN") else 1,
                seconds=outcome.seconds,
            )
        )
    return rows


def _row(split: Split, logits: Tensor, fit_logits: Tensor, **found: float) -> Row:
    """Results as text, with the scores of a network's logits on the test and training rows."""
    found["seconds"] = round(found["seconds"], 3)
    found["accuracy"] = (logits.argmax(1) == split.y_test).double().mean().item()
    found["log_loss"] = F.cross_entropy(logits, split.y_test).item()
    found["fit_accuracy"] = (fit_logits.argmax(1) == split.y_train).double().mean().item()
    text = {name: f"{value:.6g}" for name, value in found.items()}
    own = {"n_test": str(len(split.y_test)), "numpy": np.__version__}
    return text | own | {"sklearn": sklearn.__version__}


def make_estimator(program: Program, regularisation: str, seed: int) -> MLPClassifier:
    """One unfitted network; its extra regularisation is label smoothing and dropout."""
    extra = regularisation == "extra"
    return MLPClassifier(
        hidden_layer_sizes=(program.recipe.width,) * program.recipe.layers,
        activation=program.activation,
        normalization={"BN": "batch", "LN": "layer", "GN": "group"}[program.norm[:2]],
        proxy_norm=program.norm.endswith("+PN"),
        solver="adamw",
        alpha=0.0,
        init="kaiming",
        batch_size=program.batch_size,
        learning_rate="cosine",
        learning_rate_init=program.learning_rate,
        max_iter=program.epochs,
        n_iter_no_change=math.inf,
        dropout=DROPOUT_PLAIN * extra,
        label_smoothing=SMOOTHING * extra,
        numeric_encoding="none",  # the rows are encoded already
        categorical_features=None,
        random_state=seed,
        track_metric=True,
        device="cpu",
    )
