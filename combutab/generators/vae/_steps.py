"""The gradients of a step of VAEs, in memory of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from combutab.generators._records import TableRows
from combutab.nn import RowSpans, Scratch, SpanColumns, StackedRowDecoder, StackedRowEncoder


class ChainStep:
    """A step in memory that is allocated once, on a CPU; the numbers are those of autograd."""

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        encoder: StackedRowEncoder,
        decoder: StackedRowDecoder,
        loss_factor: float,
    ) -> None:
        self.rows, self.spans, self.loss_factor = rows, spans, loss_factor
        self._encoder, self._decoder = encoder.chain(), decoder.chain()
        self._scratch = Scratch(spans.dtype, spans.device)
        self._columns = SpanColumns(spans, self._scratch)
        self._log_sigma = decoder.log_sigma.data
        self._log_sigma_grad = decoder.flat.gradient_of(decoder, "log_sigma")
        self._sigma_floor = decoder.sigma_floor

    @torch.no_grad()
    def gradients(self, index: Tensor, noise: Tensor) -> Tensor:
        """Set the gradients of both networks; returns the members' losses, (M,).

        The rows are (M, batch) int64, and the noise (M, batch, n_latent).
        """
        n, members = index.shape[1], range(len(index))
        inputs = self._encoder.inputs(n)
        values, codes = self.rows.values[index], self.rows.codes[index].long()
        self.spans.write_rows(inputs, values, codes)
        mean, log_variance = self._encoder.forward(inputs).chunk(2, dim=-1)
        deviation = torch.exp(0.5 * log_variance)
        spread = deviation * noise
        latent = torch.add(mean, spread, out=self._decoder.inputs(n))
        raw = self._decoder.forward(latent, columns_first=True)
        divergence = mean.square() + deviation.square() - 1 - log_variance
        losses = 0.5 * divergence.sum((1, 2))

        # the loss's derivative takes the place of the raw outputs
        n_values, weight = self.spans.n_values, self.loss_factor / n
        for m in members:
            reconstruction = self._values(m, raw[m, :n_values], values[m].t(), weight)
            of_codes = self._columns.cross_entropy_all(raw[m, n_values:], codes[m].t())
            losses[m] += self.loss_factor * (reconstruction + of_codes.sum())
        by_latent = self._decoder.backward(raw.mul_(weight), columns_first=True, to_inputs=True)
        assert by_latent is not None
        grad = self._scratch("grad", *by_latent.shape[:2], 2 * by_latent.shape[2])
        of_mean, of_log_variance = grad.chunk(2, dim=-1)
        torch.add(by_latent, mean, alpha=1 / n, out=of_mean)
        torch.mul(by_latent, spread, out=of_log_variance)
        of_log_variance.add_(deviation.square_().sub_(1), alpha=1 / n).mul_(0.5)
        self._encoder.backward(grad)
        return losses / n

    def _values(self, m: int, raw: Tensor, values: Tensor, weight: float) -> Tensor:
        """The reconstruction of the tanh values, (n_values, n), summed; its derivative in raw."""
        growth = self._log_sigma[m, 0].exp().unsqueeze(1)
        sigma = growth + self._sigma_floor
        mean = torch.tanh(raw)
        error = (values - mean).div_(sigma)
        square = error.square()
        of_sigma = (1 - square).sum(1, keepdim=True).mul_(growth / sigma)
        self._log_sigma_grad[m, 0] = of_sigma[:, 0] * weight
        torch.mul(mean.square_().sub_(1), error.div_(sigma), out=raw)
        return square.sum().mul_(0.5) + values.shape[1] * sigma.log().sum()
