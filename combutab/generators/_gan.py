"""CTGAN's training: M generators and their critics as one batched program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from combutab._device import Precision
from combutab._random import fold_in, random_uniform
from combutab.generators._noise import normals, uniforms
from combutab.generators._records import GeneratorPlan, TableRows, update
from combutab.nn import (
    RowSpans,
    StackedCritic,
    StackedGenerator,
    StackedNetwork,
    frozen,
    gradient_penalty,
)
from combutab.training import Conditions, ConditionSampler, OptimizerConfig, RowOptimizer

# purposes of a step's key
_CONDITIONS, _NOISE, _GUMBEL, _MASKS, _MIX = range(5)
_ADAM = OptimizerConfig(beta_1=0.5, beta_2=0.9)


@dataclass(frozen=True)
class GANConfig:
    """What all members share; names as in the estimator."""

    embedding_dim: int = 128
    generator_dim: tuple[int, ...] = (256, 256)
    discriminator_dim: tuple[int, ...] = (256, 256)
    batch_size: int = 500
    discriminator_steps: int = 1
    pac: int = 10
    log_frequency: bool = True
    normalization: str = "batch"
    proxy_norm: bool = False
    precision: Precision = field(default_factory=lambda: Precision("float32"))


class GANTraining:
    """The networks of a stack of GANs, their optimisers, and one epoch of training.

    What is drawn in a step is a function of the member's seed and the step's number, so that
    training can be taken up at any epoch, and a member does not depend on its stack.
    """

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        config: GANConfig,
        device: torch.device,
    ) -> None:
        self.rows, self.spans, self.plans, self.config = rows, spans, list(plans), config
        self.device, self.context = device, config.precision.context(device)
        members = [plan.member for plan in plans]
        self.generator = StackedGenerator(
            config.embedding_dim,
            spans.n_condition,
            spans.width,
            config.generator_dim,
            members,
            normalization=config.normalization,
            proxy_norm=config.proxy_norm,
            dtype=config.precision.dtype,
            device=device,
        )
        self.critic = StackedCritic(
            spans.width + spans.n_condition,
            config.discriminator_dim,
            members,
            pac=config.pac,
            # batch statistics would make the penalty one of whole batches
            normalization="none" if config.normalization == "batch" else config.normalization,
            proxy_norm=config.proxy_norm,
            dtype=config.precision.dtype,
            device=device,
        )
        self.networks: dict[str, StackedNetwork] = {
            "generator": self.generator,
            "critic": self.critic,
        }
        self.optimizers = {
            name: RowOptimizer(_ADAM, net.flat.values, net.n_decayed)
            for name, net in self.networks.items()
        }
        self.masks = self.critic.mask_maker()
        self.sampler = None
        self.categories = torch.tensor(spans.categories, dtype=torch.int64, device=device)
        if spans.categories:
            sizes = [spans.sizes[i] for i in spans.categories]
            self.sampler = ConditionSampler(rows.codes[:, self.categories], sizes)
        self.n_steps = max(1, len(rows) // config.batch_size)

    def epoch(self, number: int) -> dict[str, Tensor]:
        """Train one epoch; returns each member's mean losses, (M,) on the device."""
        self.generator.train()
        self.critic.train()
        totals = {
            name: torch.zeros(len(self.plans), dtype=torch.float64, device=self.device)
            for name in ("generator", "discriminator")
        }
        n_critic = self.config.discriminator_steps
        for step in range(self.n_steps):
            at = (number * self.n_steps + step) * (n_critic + 1)
            for i in range(n_critic):
                totals["discriminator"] += self._critic_step(at + i) / n_critic
            totals["generator"] += self._generator_step(at + n_critic)
        return {name: total / self.n_steps for name, total in totals.items()}

    # ---- steps ---------------------------------------------------------------------------------

    def _keys(self, at: int, purpose: int) -> list[int]:
        return [fold_in(plan.member.seed, at, purpose) for plan in self.plans]

    def _conditions(self, at: int) -> tuple[Conditions | None, Tensor, Tensor]:
        """What is asked of each row, as a vector too, and a real row that meets it."""
        shape = (len(self.plans), self.config.batch_size)
        keys = self._keys(at, _CONDITIONS)
        if self.sampler is None:
            draws = random_uniform(keys, shape[1], self.device)
            row = (draws * len(self.rows)).long().clamp_(max=len(self.rows) - 1)
            return None, torch.zeros(*shape, 0, dtype=self.spans.dtype, device=self.device), row
        n = ConditionSampler.N_UNIFORMS
        draws = random_uniform(keys, n * shape[1], self.device).view(*shape, n)
        true = not self.config.log_frequency
        drawn = self.sampler.draw(draws, true_frequencies=true)
        drawn = drawn._replace(span=self.categories[drawn.span])
        return drawn, self.spans.condition(drawn.span, drawn.code), drawn.row

    def _fake(self, at: int, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Raw outputs, and the rows that they are."""
        batch = self.config.batch_size
        noise = normals(
            self._keys(at, _NOISE), batch, self.config.embedding_dim, device=self.device
        )
        width = self.spans.width - self.spans.n_values
        gumbel = uniforms(self._keys(at, _GUMBEL), batch, width, device=self.device)
        with self.context():
            raw = self.generator(noise.to(self.spans.dtype), condition)
        return raw, self.spans.activate(raw, uniform=gumbel)

    def _critic_step(self, at: int) -> Tensor:
        _, condition, row = self._conditions(at)
        with torch.no_grad():
            _, fake = self._fake(at, condition)
        real = self.spans.dense(self.rows.values[row], self.rows.codes[row])
        real, fake = torch.cat([real, condition], -1), torch.cat([fake, condition], -1)
        n_groups = self.config.batch_size // self.config.pac
        masks = self.masks.draw(self._keys(at, _MASKS), 3 * n_groups)
        mix = uniforms(self._keys(at, _MIX), n_groups, device=self.device)
        with self.context():
            between = [mask[:, 2 * n_groups :] for mask in masks]
            penalty = gradient_penalty(self.critic, real, fake, mix, between)
            both = [mask[:, : 2 * n_groups] for mask in masks]
            score = self.critic(torch.cat([real, fake], 1), both)
        on_real, on_fake = score.float().split(n_groups, dim=1)
        loss = on_fake.mean(1) - on_real.mean(1) + penalty
        self.critic.flat.backward(loss.sum())
        rates = [plan.discriminator_lr for plan in self.plans]
        decays = [plan.discriminator_decay for plan in self.plans]
        update(self.critic, self.optimizers["critic"], rates, decays)
        return loss.detach()

    def _generator_step(self, at: int) -> Tensor:
        drawn, condition, _ = self._conditions(at)
        raw, fake = self._fake(at, condition)
        n_groups = self.config.batch_size // self.config.pac
        masks = self.masks.draw(self._keys(at, _MASKS), n_groups)
        with frozen(self.critic), self.context():
            loss = -self.critic(torch.cat([fake, condition], -1), masks).float().mean(1)
        if drawn is not None:
            # CTGAN section 4.3: the generator is to make the category that it was asked for
            loss = loss + self.spans.cross_entropy(raw, drawn.span, drawn.code).mean(1)
        self.generator.flat.backward(loss.sum())
        rates = [plan.generator_lr for plan in self.plans]
        decays = [plan.generator_decay for plan in self.plans]
        update(self.generator, self.optimizers["generator"], rates, decays)
        return loss.detach()
