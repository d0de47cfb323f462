"""The gradients of a step of GANs: by autograd, or in memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from combutab.generators.gan._draws import Asked, GANDraws
from combutab.nn import (
    PenaltyPass,
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
    """The fastest steps on this device; ``context`` is autocast's, where there is one."""
    if context is None and generator.device.type == "cpu":
        return ChainSteps(generator, critic, spans, draws)
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
        """Take the critic's step, as ``GANSteps.critic``."""
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
        """Take the generator's step, as ``GANSteps.generator``."""
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


_PENALTY = 10.0  # the paper's weight of the gradient penalty


class ChainSteps:
    """Steps in memory that is allocated once; the numbers are those of autograd."""

    def __init__(
        self, generator: StackedGenerator, critic: StackedCritic, spans: RowSpans, draws: GANDraws
    ) -> None:
        self.spans, self.draws = spans, draws
        self._n_columns, self._members = critic.n_inputs, range(critic.n_members)
        self._generator, self._critic = generator.chain(), critic.chain()
        self._penalty = PenaltyPass(self._critic)
        self._scratch = Scratch(spans.dtype, spans.device)
        self._columns = SpanColumns(spans, self._scratch)

    def _fakes(self, at: int, condition: Tensor | None) -> tuple[Tensor, Tensor]:
        """Raw outputs, and the rows that they are, columns first: (M, width, batch)."""
        inputs = self._generator.inputs(self.draws.batch_size)
        inputs[..., : self.draws.n_noise] = self.draws.noise(at)
        _write_one_hot(inputs[..., self.draws.n_noise :], condition)
        raw = self._generator.forward(inputs, columns_first=True)
        fake, noise = self._scratch("fake", *raw.shape), self.draws.log_exponentials(at)
        for m in self._members:
            self._columns.activate(raw[m], noise[m], fake[m])
        return raw, fake

    def _where(self, asked: Asked) -> Tensor | None:
        if asked.span is None or asked.code is None:
            return None
        return self.spans.condition_column(asked.span, asked.code).unsqueeze(-1)

    @torch.no_grad()
    def critic(self, at: int) -> Tensor:
        """Take the critic's step, as ``GANSteps.critic``."""
        asked, masks, table = self.draws.asked(at), self.draws.masks(at), self.draws.rows
        batch, n, width = self.draws.batch_size, self.draws.n_groups, self.spans.width
        condition = self._where(asked)
        _, fake = self._fakes(at, condition)
        groups = self._critic.inputs(2 * n)  # the real ones, then the fake ones
        for m in self._members:
            real, made = groups[m].view(2, batch, self._n_columns)
            values = table.values.index_select(0, asked.row[m])
            codes = table.codes.index_select(0, asked.row[m])
            self.spans.write_rows(real[:, :width], values, codes)
            made[:, :width] = fake[m].t()
            for part in (real, made):
                _write_one_hot(part[:, width:], None if condition is None else condition[m])
        mix = self.draws.mix(at).to(groups.dtype).unsqueeze(-1)
        between = self._scratch("between", len(groups), n, groups.shape[2])
        torch.lerp(groups[:, n:], groups[:, :n], mix, out=between)
        scores = self._critic.forward(groups, [mask[:, : 2 * n] for mask in masks])
        loss = scores[:, n:].mean((1, 2)) - scores[:, :n].mean((1, 2))
        grad = self._scratch("of scores", *scores.shape)
        grad[:, :n], grad[:, n:] = -1 / n, 1 / n
        self._critic.backward(grad)
        rest = [mask[:, 2 * n :] for mask in masks]
        return loss + self._penalty.add_gradients(between, rest, _PENALTY)

    @torch.no_grad()
    def generator(self, at: int) -> Tensor:
        """Take the generator's step, as ``GANSteps.generator``."""
        asked, batch = self.draws.asked(at), self.draws.batch_size
        n, width = self.draws.n_groups, self.spans.width
        condition = self._where(asked)
        raw, fake = self._fakes(at, condition)
        groups = self._critic.inputs(n)
        rows = groups.view(len(groups), batch, self._n_columns)
        rows[..., :width] = fake.transpose(1, 2)
        _write_one_hot(rows[..., width:], condition)
        scores = self._critic.forward(groups, [mask[:, :n] for mask in self.draws.masks(at)])
        losses = -scores.mean((1, 2))
        slope = self._scratch("of scores", *scores.shape).fill_(-1 / n)
        by_groups = self._critic.backward(slope, to_inputs=True, to_weights=False)
        assert by_groups is not None
        grad = self._scratch("of rows", *fake.shape)
        grad.copy_(by_groups.view(rows.shape)[..., :width].transpose(1, 2))
        for m in self._members:
            self._columns.activate_backward(grad[m], fake[m])
            if asked.span is not None and asked.code is not None:
                # CTGAN section 4.3: the generator is to make the category that it was asked for
                own = self._columns.cross_entropy(
                    raw[m], asked.span[m], asked.code[m], grad[m], weight=1 / batch
                )
                losses[m] += own.mean()
        self._generator.backward(grad, columns_first=True)
        return losses


def _write_one_hot(into: Tensor, column: Tensor | None) -> None:
    into.zero_()
    if column is not None:
        into.scatter_(-1, column, 1.0)
