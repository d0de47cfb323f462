"""TVAE's training: M encoders and decoders as one batched program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from combutab._device import Precision
from combutab._random import fold_in, random_permutations
from combutab.generators._contract import Training
from combutab.generators._noise import Blocks, normals
from combutab.generators._records import GeneratorPlan, SampledShape, TableRows
from combutab.generators._sampling import Sampler
from combutab.generators._vae_steps import InPlaceVAEStep
from combutab.nn import Member, RowSpans, StackedRowDecoder, StackedRowEncoder, fill_gradients
from combutab.training import OptimizerConfig

_ORDER, _NOISE = range(2)  # purposes of an epoch's, and of a step's key


class VAEShape(SampledShape[StackedRowDecoder]):
    """Of the decoders."""

    def linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, ...]]:
        """As of `SampledShape`."""
        return StackedRowDecoder.linear_shapes(self.embedding_dim, self.widths, spans.width)

    def build(self, spans: RowSpans, members: Sequence[Member]) -> StackedRowDecoder:
        """As of `SampledShape`."""
        return StackedRowDecoder(
            self.embedding_dim,
            self.widths,
            spans.width,
            spans.n_values,
            members,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )


class VAETraining(Training[StackedRowDecoder]):
    """The encoders and decoders of a stack of VAEs; parameters as in the estimator."""

    statistic = "validation_loss"

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        shape: VAEShape,
        *,
        compress_dims: tuple[int, ...],
        batch_size: int,
        loss_factor: float,
    ) -> None:
        members, precision = [plan.member for plan in plans], Precision(shape.precision)
        self.encoder = encoder = StackedRowEncoder(
            spans.width,
            compress_dims,
            shape.embedding_dim,
            members,
            normalization=shape.normalization,
            proxy_norm=shape.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )
        self.decoder = decoder = shape.build(spans, members)
        networks = {"encoder": encoder, "decoder": decoder}
        super().__init__(rows, spans, plans, networks, decoder, OptimizerConfig())
        self.batch_size, self.loss_factor = batch_size, loss_factor
        self.n_latent, self.context = shape.embedding_dim, precision.context(spans.device)
        self._in_place = None
        if precision.name != "bf16-mixed" and InPlaceVAEStep.fits(encoder, decoder):
            self._in_place = InPlaceVAEStep(rows, spans, encoder, decoder, loss_factor)
        self._noise = Blocks(len(plans) * batch_size * self.n_latent, self._draw_noise)
        self.n_steps = -(-len(rows) // batch_size)

    def epoch(self, number: int) -> dict[str, Tensor]:
        """As of `Training`."""
        self.encoder.train()
        self.decoder.train()
        keys = [fold_in(plan.member.seed, number, _ORDER) for plan in self.plans]
        order = random_permutations(keys, [len(self.rows)] * len(keys), self.spans.device)
        total = torch.zeros(len(self.plans), dtype=torch.float64, device=self.spans.device)
        for step, index in enumerate(order.split(self.batch_size, dim=1)):
            total += self._step(number * self.n_steps + step, index) * index.shape[1]
        return {"loss": total / len(self.rows)}

    def _step(self, at: int, index: Tensor) -> Tensor:
        noise = self._noise(at)[0][:, : index.shape[1]]
        if self._in_place is not None:
            loss = self._in_place.gradients(index, noise)
        else:
            loss = self._loss(self.rows.values[index], self.rows.codes[index], noise)
            fill_gradients(loss.sum(), self.encoder, self.decoder)
        self.update("encoder")
        self.update("decoder")
        return loss.detach()

    def _draw_noise(self, steps: range) -> list[Tensor]:  # (steps, M, batch, n_latent)
        keys = [fold_in(plan.member.seed, at, _NOISE) for at in steps for plan in self.plans]
        n_rows = min(self.batch_size, len(self.rows))
        noise = self._normals(keys, n_rows)
        return [noise.unflatten(0, (-1, len(self.plans)))]

    def _normals(self, keys: Sequence[int], n_rows: int) -> Tensor:
        noise = normals(keys, n_rows, self.n_latent, device=self.spans.device)
        return noise.to(self.spans.dtype)

    def _loss(self, values: Tensor, codes: Tensor, noise: Tensor) -> Tensor:
        """The negative of the evidence lower bound, its reconstruction weighted, (M,)."""
        with self.context():
            mean, log_variance = self.encoder(self.spans.dense(values, codes))
            mean, log_variance = mean.to(noise.dtype), log_variance.to(noise.dtype)
            latent = mean + torch.exp(0.5 * log_variance) * noise
            raw, sigma = self.decoder(latent.to(self.spans.dtype))
        raw = raw.to(self.spans.dtype)
        error = (values - torch.tanh(raw[..., : self.spans.n_values])) / sigma
        reconstruction = (0.5 * error.square() + sigma.log()).sum(-1)
        reconstruction = reconstruction + self.spans.cross_entropy_all(raw, codes)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
        return (self.loss_factor * reconstruction + divergence).mean(1)

    def measure(
        self, held_out: TableRows, sampler: Sampler[StackedRowDecoder], keys: Sequence[int]
    ) -> Callable[[], np.ndarray]:
        """As of `Training`: the loss, by noise of these keys."""
        shape = (len(keys), -1, -1)

        @torch.inference_mode()
        def loss() -> np.ndarray:
            self.encoder.eval()
            self.decoder.eval()
            noise = self._normals(keys, len(held_out))
            values, codes = held_out.values.expand(shape), held_out.codes.expand(shape)
            return self._loss(values, codes, noise).cpu().numpy()

        return loss
