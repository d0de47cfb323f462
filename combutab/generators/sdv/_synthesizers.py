"""SDV's CTGANSynthesizer and TVAESynthesizer with models of ours, and one of TabFlow."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from inspect import Signature, signature
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype

from combutab.core.rng import Stream, fold_in
from combutab.generators._base import BaseGenerator
from combutab.generators._ctgan import CTGAN
from combutab.generators._sampling import start_sampling
from combutab.generators._tabflow import TabFlow
from combutab.generators._tvae import TVAE
from combutab.generators.sampling import FREE, DirectSampler, Encoded, join
from combutab.preprocessing import NumberColumn

try:
    import sdv.single_table
    from rdt.transformers import BaseTransformer, FloatFormatter
    from sdv.single_table.base import BaseSingleTableSynthesizer
    from sdv.single_table.ctgan import LossValuesMixin
    from sdv.single_table.utils import detect_discrete_columns
except ModuleNotFoundError as error:
    raise ImportError("combutab.generators.sdv needs SDV: pip install sdv ctgan") from error

# ---- Dates on their way from SDV's tables to a generator, and back -------------------------------


class DateTransformer(BaseTransformer):
    """Dates as dates, which the model reads itself: their resolution, bounds and missing values.

    ``datetime_format`` is that of dates held as text or numbers, None leaves the reading to pandas;
    ``enforce_min_max_values`` is not used: the model has other bounds.
    """

    INPUT_SDTYPE = "datetime"

    def __init__(
        self, datetime_format: str | None = None, enforce_min_max_values: bool = True
    ) -> None:
        super().__init__()
        self.datetime_format = datetime_format
        self.enforce_min_max_values = enforce_min_max_values

    def _fit(self, data: pd.Series) -> None:
        zones = {value.tzinfo for value in self._parse(data.dropna().head(1))}
        self._zone = next(iter(zones), None)

    def _parse(self, data: pd.Series, **options: Any) -> pd.Series:
        text = self.datetime_format
        return pd.to_datetime(
            data, format=text and text.replace("%-", "%").replace("%#", "%"), **options
        )

    def _transform(self, data: pd.Series) -> pd.Series:
        if is_datetime64_any_dtype(data):
            return data
        if self._zone is None:
            return self._parse(data)
        return self._parse(data, utc=True).dt.tz_convert(self._zone)

    def _reverse_transform(self, data: pd.Series) -> pd.Series:
        return data  # SDV gives it the form it had


# ---- Rows of a fitted generator for SDV's conditions ---------------------------------------------

_TRIES = 5000  # more rows than are asked for, to look for those that meet conditions


def rows_that_meet(
    model: BaseGenerator[Any], n_rows: int, codes: Mapping[int, int], numbers: Mapping[Any, Any]
) -> pd.DataFrame:
    """Draw at most n_rows rows in a few tries; SDV repeats the call for missing rows.

    All rows have the ``codes`` (by span). A network that draws codes one by one receives all of
    them as conditions, others receive the rarest. The rows have the values nearest to ``numbers``
    (None for a missing value), of which SDV selects those that are near enough.
    """
    n_tries = n_rows + _TRIES
    if not numbers:
        return _draw_rows(model, n_rows, codes, n_tries)
    return nearest(_draw_rows(model, n_tries, codes, n_tries), numbers, n_rows)


def _draw_rows(
    model: BaseGenerator[Any], n_rows: int, codes: Mapping[int, int], n_tries: int
) -> pd.DataFrame:
    """Draw at most n_rows rows that have the codes, out of about n_tries."""
    sampler, key = start_sampling(model)
    if isinstance(sampler, DirectSampler):
        given_codes = np.full((n_rows, sampler.spans.n_spans), FREE)
        given_codes[:, list(codes)] = list(codes.values())
        no_values = np.full((n_rows, sampler.spans.n_values), np.nan, dtype=np.float32)
        return model.encoder_.decode(*sampler.complete(given_codes, no_values, key))
    counts = model.encoder_.category_counts_
    span, code = min(codes.items(), key=lambda item: counts[item[0]][item[1]], default=(FREE, FREE))
    parts: list[Encoded] = []
    n_made = 0
    while sum(len(met) for _, met in parts) < n_rows and n_made < n_tries:
        chunk = min(sampler.chunk, n_tries - n_made if n_made else n_rows)
        condition = np.full(chunk, span), np.full(chunk, code)
        chunk_key = fold_in(key, Stream.CHUNK, n_made)
        new_values, new_codes = sampler.generate(chunk, *condition, chunk_key)
        met = (new_codes[:, list(codes)] == list(codes.values())).all(axis=1)
        parts.append((new_values[met], new_codes[met]))
        n_made += chunk
    values, drawn_codes = join(parts)
    return model.encoder_.decode(values[:n_rows], drawn_codes[:n_rows])


def nearest(table: pd.DataFrame, numbers: Mapping[Any, Any], n_rows: int) -> pd.DataFrame:
    """Choose at most n_rows rows, of the values nearest to the wanted ones, in their order."""
    rank = np.zeros(len(table))
    for column, value in numbers.items():
        if value is None:
            near = np.where(table[column].isna(), 0.0, np.nan)
        else:
            near = (table[column] - value).abs().rank(method="min").to_numpy()
        rank = np.maximum(rank, near)  # NaN stays: a value is missing, or is not
    order = np.argsort(rank, kind="stable")[: min(n_rows, int(np.isfinite(rank).sum()))]
    return table.iloc[np.sort(order)].reset_index(drop=True)


# ---- The synthesizers ----------------------------------------------------------------------------


class _Missing(Enum):
    """A missing value in transformed conditions: NaN would be lost in SDV's groups."""

    VALUE = None


