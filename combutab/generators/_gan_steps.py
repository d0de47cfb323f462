"""The gradients of a step of GANs: by autograd for any network, or written out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from combutab.generators._gan_draws import Asked, GANDraws
from combutab.nn import (
    BlockPass,
    CriticPass,
    RowSpans,
    Scratch,
    SpanColumns,
    StackedCritic,
    StackedGenerator,
    frozen,
    gradient_penalty,
)


class GANSteps(Protocol):
    """Sets the gradients of critics or of generators; gives the members' losses, (M,)."""

    def critic(self, at: int) -> Tensor:
        """The gradients of critic step ``at``."""

    def generator(self, at: int) -> Tensor:
        """The gradients of generator step ``at``."""


def make_steps(
    generator: StackedGenerator,
    critic: StackedCritic,
    spans: RowSpans,
    draws: GANDraws,
    context: Callable[[], AbstractContextManager[object]] | None,
) -> GANSteps:
    """The fastest steps for these networks; ``context`` is autocast's, where there is one."""
    written_out = (
        context is None
        and generator.device.type == "cpu"
        and draws.batch_size > 1
        and BlockPass.fits(generator)
        and CriticPass.fits(critic)
    )
    if written_out:
        return InPlaceSteps(generator, critic, spans, draws)
    return AutogradSteps(generator, critic, spans, draws, context or torch.enable_grad)


