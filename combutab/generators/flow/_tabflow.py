"""TabFlow: a cascaded flow of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from combutab._device import Precision
from combutab._model_files import loadable
from combutab.generators._base import BaseGenerator
from combutab.generators._constraints import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARED_CONSTRAINTS,
    check_widths,
)
from combutab.generators._records import GeneratorPlan, Rates, RowsAsked, RowsDrawn, TableRows
from combutab.generators.flow._sampling import draw_rows
from combutab.generators.flow._shares import code_shares
from combutab.generators.flow._steps import FlowSteps
from combutab.generators.flow._training import FlowShape, FlowTraining
from combutab.generators.sampling import FREE, DirectSampler
from combutab.nn import ActivationSpec, RowSpans, StackedCascade
from combutab.preprocessing import ModeEncoder, missing_codes

_STEPS = 10_000  # of the training, by epochs="auto"
_FEWEST_EPOCHS, _MOST_EPOCHS = 5, 300  # the latter where nothing tells of copying
_ENOUGH_ROWS = 200  # for early stopping
_BATCHES = (32, 512)  # sizes by batch_size="auto", about
_PARTS = 16  # of the rows, a batch each
_ENCODED_ROWS = 200_000  # that bins are learned from, at most


@loadable
@dataclass(eq=False, repr=False)
class TabFlow(BaseGenerator[StackedCascade]):
    """Synthetic rows of a table by a cascaded flow.

    A number is a code, which of its column's quantile bins it is in (a value that many rows share
    is a bin of its own), and a place in that bin. One network learns to find codes of a row,
    categories and bins alike, from any others of the row, so that rows are drawn code by code in
    random order, and beside columns that are given; another one learns the flow from noise to the
    places. So the networks themselves meet conditions (but for the ends of ranges: rows beyond them
    are left out) and draw beside cells that are given.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(256, 256)
        Widths of the residual blocks of the network of codes, and twice those of that of values;
        what passes by them is as wide as the first.
    n_bins : int, default=64
        Bins of a column of numbers, about; a bin has 20 rows at least.
    batch_size : int or "auto", default="auto"
        "auto": a sixteenth of the rows, from 32 to 512, a power of two.
    epochs : int or "auto", default="auto"
        "auto": as many as make 10,000 steps, but 5 at least; 300 at most without early stopping,
        by which rows might be learned by heart.
    n_sampling_steps : int, default=8
        Steps of Heun's method along the flow, two evaluations each. It can be set after ``fit``.
    enable_gpu : bool, default=True
        False is ``device="cpu"``.
    verbose : bool, default=False
        Show a progress bar with the loss, on a terminal.
    activation : str or callable, default="silu"
        Of every block of both networks; ``"original"`` is SiLU too, as most published ones have.
    normalization : str, default="layer"
        Of what enters a block, and the last layer: as for the estimators.
    proxy_norm : bool, default=False
        False: it belongs between a normalisation and the activation, where a block has a layer.
    learning_rate : float, default=2e-3
        AdamW's, after 100 steps in which it rises to it. Rows are made by the average of the
        weights of about the last tenth of the steps.
    weight_decay : float, default=0.0
        AdamW's, of the weights.
    dropout : float, default=0.05
        Share of the hidden units that a step leaves out.
    early_stopping : bool or "auto", default="auto"
        Hold rows out, and stop a member when its loss on them has not fallen for
        ``n_iter_no_change`` epochs. The weights of its best epoch are kept. "auto": where there are
        200 rows or more.
    validation_fraction : float, default=0.1
        Share of the rows that early stopping holds out, 1,000 rows at most.
    n_iter_no_change : int or inf, default=50
    max_time, n_members, min_frequency, identifiers, random_state, device, precision, callbacks
        As of `CTGAN`.

    Attributes
    ----------
    encoder_ : ModeEncoder
    history_ : DataFrame
        One row a member and epoch: codes_loss, the mean cross-entropy of a hidden code,
        in part of blurred bins;
        values_loss, the mean squared error of the flow's velocity, of tables with numbers; with
        early stopping validation_loss, their sum.
    loss_values : DataFrame
        The same of the first member.
    n_iter_ : int
        Epochs trained.
    n_features_in_ : int

    References
    ----------
    Mueller et al. (2026), "Cascaded flow matching for heterogeneous tabular data with mixed-type
    features", arXiv 2601.22816; Shi et al. (2025), "TabDiff", arXiv 2410.20626; Lipman et al.
    (2023), "Flow matching for generative modeling".

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> TabFlow(epochs=1, random_state=0).fit(X).sample(5).shape
    (5, 2)
    """

    # NOTE[DIFF]: TabCascade draws codes by a diffusion of their embeddings, and starts each flow
    # from a normal about the bin. Ours draws them by masking, by which conditions are met exactly;
    # a place in a bin is a standard normal's quantile, which is the same start.
    hidden_layer_sizes: Sequence[int] = (256, 256)
    n_bins: int = 64
    batch_size: Any = "auto"
    epochs: Any = "auto"
    n_sampling_steps: int = 8
    enable_gpu: bool = True
    verbose: bool = False
    _: KW_ONLY
    activation: ActivationSpec = "silu"
    normalization: str = "layer"
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    dropout: float = 0.05
    early_stopping: Any = "auto"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: each for name, each in SHARED_CONSTRAINTS.items() if name != "embedding_dim"},
        "hidden_layer_sizes": ["array-like"],
        "n_bins": [COUNT],
        "batch_size": [COUNT, StrOptions({"auto"})],
        "epochs": [COUNT, StrOptions({"auto"})],
        "early_stopping": ["boolean", StrOptions({"auto"})],
        "n_sampling_steps": [COUNT],
        "learning_rate": [POSITIVE],
        "weight_decay": [NOT_NEGATIVE],
        "dropout": [Interval(Real, 0, 1, closed="left")],
    }
    _member_rates = {"learning_rate", "weight_decay"}
    _sampler_class = DirectSampler

    def _check(self) -> None:
        super()._check()
        if self.proxy_norm:
            raise ValueError(
                "TabFlow has no use for proxy_norm=True: a linear layer stands between its "
                "normalizations and activations; use CTGAN or TVAE, or proxy_norm=False"
            )

    def _all_widths(self) -> list[tuple[int, ...]]:
        return [check_widths("hidden_layer_sizes", self.hidden_layer_sizes)]

    def _rates(self) -> dict[str, Rates]:
        return {"network": Rates(self.learning_rate, self.weight_decay)}

    def _make_shape(self) -> FlowShape:
        return FlowShape.of(self, self._all_widths()[0])

    def _make_encoder(self, discrete_columns: Any, random_state: int) -> ModeEncoder:
        encoder = super()._make_encoder(discrete_columns, random_state)
        return encoder.set_params(strategy="quantile", n_modes=self.n_bins, max_rows=_ENCODED_ROWS)

    def _n_batch(self, n_rows: int) -> int:
        if self.batch_size != "auto":
            return min(self.batch_size, n_rows)
        least, most = _BATCHES
        return min(n_rows, most, max(least, 2 ** round(np.log2(max(1, n_rows / _PARTS)))))

    def _n_epochs(self, n_rows: int) -> int:
        if self.epochs != "auto":
            return int(self.epochs)
        n_steps = n_rows // self._n_batch(n_rows)
        n_epochs = max(_FEWEST_EPOCHS, -(-_STEPS // n_steps))
        return n_epochs if self._stops_early(n_rows) else min(_MOST_EPOCHS, n_epochs)

    def _stops_early(self, n_rows: int) -> bool:
        if self.early_stopping == "auto":
            return n_rows >= _ENOUGH_ROWS
        return bool(self.early_stopping)

    def _training(
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> FlowTraining:
        batch_size = self._n_batch(len(rows))
        return FlowTraining(
            rows, spans, plans, self._make_shape(), batch_size=batch_size, dropout=self.dropout
        )

    def _draw(self, network: StackedCascade, spans: RowSpans, asked: RowsAsked) -> RowsDrawn:
        return draw_rows(FlowSteps(network, spans), network, asked, self.n_sampling_steps)

    def _draw_missing(
        self, values: np.ndarray, codes: np.ndarray, known: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        sampler, layout = self._sampler(), self.encoder_.layout_
        assert isinstance(sampler, DirectSampler)
        allowed = {i: own for i, own in self._present().items() if not known[:, i].all()}
        given = np.full(values.shape, np.nan, dtype=np.float32)
        for i, span in enumerate(layout.spans):
            if span.value_index is not None:
                own = known[:, i]
                given[own, span.value_index] = values[own, span.value_index]
        return sampler.complete(np.where(known, codes, FREE), given, key, allowed)

    def _present(self) -> dict[int, tuple[int, ...]]:
        """The codes that a missing cell may get, of spans of which it may not get all."""
        layout, found = self.encoder_.layout_, {}
        for i, missing in enumerate(missing_codes(self.encoder_).tolist()):
            others = set(range(layout.sizes[i])) - {missing}
            others -= {code for span, code in layout.never if span == i}
            if missing >= 0 and others:
                found[i] = tuple(sorted(others))
        return found

    def _code_shares(
        self, codes: np.ndarray, wanted: Sequence[int] | None = None
    ) -> Iterator[tuple[slice, int, np.ndarray]]:
        """How probable the codes of spans are (by default of all) beside the codes of rows.

        They are as `flow._shares.code_shares` gives them; none of them is that of a missing value,
        but of spans that have no other one.
        """
        sampler = self._sampler()
        if sampler.network is None:  # all columns are constant
            return iter(())
        steps = FlowSteps(
            sampler.network,
            sampler.spans,
            Precision(self._shape.precision).context(sampler.spans.device),
        )
        wanted = range(sampler.spans.n_spans) if wanted is None else wanted
        given = (codes, wanted, self._present(), sampler.chunk)
        return code_shares(steps, sampler.network, *given)
