"""TVAE: a variational autoencoder of tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from combutab._model_files import loadable
from combutab.core.device import Precision
from combutab.core.parameters import COUNT, NOT_NEGATIVE, POSITIVE, parameter
from combutab.core.rng import Stream, fold_in, normals, random_permutations, uniforms
from combutab.generators._base import BaseGenerator
from combutab.generators._training import (
    DrawnBlocks,
    GeneratorPlan,
    Measure,
    Rates,
    TableRows,
    Training,
)
from combutab.generators.sampling import RowRequest, Sampler, Samples
from combutab.nn import (
    Member,
    RowSpans,
    StackedRowDecoder,
    StackedRowEncoder,
    fill_gradients,
)
from combutab.training import OptimizerConfig

# ---- TVAE's training: M encoders and decoders as one batched program -----------------------------


class VAETraining(Training[StackedRowDecoder]):
    """The encoders and decoders of a stack of VAEs."""

    shares_rows = True

    def __init__(
        self, model: TVAE, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> None:
        members, precision = [plan.member for plan in plans], Precision(model.precision)
        self.encoder = encoder = StackedRowEncoder(
            spans.width,
            tuple(model.compress_dims),
            2 * model.embedding_dim,
            members,
            normalization=model.normalization,
            proxy_norm=model.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )
        self.decoder = decoder = model._build(spans, members)
        networks = {"encoder": encoder, "decoder": decoder}
        super().__init__(rows, spans, plans, networks, decoder, OptimizerConfig())
        self.batch_size, self.loss_factor = model.batch_size, model.loss_factor
        self.n_latent, self.context = model.embedding_dim, precision.context(spans.device)
        self.encode = encoder.training_pass(self.context)
        self.decode = decoder.training_pass(self.context)
        self._noise = DrawnBlocks(len(plans) * self.batch_size * self.n_latent, self._draw_noise)
        self.n_steps = -(-len(rows) // self.batch_size)

    def epoch(self, number: int) -> dict[str, Tensor]:
        """See `Training`."""
        self.encoder.train()
        self.decoder.train()
        keys = [fold_in(plan.member.seed, Stream.VAE_ORDER, number) for plan in self.plans]
        order = random_permutations(keys, [len(self.rows)] * len(keys), self.spans.device)
        total = torch.zeros(len(self.plans), dtype=torch.float64, device=self.spans.device)
        for step, index in enumerate(order.split(self.batch_size, dim=1)):
            (noise,) = self._noise(number * self.n_steps + step)
            total += self._step(index, noise) * index.shape[1]
        self.world.all_reduce(total)
        return {"loss": total / len(self.rows)}

    def _step(self, index: Tensor, noise: Tensor) -> Tensor:
        n, rank_rows = index.shape[1], self.rank_rows(index.shape[1])
        noise, index = noise[:, rank_rows], index[:, rank_rows]
        loss = self._gradients(index, noise) if index.shape[1] else noise.new_zeros(())
        loss = loss * self.add_up(index.shape[1], n, "encoder", "decoder")
        self.update("encoder")
        self.update("decoder")
        return loss

    def _gradients(self, index: Tensor, noise: Tensor) -> Tensor:
        """Set the gradients of both networks; returns the members' losses, (M,)."""
        values, codes = self.rows.values[index], self.rows.codes[index]
        loss = self._loss(values, codes, noise, self.encode, self.decode)
        fill_gradients(loss.sum(), self.encoder, self.decoder)
        return loss.detach()

    def _draw_noise(self, steps: range) -> list[Tensor]:  # (steps, M, batch, n_latent)
        n_rows = min(self.batch_size, len(self.rows))
        return [self.by_step(self._normals(self.keys(Stream.VAE_NOISE, steps), n_rows))]

    def _normals(self, keys: Sequence[int], n_rows: int) -> Tensor:
        noise = normals(keys, n_rows, self.n_latent, device=self.spans.device)
        return noise.to(self.spans.dtype)

    def _plain_passes(self) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
        encode, decode = self.encoder.raw_outputs, self.decoder.raw_outputs
        return partial(encode, context=self.context), partial(decode, context=self.context)

    def _loss(
        self,
        values: Tensor,
        codes: Tensor,
        noise: Tensor,
        encode: Callable[..., Tensor],
        decode: Callable[..., Tensor],
    ) -> Tensor:
        """The negative of the evidence lower bound, its reconstruction weighted, (M,)."""
        moments = encode(self.spans.dense(values, codes)).to(noise.dtype)
        mean, log_variance = moments.chunk(2, dim=-1)
        latent = mean + torch.exp(0.5 * log_variance) * noise
        raw, sigma = decode(latent.to(self.spans.dtype)).to(self.spans.dtype), self.decoder.sigma
        error = (values - torch.tanh(raw[..., : self.spans.n_values])) / sigma
        reconstruction = (0.5 * error.square() + sigma.log()).sum(-1)
        reconstruction = reconstruction + self.spans.cross_entropy_all(raw, codes)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
        return (self.loss_factor * reconstruction + divergence).mean(1)

    @property
    def statistics(self) -> Mapping[str, str]:
        """See `Training`."""
        return {"validation_loss": ""}

    def measure(
        self,
        held_out: TableRows,
        make_sampler: Callable[[], Sampler[StackedRowDecoder]],
        keys: Sequence[int],
    ) -> Measure:
        """Measure the loss, by noise of these keys; see `Training`."""
        shape = (len(keys), -1, -1)

        @torch.inference_mode()
        def measured() -> dict[str, np.ndarray]:
            self.encoder.eval()
            self.decoder.eval()
            noise = self._normals(keys, len(held_out))
            values, codes = held_out.values.expand(shape), held_out.codes.expand(shape)
            loss = self._loss(values, codes, noise, *self._plain_passes())
            return {"validation_loss": loss.cpu().numpy()}

        return measured


