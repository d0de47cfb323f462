"""TVAE's training: M encoders and decoders as one batched program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from combutab._device import Precision
from combutab._random import Purpose, derive, random_permutations
from combutab.generators._noise import Blocks, normals
from combutab.generators._records import GeneratorPlan, TableRows, update
from combutab.generators._vae_steps import ChainStep
from combutab.nn import (
    RowSpans,
    StackedNetwork,
    StackedRowDecoder,
    StackedRowEncoder,
    fill_gradients,
)
from combutab.training import OptimizerConfig, RowOptimizer


@dataclass(frozen=True)
class VAEConfig:
    """What all members share; names as in the estimator."""

    embedding_dim: int = 128
    compress_dims: tuple[int, ...] = (128, 128)
    decompress_dims: tuple[int, ...] = (128, 128)
    batch_size: int = 500
    loss_factor: float = 2.0
    normalization: str = "none"
    proxy_norm: bool = False
    precision: Precision = field(default_factory=lambda: Precision("float32"))


class VAETraining:
    """The networks of a stack of VAEs, their optimisers, and one epoch of training.

    As in the GANs' training, what is drawn is a function of seed, epoch and step.
    """

    def __init__(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        config: VAEConfig,
        device: torch.device,
    ) -> None:
        self.rows, self.spans, self.plans, self.config = rows, spans, list(plans), config
        self.device, self.context = device, config.precision.context(device)
        members = [plan.member for plan in plans]
        encoder = StackedRowEncoder(
            spans.width,
            config.compress_dims,
            config.embedding_dim,
            members,
            normalization=config.normalization,
            proxy_norm=config.proxy_norm,
            dtype=config.precision.dtype,
            device=device,
        )
        decoder = StackedRowDecoder(
            config.embedding_dim,
            config.decompress_dims,
            spans.width,
            spans.n_values,
            members,
            normalization=config.normalization,
            proxy_norm=config.proxy_norm,
            dtype=config.precision.dtype,
            device=device,
        )
        self.encoder, self.decoder = encoder, decoder
        self.networks: dict[str, StackedNetwork] = {"encoder": encoder, "decoder": decoder}
        self.optimizers = {
            name: RowOptimizer(OptimizerConfig(), net.flat.values, net.n_decayed)
            for name, net in self.networks.items()
        }
        self._in_place = None
        if config.precision.name != "bf16-mixed" and device.type == "cpu":
            self._in_place = ChainStep(rows, spans, encoder, decoder, config.loss_factor)
        n_numbers = len(plans) * config.batch_size * config.embedding_dim
        self._noise = Blocks(n_numbers, self._draw_noise)
        self.n_steps = -(-len(rows) // config.batch_size)

    def epoch(self, number: int) -> dict[str, Tensor]:
        """Train one epoch; returns each member's mean loss, (M,) on the device."""
        self.encoder.train()
        self.decoder.train()
        keys = [derive(plan.member.seed, Purpose.VAE_ORDER, number) for plan in self.plans]
        order = random_permutations(keys, [len(self.rows)] * len(keys), self.device)
        total = torch.zeros(len(self.plans), dtype=torch.float64, device=self.device)
        for step, index in enumerate(order.split(self.config.batch_size, dim=1)):
            total += self._step(number * self.n_steps + step, index) * index.shape[1]
        return {"loss": total / len(self.rows)}

    def _step(self, at: int, index: Tensor) -> Tensor:
        noise = self._noise(at)[0][:, : index.shape[1]]
        if self._in_place is not None:
            loss = self._in_place.gradients(index, noise)
        else:
            loss = self._loss(self.rows.values[index], self.rows.codes[index], noise)
            fill_gradients(loss.sum(), self.encoder, self.decoder)
        rates = [plan.generator_lr for plan in self.plans]
        decays = [plan.generator_decay for plan in self.plans]
        for name, net in self.networks.items():
            update(net, self.optimizers[name], rates, decays)
        return loss.detach()

    def _draw_noise(self, steps: range) -> list[Tensor]:  # (steps, M, batch, n_latent)
        seeds = [plan.member.seed for plan in self.plans]
        keys = [derive(seed, Purpose.VAE_NOISE, at) for at in steps for seed in seeds]
        n_rows = min(self.config.batch_size, len(self.rows))
        noise = self._normals(keys, n_rows)
        return [noise.unflatten(0, (-1, len(self.plans)))]

    def _normals(self, keys: Sequence[int], n_rows: int) -> Tensor:
        noise = normals(keys, n_rows, self.config.embedding_dim, device=self.device)
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
        return (self.config.loss_factor * reconstruction + divergence).mean(1)

    @torch.inference_mode()
    def validation_loss(self, rows: TableRows, keys: Sequence[int]) -> Tensor:
        """Each member's loss on other rows, (M,), by noise of these keys."""
        self.encoder.eval()
        self.decoder.eval()
        shape = (len(keys), -1, -1)
        noise = self._normals(keys, len(rows))
        return self._loss(rows.values.expand(shape), rows.codes.expand(shape), noise)
