"""CTGAN's training: M generators and their critics as one batched program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from combutab._device import Precision
from combutab.generators._gan_draws import GANDraws
from combutab.generators._gan_steps import make_steps
from combutab.generators._records import GeneratorPlan, TableRows, update
from combutab.nn import (
    RowSpans,
    StackedCritic,
    StackedGenerator,
    StackedNetwork,
)
from combutab.training import OptimizerConfig, RowOptimizer

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
        self.device = device
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
        draws = GANDraws(
            rows,
            spans,
            self.plans,
            self.critic,
            batch_size=config.batch_size,
            n_noise=config.embedding_dim,
            true_frequencies=not config.log_frequency,
        )
        context = (
            config.precision.context(device) if config.precision.name == "bf16-mixed" else None
        )
        self.steps = make_steps(self.generator, self.critic, spans, draws, context)
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

    def _critic_step(self, at: int) -> Tensor:
        loss = self.steps.critic(at)
        rates = [plan.discriminator_lr for plan in self.plans]
        decays = [plan.discriminator_decay for plan in self.plans]
        update(self.critic, self.optimizers["critic"], rates, decays)
        return loss

    def _generator_step(self, at: int) -> Tensor:
        loss = self.steps.generator(at)
        rates = [plan.generator_lr for plan in self.plans]
        decays = [plan.generator_decay for plan in self.plans]
        update(self.generator, self.optimizers["generator"], rates, decays)
        return loss
