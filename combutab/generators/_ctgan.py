"""CTGAN: a conditional generator of tables, trained against a critic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from combutab._model_files import loadable
from combutab.activations.kernels import wide
from combutab.core.device import Precision
from combutab.core.parameters import COUNT, NOT_NEGATIVE, POSITIVE, parameter
from combutab.core.rng import Stream, normals, random_uniform, uniforms
from combutab.generators._base import NETWORK_COPIES, BaseGenerator
from combutab.generators._training import DrawnBlocks, GeneratorPlan, Rates, TableRows, Training
from combutab.generators.sampling import RowRequest, Samples
from combutab.nn import (
    MaskMaker,
    Member,
    RowSpans,
    StackedCritic,
    StackedGenerator,
    frozen,
    gradient_penalty,
)
from combutab.training import Conditions, ConditionSampler, OptimizerConfig

# ---- CTGAN's training: M generators and their critics as one batched program ---------------------

_ADAM = OptimizerConfig(beta_1=0.5, beta_2=0.9)


class GANDraw(NamedTuple):
    """The random numbers of one step; ``n_groups`` are the rows of a batch divided by ``pac``."""

    requested: Conditions  # span and code that each row is to have, and a real row that has them
    noise: Tensor  # (M, batch, embedding_dim)
    uniform: Tensor  # (M, n_logits, batch), for the Gumbel noise
    mix: Tensor  # (M, n_groups), the shares of real rows in the penalty's mixtures
    masks: list[Tensor]  # (M, 3 * n_groups, width), the dropout masks of the critics' layers


class GANTraining(Training[StackedGenerator]):
    """The generators of a stack of GANs and their critics."""

    def __init__(
        self, model: CTGAN, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> None:
        members = [plan.member for plan in plans]
        self.generator = model._build(spans, members)
        self.critic = critic = StackedCritic(
            spans.width + spans.n_condition,
            tuple(model.discriminator_dim),
            members,
            pac=model.pac,
            # batch statistics would make the penalty one of whole batches
            normalization="none" if model.normalization == "batch" else model.normalization,
            proxy_norm=model.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )
        networks = {"generator": self.generator, "critic": critic}
        super().__init__(rows, spans, plans, networks, self.generator, _ADAM)
        self.context = Precision(model.precision).context(spans.device)
        self.generate = self.generator.training_pass(self.context)
        self.judge = critic.training_pass(self.context)
        self.batch_size, self.n_groups = model.batch_size, model.batch_size // model.pac
        self.n_noise, self.n_logits = model.embedding_dim, spans.width - spans.n_values
        self.n_critic = model.discriminator_steps
        self.n_steps = max(1, len(rows) // model.batch_size)
        self._true_frequencies = not model.log_frequency
        self._categories = torch.tensor(spans.categories, dtype=torch.int64, device=spans.device)
        self._conditions = None
        if spans.categories:
            sizes = [spans.sizes[i] for i in spans.categories]
            self._conditions = ConditionSampler(rows.codes[:, self._categories], sizes)
        # one rate: all members drop out alike
        self._masks = MaskMaker(
            critic.widths, [critic.dropout], device=spans.device, dtype=spans.dtype
        )
        # of each step: all are functions of the members' seeds and the step's number
        n_rows = len(plans) * self.batch_size
        self._requested = DrawnBlocks(n_rows, self._draw_conditions)
        self._noise = DrawnBlocks(n_rows * self.n_noise, self._draw_noise)
        self._uniforms = DrawnBlocks(n_rows * self.n_logits, self._draw_uniforms)
        n_masked = 3 * self.n_groups * sum(critic.widths)
        self._critic_draws = DrawnBlocks(len(plans) * n_masked, self._draw_for_critics)

    def epoch(self, number: int) -> dict[str, Tensor]:
        """See `Training`."""
        self.generator.train()
        self.critic.train()
        totals = {
            name: torch.zeros(len(self.plans), dtype=torch.float64, device=self.spans.device)
            for name in ("generator", "discriminator")
        }
        for step in range(self.n_steps):
            at = (number * self.n_steps + step) * (self.n_critic + 1)
            for i in range(self.n_critic):
                loss = self._critic_step(self._draw_of_step(at + i))
                totals["discriminator"] += loss / self.n_critic
                self.update("critic")
            totals["generator"] += self._generator_step(self._draw_of_step(at + self.n_critic))
            self.update("generator")
        return {name: total / self.n_steps for name, total in totals.items()}

    def _critic_step(self, drawn: GANDraw) -> Tensor:
        """Set the critics' gradients; returns the members' losses, (M,)."""
        requested, n = drawn.requested, self.n_groups
        condition = self.spans.condition(requested.span, requested.code)
        with torch.no_grad():
            _, fake = self._fake(drawn, condition)
        real = self.spans.dense(self.rows.values[requested.row], self.rows.codes[requested.row])
        real, fake = torch.cat([real, condition], -1), torch.cat([fake, condition], -1)
        with self.context():
            between = [mask[:, 2 * n :] for mask in drawn.masks]
            penalty = gradient_penalty(self.critic, real, fake, drawn.mix, between)
        groups = self.critic.group(torch.cat([real, fake], 1))
        scores = wide(self.judge(groups, [mask[:, : 2 * n] for mask in drawn.masks]))
        on_real, on_fake = scores.squeeze(-1).split(n, dim=1)
        loss = on_fake.mean(1) - on_real.mean(1) + penalty
        self.critic.flat.backward(loss.sum())
        return loss.detach()

    def _generator_step(self, drawn: GANDraw) -> Tensor:
        """Set the generators' gradients; returns the members' losses, (M,)."""
        requested = drawn.requested
        condition = self.spans.condition(requested.span, requested.code)
        raw, fake = self._fake(drawn, condition)
        groups = self.critic.group(torch.cat([fake, condition], -1))
        with frozen(self.critic):
            scores = self.judge(groups, [mask[:, : self.n_groups] for mask in drawn.masks])
            loss = -wide(scores).mean((1, 2))
        if self.spans.categories:
            # CTGAN section 4.3: the generator is to make the category that it was asked for
            loss = loss + self.spans.cross_entropy(raw, requested.span, requested.code).mean(1)
        self.generator.flat.backward(loss.sum())
        return loss.detach()

    def _fake(self, drawn: GANDraw, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Raw outputs, and the rows that they are."""
        raw = self.generate(torch.cat([drawn.noise.to(self.spans.dtype), condition], -1))
        return raw, self.spans.activate(raw, uniform=drawn.uniform.transpose(1, 2))

    def _draw_of_step(self, at: int) -> GANDraw:
        """Return the random numbers of one step."""
        mix, *masks = self._critic_draws(at)
        (noise,), (uniform,) = self._noise(at), self._uniforms(at)
        return GANDraw(Conditions(*self._requested(at)), noise, uniform, mix, masks)

    def _draw_conditions(self, steps: range) -> list[Tensor]:
        """Conditions; without discrete columns any row meets them, and the others are 0."""
        keys, device = self.keys(Stream.GAN_CONDITIONS, steps), self.spans.device
        if self._conditions is None:
            draws = random_uniform(keys, self.batch_size, device)
            row = (draws * len(self.rows)).long().clamp_(max=len(self.rows) - 1)
            return [self.by_step(x) for x in (torch.zeros_like(row), torch.zeros_like(row), row)]
        n = ConditionSampler.N_UNIFORMS
        draws = random_uniform(keys, n * self.batch_size, device).unflatten(1, (-1, n))
        drawn = self._conditions.draw(draws, true_frequencies=self._true_frequencies)
        return [self.by_step(x) for x in (self._categories[drawn.span], drawn.code, drawn.row)]

    def _draw_noise(self, steps: range) -> list[Tensor]:
        keys, shape = self.keys(Stream.GAN_NOISE, steps), (self.batch_size, self.n_noise)
        return [self.by_step(normals(keys, *shape, device=self.spans.device))]

    def _draw_uniforms(self, steps: range) -> list[Tensor]:
        keys, shape = self.keys(Stream.GAN_GUMBEL, steps), (self.n_logits, self.batch_size)
        return [self.by_step(uniforms(keys, *shape, device=self.spans.device))]

    def _draw_for_critics(self, steps: range) -> list[Tensor]:
        """Shares of mixtures, and masks: a generator's step uses the first third of their rows."""
        keys = self.keys(Stream.GAN_MIX, steps)
        mix = uniforms(keys, self.n_groups, device=self.spans.device)
        masks = self._masks.draw(self.keys(Stream.GAN_MASKS, steps), 3 * self.n_groups)
        return [self.by_step(x) for x in (mix, *masks)]


