"""The gradients of a step of VAEs, written out."""

from __future__ import annotations

import torch
from torch import Tensor

from combutab.generators._records import TableRows
from combutab.nn import (
    BlockPass,
    RowSpans,
    Scratch,
    SpanColumns,
    StackedRowDecoder,
    StackedRowEncoder,
)


class InPlaceVAEStep:
    """One member after the other in memory that is allocated once; the numbers are autograd's.

    Parameters
    ----------
    rows : TableRows
    spans : RowSpans
    encoder, decoder : the networks, which must ``fit``
    loss_factor : float
    """

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        encoder: StackedRowEncoder,
        decoder: StackedRowDecoder,
        loss_factor: float,
    ) -> None:
        self.rows, self.spans, self.loss_factor = rows, spans, loss_factor
        memory = [Scratch(spans.dtype, spans.device) for _ in range(3)]
        self._scratch, members = memory[2], range(encoder.n_members)
        self._encoders = [BlockPass(encoder, m, memory[0]) for m in members]
        self._decoders = [BlockPass(decoder, m, memory[1]) for m in members]
        self._columns = SpanColumns(spans, self._scratch)
        self._log_sigma = decoder.log_sigma.data
        self._log_sigma_grad = decoder.flat.gradient_of(decoder, "log_sigma")
        self._sigma_floor = decoder.sigma_floor

    @staticmethod
    def fits(encoder: StackedRowEncoder, decoder: StackedRowDecoder) -> bool:
        """Whether it knows all of the networks' layers."""
        # the last batch may be a single row, which batch normalisation has a rule of its own for
        plain = encoder.normalization == decoder.normalization == "none"
        return (
            plain and encoder.device.type == "cpu" and all(map(BlockPass.fits, (encoder, decoder)))
        )

    @torch.no_grad()
    def gradients(self, index: Tensor, noise: Tensor) -> Tensor:
        """Set the gradients of both networks; returns the members' losses, (M,).

        Parameters
        ----------
        index : Tensor, (M, batch) int64, rows of the table
        noise : Tensor, (M, batch, n_latent)
        """
        losses = [self._member(m, index[m], noise[m]) for m in range(len(index))]
        return torch.stack(losses)

    def _member(self, m: int, index: Tensor, noise: Tensor) -> Tensor:
        encode, decode, n = self._encoders[m], self._decoders[m], len(index)
        values = self.rows.values.index_select(0, index)
        codes = self.rows.codes.index_select(0, index).long()
        self.spans.write_rows(encode.inputs(n), values, codes)
        mean, log_variance = encode.forward(n).chunk(2, dim=1)
        deviation = torch.exp(0.5 * log_variance)
        spread = deviation * noise
        torch.add(mean, spread, out=decode.inputs(n))
        raw = decode.forward(n, columns_first=True)
        divergence = 0.5 * (mean.square() + deviation.square() - 1 - log_variance).sum()

        # the loss's derivative takes the place of the raw outputs
        n_values, weight = self.spans.n_values, self.loss_factor / n
        reconstruction = self._values(m, raw[:n_values], values.t(), weight)
        reconstruction += self._columns.cross_entropy_all(raw[n_values:], codes.t()).sum()
        latent = decode.backward(raw.mul_(weight), columns_first=True, to_inputs=True)
        assert latent is not None
        grad = self._scratch("grad", n, 2 * latent.shape[1])
        of_mean, of_log_variance = grad.chunk(2, dim=1)
        torch.add(latent, mean, alpha=1 / n, out=of_mean)
        torch.mul(latent, spread, out=of_log_variance)
        of_log_variance.add_(deviation.square_().sub_(1), alpha=1 / n).mul_(0.5)
        encode.backward(grad)
        return (self.loss_factor * reconstruction + divergence) / n

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
