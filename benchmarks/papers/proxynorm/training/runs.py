"""Train a program: all seeds of one norm, batch size and regularisation as one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import GroupShuffleSplit
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common import Row
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.proxynorm.training.nets import ResidualNets, Shape
from combutab import training
from combutab.preprocessing import TableEncoder

KEY = ("net", "data", "activation", "norm", "batch_size", "regularisation", "seed")
# The paper's, the smoothing on CIFAR
SMOOTHING, SGD_MOMENTUM, WEIGHT_DECAY, WARM_UP = 0.1, 0.9, 1e-4, 0.1


# A network's logits of test and training rows, its last epoch's accuracy and loss
Trained = tuple[Tensor, Tensor, float, float]


@dataclass(frozen=True)
class Recipe:
    """Sizes; epochs and rate are a batch of 128's, others' in proportion to the batch's root."""

    width: int
    layers: int  # the maps before the classifier's
    learning_rate: float = 0.1
    n_train: int = 1024
    n_test: int = 3000
    epochs: int = 24


RECIPES = {"MLP": Recipe(48, 13), "CNN": Recipe(16, 7)}


@dataclass(frozen=True)
class Split:
    """Encoded rows, the same for all; those of images are 8 x 8 pixels."""

    X_train: Tensor
    y_train: Tensor
    X_test: Tensor
    y_test: Tensor


@dataclass(frozen=True)
class Program:
    """Members that train as one, a seed each."""

    net: str
    data: str
    norm: str
    batch_size: int
    regularisation: str
    seeds: tuple[int, ...]
    recipe: Recipe
    data_home: str | None = None

    @property
    def extra(self) -> bool:
        return self.regularisation == "extra"

    @property
    def root(self) -> float:
        """Of the batch size, in that of 128."""
        return math.sqrt(self.batch_size / 128)

    @property
    def epochs(self) -> int:
        return max(1, round(self.recipe.epochs * self.root))

    @property
    def steps(self) -> int:
        return self.epochs * (self.recipe.n_train // self.batch_size)

    @property
    def learning_rate(self) -> float:
        return self.recipe.learning_rate * self.root

    @property
    def groups(self) -> int:
        """Of the norm; GN's on tables are of 8 units, as the estimator's."""
        of_gn = 4 if self.net == "CNN" else self.recipe.width // 8
        return of_gn if self.norm.startswith("GN") else 1

    @property
    def settings(self) -> list[Row]:
        """Each member's, as a row of the results begins."""
        own = {name: getattr(self, name) for name in (*KEY[:2], *KEY[3:6], "epochs", "steps")}
        own |= {name: getattr(self.recipe, name) for name in ("n_train", "width", "layers")}
        own |= {"activation": "relu", "learning_rate": f"{self.learning_rate:.6g}"}
        return [own | {"seed": seed} for seed in self.seeds]

    def run(self) -> list[Row]:
        """Train the members and score them: a row each."""
        started = time.perf_counter()
        split = load_split(self.data, self.recipe, self.data_home)
        rows = []
        for logits, fitted, train_accuracy, train_loss in train_residual(self, split):
            row = {"accuracy": accuracy(logits, split.y_test)}
            row |= {"log_loss": F.cross_entropy(logits, split.y_test).item()}
            row |= {"train_accuracy": train_accuracy, "train_loss": train_loss}
            row |= {"fit_accuracy": accuracy(fitted, split.y_train), "n_test": len(logits)}
            taken = (time.perf_counter() - started) / len(self.seeds)
            rows.append(row | {"groups": self.groups, "seconds": taken})
        return rows


def accuracy(logits: Tensor, y: Tensor) -> float:
    return (logits.argmax(1) == y).double().mean().item()


@lru_cache(maxsize=4)
def load_split(data: str, recipe: Recipe, data_home: str | None = None) -> Split:
    """Split at random, the same for all; rows of equal features stay on one side."""
    source = Source("openml", data, "classification", data_home=data_home)
    (X, y), groups = source.load(), source.row_groups()
    if data == "california_housing":  # a number's quantile bins, of all rows
        y = pd.qcut(y, 4, labels=False)
    # groups are counted, not rows: a share that has rows to spare
    share = min(0.9, 1.2 * recipe.n_train / len(X))
    splitter = GroupShuffleSplit(1, train_size=share, random_state=0)
    rng, parts = np.random.default_rng(0), next(splitter.split(X, groups=groups))
    sizes = (recipe.n_train, recipe.n_test)
    train, test = (rng.permutation(part)[:n] for part, n in zip(parts, sizes, strict=True))
    if data == "digits":
        values = torch.tensor(X.to_numpy(), dtype=torch.float32)
        values = (values - values[train].mean()) / values[train].std()
    else:
        encoder = TableEncoder().fit(X.iloc[train])
        values = torch.as_tensor(encoder.transform(X), dtype=torch.float32)
    target = torch.from_numpy(pd.factorize(y, sort=True)[0].astype(np.int64))
    return Split(values[train], target[train], values[test], target[test])


def rate_factor(fraction: float) -> float:
    """Of the largest rate at a fraction of the steps: up in a line, down by half a cosine.

    >>> [round(rate_factor(t), 3) for t in (0.0, 0.05, 0.1, 0.55, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if fraction < WARM_UP:
        return fraction / WARM_UP
    return training.schedule_factor("cosine", (fraction - WARM_UP) / (1 - WARM_UP))


def train_residual(program: Program, split: Split) -> Iterator[Trained]:
    """Train the residual networks as one stack."""
    n_inputs, n_classes = split.X_train.shape[1], int(split.y_train.max()) + 1
    recipe, own = program.recipe, {"image": program.net == "CNN", "extra": program.extra}
    n_blocks, norm = (recipe.layers - 1) // 2, (program.norm, program.groups)
    shape = Shape(n_inputs, n_classes, *norm, recipe.width, n_blocks, **own)
    # a penalty of alpha / 2 |w|^2 / (rows of a batch) has the gradient of torch's weight decay
    alpha, rows = WEIGHT_DECAY * program.batch_size, torch.arange(recipe.n_train)
    plans = [training.MemberPlan(i, rows, program.learning_rate, alpha) for i in program.seeds]
    config = training.TrainConfig(
        training.CrossEntropy(label_smoothing=SMOOTHING * program.extra),
        training.OptimizerConfig("sgd", momentum=SGD_MOMENTUM, nesterov=False, rate_last=True),
        program.batch_size, program.epochs, learning_rate=rate_factor, n_iter_no_change=math.inf,
        track_metric=True,
    )  # fmt: skip
    data = training.Rows(split.X_train, split.y_train)
    results = training.train_stack(ResidualNets(shape, program.seeds), data, plans, config)
    nets = ResidualNets(shape, program.seeds)
    for i, result in enumerate(results):
        nets.load_member(i, result.state)
    nets.train(False)
    # the loop's loss is with the penalty at an epoch's end
    penalty = 0.5 * WEIGHT_DECAY * nets.flat.values.double().square().sum(1)
    logits = [nets.predict(X, None, 500) for X in (split.X_test, split.X_train)]
    for *both, result, own in zip(*logits, results, penalty.tolist(), strict=True):
        yield *both, result.train_metric[-1], result.train_loss[-1] - own