# ---- CTGAN: a conditional generator of tables, trained against a critic --------------------------

_SORTED_BYTES = 48  # a row, while rows are sorted by one column's categories


@loadable
@dataclass(eq=False, repr=False)
class CTGAN(BaseGenerator[StackedGenerator]):
    """Synthetic tables by a conditional generative adversarial network (CTGAN).

    Parameters up to ``enable_gpu`` have the names, the order and the defaults of the ``ctgan``
    package.

    Parameters
    ----------
    embedding_dim : int, default=128
        Dimension of the noise from which the generator makes a row.
    generator_dim, discriminator_dim : sequence of int, default=(256, 256)
        Widths of the hidden layers. In the generator, the input of each layer is concatenated to
        its output.
    generator_lr, discriminator_lr : float, default=2e-4
        Learning rates of Adam.
    generator_decay, discriminator_decay : float, default=1e-6
        Strengths of the L2 penalties on the parameters.
    batch_size : int, default=500
        Number of rows per batch, a multiple of ``pac``.
    discriminator_steps : int, default=1
        Number of steps of the critic per step of the generator.
    log_frequency : bool, default=True
        Whether conditions in training are drawn by the logarithm of the categories' counts instead
        of the counts, so that rare categories are seen more often. Sampled rows have the true
        frequencies in both cases.
    verbose : bool, default=False
        Whether to show a progress bar and an estimate of the training time, on a terminal.
    epochs : int, default=300
        Number of passes over the rows. Rows that do not fill a batch are left out of a pass.
    pac : int, default=10
        Number of rows that the critic judges together (PacGAN).
    enable_gpu : bool, default=True
        Whether to use a GPU if there is one. False is the same as ``device="cpu"``.
    activation : str or callable, default="combu"
        Activation function of all hidden layers of both networks, as in `MLPClassifier`.
        ``"original"`` is that of the CTGAN paper: ReLU in the generator, LeakyReLU(0.2) in the
        critic.
    normalization : str, default="batch"
        Normalization before each activation, with the values of `MLPClassifier`. With "batch" the
        critic has no normalization.
    proxy_norm : bool, default=False
        Whether to add Proxy Normalization after layer or group normalization.
    early_stopping : bool, default=False
        Whether to set rows aside and to stop the training of a member when the energy distance
        between its encoded rows and them has not decreased for ``n_iter_no_change`` epochs. The
        weights of its best epoch are kept.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping sets aside, at most 1,000 rows.
    n_iter_no_change : int or inf, default=50
        Number of epochs without improvement after which training stops.
    max_time : float, str or None, default=None
        Time limit in seconds, or as text such as ``"90s"``, ``"2min"`` or ``"1h"``. Training stops
        at the end of the epoch in which it is reached, after at least one epoch. It includes the
        encoding of the table. The number of epochs then depends on the machine. A fit that
        continues from a checkpoint has the whole time again.
    n_members : int, default=1
        Number of generators, trained together from different seeds. Samples have equal numbers of
        rows from each.
    min_frequency : int or float, default=5
        Number of rows, or share of them, that must have a value for it to occur in files and in
        sampled rows. Rarer values of discrete columns (also booleans, numbers and missing values)
        are learned as one category, and sampled rows have one of the other values in its place.
        Missing values of numeric columns that are rarer are not sampled either. The bounds of
        numbers and dates are values that enough rows share, or lie further out. 1 keeps all values
        and bounds.
    identifiers : "auto", list or None, default="auto"
        Columns that identify rows, such as row ids and e-mail addresses. They are not learned.
        Sampled rows have new values, which are not in the table and differ within a call. "auto"
        finds text that hardly ever repeats, and whole numbers that never repeat if they count the
        rows or the column's name is ``id`` or similar. None means no column.
    fake : dict or None, default=None
        Columns of text that get realistic values by Faker (``pip install 'combutab[faker]'``), such
        as ``{"name": "name", "mail": "email", "street": "street_address:de_DE"}``: the provider,
        and the locale if it is not ``en_US``. The real values are not learned or stored. ``name``,
        ``first_name``, ``last_name``, ``email`` and ``user_name`` of a row belong to one person (a
        second ``name`` and ``email`` to another). Values do not repeat if those of the table do
        not. They depend on ``random_state`` of the fit and the number of the row. ``fit`` makes
        10,000 values, and raises an error if the table has one of them.
    constraints : list of Inequality, Sum, Formula, ..., or None, default=None
        Rules that all rows meet. ``fit`` checks that the rows of the table meet them, and all rows
        of ``sample``, ``sample_from``, ``impute`` and ``fit_resample`` do. Columns that follow from
        others are computed. Of two columns that are ordered, one is learned together with the
        difference. Rows that still violate a constraint are sampled again, never clipped.
        `suggest_constraints` proposes constraints for a table.
    random_state : int, RandomState, Generator or None, default=None
        Seed of training and sampling. Global random state is not changed. Pass an int for
        reproducible results.
    device : str or torch.device, default="auto"
        Device of training and sampling: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"``
        or ``"cuda:1"``.
    precision : {"float32", "float64", "bf16-mixed"}, default="float32"
        Precision of the networks' computations.
    callbacks : list of combutab.training.Callback or None, default=None
        Objects that are called after each epoch and can stop the training.

    Attributes
    ----------
    encoder_ : ModeEncoder
    history_ : DataFrame
        One row per member and epoch: generator_loss and discriminator_loss, means over the epoch;
        with early stopping validation_distance.
    loss_values : DataFrame
        The history of the first member, with the column names of the ``ctgan`` package.
    n_iter_ : int
        Number of epochs.
    n_features_in_ : int
        Number of columns seen in ``fit``.

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

    embedding_dim: int = parameter(128, COUNT)
    generator_dim: Sequence[int] = parameter((256, 256), "array-like", concerns="width")
    discriminator_dim: Sequence[int] = parameter((256, 256), "array-like", concerns="width")
    generator_lr: float = parameter(2e-4, POSITIVE, concerns="rate")
    generator_decay: float = parameter(1e-6, NOT_NEGATIVE, concerns="rate")
    discriminator_lr: float = parameter(2e-4, POSITIVE, concerns="rate")
    discriminator_decay: float = parameter(1e-6, NOT_NEGATIVE, concerns="rate")
    batch_size: int = parameter(500, COUNT)
    discriminator_steps: int = parameter(1, COUNT)
    log_frequency: bool = parameter(True, "boolean")
    verbose: bool = parameter(False, "verbose", concerns="run")
    epochs: int = parameter(300, COUNT, concerns="run")
    pac: int = parameter(10, COUNT)
    enable_gpu: bool = parameter(True, "boolean", concerns="run")
    _: KW_ONLY
    normalization: str = "batch"

    _conditional = True
    _needs_second_derivative = True
    # the generator has a weight for each pair of a category asked for and one made
    _advice_on_many_categories = ", or use TVAE, whose networks grow with the categories only"

    def _check(self) -> None:
        if self.batch_size % self.pac:
            nearest = max(1, round(self.batch_size / self.pac)) * self.pac
            raise ValueError(
                f"pac={self.pac} must divide batch_size={self.batch_size}: the critic scores "
                f"{self.pac} rows together; use batch_size={nearest}"
            )
        super()._check()

    def _rates(self) -> dict[str, Rates]:
        return {
            "generator": Rates(self.generator_lr, self.generator_decay),
            "critic": Rates(self.discriminator_lr, self.discriminator_decay),
        }

    def _linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, int]]:
        n_inputs = self.embedding_dim + spans.n_condition
        return StackedGenerator.linear_shapes(n_inputs, self._all_widths()[0], spans.width)

    def _build(self, spans: RowSpans, members: Sequence[Member]) -> StackedGenerator:
        return StackedGenerator(
            self.embedding_dim + spans.n_condition,
            self._all_widths()[0],
            spans.width,
            members,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )

    def _n_weights(self, spans: RowSpans) -> int:
        n_inputs = self.pac * (spans.width + spans.n_condition)
        critic = StackedCritic.linear_shapes(n_inputs, self._all_widths()[1], 1)
        return super()._n_weights(spans) + sum(map(math.prod, critic.values()))

    def _training_bytes(
        self, spans: RowSpans, n_rows: int, n_members: int, n_copies: int = NETWORK_COPIES
    ) -> int:
        network_bytes = super()._training_bytes(spans, n_rows, n_members, n_copies)
        # rows by category: a copy of the codes, sorted column by column
        return network_bytes + n_rows * (8 * len(spans.categories) + _SORTED_BYTES)

    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> GANTraining:
        return GANTraining(self, rows, spans, plans)

    def _draw(self, network: StackedGenerator, spans: RowSpans, request: RowRequest) -> Samples:
        keys, n_noise = request.keys_for(Stream.LATENT), network.n_inputs - spans.n_condition
        noise = normals(keys, request.n_rows, n_noise, device=spans.device)
        raw = network(torch.cat([noise.to(spans.dtype), request.condition], -1)).to(spans.dtype)
        raw, probability = spans.restrict(raw, request.allowed)
        # the Gumbel-softmax of the training stands for one draw from the softmax of each span
        keys = request.keys_for(Stream.CODES)
        uniform = uniforms(keys, request.n_rows, spans.n_spans, device=spans.device)
        return Samples(*spans.sample(raw, uniform), probability)
