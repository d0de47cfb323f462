"""Rows of a cascaded flow: codes one by one, each row in an order of its own, then values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from combutab._random import Purpose, derive
from combutab.generators._noise import normals, uniforms
from combutab.generators._records import RowsAsked, RowsDrawn
from combutab.generators.flow._steps import FlowSteps, from_normal, to_normal
from combutab.nn import RowSpans, StackedCascade

_PASSES = 64  # of the network of codes, at most: of more columns several are drawn at a time


def draw_rows(
    steps: FlowSteps, network: StackedCascade, asked: RowsAsked, n_steps: int
) -> RowsDrawn:
    """Rows as they are asked for: codes by their chain rule, values by Heun's method.

    Codes that are given are kept, so that all others are drawn as they are beside these; codes of
    which only some are allowed are drawn before all that are free.
    """
    shape, spans = (len(asked.keys), asked.n_rows), steps.spans
    codes = asked.codes
    if codes is None:
        codes = torch.full((*shape, spans.n_spans), -1, device=spans.device)
    codes, mass = _draw_codes(steps, network, asked, codes.clone())
    values = asked.values
    if values is None:
        values = torch.full((*shape, spans.n_values), torch.nan, device=spans.device)
    values = values.to(spans.dtype)
    if asked.points:
        values = _choose_points(asked, codes, values.clone(), spans)
    if network.values is None:
        return RowsDrawn(values, codes, mass)
    noise = normals(_keys(asked, Purpose.VALUES), *shape[1:], spans.n_values, device=spans.device)
    known = ~values.isnan()
    at = torch.where(known, to_normal(values.nan_to_num()), noise.to(spans.dtype))
    found = from_normal(_flow(steps, network, codes, at, known, n_steps))
    return RowsDrawn(torch.where(known, values, found), codes, mass)


def _keys(asked: RowsAsked, purpose: Purpose) -> list[int]:
    return [derive(key, purpose) for key in asked.keys]


def _draw_codes(
    steps: FlowSteps, network: StackedCascade, asked: RowsAsked, codes: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw all codes that are -1, in place; how probable the allowed ones were, (M, n) float64."""
    spans = steps.codes_alone
    n_members, n, n_spans = codes.shape
    u = uniforms(_keys(asked, Purpose.CODES), n, n_spans, device=codes.device)
    rank = uniforms(_keys(asked, Purpose.ORDER), n, n_spans, device=codes.device)
    for span, allowed in asked.allowed.items():  # those of fewest codes first
        rank[..., span] = -1 / (1 + len(allowed))
    rank = rank.masked_fill(codes >= 0, 2)  # nothing to draw
    ranks, order = rank.sort(dim=2, stable=True)
    n_free = int((ranks < 2).sum(2).max()) if n_spans else 0
    first = min(len(asked.allowed), n_free)
    at_once = -(-(n_free - first) // _PASSES)
    ends = [*range(first), *range(first, n_free, max(1, at_once)), n_free]
    mass = torch.ones(n_members, n, dtype=torch.float64, device=codes.device)
    x = torch.empty(n_members, n, steps.inputs.n_inputs, dtype=spans.dtype, device=codes.device)
    for start, stop in itertools.pairwise(ends):
        raw = network.codes(steps.inputs.write(x, codes)).to(spans.dtype)
        now = torch.zeros_like(codes, dtype=torch.bool)
        now.scatter_(2, order[..., start:stop], ranks[..., start:stop] < 2)
        for m in range(n_members):
            for i in range(n_spans):
                rows = now[m, :, i].nonzero().squeeze(1)
                if not len(rows):
                    continue
                logits = spans.logits_of(i, raw[m])[rows]
                drawn, share = _draw_span(logits, u[m, rows, i], asked.allowed.get(i))
                codes[m, rows, i] = drawn
                if share is not None:
                    mass[m, rows] *= share
        if start == 0:  # the same in all rows: what rows are compared by is the rest
            mass /= mass.max().clamp_min(1e-300)
    return codes, mass


def _draw_span(
    logits: Tensor, u: Tensor, allowed: Sequence[int] | None
) -> tuple[Tensor, Tensor | None]:
    """A code of each row of logits, (n, size), and how probable the allowed ones were, (n,)."""
    share = None
    if allowed is not None:
        only = torch.full_like(logits[0], -torch.inf)
        only[list(allowed)] = 0
        restricted = logits + only
        share = (restricted.double().logsumexp(-1) - logits.double().logsumexp(-1)).exp()
        logits = restricted
    cdf = logits.double().softmax(-1).cumsum(-1)
    # below the total, lest rounding lead past the last code
    target = torch.minimum(u.double() * cdf[:, -1], cdf[:, -1] * (1 - 1e-12))
    drawn = torch.searchsorted(cdf, target.unsqueeze(-1), right=True).squeeze(-1)
    return drawn.clamp_(max=logits.shape[-1] - 1), share


def _choose_points(asked: RowsAsked, codes: Tensor, values: Tensor, spans: RowSpans) -> Tensor:
    """Give each row one of the values that are wanted in its bin, all of them equally likely."""
    u = uniforms(_keys(asked, Purpose.LATENT), asked.n_rows, len(asked.points), device=codes.device)
    for k, (span, (index, by_code)) in enumerate(asked.points.items()):
        for code, within in by_code.items():
            here = codes[..., span] == code
            among = torch.tensor(within, dtype=values.dtype, device=values.device)
            chosen = among[(u[..., k] * len(within)).long().clamp_(max=len(within) - 1)]
            values[..., index] = torch.where(here, chosen, values[..., index])
    return values


def _flow(
    steps: FlowSteps,
    network: StackedCascade,
    codes: Tensor,
    at: Tensor,
    known: Tensor,
    n_steps: int,
) -> Tensor:
    """Where the values' flow leads from time 0 to 1; known ones stay."""
    assert network.values is not None
    x = at.new_empty(*at.shape[:2], network.values.n_inputs)
    free = ~known

    def velocity(y: Tensor, t: float) -> Tensor:
        time = y.new_full((*y.shape[:2], 1), t)
        assert network.values is not None
        return network.values(steps.write_values(x, codes, y, known, time)).to(y.dtype) * free

    for k in range(n_steps):
        t, h = k / n_steps, 1 / n_steps
        slope = velocity(at, t)
        at = at + h / 2 * (slope + velocity(at + h * slope, t + h))
    return at