class _Synthesizer(BaseSingleTableSynthesizer):
    """Parts that our synthesizers put in the place of SDV's."""

    _model_class: type[BaseGenerator[Any]]

    def __init_subclass__(
        cls, *, model_class: type[BaseGenerator[Any]] | None = None, **options: Any
    ) -> None:
        """Give a synthesizer the parameters of SDV's, in their order, then the model's others."""
        super().__init_subclass__(**options)
        if model_class is None:  # a user's class of one of ours
            return
        cls._model_class = model_class
        theirs = signature(super().__init__).parameters
        models = {
            name: parameter
            for name, parameter in signature(model_class).parameters.items()
            if name != "constraints"  # SDV's own are added by add_constraints
        }
        first = [models.get(name, parameter) for name, parameter in theirs.items()]
        more = [parameter for name, parameter in models.items() if name not in theirs]
        parameters = Signature([*first, *more])

        def __init__(self: _Synthesizer, *args: Any, **kwargs: Any) -> None:
            bound = parameters.bind(self, *args, **kwargs)
            bound.apply_defaults()
            self._begin(bound.arguments)

        __init__.__signature__ = parameters  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign,assignment]

    def _begin(self, arguments: dict[str, Any]) -> None:
        """Pass SDV's synthesizer its parameters, and set ours in the same way."""
        theirs = signature(super().__init__).parameters
        super().__init__(**{name: arguments[name] for name in theirs})
        models = signature(self._model_class).parameters
        self._model_kwargs = {name: arguments[name] for name in models if name in arguments}
        self.__dict__.update(self._model_kwargs)

    @property
    def _model_sdtype_transformers(self) -> dict[str, Any]:
        """SDV's, except that missing numbers and dates stay: the model learns where they are."""
        keep = {"missing_value_replacement": None, "missing_value_generation": None}
        return {
            **dict.fromkeys(("categorical", "boolean", "ordinal")),
            "numerical": FloatFormatter(
                learn_rounding_scheme=self.enforce_rounding,
                enforce_min_max_values=self.enforce_min_max_values,
                **keep,
            ),
            "datetime": DateTransformer(),
        }

    def add_constraints(self, constraints: list[Any]) -> None:
        """Add constraints that sampled rows meet.

        Parameters
        ----------
        constraints : list of constraints of ``sdv.cag``
        """
        super().add_constraints(constraints)
        # SDV forgets them here, and its own generators then see categories as numbers
        self._update_default_transformers()

    def _fit(self, processed_data: pd.DataFrame) -> None:
        transformers = self._data_processor._hyper_transformer.field_transformers
        discrete = detect_discrete_columns(self.metadata, processed_data, transformers)
        self._model = self._model_class(**self._model_kwargs).fit(processed_data, discrete)

    def _sample(self, num_rows: int, conditions: Mapping[Any, Any] | None = None) -> pd.DataFrame:
        encoder = self._model.encoder_
        codes, numbers = {}, {}
        for column, value in (conditions or {}).items():
            value = None if value is _Missing.VALUE else value
            if column not in encoder.schema_.keys or len(encoder.categories_.get(column, ())) == 1:
                continue  # SDV compares the results
            if isinstance(encoder.columns_[encoder.schema_.position(column)], NumberColumn):
                numbers[column] = value
                continue
            try:
                span, code = encoder.condition_code(column, value)
            except ValueError as error:
                # SDV shows errors that begin so
                message = f"Unable to sample any rows for the given conditions: {error}"
                raise ValueError(message) from error
            codes[span] = code
        if not codes and not numbers:
            return self._model.sample(num_rows)
        return rows_that_meet(self._model, num_rows, codes, numbers)

    def _sample_with_conditions(self, conditions: pd.DataFrame, *args: Any, **kwargs: Any) -> Any:
        # SDV's groups by pandas' categories would have empty ones, at which it fails
        is_category = conditions.dtypes.map(lambda d: isinstance(d, pd.CategoricalDtype))
        plain = conditions.astype(dict.fromkeys(conditions.columns[is_category], object))
        return super()._sample_with_conditions(plain, *args, **kwargs)

    def _transform_conditions(self, condition_df: pd.DataFrame) -> pd.DataFrame:
        transformed = super()._transform_conditions(condition_df)
        return transformed.astype(object).where(transformed.notna(), _Missing.VALUE)

    def _print_warning(self, data: pd.DataFrame) -> None:
        """Nothing: the model keeps categories as codes, however many there are."""

    def get_loss_values_plot(self, title: str | None = None) -> Any:
        """Draw the losses by epoch.

        Parameters
        ----------
        title : str, optional

        Returns
        -------
        plotly.graph_objects.Figure

        Raises
        ------
        sdv.errors.NotFittedError
        """
        import plotly.express

        losses = self.get_loss_values()
        names = [name for name in losses.columns if name.endswith("Loss")]
        figure = plotly.express.line(losses, x="Epoch", y=names, template="plotly_white")
        figure.update_layout(
            title=title or f"{self._model_class.__name__} losses",
            yaxis_title="Loss",
            legend_title_text="",
        )
        return figure


