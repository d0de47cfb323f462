"""CTGAN's training: M generators and their critics as one batched program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from combutab._device import Precision
from combutab.generators._contract import Training
from combutab.generators._records import GeneratorPlan, LatentShape, TableRows
from combutab.generators.gan._draws import GANDraws
from combutab.generators.gan._steps import make_steps
from combutab.nn import Member, RowSpans, StackedCritic, StackedGenerator
from combutab.training import OptimizerConfig

_ADAM = OptimizerConfig(beta_1=0.5, beta_2=0.9)


@dataclass(frozen=True, kw_only=True)
class GANShape(LatentShape[StackedGenerator]):
    """Shape of the generators."""

    conditional: bool = True

    def linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, ...]]:
        """See `SampledShape`."""
        n_inputs = self.embedding_dim + spans.n_condition
        return StackedGenerator.linear_shapes(n_inputs, self.widths, spans.width)

    def build(self, spans: RowSpans, members: Sequence[Member]) -> StackedGenerator:
        """See `SampledShape`."""
        return StackedGenerator(
            self.embedding_dim,
            spans.n_condition,
            spans.width,
            self.widths,
            members,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )


class GANTraining(Training[StackedGenerator]):
    """The generators of a stack of GANs and their critics; parameters as in the estimator."""

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        shape: GANShape,
        *,
        discriminator_dim: tuple[int, ...],
        batch_size: int,
        discriminator_steps: int,
        log_frequency: bool,
        pac: int,
    ) -> None:
        members = [plan.member for plan in plans]
        self.generator = shape.build(spans, members)
        self.critic = StackedCritic(
            spans.width + spans.n_condition,
            discriminator_dim,
            members,
            pac=pac,
            # batch statistics would make the penalty one of whole batches
            normalization="none" if shape.normalization == "batch" else shape.normalization,
            proxy_norm=shape.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )
        networks = {"generator": self.generator, "critic": self.critic}
        super().__init__(rows, spans, plans, networks, self.generator, _ADAM)
        draws = GANDraws(
            rows,
            spans,
            self.plans,
            self.critic,
            batch_size=batch_size,
            n_noise=shape.embedding_dim,
            true_frequencies=not log_frequency,
        )
        precision = Precision(shape.precision)
        context = precision.context(spans.device) if precision.name == "bf16-mixed" else None
        self.steps = make_steps(self.generator, self.critic, spans, draws, context)
        self.n_critic, self.n_steps = discriminator_steps, max(1, len(rows) // batch_size)

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
                totals["discriminator"] += self.steps.critic(at + i) / self.n_critic
                self.update("critic")
            totals["generator"] += self.steps.generator(at + self.n_critic)
            self.update("generator")
        return {name: total / self.n_steps for name, total in totals.items()}
