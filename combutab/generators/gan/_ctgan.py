"""CTGAN: a conditional generator of tables, trained against a critic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from combutab._model_files import loadable
from combutab._random import Purpose, derive
from combutab.generators._base import BaseGenerator
from combutab.generators._constraints import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARED_CONSTRAINTS,
    check_widths,
)
from combutab.generators._noise import normals, uniforms
from combutab.generators._records import GeneratorPlan, Rates, RowsAsked, RowsDrawn, TableRows
from combutab.generators.gan._training import GANShape, GANTraining
from combutab.nn import RowSpans, StackedCritic, StackedGenerator


@loadable
@dataclass(eq=False, repr=False)
class CTGAN(BaseGenerator[StackedGenerator]):
    """Synthetic rows of a table by a conditional generator trained against a critic.

    Parameters have the ``ctgan`` package's names, order and defaults; those after ``enable_gpu``
    are ours.

    Parameters
    ----------
    embedding_dim : int, default=128
        Noise that a row is made from.
    generator_dim, discriminator_dim : sequence of int, default=(256, 256)
        Hidden widths. The generator's layers are residual: each passes its input on as well.
    generator_lr, discriminator_lr : float, default=2e-4
        Adam's learning rates.
    generator_decay, discriminator_decay : float, default=1e-6
        L2 penalties on the parameters.
    batch_size : int, default=500
        Rows in a batch; ``pac`` must divide it.
    discriminator_steps : int, default=1
        The critic's steps for each of the generator's.
    log_frequency : bool, default=True
        In training, ask for categories by the logarithm of their counts rather than by the counts.
        Sampled rows have the true frequencies either way.
    verbose : bool, default=False
        Show a progress bar with both losses, on a terminal.
    epochs : int, default=300
        Passes over the rows: as many batches each as fit into the table.
    pac : int, default=10
        Rows that the critic judges together.
    enable_gpu : bool, default=True
        False is ``device="cpu"``.
    activation : str or callable, default="combu"
        Of every hidden layer of both networks; ``"original"`` is the CTGAN paper's ReLU, and
        LeakyReLU(0.2) in the critic.
    normalization : str, default="batch"
        Before the activations: as for the estimators. Where it is "batch", the critic has none.
    proxy_norm : bool, default=False
        Follow layer or group normalisation by proxy normalisation.
    early_stopping : bool, default=False
        Hold rows out, and stop a member when its own rows have not come closer to them, by the
        energy distance of encoded rows, for ``n_iter_no_change`` epochs. The weights of its best
        epoch are kept.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping holds out, 1,000 rows at most.
    n_iter_no_change : int or inf, default=50
    max_time : float, str or None, default=None
        Seconds, or text such as ``"90s"``, ``"2min"`` or ``"1h"``, after which training ends with
        the epoch, the first one at least; the encoding of the table counts. How many epochs these
        are depends on the machine. A fit that goes on from a checkpoint has as many anew.
    n_members : int, default=1
        Generators trained from different seeds as one stack; samples have equal parts of each.
    min_frequency : int or float, default=5
        What fewer rows have, or a smaller share of them, is in no file and no sampled row: values
        of discrete columns (truth values, numbers and missing ones too) are learned as one, and
        sampled rows have the others in their place; missing numbers are not sampled either; the
        bounds of numbers and dates are such as enough rows share, or others further out. 1 keeps
        every value and bound as it is.
    identifiers : "auto", list or None, default="auto"
        Columns that name rows, such as row ids and e-mail addresses: they are not learned, and
        sampled rows have new ones, none of which is in the table, different within a call.
        "auto" finds text that hardly ever repeats, and whole numbers that never do if they are a
        count or the column is called ``id`` or the like. None is for no column.
    random_state : int, RandomState, Generator or None, default=None
        Fixes training and sampling; global state is never touched.
    device : str or torch.device, default="auto"
    precision : {"float32", "float64", "bf16-mixed"}, default="float32"
    callbacks : list of combutab.training.Callback or None, default=None
        Told of every epoch; may stop the training.

    Attributes
    ----------
    encoder_ : ModeEncoder
    history_ : DataFrame
        One row a member and epoch: generator_loss, discriminator_loss, means over the epoch; with
        early stopping validation_distance.
    loss_values : DataFrame
        The same of the first member, with the ``ctgan`` package's column names.
    n_iter_ : int
        Epochs trained.
    n_features_in_ : int

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN".

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.integers(18, 80, 200), "city": rng.choice(["A", "B"], 200)})
    >>> model = CTGAN(epochs=1, batch_size=50, random_state=0).fit(X)
    >>> model.sample(3, conditions={"city": "B"})["city"].tolist()
    ['B', 'B', 'B']
    """

    embedding_dim: int = 128
    generator_dim: Sequence[int] = (256, 256)
    discriminator_dim: Sequence[int] = (256, 256)
    generator_lr: float = 2e-4
    generator_decay: float = 1e-6
    discriminator_lr: float = 2e-4
    discriminator_decay: float = 1e-6
    batch_size: int = 500
    discriminator_steps: int = 1
    log_frequency: bool = True
    verbose: bool = False
    epochs: int = 300
    pac: int = 10
    enable_gpu: bool = True
    _: KW_ONLY
    normalization: str = "batch"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SHARED_CONSTRAINTS,
        "generator_dim": ["array-like"],
        "discriminator_dim": ["array-like"],
        "generator_lr": [POSITIVE],
        "discriminator_lr": [POSITIVE],
        "generator_decay": [NOT_NEGATIVE],
        "discriminator_decay": [NOT_NEGATIVE],
        "discriminator_steps": [COUNT],
        "log_frequency": ["boolean"],
        "pac": [COUNT],
    }
    _needs_second_derivative = True
    _member_rates = {"generator_lr", "discriminator_lr", "generator_decay", "discriminator_decay"}
    # the generator has a weight for each pair of a category asked for and one made
    _of_many_categories = ", or use TVAE, whose networks grow with the categories alone"

    def _check(self) -> None:
        if self.batch_size % self.pac:
            nearest = max(1, round(self.batch_size / self.pac)) * self.pac
            raise ValueError(
                f"pac={self.pac} must divide batch_size={self.batch_size}: the critic judges "
                f"{self.pac} rows at a time; take batch_size={nearest}"
            )
        super()._check()

    def _all_widths(self) -> list[tuple[int, ...]]:
        return [
            check_widths("generator_dim", self.generator_dim),
            check_widths("discriminator_dim", self.discriminator_dim),
        ]

    def _rates(self) -> dict[str, Rates]:
        return {
            "generator": Rates(self.generator_lr, self.generator_decay),
            "critic": Rates(self.discriminator_lr, self.discriminator_decay),
        }

    def _make_shape(self) -> GANShape:
        return GANShape.of(self, self._all_widths()[0])

    def _n_weights(self, spans: RowSpans) -> int:
        n_inputs = self.pac * (spans.width + spans.n_condition)
        critic = StackedCritic.linear_shapes(n_inputs, self._all_widths()[1], 1)
        return super()._n_weights(spans) + sum(map(math.prod, critic.values()))

    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> GANTraining:
        return GANTraining(
            rows,
            spans,
            plans,
            self._make_shape(),
            discriminator_dim=self._all_widths()[1],
            batch_size=self.batch_size,
            discriminator_steps=self.discriminator_steps,
            log_frequency=self.log_frequency,
            pac=self.pac,
        )

    def _draw(self, network: StackedGenerator, spans: RowSpans, asked: RowsAsked) -> RowsDrawn:
        noise_keys = [derive(key, Purpose.LATENT) for key in asked.keys]
        noise = normals(noise_keys, asked.n_rows, network.n_noise, device=spans.device)
        raw = network(noise.to(spans.dtype), asked.condition).to(spans.dtype)
        raw, mass = spans.restrict(raw, asked.allowed)
        draw_keys = [derive(key, Purpose.CODES) for key in asked.keys]
        # what training's Gumbel-softmax stands for: one draw from each span's softmax
        uniform = uniforms(draw_keys, asked.n_rows, spans.n_spans, device=spans.device)
        return RowsDrawn(*spans.sample(raw, uniform), mass)
