"""TabFlow's training: M pairs of networks as one batched program, and their averages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from combutab._device import Precision
from combutab._random import Purpose, derive, random_permutations
from combutab.generators._contract import Training
from combutab.generators._noise import Blocks
from combutab.generators._records import GeneratorPlan, SampledShape, TableRows
from combutab.generators.flow._steps import FlowDraw, FlowSteps, draw
from combutab.generators.sampling import Sampler
from combutab.nn import MaskMaker, Member, RowSpans, StackedCascade
from combutab.training import OptimizerConfig

_PURPOSES = (Purpose.FLOW_HIDDEN, Purpose.FLOW_KNOWN, Purpose.FLOW_TIMES, Purpose.FLOW_NOISE)
_ADAMW = OptimizerConfig(solver="adamw", beta_2=0.99)
_WARM_UP = 100  # steps in which the rate rises
_AVERAGED = 10  # the average is of the last steps, a tenth of all about
_DRAWS = 2000  # for rows held out, which are measured as often


class FlowShape(SampledShape[StackedCascade]):
    """Shape of the networks; ``embedding_dim`` is of no use to them."""

    def linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, ...]]:
        """See `SampledShape`."""
        return StackedCascade.linear_shapes(spans, self.widths)

    def build(self, spans: RowSpans, members: Sequence[Member]) -> StackedCascade:
        """See `SampledShape`."""
        return StackedCascade(spans, self.widths, members, normalization=self.normalization)


class FlowTraining(Training[StackedCascade]):
    """The networks of a stack of flows and the averages of their weights, which make rows.

    The average is of all steps, each new one with the weight 1 / (1 + steps / 10): of about the
    last tenth of them, so that it is good at any time, and no schedule needs to know the end.
    """

    statistic = "validation_loss"
    shares_rows = True

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        shape: FlowShape,
        *,
        batch_size: int,
        dropout: float,
    ) -> None:
        members, precision = [plan.member for plan in plans], Precision(shape.precision)
        self.network, average = shape.build(spans, members), shape.build(spans, members)
        networks = {"network": self.network, "average": average}
        super().__init__(rows, spans, plans, networks, average, _ADAMW)
        self.steps = FlowSteps(self.network, spans, precision.context(spans.device))
        rates = [dropout] * len(plans)  # of the layers of both networks
        widths = [*shape.widths, *StackedCascade.value_widths(shape.widths)]
        self._masks = MaskMaker(widths, rates, device=spans.device, dtype=spans.dtype)
        self.batch_size = min(batch_size, len(rows))
        self.n_steps = len(rows) // self.batch_size
        n_drawn = spans.n_spans + 2 * spans.n_values + 3
        self._drawn = Blocks(len(plans) * self.batch_size * n_drawn, self._draw_steps)

    def epoch(self, number: int) -> dict[str, Tensor]:
        """See `Training`."""
        self.network.train()
        keys = [derive(plan.member.seed, Purpose.FLOW_ORDER, number) for plan in self.plans]
        order = random_permutations(keys, [len(self.rows)] * len(keys), self.spans.device)
        device = self.spans.device
        totals = torch.zeros(2, len(self.plans), dtype=torch.float64, device=device)
        for step in range(self.n_steps):
            index = order[:, step * self.batch_size : (step + 1) * self.batch_size]
            totals += torch.stack(self._step(number * self.n_steps + step, index))
        if self.ranks is not None:
            self.ranks.sum_(totals)
        codes, values = totals / self.n_steps
        return {"codes": codes, "values": values} if self.network.values else {"codes": codes}

    def _step(self, at: int, index: Tensor) -> tuple[Tensor, Tensor]:
        n, own = index.shape[1], self.own(index.shape[1])
        index = index[:, own]
        rows = TableRows(self.rows.values[index], self.rows.codes[index].long())
        masks = None
        if self._masks.active:
            keys = [derive(plan.member.seed, Purpose.FLOW_MASKS, at) for plan in self.plans]
            masks = self._masks.draw(keys, index.shape[1], own.start)
        drawn = FlowDraw(*(part[:, own] for part in self._drawn(at)))
        codes, values = self.steps.gradients(rows, drawn, masks)
        share = self.add_up(index.shape[1], n, "network")
        losses = codes * share, values * share
        flat, rates = self.network.flat, [plan.rates["network"] for plan in self.plans]
        warm = min(1.0, (at + 1) / _WARM_UP)
        assert flat.grads is not None
        self.optimizers["network"].step(
            flat.values,
            flat.grads,
            range(len(rates)),
            [warm * rate.lr for rate in rates],
            [rate.decay for rate in rates],
        )
        weight = _AVERAGED / (at + _AVERAGED)
        self.sampled.flat.values.lerp_(flat.values, weight)
        if self.sampled.flat_buffers.values.numel():
            self.sampled.flat_buffers.values.copy_(self.network.flat_buffers.values)
        return losses

    def _draw_steps(self, steps: range) -> list[Tensor]:  # (steps, M, batch, ...) each
        seeds = [plan.member.seed for plan in self.plans]
        keys = [[derive(seed, p, at) for at in steps for seed in seeds] for p in _PURPOSES]
        drawn = draw(keys, self.batch_size, self.spans)
        return [part.unflatten(0, (-1, len(seeds))) for part in drawn]

    def measure(
        self, held_out: TableRows, sampler: Sampler[StackedCascade], keys: Sequence[int]
    ) -> Callable[[], np.ndarray]:
        """Measure the losses' sum, by draws of these keys; see `Training`."""
        index = torch.arange(len(held_out), device=self.spans.device)
        index = index.repeat(-(-_DRAWS // len(held_out)))
        rows = held_out[index.expand(len(keys), -1)]
        rows = TableRows(rows.values, rows.codes.long())
        drawn = draw([[derive(key, p) for key in keys] for p in _PURPOSES], len(index), self.spans)

        @torch.inference_mode()
        def loss() -> np.ndarray:
            network = self.sampled.eval()
            codes, values = self.steps.losses(network, rows, drawn)
            return (codes + values).double().cpu().numpy()

        return loss
