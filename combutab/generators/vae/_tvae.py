"""TVAE: a variational autoencoder of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch

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
from combutab.generators._records import GeneratorPlan, Rates, RowsAsked, RowsDrawn, TableRows
from combutab.generators.vae._training import VAEShape, VAETraining
from combutab.nn import RowSpans, StackedRowDecoder, StackedRowEncoder

# How much rows count, by argmax, that meet a condition by codes which are not their most probable:
# little, so that they hardly matter where there are others
_LESS_LIKELY = 0.1


@loadable
@dataclass(eq=False, repr=False)
class TVAE(BaseGenerator[StackedRowDecoder]):
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
    argmax : bool, default=True
        Sample the most probable category and mode of each column, as the ``ctgan`` package does:
        rows are more typical, and what learns from them is better; but rare categories and missing
        values are rarer than they are. False draws them from their distributions, a column by
        itself. It can be set after ``fit``.
    max_time, n_members, min_frequency, identifiers, random_state, device, precision, callbacks
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
    >>> model = TVAE(epochs=1, random_state=0).fit(X)
    >>> model
    TVAE(epochs=1, random_state=0)  # fitted: 200 rows x 2 columns, 1 epoch
    >>> model.sample(5).shape
    (5, 2)
    """

    embedding_dim: int = 128
    compress_dims: Sequence[int] = (128, 128)
    decompress_dims: Sequence[int] = (128, 128)
    l2scale: float = 1e-5
    batch_size: int = 500
    epochs: int = 300
    loss_factor: float = 2
    enable_gpu: bool = True
    verbose: bool = False
    _: KW_ONLY
    learning_rate: float = 1e-3
    n_iter_no_change: float = 20
    argmax: bool = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SHARED_CONSTRAINTS,
        "compress_dims": ["array-like"],
        "decompress_dims": ["array-like"],
        "l2scale": [NOT_NEGATIVE],
        "loss_factor": [POSITIVE],
        "learning_rate": [POSITIVE],
        "argmax": ["boolean"],
    }
    _member_rates = {"learning_rate", "l2scale"}

    def _all_widths(self) -> list[tuple[int, ...]]:
        return [
            check_widths("compress_dims", self.compress_dims),
            check_widths("decompress_dims", self.decompress_dims),
        ]

    def _rates(self) -> dict[str, Rates]:
        return dict.fromkeys(("encoder", "decoder"), Rates(self.learning_rate, self.l2scale))

    def _make_shape(self) -> VAEShape:
        return VAEShape.of(self, self._all_widths()[1])

    def _of_rare_rows(self) -> str:
        return "; argmax=False makes rare values more often" if self.argmax else ""

    def _n_weights(self, spans: RowSpans) -> int:
        n_outputs = 2 * self.embedding_dim
        encoder = StackedRowEncoder.linear_shapes(spans.width, self._all_widths()[0], n_outputs)
        return super()._n_weights(spans) + sum(map(math.prod, encoder.values()))

    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> VAETraining:
        return VAETraining(
            rows,
            spans,
            plans,
            self._make_shape(),
            compress_dims=self._all_widths()[0],
            batch_size=self.batch_size,
            loss_factor=self.loss_factor,
        )

    def _draw(self, network: StackedRowDecoder, spans: RowSpans, asked: RowsAsked) -> RowsDrawn:
        def keys_of(purpose: Purpose) -> list[int]:
            return [derive(key, purpose) for key in asked.keys]

        n, device = asked.n_rows, spans.device
        latent = normals(keys_of(Purpose.LATENT), n, network.n_latent, device=device)
        raw, sigma = network(latent.to(spans.dtype))
        free = raw.to(spans.dtype)
        raw, mass = spans.restrict(free, asked.allowed)
        codes = None
        if not self.argmax:
            codes = uniforms(keys_of(Purpose.CODES), n, spans.n_spans, device=device)
        values, drawn = spans.sample(raw, codes)
        if self.argmax and asked.allowed:  # codes that are never the most probable are met as well
            likely = (drawn == spans.sample(free)[1]).all(-1)
            mass = torch.where(likely, 1.0, _LESS_LIKELY * mass)
        # TVAE's values are normal about the decoder's: without this noise they vary too little
        noise = normals(keys_of(Purpose.VALUES), n, spans.n_values, device=device)
        return RowsDrawn((values + sigma * noise.to(values.dtype)).clamp_(-1, 1), drawn, mass)
