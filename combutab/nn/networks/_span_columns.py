"""All spans of a batch of rows whose columns come first in memory: (width, batch).

The derivatives are written out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from combutab.nn.engine._memory import Scratch
from combutab.nn.networks._spans import Group, RowSpans

_SMALL = 64  # a span up to this size is gathered for each row where one a row is chosen


class SpanColumns:
    """``RowSpans`` on (width, batch), in memory given, with derivatives.

    Parameters
    ----------
    spans : RowSpans
    scratch : Scratch
    """

    def __init__(self, spans: RowSpans, scratch: Scratch) -> None:
        self.spans, self._scratch = spans, scratch
        self.n_values, self.width = spans.n_values, spans.width
        self.n_logits = spans.width - spans.n_values
        self._largest = max((spans.sizes[i] for i in spans.categories), default=0)

    @torch.no_grad()
    def activate(
        self, raw: Tensor, log_exponential: Tensor, out: Tensor, *, tau: float = 0.2
    ) -> Tensor:
        """Activate as ``RowSpans.activate``, (width, batch) -> (width, batch), in ``out``.

        ``log_exponential`` holds the logarithms of exponential draws, (n_logits, batch): minus
        Gumbel noise.
        """
        torch.tanh(raw[: self.n_values], out=out[: self.n_values])
        logits = self._scratch("logits", *log_exponential.shape)
        torch.sub(raw[self.n_values :], log_exponential, out=logits).div_(tau)
        for group, part, into in self._by_group(logits, out[self.n_values :]):
            if group.padded is None:
                torch.softmax(group.open_columns(part, 0.0), -2, out=group.open_columns(into, 0.0))
            else:
                into.copy_(
                    group.close_columns(torch.softmax(group.open_columns(part, -torch.inf), -2))
                )
        return out

    @torch.no_grad()
    def activate_backward(self, grad: Tensor, out: Tensor, *, tau: float = 0.2) -> Tensor:
        """The raw outputs' gradient in place of that of ``out``, which ``activate`` gave."""
        values = slice(0, self.n_values)
        torch.ops.aten.tanh_backward.grad_input(grad[values], out[values], grad_input=grad[values])
        logits = grad[self.n_values :]
        for group, part, into in self._by_group(out[self.n_values :], logits):
            p = group.open_columns(part, 0.0)
            into.copy_(group.close_columns(_softmax_backward(group.open_columns(into, 0.0), p)))
        logits.div_(tau)
        return grad

    @torch.no_grad()
    def cross_entropy(
        self, raw: Tensor, span: Tensor, code: Tensor, grad: Tensor, weight: float
    ) -> Tensor:
        """Compute ``RowSpans.cross_entropy``, (width, batch), (batch,), (batch,) -> (batch,).

        ``weight`` times its derivative is added to ``grad``.
        """
        if self._largest > _SMALL:
            with torch.enable_grad():
                rows = raw.t().contiguous().requires_grad_()
                loss = self.spans.cross_entropy(rows, span, code)
                (of_rows,) = torch.autograd.grad(loss.sum(), rows)
            grad.add_(of_rows.t(), alpha=weight)
            return loss.detach()
        place = torch.arange(self._largest, device=raw.device).unsqueeze(1)
        column = (self.spans.starts[span] + place).clamp_max_(self.width - 1)
        chosen = raw.gather(0, column)
        chosen.masked_fill_(place >= self.spans.span_sizes[span], -torch.inf)
        log_p = chosen.log_softmax(0)
        picked = code.unsqueeze(0)
        loss = log_p.gather(0, picked).squeeze(0).neg_()
        p = log_p.exp_()
        p.scatter_add_(0, picked, p.new_full(picked.shape, -1.0))
        grad.scatter_add_(0, column, p.mul_(weight))
        return loss

    @torch.no_grad()
    def cross_entropy_all(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Compute ``RowSpans.cross_entropy_all``, (n_logits, batch), (n_spans, batch) -> (batch,).

        The derivative is left in ``logits``.
        """
        total = logits.new_zeros(logits.shape[1])
        for group, _, into in self._by_group(logits, logits):
            log_p = torch.log_softmax(group.open_columns(into, -torch.inf), -2)
            picked = codes[group.spans].unsqueeze(1)
            total.sub_(log_p.gather(1, picked).sum((0, 1)))
            p = log_p.exp_()
            p.scatter_add_(1, picked, p.new_full((1, 1, 1), -1.0).expand(picked.shape))
            into.copy_(group.close_columns(p))
        return total

    def _by_group(self, x: Tensor, y: Tensor) -> list[tuple[Group, Tensor, Tensor]]:
        groups = self.spans.groups
        widths = [group.width for group in groups]
        return list(zip(groups, x.split(widths), y.split(widths), strict=True)) if groups else []


def _softmax_backward(grad: Tensor, out: Tensor) -> Tensor:
    return torch.ops.aten._softmax_backward_data(grad, out, -2, out.dtype)
