"""Deep dense networks, with and without residual connections, and their training in stacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from scipy.stats import zmap
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from benchmarks.common import Row
from benchmarks.papers.pln.shared import TASKS, source, trained
from combutab.nn import Member, MLPSpec, StackedMLP, TableNetwork
from combutab.training import CrossEntropy, Loss, MemberPlan, OptimizerConfig, Rows, TrainConfig

BODIES = ("plain", "residual", "pre-activation")
NORMS = ("first", "last_hidden", "mean")
RESULTS = ("train_score", "test_score", "train_loss", "diverged", "trivial_score")
# The paper trains 240 epochs, the first 20 of them with a rising rate, which is divided by 2.5 at
# the 60th, 100th, 140th, 180th and 220th (appendix B.2.1); here the same shares of the steps
WARM_UP = 20 / 240
MILESTONES = tuple(epoch / 240 for epoch in (60, 100, 140, 180, 220))
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4  # the paper's


class ResidualNet(TableNetwork):
    """The layers of M perceptrons, each pair of hidden ones skipped by what it is added to.

    "pre-activation", as the later ResNets: h = h + linear(act(linear(act(h)))), with an activation
    before the last layer; "residual", as the first ones: h = act(h + linear(act(linear(h)))).
    """

    def __init__(self, layers: StackedMLP, body: str) -> None:
        super().__init__(layers.members)
        self.linears, self.activations, self.body = layers.linears, layers.activations, body
        self._flatten(layers.dtype, layers.device)

    def forward(self, dense: Tensor, *_: object) -> Tensor:  # (M, batch, n_in) -> (M, batch, n_out)
        first, *hidden, last = self.linears
        *sites, end = self.activations
        h = first(dense)
        for i in range(0, len(hidden), 2):
            z = sites[i](h)
            branch = hidden[i + 1](sites[i + 1](hidden[i](z)))
            h = branch + (h if self.body == "pre-activation" else z)
        return last(end(h))


def build(
    shape: Row, n_inputs: int, n_outputs: int, seeds: Sequence[int], dtype: torch.dtype
) -> TableNetwork:
    """A network a seed, of a row's ``body``, ``init``, ``depth``, ``activation`` and ``width``.

    ``depth`` counts layers of weights, the first and the last one included, and is even.
    """
    hidden = (int(shape["width"]),) * (int(shape["depth"]) - 1)
    members = [Member(seed, shape["activation"]) for seed in seeds]
    net: TableNetwork = MLPSpec(n_inputs, hidden, n_outputs, init=shape["init"]).build(
        members, dtype=dtype
    )
    if shape["body"] != "plain":
        net = ResidualNet(net, shape["body"])
    net.n_decayed = net.flat.values.shape[1]  # biases too, as torch.optim.SGD has it
    return net


class MeanSquare(Loss):
    """The squared error of one output, not halved."""

    def rows(self, raw: Tensor, y: Tensor) -> Tensor:  # (M, rows, 1), (M, rows) -> (M, rows)
        return (raw.squeeze(-1) - y).square()


@dataclass(frozen=True)
class Task:
    """Rows to train on and to test on: x (rows, features); y (rows,), classes or standardised."""

    x_train: Tensor
    x_test: Tensor
    y_train: Tensor
    y_test: Tensor
    n_outputs: int  # the number of classes, or 1

    @property
    def loss(self) -> Loss:
        return CrossEntropy() if self.n_outputs > 1 else MeanSquare()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean losses of each member: (M, rows, n_outputs) and (rows,) -> (M,)."""
        return self.loss.rows(outputs, y.expand(len(outputs), -1)).mean(1)

    def scores(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Accuracy or R2 of each member: (M, rows, n_outputs) and (rows,) -> (M,)."""
        if self.n_outputs > 1:
            return (outputs.argmax(-1) == y).double().mean(1)
        residual = (outputs.squeeze(-1).double() - y).square().mean(1)
        return 1.0 - residual / y.double().var(correction=0)

    @property
    def trivial_score(self) -> float:
        """What a constant answer reaches on the training rows."""
        if self.n_outputs == 1:
            return 0.0
        return self.y_train.bincount().max().item() / len(self.y_train)


@lru_cache(maxsize=2)
def load_task(name: str, n_rows: int, data_home: str | None = None) -> Task:
    """Split 4:1 and standardise by the training rows."""
    X, target = source(name, n_rows, data_home).load()
    classes = TASKS[name] == "classification"
    y = np.unique(target, return_inverse=True)[1] if classes else np.asarray(target, np.float64)
    stratify = y if classes else None
    parts = train_test_split(X, y, test_size=0.2, random_state=0, stratify=stratify)
    numeric = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    nominal = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder = make_column_transformer(
        (numeric, make_column_selector(dtype_include="number")),
        (nominal, make_column_selector(dtype_exclude="number")),
    ).fit(parts[0])
    x = (torch.as_tensor(encoder.transform(part), dtype=torch.float32) for part in parts[:2])
    if classes:
        return Task(*x, *map(torch.as_tensor, parts[2:]), int(y.max()) + 1)
    return Task(*x, *(torch.as_tensor(zmap(part, parts[2])).float() for part in parts[2:]), 1)


def gradient_norms(net: TableNetwork, x: Tensor, losses: Callable[[Tensor], Tensor]) -> Tensor:
    """`NORMS` of the gradients of the members' losses, (M,): (M, rows, n_inputs) -> (M, 3).

    Those of the first layer's weights, and of the weights before the output layer's; the mean over
    all weight matrices and bias vectors is the paper's "average norm".
    """
    net.gradients(x, lambda outputs: losses(outputs).sum())
    weights, biases = (  # by layer, each (M,)
        [net.flat.gradient_of(linear, name).flatten(1).norm(dim=1) for linear in net.linears]
        for name in ("weight", "bias")
    )
    mean = torch.stack(weights + biases).mean(0)
    return torch.stack([weights[0], weights[-2], mean], dim=1)


def initial_gradients(rows: Sequence[Row], data_home: str | None = None) -> list[Row]:
    """`NORMS` of one batch, the same for all seeds; in float64, so that 1e-100 is no zero."""
    task = load_task(rows[0]["data"], int(rows[0]["n_rows"]), data_home)
    seeds = [int(row["seed"]) for row in rows]
    net = build(rows[0], task.x_train.shape[1], task.n_outputs, seeds, torch.float64)
    batch = torch.randperm(len(task.x_train), generator=torch.Generator().manual_seed(0))[:256]
    x = task.x_train[batch].double().expand(len(seeds), -1, -1)
    norms = gradient_norms(net, x, lambda outputs: task.losses(outputs, task.y_train[batch]))
    return [dict(zip(NORMS, member, strict=True)) for member in norms.tolist()]


def rate_factor(step: int, n_steps: int) -> float:
    """The factor of the learning rate in a step, counted from 0."""
    share = step / n_steps
    if share < WARM_UP:
        return (step + 1) / math.ceil(WARM_UP * n_steps)
    return 2.5 ** -sum(share >= milestone for milestone in MILESTONES)


def train(rows: Sequence[Row], data_home: str | None = None) -> list[Row]:
    """Train and score the networks of one shape, whatever their rates and seeds."""
    task = load_task(rows[0]["data"], int(rows[0]["n_rows"]), data_home)
    n_steps, batch_size = int(rows[0]["n_steps"]), int(rows[0]["batch_size"])
    size, n = (n_steps * batch_size,), len(task.x_train)
    seeds = [int(row["seed"]) for row in rows]
    # Each batch is drawn anew from all rows: what is drawn is one epoch, in this order
    draws = (torch.randint(n, size, generator=torch.Generator().manual_seed(s)) for s in seeds)
    rates = (float(row["learning_rate"]) for row in rows)
    # a penalty of alpha / 2 |w|^2 / (rows of a batch) has the gradient of weight decay
    plans = [
        MemberPlan(*own, WEIGHT_DECAY * batch_size) for own in zip(seeds, draws, rates, strict=True)
    ]
    config = TrainConfig(
        task.loss,
        OptimizerConfig("sgd", momentum=MOMENTUM, nesterov=False, rate_last=True),
        batch_size,
        max_epochs=1,
        learning_rate=lambda share: rate_factor(round(share * n_steps), n_steps),
        shuffle=False,
    )
    make = partial(build, rows[0], task.x_train.shape[1], task.n_outputs, seeds, torch.float32)
    net, _ = trained(make, Rows(task.x_train, task.y_train), plans, config)
    fit, held_out = (net.predict(x, None, 500) for x in (task.x_train, task.x_test))
    scores = task.scores(fit, task.y_train), task.scores(held_out, task.y_test)
    found = torch.stack([*scores, task.losses(fit, task.y_train).double()], dim=1).tolist()
    kept = [v if math.isfinite(v[-1]) else [None] * 3 for v in found]
    ends = [(*values, values[-1] is None, task.trivial_score) for values in kept]
    return [dict(zip(RESULTS, own, strict=True)) for own in ends]
