"""All that is drawn at random in the training of GANs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from combutab._random import Purpose, derive, random_uniform
from combutab.generators._noise import Blocks, log_exponentials, normals, uniforms
from combutab.generators._records import GeneratorPlan, TableRows
from combutab.nn import MaskMaker, RowSpans, StackedCritic
from combutab.training import ConditionSampler


class Asked(NamedTuple):
    """Conditions asked of each row, and a real row that meets them; each (M, batch) int64.

    Without discrete columns nothing is asked: ``span`` and ``code`` are None.
    """

    span: Tensor | None
    code: Tensor | None
    row: Tensor


class GANDraws:
    """Random numbers of each step: functions of the members' seeds and the step's number alone.

    A step has ``batch_size`` rows, and ``n_noise`` numbers for each. With ``true_frequencies``
    categories are asked for as often as the table has them.
    """

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        critic: StackedCritic,
        *,
        batch_size: int,
        n_noise: int,
        true_frequencies: bool,
    ) -> None:
        self.rows, self.spans = rows, spans
        self.batch_size, self.n_noise = batch_size, n_noise
        self.n_groups = batch_size // critic.pac
        self._seeds = [plan.member.seed for plan in plans]
        self._true_frequencies, self._device = true_frequencies, spans.device
        self._sampler = None
        self._categories = torch.tensor(spans.categories, dtype=torch.int64, device=self._device)
        if spans.categories:
            sizes = [spans.sizes[i] for i in spans.categories]
            self._sampler = ConditionSampler(rows.codes[:, self._categories], sizes)
        # one rate: all members drop out alike
        self._masks = MaskMaker(
            critic.widths, [critic.dropout], device=self._device, dtype=critic.dtype
        )
        self._n_logits = spans.width - spans.n_values
        n_rows = len(plans) * batch_size
        self._asked = Blocks(n_rows, self._draw_conditions)
        self._noise = Blocks(n_rows * n_noise, self._draw_noise)
        self._uniforms = Blocks(n_rows * self._n_logits, self._draw_uniforms)
        self._exponentials = Blocks(n_rows * self._n_logits, self._draw_exponentials)
        n_masked = 3 * self.n_groups * sum(critic.widths)
        self._critic_draws = Blocks(len(plans) * n_masked, self._draw_for_critics)

    def asked(self, at: int) -> Asked:
        """Conditions of step ``at``."""
        *what, row = self._asked(at)
        span, code = what or (None, None)
        return Asked(span, code, row)

    def noise(self, at: int) -> Tensor:
        """Standard normals, (M, batch, n_noise)."""
        return self._noise(at)[0]

    def uniforms(self, at: int) -> Tensor:
        """Draw the uniforms of Gumbel noise, columns first: (M, width - n_values, batch)."""
        return self._uniforms(at)[0]

    def log_exponentials(self, at: int) -> Tensor:
        """Minus the Gumbel noise of ``uniforms``."""
        return self._exponentials(at)[0]

    def masks(self, at: int) -> list[Tensor]:
        """The critic's dropout masks, (M, 3 * n_groups, width) a layer.

        A step of the generator takes the first third.
        """
        return self._critic_draws(at)[1:]

    def mix(self, at: int) -> Tensor:
        """Return the shares of real rows in the mixtures of the penalty, (M, n_groups)."""
        return self._critic_draws(at)[0]

    def _keys(self, steps: range, purpose: Purpose) -> list[int]:
        return [derive(seed, purpose, at) for at in steps for seed in self._seeds]

    def _by_step(self, drawn: Tensor) -> Tensor:
        return drawn.unflatten(0, (-1, len(self._seeds)))

    def _draw_conditions(self, steps: range) -> list[Tensor]:
        keys = self._keys(steps, Purpose.GAN_CONDITIONS)
        if self._sampler is None:
            draws = random_uniform(keys, self.batch_size, self._device)
            row = (draws * len(self.rows)).long().clamp_(max=len(self.rows) - 1)
            return [self._by_step(row)]
        n = ConditionSampler.N_UNIFORMS
        draws = random_uniform(keys, n * self.batch_size, self._device).unflatten(1, (-1, n))
        drawn = self._sampler.draw(draws, true_frequencies=self._true_frequencies)
        return [self._by_step(x) for x in (self._categories[drawn.span], drawn.code, drawn.row)]

    def _draw_noise(self, steps: range) -> list[Tensor]:
        keys, shape = self._keys(steps, Purpose.GAN_NOISE), (self.batch_size, self.n_noise)
        return [self._by_step(normals(keys, *shape, device=self._device))]

    def _draw_uniforms(self, steps: range) -> list[Tensor]:
        keys, shape = self._keys(steps, Purpose.GAN_GUMBEL), (self._n_logits, self.batch_size)
        return [self._by_step(uniforms(keys, *shape, device=self._device))]

    def _draw_exponentials(self, steps: range) -> list[Tensor]:
        return [log_exponentials(uniform) for uniform in self._draw_uniforms(steps)]

    def _draw_for_critics(self, steps: range) -> list[Tensor]:
        mix = uniforms(self._keys(steps, Purpose.GAN_MIX), self.n_groups, device=self._device)
        masks = self._masks.draw(self._keys(steps, Purpose.GAN_MASKS), 3 * self.n_groups)
        return [self._by_step(x) for x in (mix, *masks)]
