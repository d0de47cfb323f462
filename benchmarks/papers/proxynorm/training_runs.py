"""Train a program, all seeds of one norm and batch size with and without extra regularisation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit
from torch import Tensor
from torch.nn import functional as F

import combutab
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.common.results import Row
from benchmarks.papers.proxynorm.training_nets import NORMS, ResidualSpec
from combutab.nn import Member, TableNetwork
from combutab.preprocessing import TableEncoder
from combutab.training import (
    CrossEntropy,
    Loss,
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    train_stack,
)

TABLES = {"california_housing": 4, "PhishingWebsites": 0, "wine_quality": 3}  # bins of the target
DATA = ("california_housing", "digits", "PhishingWebsites")
NETS = ("MLP", "CNN", "plain MLP")  # the last without skip connections, by the estimator
REGULARISATION = ("plain", "extra")
KEY = ("net", "data", "activation", "norm", "batch_size", "regularisation", "seed")
COLUMNS = (
    *KEY,
    *("accuracy", "log_loss", "train_accuracy", "train_loss", "fit_accuracy"),
    *("n_train", "n_test", "epochs", "steps", "learning_rate", "width", "layers", "groups"),
    *("seconds", "combutab", "torch", "numpy", "sklearn"),
)
# The paper's on CIFAR: label smoothing and dropout; its momentum and weight decay
SMOOTHING, DROPOUT = 0.1, 0.25
SGD_MOMENTUM, WEIGHT_DECAY, WARM_UP = 0.9, 1e-4, 0.1
REFERENCE = 128  # the batch size whose rate and epochs are given; others go by its square root


@dataclass(frozen=True)
class Recipe:
    """Sizes of networks and trainings.

    ``epochs`` and ``learning_rate`` are those of a batch of 128. Others have both in proportion to
    the square root of the batch, so that the sum of the steps' rates is the same.
    """

    n_train: int = 1024
    n_test: int = 3000
    epochs: int = 24
    learning_rate: float = 0.1
    width_table: int = 48
    width_image: int = 16
    blocks_table: int = 6
    blocks_image: int = 3
    layers_plain: int = 10
    learning_rate_plain: float = 4e-3  # Adam's

    def factor(self, batch_size: int) -> float:
        """By which a batch's rate and epochs differ from those of 128."""
        return math.sqrt(batch_size / REFERENCE)


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
    """Members that train as one: regularisation by seeds."""

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
    def epochs(self) -> int:
        """Over the training rows."""
        return max(1, round(self.recipe.epochs * self.recipe.factor(self.batch_size)))

    @property
    def steps(self) -> int:
        """Of the optimiser."""
        return self.epochs * (self.recipe.n_train // self.batch_size)

    @property
    def learning_rate(self) -> float:
        """The largest."""
        recipe = self.recipe
        rate = recipe.learning_rate_plain if self.net == "plain MLP" else recipe.learning_rate
        return rate * recipe.factor(self.batch_size)

    @property
    def width(self) -> int:
        """Units or channels of a layer."""
        return self.recipe.width_image if self.net == "CNN" else self.recipe.width_table

    @property
    def n_blocks(self) -> int:
        """Residual blocks, each of two maps."""
        return self.recipe.blocks_image if self.net == "CNN" else self.recipe.blocks_table

    @property
    def layers(self) -> int:
        """Maps before the classifier's."""
        return self.recipe.layers_plain if self.net == "plain MLP" else 2 * self.n_blocks + 1

    def spec(self, split: Split) -> ResidualSpec:
        """Of its networks with skip connections."""
        image = self.net == "CNN"
        return ResidualSpec(
            split.X_train.shape[1],
            split.n_classes,
            self.norm,
            self.width,
            self.n_blocks,
            groups=4 if image else self.width // 8,
            image=image,
        )

    def settings(self, regularisation: str, seed: int) -> Row:
        """What tells a row from another, and must be the same to go on."""
        values = {
            "net": self.net,
            "data": self.data,
            "activation": self.activation,
            "norm": self.norm,
            "batch_size": self.batch_size,
            "regularisation": regularisation,
            "seed": seed,
            "n_train": self.recipe.n_train,
            "epochs": self.epochs,
            "steps": self.steps,
            "learning_rate": f"{self.learning_rate:.6g}",
            "width": self.width,
            "layers": self.layers,
        }
        return {name: str(value) for name, value in values.items()}

    @property
    def members(self) -> list[tuple[str, int]]:
        """(regularisation, seed) of each."""
        return [(kind, seed) for kind in REGULARISATION for seed in self.seeds]


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
        y = _classes(y, TABLES[data])
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
        first, second = (_encode(encoder, X.iloc[rows]) for rows in (train, test))
    codes, classes = pd.factorize(y, sort=True)
    target = torch.from_numpy(codes.astype(np.int64))
    return Split(first, target[train], second, target[test], len(classes))


def _encode(encoder: TableEncoder, rows: pd.DataFrame) -> Tensor:
    return torch.as_tensor(encoder.transform(rows), dtype=torch.float32)


def _classes(y: pd.Series, bins: int) -> pd.Series:
    """A number's quantile bins, of all rows; a class as it is (``bins`` of 0)."""
    if not bins:
        return y
    return pd.qcut(y, bins, labels=False, duplicates="drop")


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
    # the loop's loss is with the penalty at an epoch's end
    penalty = 0.5 * WEIGHT_DECAY * nets.flat.values.double().square().sum(1)
    accuracy, log_loss = evaluate(nets, split.X_test, split.y_test)
    fit_accuracy, _ = evaluate(nets, split.X_train, split.y_train)
    seconds = (time.perf_counter() - started) / len(members)
    rows = []
    for i, (member, result) in enumerate(zip(program.members, results, strict=True)):
        values = {
            "accuracy": accuracy[i],
            "log_loss": log_loss[i],
            "train_accuracy": f"{result.train_metric[-1]:.6g}",
            "train_loss": result.train_loss[-1] - penalty[i],
            "fit_accuracy": fit_accuracy[i],
            "n_test": len(split.y_test),
            "groups": NORMS[program.norm].groups or spec.groups,
            "seconds": round(seconds, 3),
        }
        rows.append(as_row(values, program.settings(*member)))
    return rows


def as_row(values: dict[str, object], settings: Row) -> Row:
    """A row of the results: what was measured, with which versions, and which network it was."""
    text = {
        name: f"{float(value):.6g}" if isinstance(value, Tensor) else str(value)
        for name, value in (values | _versions()).items()
    }
    return dict.fromkeys(COLUMNS, "") | text | settings


def evaluate(nets: TableNetwork, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy and log loss of each member on rows that all share."""
    logits = nets.train(False).predict(X, None, 500)
    losses = CrossEntropy().rows(logits, y.expand(nets.n_members, -1))
    return (logits.argmax(-1) == y).float().mean(1), losses.mean(1)


@lru_cache
def _versions() -> dict[str, object]:
    import sklearn

    return {
        "combutab": combutab.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "sklearn": sklearn.__version__,
    }
