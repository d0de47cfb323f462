"""TVAE: a variational autoencoder of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from combutab._device import Precision
from combutab._model_files import loadable
from combutab._random import Purpose, derive
from combutab.generators._base import BaseGenerator
from combutab.generators._constraints import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARED_CONSTRAINTS,
    check_widths,
)
from combutab.generators._noise import normals, uniforms
from combutab.generators._records import GeneratorPlan, SampledShape, TableRows
from combutab.generators._sampling import Allowed, Sampler
from combutab.generators._vae import VAEConfig, VAETraining
from combutab.nn import ActivationSpec, Member, RowSpans, StackedRowDecoder


@loadable
class TVAE(BaseGenerator):
    """Synthetic rows of a table by a variational autoencoder.

    Parameters have the ``ctgan`` package's names, order and defaults; those after ``verbose``
    are ours.

    Parameters
    ----------
    embedding_dim : int, default=128
        Latent dimensions.
    compress_dims, decompress_dims : sequence of int, default=(128, 128)
        Hidden widths of encoder and decoder.
    l2scale : float, default=1e-5
        L2 penalty on the parameters.
    batch_size : int, default=500
    epochs : int, default=300
    loss_factor : float, default=2
        Weight of the reconstruction beside the Kullback-Leibler divergence.
    enable_gpu : bool, default=True
        False is ``device="cpu"``.
    verbose : bool, default=False
        Show a progress bar with the loss, on a terminal.
    activation : str or callable, default="combu"
        Of every hidden layer of both networks; ``"original"`` is the paper's ReLU.
    normalization : str, default="none"
        Before the activations: as for the estimators.
    proxy_norm : bool, default=False
        Follow layer or group normalisation by proxy normalisation.
    learning_rate : float, default=1e-3
        Adam's.
    early_stopping : bool, default=False
        Hold rows out, and stop a member when its loss on them has not fallen for
        ``n_iter_no_change`` epochs. The weights of its best epoch are kept.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping holds out, 1,000 rows at most.
    n_iter_no_change : int or inf, default=20
    argmax : bool, default=False
        Sample the most probable category and mode of each column instead of drawing them from
        their distributions, as the ``ctgan`` package does: rows are more typical, and rare
        categories rarer than they are. It can be set after ``fit``.
    n_members, min_frequency, identifiers, random_state, device, precision, callbacks
        As of `CTGAN`.

    Attributes
    ----------
    encoder_ : ModeEncoder
    history_ : DataFrame
        One row a member and epoch: loss, the mean over the rows; with early stopping
        validation_loss.
    loss_values : DataFrame
        The same of the first member, with the ``ctgan`` package's column names.
    n_iter_ : int
        Epochs trained.
    n_features_in_ : int

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.5.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> TVAE(epochs=1, random_state=0).fit(X).sample(5).shape
    (5, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SHARED_CONSTRAINTS,
        "compress_dims": ["array-like"],
        "decompress_dims": ["array-like"],
        "l2scale": [NOT_NEGATIVE],
        "loss_factor": [POSITIVE],
        "learning_rate": [POSITIVE],
        "argmax": ["boolean"],
    }
    _sampled_network = "decoder"
    _member_rates = {"learning_rate", "l2scale"}

    def __init__(
        self,
        embedding_dim: int = 128,
        compress_dims: Sequence[int] = (128, 128),
        decompress_dims: Sequence[int] = (128, 128),
        l2scale: float = 1e-5,
        batch_size: int = 500,
        epochs: int = 300,
        loss_factor: float = 2,
        enable_gpu: bool = True,
        verbose: bool = False,
        *,
        activation: ActivationSpec = "combu",
        normalization: str = "none",
        proxy_norm: bool = False,
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: float = 20,
        argmax: bool = False,
        n_members: int = 1,
        min_frequency: float = 5,
        identifiers: Any = "auto",
        random_state: Any = None,
        device: str | torch.device = "auto",
        precision: str = "float32",
        callbacks: Any = None,
    ) -> None:
        self.embedding_dim = embedding_dim
        self.compress_dims = compress_dims
        self.decompress_dims = decompress_dims
        self.l2scale = l2scale
        self.batch_size = batch_size
        self.epochs = epochs
        self.loss_factor = loss_factor
        self.enable_gpu = enable_gpu
        self.verbose = verbose
        self.activation = activation
        self.normalization = normalization
        self.proxy_norm = proxy_norm
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.argmax = argmax
        self.n_members = n_members
        self.min_frequency = min_frequency
        self.identifiers = identifiers
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.callbacks = callbacks

    def _all_widths(self) -> list[tuple[int, ...]]:
        return [
            check_widths("compress_dims", self.compress_dims),
            check_widths("decompress_dims", self.decompress_dims),
        ]

    def _plan(self, member: Member) -> GeneratorPlan:
        return GeneratorPlan(member, generator_lr=self.learning_rate, generator_decay=self.l2scale)

    def _training(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        device: torch.device,
    ) -> VAETraining:
        compress_dims, decompress_dims = self._all_widths()
        config = VAEConfig(
            embedding_dim=self.embedding_dim,
            compress_dims=compress_dims,
            decompress_dims=decompress_dims,
            batch_size=self.batch_size,
            loss_factor=self.loss_factor,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            precision=Precision(self.precision),
        )
        return VAETraining(rows, spans, plans, config, device)

    _of_many_categories = ""

    def _n_outer_weights(self, spans: RowSpans) -> int:
        compress_dims, decompress_dims = self._all_widths()
        first = (compress_dims or (2 * self.embedding_dim,))[0]
        last = (decompress_dims or (self.embedding_dim,))[-1]
        return (first + last) * spans.width

    def _shape_of_network(self) -> SampledShape:
        return SampledShape(
            embedding_dim=self.embedding_dim,
            widths=self._all_widths()[1],
            activation=self.activation,
            n_members=self.n_members,
            normalization=self.normalization,
            proxy_norm=self.proxy_norm,
            precision=self.precision,
            conditional=False,
        )

    @staticmethod
    def _network(
        shape: SampledShape, spans: RowSpans, members: Sequence[Member]
    ) -> StackedRowDecoder:
        return StackedRowDecoder(
            shape.embedding_dim,
            shape.widths,
            spans.width,
            spans.n_values,
            members,
            normalization=shape.normalization,
            proxy_norm=shape.proxy_norm,
            dtype=spans.dtype,
            device=spans.device,
        )

    def _make(
        self,
        shape: SampledShape,
        network: Any,
        spans: RowSpans,
        keys: Sequence[int],
        n_rows: int,
        condition: Tensor,
        allowed: Allowed,
    ) -> tuple[Tensor, Tensor, Tensor]:
        def keys_of(purpose: Purpose) -> list[int]:
            return [derive(key, purpose) for key in keys]

        latent = normals(keys_of(Purpose.LATENT), n_rows, shape.embedding_dim, device=spans.device)
        raw, sigma = network(latent.to(spans.dtype))
        # the most probable code is as it is: rows of other codes are for the sampler to leave out
        raw, mass = spans.restrict(raw.to(spans.dtype), {} if self.argmax else allowed)
        codes = None
        if not self.argmax:
            codes = uniforms(keys_of(Purpose.CODES), n_rows, spans.n_spans, device=spans.device)
        values, drawn = spans.sample(raw, codes)
        # TVAE's values are normal about the decoder's: without this noise they vary too little
        noise = normals(keys_of(Purpose.VALUES), n_rows, spans.n_values, device=spans.device)
        return (values + sigma * noise.to(values.dtype)).clamp_(-1, 1), drawn, mass

    @staticmethod
    def _statistic(
        training: Any, held_out: TableRows, sampler: Sampler, keys: Sequence[int]
    ) -> tuple[str, Callable[[], np.ndarray]]:
        return "validation_loss", lambda: training.validation_loss(held_out, keys).cpu().numpy()
