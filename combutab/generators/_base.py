"""What CTGAN and TVAE share: fitting a table, sampling rows, and conditions on them."""

from __future__ import annotations

import os
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Self, cast

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils.validation import check_is_fitted

from combutab._device import Precision, resolve_device
from combutab._random import fold_in, random_uniform, seed_from
from combutab.generators._checkpoints import Checkpoint
from combutab.generators._conditions import Wanted, read_conditions
from combutab.generators._records import GeneratorPlan, GeneratorResult, TableRows, make_spans
from combutab.generators._saving import load_generator, save_generator
from combutab.generators._train import Curves, Training, train
from combutab.nn import Member, MLPShape, RowSpans, StackedActivation, StackedNetwork
from combutab.preprocessing import ModeEncoder
from combutab.training import Callback, ProgressBar

_MEMBER, _ENCODER, _SAMPLE = 1, 2, 3  # purposes of the estimator's seed
_CHUNK = 5000  # rows generated at a time
_MAX_TRIES = 100  # times as many rows as are asked for, at most, for conditions to be met


class BaseGenerator(BaseEstimator, metaclass=ABCMeta):
    """Fit and sample; subclasses build the networks."""

    _sampled_network: str  # which of the networks makes rows
    _conditional = False  # whether it takes a condition vector

    # ---- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def _training(
        self,
        rows: TableRows,
        spans: RowSpans,
        plans: Sequence[GeneratorPlan],
        device: torch.device,
    ) -> Training:
        """The networks, ready to train."""

    @abstractmethod
    def _plan(self, member: Member) -> GeneratorPlan:
        """A member with its rates."""

    @abstractmethod
    def _network(self, spans: RowSpans, members: Sequence[Member]) -> StackedNetwork:
        """The network that makes rows, on the CPU, weights as they come."""

    @abstractmethod
    def _make(
        self,
        network: Any,
        spans: RowSpans,
        keys: Sequence[int],
        n_rows: int,
        condition: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Values and codes of n_rows rows a member."""

    # ---- fit ---------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        discrete_columns: Any = "auto",
        *,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn the distribution of a table.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
            Columns may be of numbers, text, categories, truth values, dates or durations, with
            missing values.
        discrete_columns : "auto" or list, default="auto"
            Names (positions for an array) of the discrete columns; "auto" takes all that are not of
            numbers or dates.
        checkpoint : path, optional
            A file that the training is written to every half minute and at its end. If it is
            there, training goes on where it stood, to the same result as in one go; with more
            ``epochs``, it goes on for these.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the table cannot be used, or training diverged.
        """
        device = self._check()
        self.__dict__.pop("_states", None)  # a fit that fails leaves no fitted estimator
        file = None if checkpoint is None else Checkpoint(checkpoint, self)
        seed = seed_from(self.random_state)
        if file is not None and file.seed is not None:
            seed = file.seed
        encoder = ModeEncoder(
            discrete_columns=discrete_columns,
            random_state=fold_in(seed, _ENCODER) >> 2,
            n_jobs=max(1, torch.get_num_threads()),
        ).fit(X)
        precision = Precision(self.precision)
        spans = make_spans(encoder.layout_, device, precision)
        members = [
            Member(fold_in(seed, _MEMBER, i), self.activation) for i in range(self.n_members)
        ]
        results = [GeneratorResult({}) for _ in members]
        if spans.width:  # all columns are constant otherwise: nothing to learn
            rows = TableRows.on(device, encoder.encode(X), precision.dtype)
            plans = [self._plan(member) for member in members]
            training = self._training(rows, spans, plans, device)
            results = _train(training, rows, self.epochs, self._all_callbacks(), file, seed)
        self._absorb(seed, encoder, results)
        return self

    def _check(self) -> torch.device:
        """What scikit-learn's validation cannot see; before any work on the data."""
        device = resolve_device(self.device if self.enable_gpu else "cpu")
        for width in {width for widths in self._all_widths() for width in widths}:
            if self.activation != "original":
                StackedActivation([self.activation], width, [0], proxy_norm=self.proxy_norm)
        MLPShape(1, (), 1, normalization=self.normalization, proxy_norm=self.proxy_norm)
        for callback in self.callbacks or ():
            if not callable(getattr(callback, "on_epoch_end", None)):
                raise ValueError(
                    f"callbacks must be combutab.training.Callback objects, got {callback!r}"
                )
        return device

    @abstractmethod
    def _all_widths(self) -> list[tuple[int, ...]]:
        """The hidden widths of each network."""

    def _all_callbacks(self) -> list[Callback]:
        callbacks = list(self.callbacks or ())
        return [ProgressBar(type(self).__name__), *callbacks] if self.verbose else callbacks

    def _absorb(self, seed: int, encoder: ModeEncoder, results: Sequence[GeneratorResult]) -> None:
        if any(result.reason == "diverged" for result in results):
            raise ValueError(
                "training diverged: a loss is not finite; lower the learning rates, or look for "
                "values of extreme size in the table"
            )
        if any(result.reason == "interrupted" for result in results):
            warnings.warn("Training interrupted by user: the last weights are kept.", stacklevel=3)
        self.encoder_ = encoder
        self.n_features_in_ = encoder.n_features_in_
        if hasattr(encoder, "feature_names_in_"):
            self.feature_names_in_ = encoder.feature_names_in_
        self.history_ = pd.concat(
            [
                pd.DataFrame({"member": i, "epoch": range(1, _n_epochs(result) + 1)}).assign(
                    **{_loss_name(name): curve for name, curve in result.losses.items()}
                )
                for i, result in enumerate(results)
            ],
            ignore_index=True,
        )
        self.n_iter_ = _n_epochs(results[0])
        self._trained = (tuple(self.activation for _ in results), self.precision)
        self._states = [
            {n: v.numpy() for n, v in result.states.get(self._sampled_network, {}).items()}
            for result in results
        ]
        self._seed, self._n_sampled = seed, 0

    # ---- sample --------------------------------------------------------------------------------

    def sample(
        self,
        n: int,
        condition_column: Any = None,
        condition_value: Any = None,
        *,
        conditions: Mapping[Any, Any] | None = None,
        random_state: Any = None,
    ) -> Any:
        """Draw rows from the learned distribution.

        Parameters
        ----------
        n : int
            Rows.
        condition_column, condition_value
            One condition, in the ``ctgan`` package's way; a mapping as the second argument is taken
            for ``conditions``.
        conditions : mapping, optional
            Column -> value, or list of values any of which will do, for discrete columns; or
            ``(low, high)`` for continuous ones, None for an open end. All rows meet them.
        random_state : int, RandomState, Generator or None
            None goes on with the fit's own random numbers, so that the same calls after the same
            fit give the same rows.

        Returns
        -------
        DataFrame with the columns and dtypes of the fitted table, or an array if that was one

        Raises
        ------
        ValueError
            If a condition cannot be met: unknown columns or values, or rows that are too rare.
        """
        check_is_fitted(self)
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 0:
            raise ValueError(f"n must be a whole number of rows, got {n!r}")
        if isinstance(condition_column, Mapping):
            conditions = condition_column
        elif condition_column is not None:
            conditions = {condition_column: condition_value}
        wanted = read_conditions(self.encoder_, conditions or {})
        if random_state is None:
            key = fold_in(self._seed, _SAMPLE, self._n_sampled)
            self._n_sampled += 1
        else:
            key = fold_in(seed_from(random_state), _SAMPLE)
        values, codes = self._draw(int(n), wanted, key)
        return self.encoder_.decode(values, codes)

    def set_random_state(self, random_state: Any) -> None:
        """Set what the next call of ``sample`` without a random state begins with."""
        check_is_fitted(self)
        self._seed, self._n_sampled = seed_from(random_state), 0

    def _draw(self, n: int, wanted: list[Wanted], key: int) -> tuple[np.ndarray, np.ndarray]:
        layout = self.encoder_.layout_
        if not layout.spans:
            return np.empty((n, 0), np.float32), np.empty((n, 0), np.int64)
        values = [np.empty((0, layout.n_values), dtype=np.float32)]
        codes = [np.empty((0, len(layout.spans)), dtype=np.int64)]
        network, spans = self._sampler()
        made = met_all = 0
        while met_all < n:
            if made > _MAX_TRIES * max(n, _CHUNK):
                raise ValueError(
                    f"only {met_all} of {made} rows met the conditions "
                    f"{[w.column for w in wanted]}, {n} were asked for; ask for fewer, or relax "
                    "the conditions"
                )
            chunk = min(_CHUNK, n) if not made else _CHUNK
            new_values, new_codes = self._generate(
                network, spans, chunk, wanted, fold_in(key, made)
            )
            made += chunk
            if wanted:
                table = self.encoder_.decode(new_values, new_codes)
                met = np.logical_and.reduce([w.met(new_codes, table) for w in wanted])
                new_values, new_codes = new_values[met], new_codes[met]
            values.append(new_values)
            codes.append(new_codes)
            met_all += len(new_codes)
        return np.concatenate(values)[:n], np.concatenate(codes)[:n]

    @torch.inference_mode()
    def _generate(
        self, network: StackedNetwork, spans: RowSpans, n: int, wanted: list[Wanted], key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of all members in equal parts."""
        precision = Precision(self._trained[1])
        n_members = network.n_members
        share = -(-n // n_members)
        keys = [fold_in(key, i) for i in range(n_members)]
        condition = self._condition(spans, keys, share, wanted)
        with precision.context(spans.device)():
            values, codes = self._make(network, spans, keys, share, condition)
        # row by row from each member in turn
        rows = n_members * share
        return (
            values.float().cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
            codes.cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
        )

    def _sampler(self) -> tuple[StackedNetwork, RowSpans]:
        """The network that makes rows, with what it learned, and the layout of its rows."""
        device = resolve_device(self.device if self.enable_gpu else "cpu")
        activations, precision = self._trained
        spans = make_spans(self.encoder_.layout_, device, Precision(precision))
        network = self._network(spans, [Member(0, activation) for activation in activations])
        for i, state in enumerate(self._states):
            network.load_member(i, {name: torch.from_numpy(v) for name, v in state.items()})
        return network.eval(), spans

    def _condition(
        self, spans: RowSpans, keys: Sequence[int], n: int, wanted: list[Wanted]
    ) -> torch.Tensor:
        """Condition vectors: what is wanted of the rarest column, else by true frequencies."""
        shape, device = (len(keys), n), spans.device
        if not self._conditional or not spans.categories:
            return torch.zeros(*shape, 0, dtype=spans.dtype, device=device)
        counts = self.encoder_.category_counts_
        draws = random_uniform([fold_in(key, 0) for key in keys], 2 * n).view(*shape, 2).numpy()
        discrete = [(w.span, np.array(w.codes)) for w in wanted if w.span is not None]
        if discrete:
            share = [counts[span][codes].sum() for span, codes in discrete]
            rarest, allowed = discrete[int(np.argmin(share))]
            span = np.full(shape, rarest)
            weights = counts[rarest][allowed].astype(float)
            place = np.searchsorted(np.cumsum(weights), draws[..., 1] * weights.sum(), "right")
            code = allowed[np.minimum(place, len(allowed) - 1)]
        else:
            which = (draws[..., 0] * len(spans.categories)).astype(int)
            span = np.array(spans.categories)[which]
            code = np.zeros(shape, dtype=int)
            for i in spans.categories:
                at = span == i
                sums = np.cumsum(counts[i])
                place = np.searchsorted(sums, draws[..., 1][at] * sums[-1], "right")
                code[at] = np.minimum(place, len(sums) - 1)
        return spans.condition(torch.from_numpy(span).to(device), torch.from_numpy(code).to(device))

    def sample_from(self, conditions: pd.DataFrame, *, random_state: Any = None) -> pd.DataFrame:
        """Draw one row for each row of conditions.

        Parameters
        ----------
        conditions : DataFrame
            Columns are discrete columns of the fitted table; a missing value leaves one free.
        random_state : int, RandomState, Generator or None

        Returns
        -------
        DataFrame of as many rows, in the order and with the index of ``conditions``

        Raises
        ------
        ValueError
            As ``sample`` does.
        """
        check_is_fitted(self)
        if not isinstance(conditions, pd.DataFrame):
            raise ValueError(f"conditions must be a DataFrame, got {type(conditions).__name__}")
        seed = None if random_state is None else seed_from(random_state)
        names = list(conditions.columns)
        groups = conditions.groupby(names, dropna=False, sort=False, observed=True)
        parts = []
        for number, (_, rows) in enumerate(groups):
            wanted = rows.iloc[0].dropna().to_dict()
            part = self.sample(
                len(rows),
                conditions=wanted,
                random_state=None if seed is None else fold_in(seed, number) >> 2,
            )
            parts.append(pd.DataFrame(part).set_index(rows.index))
        return pd.concat(parts).loc[conditions.index]

    # ---- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted generator to one file (safetensors with JSON in its header).

        The file holds no row of the table, only the distinct values of discrete columns, the modes
        and bounds of continuous ones, and weights; it loads on any device. A failure leaves no
        half-written file.

        Raises
        ------
        ValueError
            If a parameter cannot be written without code (a custom activation, say).
        """
        save_generator(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str | torch.device = "auto") -> Self:
        """Read a generator that ``save`` wrote; no code of the file's is run.

        Parameters
        ----------
        path : str or path
        device : str or torch.device, default="auto"
            Where it samples.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a generator of this class.
        """
        return cast(Self, load_generator(cls, path, device))

    @property
    def loss_values(self) -> pd.DataFrame:
        """The losses of the first member by epoch, with the ``ctgan`` package's column names."""
        check_is_fitted(self)
        first = self.history_[self.history_["member"] == 0].drop(columns="member")
        return first.rename(columns=lambda name: name.replace("_", " ").title()).reset_index(
            drop=True
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_states")


def _train(
    training: Training,
    rows: TableRows,
    n_epochs: int,
    callbacks: Sequence[Callback],
    file: Checkpoint | None,
    seed: int,
) -> list[GeneratorResult]:
    if file is None:
        return train(training, n_epochs, callbacks)
    done, curves = file.restore(training, rows)

    def keep(epochs: int, curves: Curves, last: bool) -> None:
        write = file.write if last else file.offer
        write(training, epochs, curves, seed)

    return train(training, n_epochs, callbacks, done=done, curves=curves, keep=keep)


def _n_epochs(result: GeneratorResult) -> int:
    return len(next(iter(result.losses.values()), []))


def _loss_name(name: str) -> str:
    return name if name == "loss" else f"{name}_loss"