class AutogradSteps:
    """All members at once, for any network, device and precision."""

    def __init__(
        self,
        generator: StackedGenerator,
        critic: StackedCritic,
        spans: RowSpans,
        draws: GANDraws,
        context: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._generator, self._critic = generator, critic
        self.spans, self.draws, self.context = spans, draws, context

    def _condition(self, asked: Asked) -> Tensor:
        if asked.span is None or asked.code is None:
            return torch.zeros(*asked.row.shape, 0, dtype=self.spans.dtype, device=asked.row.device)
        return self.spans.condition(asked.span, asked.code)

    def _fake(self, at: int, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Raw outputs, and the rows that they are."""
        noise = self.draws.noise(at).to(self.spans.dtype)
        with self.context():
            raw = self._generator(noise, condition)
        return raw, self.spans.activate(raw, uniform=self.draws.uniforms(at).transpose(1, 2))

    def critic(self, at: int) -> Tensor:
        """As ``GANSteps.critic``."""
        asked, rows = self.draws.asked(at), self.draws.rows
        condition = self._condition(asked)
        with torch.no_grad():
            _, fake = self._fake(at, condition)
        real = self.spans.dense(rows.values[asked.row], rows.codes[asked.row])
        real, fake = torch.cat([real, condition], -1), torch.cat([fake, condition], -1)
        n_groups, masks = self.draws.n_groups, self.draws.masks(at)
        with self.context():
            between = [mask[:, 2 * n_groups :] for mask in masks]
            mix = self.draws.mix(at)
            penalty = gradient_penalty(self._critic, real, fake, mix, between)
            both = [mask[:, : 2 * n_groups] for mask in masks]
            score = self._critic(torch.cat([real, fake], 1), both)
        on_real, on_fake = _wide(score).split(n_groups, dim=1)
        loss = on_fake.mean(1) - on_real.mean(1) + penalty
        self._critic.flat.backward(loss.sum())
        return loss.detach()

    def generator(self, at: int) -> Tensor:
        """As ``GANSteps.generator``."""
        asked = self.draws.asked(at)
        condition = self._condition(asked)
        raw, fake = self._fake(at, condition)
        masks = [mask[:, : self.draws.n_groups] for mask in self.draws.masks(at)]
        with frozen(self._critic), self.context():
            loss = -_wide(self._critic(torch.cat([fake, condition], -1), masks)).mean(1)
        if asked.span is not None and asked.code is not None:
            # CTGAN section 4.3: the generator is to make the category that it was asked for
            loss = loss + self.spans.cross_entropy(raw, asked.span, asked.code).mean(1)
        self._generator.flat.backward(loss.sum())
        return loss.detach()


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class InPlaceSteps:
    """One member after the other in memory that is allocated once; the numbers are the same."""

    def __init__(
        self, generator: StackedGenerator, critic: StackedCritic, spans: RowSpans, draws: GANDraws
    ) -> None:
        self.spans, self.draws = spans, draws
        self.n_columns = critic.n_inputs
        memory = [Scratch(spans.dtype, spans.device) for _ in range(3)]
        self._scratch, members = memory[2], range(generator.n_members)
        self._generators = [BlockPass(generator, m, memory[0]) for m in members]
        self._critics = [CriticPass(critic, m, memory[1]) for m in members]
        self._columns = SpanColumns(spans, self._scratch)

    def _fakes(self, at: int, member: int, condition: Tensor | None) -> tuple[Tensor, Tensor]:
        """Raw outputs, and the rows that they are, columns first."""
        run, batch = self._generators[member], self.draws.batch_size
        inputs = run.inputs(batch)
        inputs[:, : self.draws.n_noise] = self.draws.noise(at)[member]
        _write_one_hot(inputs[:, self.draws.n_noise :], condition)
        raw = run.forward(batch, columns_first=True)
        return raw, self._columns.activate(raw, self.draws.log_exponentials(at)[member])

    def _where(self, asked: Asked, member: int) -> Tensor | None:
        if asked.span is None or asked.code is None:
            return None
        return self.spans.condition_column(asked.span[member], asked.code[member]).unsqueeze(1)

    @torch.no_grad()
    def critic(self, at: int) -> Tensor:
        """As ``GANSteps.critic``."""
        asked, masks, mix = self.draws.asked(at), self.draws.masks(at), self.draws.mix(at)
        batch, n_groups, width = self.draws.batch_size, self.draws.n_groups, self.spans.width
        table, losses = self.draws.rows, []
        for m, run in enumerate(self._critics):
            condition = self._where(asked, m)
            _, fake = self._fakes(at, m, condition)
            rows = run.inputs(3 * n_groups)[: 2 * n_groups].view(2, batch, self.n_columns)
            values = table.values.index_select(0, asked.row[m])
            codes = table.codes.index_select(0, asked.row[m])
            self.spans.write_rows(rows[0, :, :width], values, codes)
            rows[1, :, :width] = fake.t()
            for part in rows:
                _write_one_hot(part[:, width:], condition)
            losses.append(run.fill_gradients(n_groups, mix[m], [mask[m] for mask in masks]))
        return torch.stack(losses)

    @torch.no_grad()
    def generator(self, at: int) -> Tensor:
        """As ``GANSteps.generator``."""
        asked = self.draws.asked(at)
        masks = [mask[:, : self.draws.n_groups] for mask in self.draws.masks(at)]
        batch, n_groups, width = self.draws.batch_size, self.draws.n_groups, self.spans.width
        losses = []
        for m, run in enumerate(self._critics):
            condition = self._where(asked, m)
            raw, fake = self._fakes(at, m, condition)
            rows = run.inputs(n_groups).view(batch, self.n_columns)
            rows[:, :width] = fake.t()
            _write_one_hot(rows[:, width:], condition)
            loss, of_rows = run.generator_loss(n_groups, [mask[m] for mask in masks])
            grad = self._scratch("grad", width, batch)
            grad.copy_(of_rows.view(batch, self.n_columns)[:, :width].t())
            self._columns.activate_backward(grad, fake)
            if asked.span is not None and asked.code is not None:
                # CTGAN section 4.3: the generator is to make the category that it was asked for
                own = self._columns.cross_entropy(
                    raw, asked.span[m], asked.code[m], grad, weight=1 / batch
                )
                loss = loss + own.mean()
            self._generators[m].backward(grad, columns_first=True)
            losses.append(loss)
        return torch.stack(losses)


def _write_one_hot(into: Tensor, column: Tensor | None) -> None:
    into.zero_()
    if column is not None:
        into.scatter_(1, column, 1.0)
