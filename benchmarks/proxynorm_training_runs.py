"""Train a program, all seeds of one norm and batch size with and without extra regularisation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from proxynorm_training_nets import NORMS, Masks, ResidualNets, Shape
from results import Row
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit
from sources import Source
from torch import Tensor
from torch.nn import functional as F

import combutab
from combutab.preprocessing import TableEncoder

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
# The paper's on CIFAR: label smoothing, dropout, stochastic depth; its momentum and weight decay
SMOOTHING, DROPOUT, DEPTH_DROP = 0.1, 0.25, 0.1
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
    """Encoded rows, the same for all; ``X`` is (n, columns) or (n, 1, 8, 8)."""

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

    @property
    def epochs(self) -> int:
        """Over the training rows."""
        return max(1, round(self.recipe.epochs * self.recipe.factor(self.batch_size)))

    @property
    def steps(self) -> int:
        """Of the optimiser; rows that fill no batch are left out of an epoch."""
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

    def shape(self, split: Split) -> Shape:
        """Of its networks with skip connections."""
        image = self.net == "CNN"
        return Shape(
            split.X_train.shape[1],
            split.n_classes,
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
        images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8)
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


def member_losses(logits: Tensor, target: Tensor, smoothing: Tensor) -> Tensor:
    """Each member's mean cross-entropy, its labels smoothed by its own share.

    Shape
    -----
    logits : (M, batch, n_classes), target : (M, batch), smoothing : (M,) -> (M,)
    """
    log_p = F.log_softmax(logits, dim=-1)
    hit = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean(-1)
    return -(1 - smoothing) * hit - smoothing * log_p.mean((-2, -1))


class _Draws:
    """Shuffles and masks, each from its seed alone; both regularisations share the shuffles."""

    def __init__(self, program: Program, shape: Shape) -> None:
        self.shape, self.kinds = shape, len(REGULARISATION)
        self.shuffles = [torch.Generator().manual_seed(1000 + seed) for seed in program.seeds]
        self.generators = [torch.Generator().manual_seed(2000 + seed) for seed in program.seeds]

    def order(self, n: int) -> Tensor:
        """(n, M): an epoch's rows."""
        orders = [torch.randperm(n, generator=generator) for generator in self.shuffles]
        return torch.stack(orders * self.kinds, dim=1)

    def masks(self, batch: int) -> Masks:
        """1 for the members without extra regularisation, which come first."""
        n_blocks, width = self.shape.n_blocks, self.shape.width
        size = (batch, n_blocks + width)
        uniform = torch.stack([torch.rand(size, generator=g) for g in self.generators], dim=1)
        depth = (uniform[..., :n_blocks] >= DEPTH_DROP) / (1 - DEPTH_DROP)
        features = (uniform[..., n_blocks:] >= DROPOUT) / (1 - DROPOUT)
        depth, features = (torch.cat([torch.ones_like(m), m], dim=1) for m in (depth, features))
        return Masks(depth.movedim(-1, 0), features.flatten(1))


def train(program: Program) -> list[Row]:
    """Train networks with skip connections, and score them: a row each, as in ``members``."""
    started = time.perf_counter()
    split = load_split(program.data, program.recipe, program.data_home)
    shape = program.shape(split)
    seeds = [seed for _, seed in program.members]
    nets = ResidualNets(shape, NORMS[program.norm], seeds, program.activation)
    smoothing = torch.tensor([SMOOTHING * (kind == "extra") for kind, _ in program.members])
    last_epoch = _fit(nets, program, split, smoothing)
    accuracy, log_loss = evaluate(nets, split.X_test, split.y_test)
    fit_accuracy, _ = evaluate(nets, split.X_train, split.y_train)
    seconds = (time.perf_counter() - started) / len(seeds)
    rows = []
    for i, (kind, seed) in enumerate(program.members):
        values = {
            "accuracy": accuracy[i],
            "log_loss": log_loss[i],
            "train_accuracy": last_epoch[0, i],
            "train_loss": last_epoch[1, i],
            "fit_accuracy": fit_accuracy[i],
            "n_test": len(split.y_test),
            "groups": NORMS[program.norm].groups or shape.groups,
            "seconds": round(seconds, 3),
            **_versions(),
        }
        text = {
            k: f"{float(v):.6g}" if isinstance(v, Tensor) else str(v) for k, v in values.items()
        }
        rows.append(dict.fromkeys(COLUMNS, "") | text | program.settings(kind, seed))
    return rows


def as_row(values: dict[str, object], settings: Row) -> Row:
    """A row of the results: what was measured, with which versions, and which network it was."""
    text = {
        name: f"{float(value):.6g}" if isinstance(value, Tensor) else str(value)
        for name, value in (values | _versions()).items()
    }
    return dict.fromkeys(COLUMNS, "") | text | settings


def _fit(nets: ResidualNets, program: Program, split: Split, smoothing: Tensor) -> Tensor:
    """Train, and return (2, M): accuracy and loss over the last epoch, as they were trained."""
    optimiser = torch.optim.SGD(
        nets.parameters(), momentum=SGD_MOMENTUM, weight_decay=WEIGHT_DECAY, lr=0.0, fused=True
    )
    draws, step, size = _Draws(program, nets.shape), 0, program.batch_size
    n_batches = program.recipe.n_train // size
    nets.train()
    for _ in range(program.epochs):
        order = draws.order(program.recipe.n_train)
        totals = torch.zeros(2, nets.members)
        for start in range(0, n_batches * size, size):
            rows = order[start : start + size]
            optimiser.param_groups[0]["lr"] = program.learning_rate * rate_factor(
                step / program.steps
            )
            target = split.y_train[rows].T
            logits = nets(split.X_train[rows].flatten(1, 2), draws.masks(size))
            losses = member_losses(logits, target, smoothing)
            optimiser.zero_grad()
            losses.sum().backward()
            optimiser.step()
            step += 1
            with torch.no_grad():
                hits = (logits.argmax(-1) == target).float().mean(-1)
                totals += torch.stack([hits, losses.detach()]) / n_batches
    return totals


@torch.inference_mode()
def evaluate(nets: ResidualNets, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy and log loss of each member on rows that all share."""
    nets.eval()
    hits, losses = torch.zeros(nets.members), torch.zeros(nets.members)
    nothing = torch.zeros(nets.members)
    for rows, target in zip(X.split(500), y.split(500), strict=True):
        logits = nets(rows.repeat(1, nets.members, *(1,) * (X.ndim - 2)))
        targets = target.expand(nets.members, -1)
        hits += (logits.argmax(-1) == targets).sum(-1)
        losses += member_losses(logits, targets, nothing) * len(target)
    return hits / len(y), losses / len(y)


@lru_cache
def _versions() -> dict[str, object]:
    import sklearn

    return {
        "combutab": combutab.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "sklearn": sklearn.__version__,
    }