# ---- TVAE: a variational autoencoder of tables ---------------------------------------------------

# Weight, with argmax, of rows that meet a condition only by codes that are not the most probable.
# It is small, so that other rows are preferred if there are any.
_LESS_LIKELY = 0.1


@loadable
@dataclass(eq=False, repr=False)
class TVAE(BaseGenerator[StackedRowDecoder]):
    """Synthetic tables by a variational autoencoder (TVAE).

    Parameters up to ``verbose`` have the names, the order and the defaults of the ``ctgan``
    package.

    Parameters
    ----------
    embedding_dim : int, default=128
        Number of latent dimensions.
    compress_dims, decompress_dims : sequence of int, default=(128, 128)
        Widths of the hidden layers of the encoder and the decoder.
    l2scale : float, default=1e-5
        Strength of the L2 penalty on the parameters.
    batch_size : int, default=500
        Number of rows per batch.
    epochs : int, default=300
        Number of passes over the rows.
    loss_factor : float, default=2
        Weight of the reconstruction loss; the Kullback-Leibler divergence has the weight 1.
    enable_gpu : bool, default=True
        Whether to use a GPU if there is one. False is the same as ``device="cpu"``.
    verbose : bool, default=False
        Whether to show a progress bar and an estimate of the training time, on a terminal.
    activation : str or callable, default="combu"
        Activation function of all hidden layers of both networks, as in `MLPClassifier`.
        ``"original"`` is the ReLU of the paper.
    normalization : str, default="none"
        Normalization before each activation, with the values of `MLPClassifier`.
    proxy_norm : bool, default=False
        Whether to add Proxy Normalization after layer or group normalization.
    learning_rate : float, default=1e-3
        Learning rate of Adam.
    early_stopping : bool, default=False
        Whether to set rows aside and to stop the training of a member when its loss on them has not
        decreased for ``n_iter_no_change`` epochs. The weights of its best epoch are kept.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping sets aside, at most 1,000 rows.
    n_iter_no_change : int or inf, default=20
        Number of epochs without improvement after which training stops.
    argmax : bool, default=True
        Whether to sample the most probable category and mode of each column, as the ``ctgan``
        package does. Rows are then more typical, and models trained on them are better, but rare
        categories and missing values are less frequent than in the table. False samples them from
        their distributions, independently for each column. It can be changed after ``fit``.
    constraints : list of Inequality, Sum, Formula, ..., or None, default=None
        Rules that all rows meet, such as ``[Inequality("start", "<", "end")]``.
    max_time, n_members, min_frequency, identifiers, fake, random_state, device, precision, \
callbacks
        As in `CTGAN`.

    Attributes
    ----------
    encoder_ : ModeEncoder
    history_ : DataFrame
        One row per member and epoch: loss, the mean over the rows; with early stopping
        validation_loss.
    loss_values : DataFrame
        The history of the first member, with the column names of the ``ctgan`` package.
    n_iter_ : int
        Number of epochs.
    n_features_in_ : int
        Number of columns seen in ``fit``.

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.5.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = TVAE(epochs=1, random_state=0).fit(X)
    >>> model
    TVAE(epochs=1, random_state=0)  # fitted: 200 rows x 2 columns, 1 epoch
    >>> model.sample(5).shape
    (5, 2)
    """

    embedding_dim: int = parameter(128, COUNT)
    compress_dims: Sequence[int] = parameter((128, 128), "array-like", concerns="width")
    decompress_dims: Sequence[int] = parameter((128, 128), "array-like", concerns="width")
    l2scale: float = parameter(1e-5, NOT_NEGATIVE, concerns="rate")
    batch_size: int = parameter(500, COUNT)
    epochs: int = parameter(300, COUNT, concerns="run")
    loss_factor: float = parameter(2, POSITIVE)
    enable_gpu: bool = parameter(True, "boolean", concerns="run")
    verbose: bool = parameter(False, "verbose", concerns="run")
    _: KW_ONLY
    learning_rate: float = parameter(1e-3, POSITIVE, concerns="rate")
    n_iter_no_change: float = 20
    argmax: bool = parameter(True, "boolean")

    def _rates(self) -> dict[str, Rates]:
        return dict.fromkeys(("encoder", "decoder"), Rates(self.learning_rate, self.l2scale))

    def _linear_shapes(self, spans: RowSpans) -> dict[str, tuple[int, int]]:
        widths = self._all_widths()[1]
        return StackedRowDecoder.linear_shapes(self.embedding_dim, widths, spans.width)

    def _build(self, spans: RowSpans, members: Sequence[Member]) -> StackedRowDecoder:
        return StackedRowDecoder(
            self.embedding_dim,
            self._all_widths()[1],
            spans.width,
            members,
            n_values=spans.n_values,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )

    def _advice_on_rare_rows(self) -> str:
        return "; argmax=False makes rare values more often" if self.argmax else ""

    def _n_weights(self, spans: RowSpans) -> int:
        n_outputs = 2 * self.embedding_dim
        encoder = StackedRowEncoder.linear_shapes(spans.width, self._all_widths()[0], n_outputs)
        return super()._n_weights(spans) + sum(map(math.prod, encoder.values()))

    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> VAETraining:
        return VAETraining(self, rows, spans, plans)

    def _draw(self, network: StackedRowDecoder, spans: RowSpans, request: RowRequest) -> Samples:
        n, device = request.n_rows, spans.device
        latent = normals(request.keys_for(Stream.LATENT), n, network.n_inputs, device=device)
        raw, sigma = network(latent.to(spans.dtype))
        free = raw.to(spans.dtype)
        raw, probability = spans.restrict(free, request.allowed)
        codes = None
        if not self.argmax:
            codes = uniforms(request.keys_for(Stream.CODES), n, spans.n_spans, device=device)
        values, drawn = spans.sample(raw, codes)
        if self.argmax and request.allowed:
            # codes that are never the most probable are met as well
            likely = (drawn == spans.sample(free)[1]).all(-1)
            probability = torch.where(likely, 1.0, _LESS_LIKELY * probability)
        # TVAE's values are normal about the decoder's: without this noise they vary too little
        noise = normals(request.keys_for(Stream.VALUES), n, spans.n_values, device=device)
        return Samples((values + sigma * noise.to(values.dtype)).clamp_(-1, 1), drawn, probability)