class CTGANSynthesizer(_Synthesizer, sdv.single_table.CTGANSynthesizer, model_class=CTGAN):
    """SDV's ``CTGANSynthesizer`` around `combutab.CTGAN`.

    It is used as SDV's, in its place. What differs: any activation; conditions on discrete columns
    go to the generator; missing numbers and dates are learned with their dependences; a fit can
    be repeated (``random_state``); pandas' categories are taken; and a thousand categories are no
    cause for alarm.

    Parameters
    ----------
    metadata : sdv.metadata.Metadata
    enforce_min_max_values, enforce_rounding : bool, default=True
        As SDV's, which keeps and clips to the least and the greatest number themselves. The
        generator's own bounds are as ``min_frequency`` has them.
    locales : list of str or str, default=["en_US"]
    embedding_dim, generator_dim, discriminator_dim, generator_lr, generator_decay, \
discriminator_lr, discriminator_decay, batch_size, discriminator_steps, log_frequency, verbose, \
epochs, pac, enable_gpu
        As SDV's.
    activation, normalization, proxy_norm, early_stopping, validation_fraction, n_iter_no_change, \
max_time, n_members, min_frequency, identifiers, fake, random_state, device, precision, callbacks
        The same as for `combutab.CTGAN`. Sampling after a fit begins with a seed of SDV's.

    Raises
    ------
    ValueError
        By ``fit``, if a parameter or the table cannot be used.

    Examples
    --------
    With a table and its ``sdv.metadata.Metadata``::

        synthesizer = CTGANSynthesizer(metadata, activation="combu", random_state=0)
        synthesizer.fit({"people": table})
        rows = synthesizer.sample(100)["people"]
    """


class TVAESynthesizer(_Synthesizer, sdv.single_table.TVAESynthesizer, model_class=TVAE):
    """SDV's ``TVAESynthesizer`` around `combutab.TVAE`.

    It takes the place of SDV's; `CTGANSynthesizer` describes the differences. Conditions
    are met by choosing among the model's rows, since TVAE takes none.

    Parameters
    ----------
    metadata : sdv.metadata.Metadata
    enforce_min_max_values, enforce_rounding : bool, default=True
        As SDV's, which keeps and clips to the least and the greatest number themselves. The
        generator's own bounds are as ``min_frequency`` has them.
    embedding_dim, compress_dims, decompress_dims, l2scale, batch_size, verbose, epochs, \
loss_factor, enable_gpu
        As SDV's.
    activation, normalization, proxy_norm, learning_rate, early_stopping, validation_fraction, \
n_iter_no_change, argmax, max_time, n_members, min_frequency, identifiers, fake, random_state, \
device, precision, callbacks
        The same as for `combutab.TVAE`. Sampling after a fit begins with a seed of SDV's.

    Raises
    ------
    ValueError
        By ``fit``, if a parameter or the table cannot be used.
    """


class TabFlowSynthesizer(_Synthesizer, LossValuesMixin, model_class=TabFlow):
    """A synthesizer of SDV around `combutab.TabFlow`.

    It is used like SDV's ``CTGANSynthesizer``; ours describes the differences. Conditions on
    discrete columns are met by the model itself, whatever their number.

    Parameters
    ----------
    metadata : sdv.metadata.Metadata
    enforce_min_max_values, enforce_rounding : bool, default=True
        As SDV's, which keeps and clips to the least and the greatest number themselves. The
        generator's own bounds are as ``min_frequency`` has them.
    locales : list of str or str, default=["en_US"]
    hidden_layer_sizes, n_bins, batch_size, epochs, n_sampling_steps, enable_gpu, verbose, \
activation, normalization, proxy_norm, learning_rate, weight_decay, dropout, early_stopping, \
validation_fraction, n_iter_no_change, max_time, n_members, min_frequency, identifiers, fake, \
random_state, device, precision, callbacks
        The same as for `combutab.TabFlow`. Sampling after a fit begins with a seed of SDV's.

    Raises
    ------
    ValueError
        By ``fit``, if a parameter or the table cannot be used.
    """
