"""TabFlow: a cascaded flow of tables; its losses, training and sampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch import Tensor

from combutab._model_files import loadable
from combutab.core.device import Precision, limit_threads, network_threads
from combutab.core.parameters import COUNT, INFINITE, NOT_NEGATIVE, POSITIVE, SHARE, parameter
from combutab.core.rng import Stream, fold_in, normals, random_permutations, starts, uniforms
from combutab.generators._base import BaseGenerator
from combutab.generators._imputing import present_codes
from combutab.generators._training import (
    DrawnBlocks,
    GeneratorPlan,
    Measure,
    Rates,
    TableRows,
    Training,
)
from combutab.generators.sampling import (
    DirectSampler,
    RowRequest,
    Sampler,
    Samples,
    choose_points,
)
from combutab.nn import (
    ActivationSpec,
    BlurredCrossEntropy,
    CodeInputs,
    MaskMaker,
    Member,
    RowSpans,
    StackedCascade,
    fill_gradients,
    time_inputs,
)
from combutab.preprocessing import ModeEncoder
from combutab.training import OptimizerConfig

# ---- Losses of cascaded flows, and their gradients -----------------------------------------------

_INSIDE = (
    1 - 1e-4
)  # values at the edges of a bin are moved inside, so that their normals are finite


class FlowTargets(NamedTuple):
    """The codes and values that a flow learns; all others are known in every row."""

    codes: Tensor  # (n_spans,) bool
    values: Tensor  # (n_values,) bool


class FlowDraw(NamedTuple):
    """Random numbers of a training step for each row of each member: shapes (M, n, ...)."""

    hidden: Tensor  # (..., n_spans) bool: codes to predict from the others
    is_known: Tensor  # (..., n_values) bool: values that are given, not noise
    time: Tensor  # (..., 1)
    noise: Tensor  # (..., n_values)


def draw(
    keys: Sequence[Sequence[int]], n: int, spans: RowSpans, targets: FlowTargets | None = None
) -> FlowDraw:
    """Draw for n rows, by keys of hidden codes, known values, times and noise.

    The numbers of hidden codes and of known values are uniform; half of the rows have no known
    value. If no code would be hidden, all are. With ``targets``, this holds for these.
    """
    hidden_keys, known_keys, time_keys, noise_keys = keys
    device, n_values = spans.device, spans.n_values
    u = uniforms(hidden_keys, n, spans.n_spans + 1, device=device)
    masked = u[..., 1:] < u[..., :1]
    if targets is not None:
        masked &= targets.codes
    none_masked = ~masked.any(-1, keepdim=True)
    masked |= none_masked if targets is None else none_masked & targets.codes
    u = uniforms(known_keys, n, n_values + 1, device=device)
    is_known = u[..., 1:] < 2 * u[..., :1] - 1
    return FlowDraw(
        masked,
        is_known if targets is None else is_known | ~targets.values,
        torch.sigmoid(normals(time_keys, n, 1, device=device)).to(spans.dtype),
        normals(noise_keys, n, n_values, device=device).to(spans.dtype),
    )


def to_normal(values: Tensor) -> Tensor:
    """Positions within bins, in [-1, 1], as quantiles of the standard normal."""
    return torch.erfinv(values * _INSIDE).mul_(math.sqrt(2))


def from_normal(x: Tensor) -> Tensor:
    """Invert `to_normal`."""
    return torch.erf(x / math.sqrt(2)).div_(_INSIDE).clamp_(-1, 1)


class FlowSteps:
    """The losses of a stack's members, and their gradients.

    Codes: the mean cross-entropy of the hidden ones, given the others, blurred in part. Values: the
    mean squared error of the velocity from noise to them, given the codes and those that are known.
    """

    def __init__(
        self,
        network: StackedCascade,
        spans: RowSpans,
        context: Callable[[], AbstractContextManager[object]] = nullcontext,
        targets: FlowTargets | None = None,
    ) -> None:
        self.network, self.spans, self.context = network, spans, context
        self.code_spans = spans.without_values()
        self.inputs = CodeInputs(self.code_spans)
        self.target_spans = None if targets is None else targets.codes.nonzero().squeeze(1)

    @cached_property
    def cross_entropy(self) -> BlurredCrossEntropy:
        """The loss of codes, which sampling does not need."""
        spans, indices = self.code_spans, self.target_spans
        return BlurredCrossEntropy(spans if indices is None else spans.select(indices.tolist()))

    @cached_property
    def target_columns(self) -> Tensor | None:
        """The columns of the raw outputs that belong to targets; None for all."""
        if self.target_spans is None:
            return None
        spans = self.code_spans
        is_target = torch.zeros(spans.n_spans, dtype=torch.bool, device=spans.device)
        is_target[self.target_spans] = True
        return is_target.repeat_interleave(spans.span_sizes).nonzero().squeeze(1)

    def gradients(
        self,
        rows: TableRows,
        drawn: FlowDraw,
        masks: Sequence[Tensor] | None = None,
        skip: Collection[str] = (),
    ) -> tuple[Tensor, Tensor]:
        """Set the network's gradients; returns the members' losses of codes and values, (M,).

        ``masks`` are dropout masks, one per block, of the network of codes first. The loss of a
        network in ``skip`` is 0.
        """
        codes, values = self.losses(self.network, rows, drawn, masks, skip)
        fill_gradients((codes + values).sum(), self.network)
        return codes.detach(), values.detach()

    def losses(
        self,
        network: StackedCascade,
        rows: TableRows,
        drawn: FlowDraw,
        masks: Sequence[Tensor] | None = None,
        skip: Collection[str] = (),
    ) -> tuple[Tensor, Tensor]:
        """Losses of codes and values of a network of the stack, (M,) each; 0 of one to skip."""
        half = len(masks or ()) // 2
        code_masks, value_masks = (masks[:half], masks[half:]) if masks else (None, None)
        code_losses = value_losses = rows.values.new_zeros(len(rows.codes))
        if "codes" not in skip:
            known_codes = rows.codes.masked_fill(drawn.hidden, -1)
            raw = self.code_outputs(network, known_codes, code_masks, self.target_columns)
            weight, codes = drawn.hidden.to(self.spans.dtype), rows.codes
            if self.target_spans is not None:
                weight, codes = weight[..., self.target_spans], codes[..., self.target_spans]
            weight = weight / weight.sum(-1, keepdim=True)  # each hidden code's share of its row's
            code_losses = self.cross_entropy(raw, codes, weight).mean(1)
        if "values" not in skip and network.values is not None:
            ends = to_normal(rows.values)
            velocity = ends - drawn.noise
            at = torch.where(drawn.is_known, ends, drawn.noise + drawn.time * velocity)
            with self.context():
                layer = ValueLayer(self, network, rows.codes, drawn.is_known)
                predicted = layer.velocity(at, drawn.time, value_masks)
            # 0 stands for no position in a bin: single values with their own bin, and missing ones
            counted = (~drawn.is_known & (rows.values != 0)).to(velocity.dtype)
            error = (predicted.to(velocity.dtype) - velocity) * counted
            value_losses = error.square().mean((1, 2))
        return code_losses, value_losses

    def code_outputs(
        self,
        network: StackedCascade,
        codes: Tensor,
        masks: Sequence[Tensor] | None = None,
        columns: Tensor | None = None,
    ) -> Tensor:
        """Raw outputs of the network of codes, or some columns of them; -1 is an unknown code."""
        part, first = network.codes, network.codes.linear(0)
        with self.context():
            outputs = first.bias + self.inputs.effects(first.weight).sum(codes)
            hidden = part.hidden(outputs, masks)
            if part.direct is None:
                return part.outputs(hidden, columns=columns).to(self.spans.dtype)
            direct = self.inputs.effects(part.direct).sum(codes)
            return part.outputs(hidden, direct, columns).to(self.spans.dtype)


class ValueLayer:
    """The network of values for given codes and known values, (M, n, ...).

    Its inputs are the codes, the values on the flow from noise, a mask of the known values, and the
    time. The contributions of codes and mask to the first layer are computed once.
    """

    def __init__(
        self, steps: FlowSteps, network: StackedCascade, codes: Tensor, is_known: Tensor
    ) -> None:
        assert network.values is not None
        self._part, first, n_values = network.values, network.values.linear(0), is_known.shape[-1]
        sizes = [steps.inputs.n_inputs, n_values, n_values]
        sizes.append(first.weight.shape[1] - sum(sizes))  # of the time
        of_codes, self._of_values, of_known, self._of_time = first.weight.split(sizes, dim=1)
        outputs = first.bias + steps.inputs.effects(of_codes).sum(codes)
        self._outputs = torch.baddbmm(outputs, is_known.to(of_known.dtype), of_known)

    def velocity(self, at: Tensor, time: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """The velocity of the values at a time, which may be the same for all rows."""
        outputs = self._outputs + time_inputs(time) @ self._of_time
        hidden = self._part.hidden(torch.baddbmm(outputs, at, self._of_values), masks)
        return self._part.outputs(hidden)


# ---- Sampling: codes one by one, in a random order for each row, then values ---------------------

_PASSES = 64  # of the network of codes; with more columns, several codes are drawn in a pass


def draw_rows(
    steps: FlowSteps, network: StackedCascade, request: RowRequest, n_steps: int
) -> Samples:
    """Sample the requested rows: codes by the chain rule, values by Heun's method.

    Given codes are kept, and all others are drawn conditional on them. Codes that are restricted to
    a set are drawn before unrestricted ones.
    """
    shape, spans = (len(request.keys), request.n_rows), steps.spans
    codes = request.codes
    if codes is None:
        codes = torch.full((*shape, spans.n_spans), -1, device=spans.device)
    codes, probability = _draw_codes(steps, network, request, codes.clone())
    values = request.values
    if values is None:
        values = torch.full((*shape, spans.n_values), torch.nan, device=spans.device)
    values = values.to(spans.dtype)
    if request.points:
        values = choose_points(request, codes, values.clone(), spans)
    if network.values is None:
        return Samples(values, codes, probability)
    noise = normals(request.keys_for(Stream.VALUES), *values.shape[1:], device=spans.device)
    is_known = ~values.isnan()
    at = torch.where(is_known, to_normal(values.nan_to_num()), noise.to(spans.dtype))
    values_at_end = from_normal(_flow(steps, network, codes, at, is_known, n_steps))
    return Samples(torch.where(is_known, values, values_at_end), codes, probability)


def _draw_codes(
    steps: FlowSteps, network: StackedCascade, request: RowRequest, codes: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw all codes that are -1, in place, and return the probability of allowed codes, (M, n)."""
    spans = steps.code_spans
    n_members, n, n_spans = codes.shape
    u = uniforms(request.keys_for(Stream.CODES), n, n_spans, device=codes.device)
    rank = uniforms(request.keys_for(Stream.ORDER), n, n_spans, device=codes.device)
    for span, allowed in request.allowed.items():  # those of fewest codes first
        rank[..., span] = -1 / (1 + len(allowed))
    rank = rank.masked_fill(codes >= 0, 2)  # nothing to draw
    ranks, order = rank.sort(dim=2, stable=True)
    n_free = int((ranks < 2).sum(2).max()) if n_spans else 0
    first = min(len(request.allowed), n_free)
    at_once = -(-(n_free - first) // _PASSES)
    ends = [*range(first), *range(first, n_free, max(1, at_once)), n_free]
    probability = torch.ones(n_members, n, dtype=torch.float64, device=codes.device)
    part, first_layer = network.codes, network.codes.linear(0)
    effects = steps.inputs.effects(first_layer.weight)
    first_outputs = first_layer.bias + effects.sum(codes)
    outputs = part.outputs_by_span(steps.inputs)
    for start, stop in itertools.pairwise(ends):
        if start == 0 and not bool((codes >= 0).any()):  # all rows are equal so far
            hidden = part.hidden(first_outputs[:, :1]).expand(-1, n, -1)
        else:
            hidden = part.hidden(first_outputs)
        which, free = order[..., start:stop], ranks[..., start:stop] < 2
        for m, i, rows in _rows_by_span(which, free, n_spans):
            logits = outputs[i].of_member(m, hidden[m, rows], codes[m, rows])
            logits = spans.suppress(i, logits.to(spans.dtype))
            drawn, share = _draw_span(logits, u[m, rows, i], request.allowed.get(i))
            codes[m, rows, i] = drawn
            if share is not None:
                probability[m, rows] *= share
        if start == 0:  # the same in all rows, so it does not matter for comparing rows
            probability /= probability.max().clamp_min(1e-300)
        drawn = codes.gather(2, which).masked_fill(~free, -1)
        first_outputs += effects.sum(drawn, which)
    return codes, probability


def _rows_by_span(which: Tensor, free: Tensor, n_spans: int) -> Iterator[tuple[int, int, Tensor]]:
    """The rows of each member that draw a span in this pass: member, span and rows.

    ``which`` are the spans, (M, n, k), and ``free`` marks those that are drawn.
    """
    n_members, n, k = which.shape
    member = torch.arange(n_members, device=which.device).view(-1, 1, 1)
    label = (member * n_spans + which).masked_fill(~free, n_members * n_spans).flatten()
    counts = torch.bincount(label, minlength=n_members * n_spans + 1).tolist()
    row_of_draw = label.argsort(stable=True).div(k, rounding_mode="floor").remainder(n)
    for j, rows in enumerate(row_of_draw.split(counts)[:-1]):
        if len(rows):
            yield *divmod(j, n_spans), rows


def _draw_span(
    logits: Tensor, u: Tensor, allowed: Sequence[int] | None
) -> tuple[Tensor, Tensor | None]:
    """A code for each row of logits, (n, size), and the probability of allowed codes, (n,)."""
    share = None
    if allowed is not None:
        only = torch.full_like(logits[0], -torch.inf)
        only[list(allowed)] = 0
        restricted = logits + only
        share = (restricted.double().logsumexp(-1) - logits.double().logsumexp(-1)).exp()
        logits = restricted
    cdf = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
    # below the total: rounding must not lead past the last code
    target = torch.minimum(u.double() * cdf[:, -1], cdf[:, -1] * (1 - 1e-12))
    drawn = torch.searchsorted(cdf, target.unsqueeze(-1), right=True).squeeze(-1)
    return drawn.clamp_(max=logits.shape[-1] - 1), share


def _flow(
    steps: FlowSteps,
    network: StackedCascade,
    codes: Tensor,
    at: Tensor,
    is_known: Tensor,
    n_steps: int,
) -> Tensor:
    """Integrate the flow of the values from time 0 to 1; known values stay."""
    layer, free = ValueLayer(steps, network, codes, is_known), ~is_known

    def velocity(y: Tensor, t: float) -> Tensor:
        return layer.velocity(y, y.new_full((1, 1, 1), t)).to(y.dtype) * free

    for k in range(n_steps):
        t, h = k / n_steps, 1 / n_steps
        slope = velocity(at, t)
        at = at + h / 2 * (slope + velocity(at + h * slope, t + h))
    return at


# ---- Training: M pairs of networks as one batched program, and their averages --------------------

_PURPOSES = (Stream.FLOW_HIDDEN, Stream.FLOW_KNOWN, Stream.FLOW_TIMES, Stream.FLOW_NOISE)
_ADAMW = OptimizerConfig(solver="adamw", beta_2=0.99)
_WARM_UP = 100  # steps in which the rate rises
_CONSTANT = 50  # epochs after which it falls
_AVERAGED = 10  # the average covers about the last tenth of all steps
_DRAWS = 2000  # of held-out rows for their loss; few rows are repeated


def _rate_factor(step: int, n_steps: int) -> float:
    """Learning rate of a step (from 1) as a share of the highest rate.

    ``n_steps`` is the number of steps of an epoch. The rate decreases with epochs, not steps: a
    large table, whose rows are seen few times, is still learned at the highest rate.

    >>> _rate_factor(50, 20), _rate_factor(500, 20), _rate_factor(4000, 20)
    (0.5, 1.0, 0.5)
    """
    return min(step / _WARM_UP, 1.0, math.sqrt(_CONSTANT * n_steps / step))


class FlowTraining(Training[StackedCascade]):
    """The networks of a stack of flows, and the averages of their weights, which sample rows.

    The average is over all steps, with weight 1 / (1 + steps / 10) for each new one: over about the
    last tenth of them. Neither the average nor the schedule of the rate depends on the number of
    steps of the training.
    """

    shares_rows = True
    rate_factors: ClassVar[Mapping[str, float]] = {"codes": 0.5}  # relative to the rate of values

    def __init__(
        self,
        model: TabFlow,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        targets: FlowTargets | None = None,
    ) -> None:
        self.targets = targets
        members, precision = [plan.member for plan in plans], Precision(model.precision)
        self.network, average = model._build(spans, members), model._build(spans, members)
        networks = {"network": self.network, "average": average}
        super().__init__(rows, spans, plans, networks, average, _ADAMW)
        self.steps = FlowSteps(self.network, spans, precision.context(spans.device), targets)
        rates = [model.dropout] * len(plans)  # of the layers of both networks
        widths = tuple(model.hidden_layer_sizes)
        widths = (*widths, *StackedCascade.value_widths(widths))
        self._masks = MaskMaker(widths, rates, device=spans.device, dtype=spans.dtype)
        self.batch_size = model._n_batch(len(rows))
        self.n_steps = len(rows) // self.batch_size
        n_drawn = spans.n_spans + 2 * spans.n_values + 3
        self._drawn = DrawnBlocks(len(plans) * self.batch_size * n_drawn, self._draw_steps)

    @property
    def statistics(self) -> Mapping[str, str]:
        """See `Training`."""
        parts = ("codes", "values") if self.network.values else ("codes",)
        return {f"validation_{part}_loss": part for part in parts}

    def epoch(self, number: int) -> dict[str, Tensor]:
        """See `Training`."""
        self.network.train()
        keys = [fold_in(plan.member.seed, Stream.FLOW_ORDER, number) for plan in self.plans]
        order = random_permutations(keys, [len(self.rows)] * len(keys), self.spans.device)
        device = self.spans.device
        totals = torch.zeros(2, len(self.plans), dtype=torch.float64, device=device)
        steps = range(number * self.n_steps, (number + 1) * self.n_steps)
        self.place_rates("network", [_rate_factor(at + 1, self.n_steps) for at in steps])
        weights = torch.tensor([_AVERAGED / (at + _AVERAGED) for at in steps], dtype=torch.float64)
        weights = weights.to(self.network.flat.values)
        mask_keys = np.array(self.keys(Stream.FLOW_MASKS, steps), dtype=np.uint64)
        keys_by_step = self.by_step(starts(mask_keys, device))
        for step, at in enumerate(steps):
            index = order[:, step * self.batch_size : (step + 1) * self.batch_size]
            drawn = FlowDraw(*self._drawn(at))
            totals += torch.stack(self._step(index, drawn, keys_by_step[step]))
            self.update("network", step)
            self.sampled.flat.values.lerp_(self.network.flat.values, weights[step])
            if self.sampled.flat_buffers.values.numel():
                self.sampled.flat_buffers.values.copy_(self.network.flat_buffers.values)
        self.world.all_reduce(totals)
        codes, values = totals / self.n_steps
        return {"codes": codes, "values": values} if self.network.values else {"codes": codes}

    def _step(self, index: Tensor, drawn: FlowDraw, mask_keys: Tensor) -> tuple[Tensor, Tensor]:
        """Set the gradients; returns the members' losses of codes and of values, (M,)."""
        n, rank_rows = index.shape[1], self.rank_rows(index.shape[1])
        index, drawn = index[:, rank_rows], FlowDraw(*(part[:, rank_rows] for part in drawn))
        rows = TableRows(self.rows.values[index], self.rows.codes[index].long())
        masks = None
        if self._masks.active:
            masks = self._masks.draw(mask_keys, index.shape[1], rank_rows.start)
        codes, values = self.steps.gradients(rows, drawn, masks, self.ended)
        share = self.add_up(index.shape[1], n, "network")
        return codes * share, values * share

    def _draw_steps(self, steps: range) -> list[Tensor]:  # (steps, M, batch, ...) each
        keys = [self.keys(purpose, steps) for purpose in _PURPOSES]
        drawn = draw(keys, self.batch_size, self.spans, self.targets)
        return [self.by_step(part) for part in drawn]

    def measure(
        self,
        held_out: TableRows,
        make_sampler: Callable[[], Sampler[StackedCascade]],
        keys: Sequence[int],
    ) -> Measure:
        """Measure both losses, with random numbers of these keys; see `Training`."""
        index = torch.arange(len(held_out), device=self.spans.device)
        index = index.repeat(-(-_DRAWS // len(held_out)))
        rows = held_out[index.expand(len(keys), -1)]
        rows = TableRows(rows.values, rows.codes.long())
        purpose_keys = [[fold_in(key, purpose) for key in keys] for purpose in _PURPOSES]
        drawn = draw(purpose_keys, len(index), self.spans, self.targets)

        @torch.inference_mode()
        def measured() -> dict[str, np.ndarray]:
            losses = self.steps.losses(self.sampled.eval(), rows, drawn, skip=self.ended)
            pairs = zip(self.statistics, losses, strict=False)  # without values there is one
            return {name: loss.double().cpu().numpy() for name, loss in pairs}

        return measured


# ---- TabFlow: a cascaded flow of tables ----------------------------------------------------------

_STEPS = 20_000  # of the training, by epochs="auto"
_FEWEST_EPOCHS, _MOST_EPOCHS = 5, 50  # the latter without early stopping, against memorizing
_ENOUGH_ROWS = 200  # for early stopping
_PATIENCE = (5, 50, 400_000)  # by n_iter_no_change="auto": fewest and most epochs, rows seen
_BATCHES = (32, 512)  # sizes by batch_size="auto", about
_PARTS = 16  # of the rows, a batch each
_AUTO = StrOptions({"auto"})
_ENCODED_ROWS = 200_000  # that bins are learned from, at most


@loadable
@dataclass(eq=False, repr=False)
class TabFlow(BaseGenerator[StackedCascade]):
    """Synthetic tables by cascaded flow matching.

    Each number is split into a code, the quantile bin that it is in (a value that many rows share
    has its own bin), and its position in that bin. Values that at least five rows and
    ``min_frequency`` rows share have a part of the bin that is proportional to their frequency. One
    network predicts codes of a row, of categories and bins, from any subset of its other codes, so
    that rows are sampled code by code in random order. A second network learns a flow from noise to
    the positions. Conditions and given cells are therefore inputs of the networks. Only rows
    outside the ends of a range are rejected and sampled again.

    If a number, date or duration equals that of another column in at least 5 % of the rows, and 25
    times as often as by chance, an indicator of these rows is learned with the table. Sampled rows
    in which it is 1 have equal values, unless conditions give both. Values that 5 % of the rows
    share do not count, and columns of constraints other than `Unique` are left out.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(256, 256)
        Widths of the residual blocks of the network of codes; the network of values has half these
        widths. The residual stream has the width of the first block.
    n_bins : int, default=64
        Approximate number of bins per numeric column. Each bin has at least 20 rows.
    batch_size : int or "auto", default="auto"
        Number of rows per batch. "auto" is a power of two, about a sixteenth of the rows, between
        32 and 512.
    epochs : int or "auto", default="auto"
        Number of epochs. "auto" is the number of epochs of 20,000 steps, at least 5. Without early
        stopping it is at most 50, because more epochs memorize rows.
    n_sampling_steps : int, default=8
        Number of steps of Heun's method along the flow, with two evaluations each. More steps are
        slower and more exact. It can be changed after ``fit``.
    enable_gpu : bool, default=True
        Whether to use a GPU if there is one. False is the same as ``device="cpu"``.
    verbose : bool, default=False
        Whether to show a progress bar and an estimate of the training time, on a terminal.
    activation : str or callable, default="silu"
        Activation function of all blocks of both networks, as in `MLPClassifier`. ``"original"`` is
        SiLU, as in most published networks of this kind.
    normalization : str, default="layer"
        Normalization of the inputs of each block and of the last layer of the network of codes,
        with the values of `MLPClassifier`. The network of values has none: it learns small
        differences of large inputs, which a normalization of rows slows down.
    proxy_norm : bool, default=False
        Must be False. Proxy Normalization belongs between a normalization and an activation, and
        these blocks have a linear layer there.
    learning_rate : float, default=2e-3
        Learning rate of AdamW for the network of values; that of the network of codes is half of
        it. It increases linearly over the first 100 steps, and is multiplied by
        ``sqrt(50 / epoch)`` after 50 epochs. Rows are sampled with the average of the weights over
        about the last tenth of the steps.
    weight_decay : float, default=0.0
        Weight decay of AdamW.
    dropout : float, default=0.0
        Probability with which a hidden unit is dropped in a training step.
    early_stopping : bool or "auto", default="auto"
        Whether to set rows aside and to stop the training of each of a member's two networks when
        its loss on them has not decreased for ``n_iter_no_change`` epochs. The weights of its best
        epoch are kept. "auto" does so for tables of 200 rows or more.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping sets aside, at most 1,000 rows.
    n_iter_no_change : int, inf or "auto", default="auto"
        Number of epochs without improvement after which the training of a network stops. "auto" is
        the number of epochs in which it sees 400,000 rows, at least 5 and at most 50. It is 50 for
        tables of at most 8,000 rows.
    constraints : list of Inequality, Sum, Formula, ..., or None, default=None
        Rules that all rows meet, such as ``[Inequality("start", "<", "end")]``.
    max_time, n_members, min_frequency, identifiers, fake, random_state, device, precision, \
callbacks
        As in `CTGAN`.

    Attributes
    ----------
    encoder_ : ModeEncoder
    history_ : DataFrame
        One row per member and epoch: codes_loss, the mean cross-entropy of a hidden code, in part
        with blurred bins; values_loss, the mean squared error of the flow's velocity, for tables
        with numbers; with early stopping validation_codes_loss and validation_values_loss, the same
        on the validation rows. The losses of a network that has ended are NaN.
    loss_values : DataFrame
        The history of the first member.
    n_iter_ : int
        Number of epochs.
    n_features_in_ : int
        Number of columns seen in ``fit``.

    References
    ----------
    Mueller et al. (2026), "Cascaded flow matching for heterogeneous tabular data with mixed-type
    features", arXiv 2601.22816; Shi et al. (2025), "TabDiff", arXiv 2410.20626; Lipman et al.
    (2023), "Flow matching for generative modeling".

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> TabFlow(epochs=1, random_state=0).fit(X).sample(5).shape
    (5, 2)
    """

    # NOTE[DIFF]: TabCascade draws codes by a diffusion of their embeddings, and starts each flow
    # from a normal about the bin. Ours draws them by masking, by which conditions are met exactly;
    # a place in a bin is a standard normal's quantile, which is the same start.
    hidden_layer_sizes: Sequence[int] = parameter((256, 256), "array-like", concerns="width")
    n_bins: int = parameter(64, COUNT)
    batch_size: Any = parameter("auto", COUNT, _AUTO)
    epochs: Any = parameter("auto", COUNT, _AUTO, concerns="run")
    n_sampling_steps: int = parameter(8, COUNT)
    enable_gpu: bool = parameter(True, "boolean", concerns="run")
    verbose: bool = parameter(False, "verbose", concerns="run")
    _: KW_ONLY
    activation: ActivationSpec = "silu"
    normalization: str = "layer"
    learning_rate: float = parameter(2e-3, POSITIVE, concerns="rate")
    weight_decay: float = parameter(0.0, NOT_NEGATIVE, concerns="rate")
    dropout: float = parameter(0.0, SHARE)
    early_stopping: Any = parameter("auto", "boolean", _AUTO)
    n_iter_no_change: Any = parameter("auto", COUNT, INFINITE, _AUTO)

    _sampler_class = DirectSampler
    _learns_repetitions = True

    def _check(self) -> None:
        super()._check()
        if self.proxy_norm:
            raise ValueError(
                "TabFlow does not support proxy_norm=True: there is a linear layer between its "
                "normalizations and activations; use CTGAN or TVAE, or proxy_norm=False"
            )

    def _rates(self) -> dict[str, Rates]:
        return {"network": Rates(self.learning_rate, self.weight_decay)}

    def _linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, int]]:
        return StackedCascade.linear_shapes(spans, *self._all_widths())

    def _build(self, spans: RowSpans, members: Sequence[Member]) -> StackedCascade:
        (widths,) = self._all_widths()
        return StackedCascade(spans, widths, members, normalization=self.normalization)

    def _make_encoder(self, discrete_columns: Any, random_state: int) -> ModeEncoder:
        encoder = super()._make_encoder(discrete_columns, random_state)
        return encoder.set_params(strategy="quantile", n_modes=self.n_bins, max_rows=_ENCODED_ROWS)

    def _n_batch(self, n_rows: int) -> int:
        if self.batch_size != "auto":
            return min(self.batch_size, n_rows)
        smallest, largest = _BATCHES
        return min(n_rows, largest, max(smallest, 2 ** round(np.log2(max(1, n_rows / _PARTS)))))

    def _n_epochs(self, n_rows: int) -> int:
        if self.epochs != "auto":
            return int(self.epochs)
        n_steps = n_rows // self._n_batch(n_rows)
        n_epochs = max(_FEWEST_EPOCHS, -(-_STEPS // n_steps))
        return n_epochs if self._stops_early(n_rows) else min(_MOST_EPOCHS, n_epochs)

    def _patience(self, n_rows: int) -> float:
        if self.n_iter_no_change != "auto":
            return super()._patience(n_rows)
        smallest, largest, n_seen = _PATIENCE
        return min(largest, max(smallest, -(-n_seen // n_rows)))

    def _stops_early(self, n_rows: int) -> bool:
        if self.early_stopping == "auto":
            return n_rows >= _ENOUGH_ROWS
        return bool(self.early_stopping)

    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> FlowTraining:
        return FlowTraining(self, rows, spans, plans)

    def _draw(self, network: StackedCascade, spans: RowSpans, request: RowRequest) -> Samples:
        return draw_rows(FlowSteps(network, spans), network, request, self.n_sampling_steps)

    def _code_probabilities(
        self, codes: np.ndarray, span_indices: Sequence[int] | None = None
    ) -> Iterator[tuple[slice, int, np.ndarray]]:
        """Compute the probabilities of the codes of spans (by default all), given known codes.

        They are means over the members, and marginal over the other unknown codes. ``codes`` are
        (n, n_spans), with -1 for unknown codes. For some rows at a time, and each span of
        ``wanted``, the result has these rows, the span, and probabilities (rows, size), which are 0
        for missing values unless that is the only code of the span.
        """
        sampler = self._sampler()
        network, spans = sampler.network, sampler.spans.without_values()
        if network is None:  # all columns are constant
            return
        span_indices = range(spans.n_spans) if span_indices is None else span_indices
        allowed = {
            i: present for i, present in present_codes(self.encoder_).items() if i in span_indices
        }
        context = Precision(self._as_fitted.precision).context(spans.device)
        steps = FlowSteps(network, sampler.spans, context)
        for start in range(0, len(codes), sampler.chunk):
            rows = slice(start, min(start + sampler.chunk, len(codes)))
            known_codes = torch.from_numpy(codes[rows]).to(spans.device)
            flops = 2.0 * len(known_codes) * network.flat.values.numel()
            with torch.inference_mode(), limit_threads(network_threads(flops)):
                raw = steps.code_outputs(network, known_codes.expand(len(network.members), -1, -1))
                raw, _ = spans.restrict(raw.double(), allowed)
            for i in span_indices:
                yield rows, i, spans.logits_of(i, raw).cpu().softmax(-1).mean(0).numpy()


def code_probabilities(
    model: TabFlow, codes: np.ndarray, span_indices: Sequence[int] | None = None
) -> Iterator[tuple[slice, int, np.ndarray]]:
    """Compute the probabilities of the codes of spans of a fitted model, given known codes."""
    return model._code_probabilities(codes, span_indices)
