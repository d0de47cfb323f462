"""TVAE's training: M encoders and decoders as one batched program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from combutab._device import Precision
from combutab._random import Purpose, derive, random_permutations
from combutab.generators._contract import Training
from combutab.generators._noise import Blocks, normals
from combutab.generators._records import GeneratorPlan, LatentShape, TableRows
from combutab.generators.sampling import Sampler
from combutab.generators.vae._steps import ChainStep
from combutab.nn import Member, RowSpans, StackedRowDecoder, StackedRowEncoder, fill_gradients
from combutab.training import CompiledGradients, OptimizerConfig, compilation


class VAEShape(LatentShape[StackedRowDecoder]):
    """Shape of the decoders."""

    def linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, ...]]:
        """See `SampledShape`."""
        return StackedRowDecoder.linear_shapes(self.embedding_dim, self.widths, spans.width)

    def build(self, spans: RowSpans, members: Sequence[Member]) -> StackedRowDecoder:
        """See `SampledShape`."""
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
    shares_rows = True

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
        self._chain = None
        if precision.name != "bf16-mixed" and spans.device.type == "cpu":
            self._chain = ChainStep(rows, spans, encoder, decoder, loss_factor)
        self._compiled: CompiledGradients[Tensor] | None = None
        how = compilation() if self.ranks is None else None
        if how is not None and how.device == spans.device.type:
            self._compiled = CompiledGradients(how, self._total_and_loss, self._backward)
        self._noise = Blocks(len(plans) * batch_size * self.n_latent, self._draw_noise)
        self.n_steps = -(-len(rows) // batch_size)

    def epoch(self, number: int) -> dict[str, Tensor]:
        """See `Training`."""
        self.encoder.train()
        self.decoder.train()
        keys = [derive(plan.member.seed, Purpose.VAE_ORDER, number) for plan in self.plans]
        order = random_permutations(keys, [len(self.rows)] * len(keys), self.spans.device)
        total = torch.zeros(len(self.plans), dtype=torch.float64, device=self.spans.device)
        for step, index in enumerate(order.split(self.batch_size, dim=1)):
            total += self._step(number * self.n_steps + step, index) * index.shape[1]
        if self.ranks is not None:
            self.ranks.sum_(total)
        return {"loss": total / len(self.rows)}

    def _step(self, at: int, index: Tensor) -> Tensor:
        n, own = index.shape[1], self.own(index.shape[1])
        noise, index = self._noise(at)[0][:, own], index[:, own]
        loss = self._gradients(index, noise) if index.shape[1] else self._noise(at)[0].new_zeros(())
        loss = loss * self.add_up(index.shape[1], n, "encoder", "decoder")
        self.update("encoder")
        self.update("decoder")
        return loss

    def _gradients(self, index: Tensor, noise: Tensor) -> Tensor:
        """Set the gradients of both networks; returns the members' losses, (M,)."""
        loss = None
        if self._compiled is not None:
            loss = self._compiled(self.rows.values[index], self.rows.codes[index], noise)
        elif self._chain is not None:
            loss = self._chain.gradients(index, noise)
        if loss is None:
            values, codes = self.rows.values[index], self.rows.codes[index]
            total, loss = self._total_and_loss(values, codes, noise)
            self._backward(total)
        return loss

    def _draw_noise(self, steps: range) -> list[Tensor]:  # (steps, M, batch, n_latent)
        seeds = [plan.member.seed for plan in self.plans]
        keys = [derive(seed, Purpose.VAE_NOISE, at) for at in steps for seed in seeds]
        n_rows = min(self.batch_size, len(self.rows))
        noise = self._normals(keys, n_rows)
        return [noise.unflatten(0, (-1, len(self.plans)))]

    def _normals(self, keys: Sequence[int], n_rows: int) -> Tensor:
        noise = normals(keys, n_rows, self.n_latent, device=self.spans.device)
        return noise.to(self.spans.dtype)

    def _total_and_loss(
        self, values: Tensor, codes: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        loss = self._loss(values, codes, noise)
        return loss.sum(), loss.detach()

    def _backward(self, total: Tensor) -> None:
        fill_gradients(total, self.encoder, self.decoder)

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
        """Measure the loss, by noise of these keys; see `Training`."""
        shape = (len(keys), -1, -1)

        @torch.inference_mode()
        def loss() -> np.ndarray:
            self.encoder.eval()
            self.decoder.eval()
            noise = self._normals(keys, len(held_out))
            values, codes = held_out.values.expand(shape), held_out.codes.expand(shape)
            return self._loss(values, codes, noise).cpu().numpy()

        return loss
