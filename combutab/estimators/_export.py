"""Fitted estimators as plain torch modules and as ONNX models: encoding, networks, answers."""

from __future__ import annotations

import json
import logging
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from combutab._version import __version__
from combutab.core.files import whole_file
from combutab.estimators._targets import Answer
from combutab.nn import ActivationSpec, TableNetwork, build_activation
from combutab.preprocessing import CIRCLE_STEPS, QUARTERS, TableEncoder, calendar_phases

if TYPE_CHECKING:
    import onnx


# ---- A fitted table encoder as a torch module: scales, missing values and one-hot columns --------

# Wichura's AS 241, PPND16, from the highest power to the lowest: the numerator and denominator of
# the middle, those of the tails.
_PPND16 = (
    (
        2509.0809287301226727,
        5226.4952788528545610,
        7.74545014278341407640e-4,
        1.05075007164441684e-9,
    ),
    (33430.575583588128105, 28729.085735721942674, 0.0227238449892691845833, 5.4759380849953449e-4),
    (67265.770927008700853, 39307.895800092710610, 0.241780725177450611770, 0.0151986665636164572),
    (45921.953931549871457, 21213.794301586595867, 1.27045825245236838258, 0.148103976427480075),
    (13731.693765509461125, 5394.1960214247511077, 3.64784832476320460504, 0.689767334985100005),
    (1971.5909503065514427, 687.18700749205790830, 5.76949722146069140550, 1.67638483018380385),
    (133.14166789178437745, 42.313330701600911252, 4.63033784615654529590, 2.05319162663775882),
    (3.3871328727963666080, 1.0, 1.42343711074968357734, 1.0),
)
_EDGE = 1e-7  # of TableEncoder's quantiles
_UNIT_RATIO = 300  # between dates, beyond which they are of different units
_BLOCK = 32  # knots that are looked through at a time


class TableEncoding(nn.Module):
    """What ``TableEncoder.encode`` makes of a table's numbers and codes, with torch's operations.

    Parameters
    ----------
    encoder : TableEncoder
        A fitted one.

    Shape
    -----
    numbers : (n, n_numeric) float64, codes : (n, n_categorical) int64, as ``TableEncoder.read``
    gives them -> (n, n_dense) float32 and (n, n_coded) int64

    >>> encoder = TableEncoder().fit([[1.0], [3.0]])
    >>> encoding = TableEncoding(encoder)
    >>> encoding(torch.tensor([[3.0], [torch.nan]], dtype=torch.float64), None)[0]
    tensor([[1.],
            [0.]])
    """

    def __init__(self, encoder: TableEncoder) -> None:
        super().__init__()
        encoder.refuse_text()
        scaler = encoder.numeric_scaler_
        self.method, self.limit, self.n_numeric = scaler.method, scaler.limit, scaler.n_columns
        self.date_ranges = [  # place among the numbers, first and last date of fit
            (int(i), float(scaler.low[i]), float(scaler.high[i]))
            for i in np.flatnonzero(scaler.is_cut)
        ]
        arrays = {
            "centre": scaler.centre,
            "scale": scaler.scale,
            "fill": np.clip(scaler.fill, -scaler.limit, scaler.limit),
            "constant": scaler.constant,
            "unscaled": scaler.unscaled,
            "indicated": np.flatnonzero(scaler.missing),
            "low": scaler.low,
            "high": scaler.high,
            "knots": scaler.knots,
            "blocks": _knot_blocks(scaler.knots),
            # of each knot, which is the first of those that equal it
            "first": np.array([np.searchsorted(knots, knots) for knots in scaler.knots.T]).T,
        }
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(array)))
        numeric = [j for j, kind in enumerate(encoder.kinds_) if kind not in ("category", "text")]
        self.calendars = [(numeric.index(c.column), c.parts) for c in encoder.calendars_ if c.parts]
        for i, calendar in enumerate(c for c in encoder.calendars_ if c.parts):
            self.register_buffer(f"changes_{i}", torch.from_numpy(calendar.changes.copy()))
            self.register_buffer(f"offsets_{i}", torch.from_numpy(calendar.offsets.copy()))
            self.register_buffer(f"varied_{i}", torch.from_numpy(calendar.varied.copy()))
        maps = encoder.category_maps_
        self.onehot = [i for i, category_map in enumerate(maps) if category_map.onehot]
        for i in self.onehot:
            self.register_buffer(f"frequencies_{i}", torch.tensor(maps[i].frequencies))
        self.coded = [i for i, category_map in enumerate(maps) if not category_map.onehot]

    def forward(self, numbers: Tensor, codes: Tensor | None) -> tuple[Tensor, Tensor]:
        if not torch.compiler.is_compiling():
            self._check_dates(numbers)
        parts = [self._scaled(numbers)] if self.n_numeric else []
        if len(self.get_buffer("indicated")):
            parts.append(torch.isnan(numbers)[:, self.get_buffer("indicated")].float())
        parts += [self._circles(i, numbers[:, j]) for i, (j, _) in enumerate(self.calendars)]
        if codes is not None:
            for i in self.onehot:
                frequencies, code = self.get_buffer(f"frequencies_{i}"), codes[:, i : i + 1]
                numbered = torch.arange(len(frequencies), device=codes.device)
                parts.append(torch.where(code < 0, frequencies, (code == numbered).float()))
        if codes is None:
            return torch.cat(parts, 1), numbers[:, :0].long()
        dense = torch.cat(parts, 1) if parts else codes[:, :0].float()
        columns = [codes[:, i : i + 1] for i in self.coded]
        return dense, torch.cat(columns, 1) if columns else codes[:, :0]

    def _check_dates(self, numbers: Tensor) -> None:
        """Raise ValueError if dates are not in seconds."""
        for j, first, last in self.date_ranges:
            dates, (smallest, largest) = numbers[:, j], _plausible_sizes(first, last)
            is_wrong = (dates.abs() < smallest) & (dates != 0) | (dates.abs() > largest)
            is_wrong &= (dates < first) | (dates > last)
            if is_wrong.any():
                raise ValueError(
                    f"column {j} of numbers has dates, in seconds since 1970-01-01 UTC, got "
                    f"{dates[is_wrong][0].item():g}, which is another unit; divide nanoseconds by "
                    "1e9, or use module.encode(X)"
                )

    def _scaled(self, numbers: Tensor) -> Tensor:
        missing = torch.isnan(numbers)
        x = torch.where(missing, 0.0, numbers)  # NaN would spread over the gradient
        if self.date_ranges:
            x = torch.minimum(torch.maximum(x, self.get_buffer("low")), self.get_buffer("high"))
        unscaled, constant = self.get_buffer("unscaled"), self.get_buffer("constant")
        if self.method == "quantile":
            x = torch.where(unscaled | constant, x, self._normal_score(x))
        elif self.method != "none":
            x = (x - self.get_buffer("centre")) / self.get_buffer("scale")
        if self.method == "robust":
            cut = torch.clamp(x, -1e15, 1e15)
            x = torch.where(unscaled, x, cut / torch.sqrt(1 + (cut / 3) ** 2))
        x = torch.clamp(x, -self.limit, self.limit)
        x = torch.where(constant, 0.0, x)
        return torch.where(missing, self.get_buffer("fill"), x).float()

    def _circles(self, i: int, seconds: Tensor) -> Tensor:
        """Dates, (n,), as sines and cosines of parts of their local time, zeros where missing."""
        is_known = ~torch.isnan(seconds)
        moments = torch.where(is_known, seconds, 0.0)
        index = (self.get_buffer(f"changes_{i}") <= moments.unsqueeze(1)).sum(1)
        local = moments + self.get_buffer(f"offsets_{i}")[index]
        phases = calendar_phases(local, self.calendars[i][1])
        shifted = [phase + quarter for phase in phases for quarter in QUARTERS]
        # no cosines, which ONNX Runtime lacks in float64
        circle = torch.sin(_double(2 * torch.pi, seconds) * torch.stack(shifted, 1))
        steps = torch.round(circle * CIRCLE_STEPS) / CIRCLE_STEPS
        circle = circle + (steps - circle).detach()  # rounding has no gradient
        return torch.where(
            is_known.unsqueeze(1) & self.get_buffer(f"varied_{i}"), circle, 0.0
        ).float()

    def _normal_score(self, x: Tensor) -> Tensor:
        knots, last = self.get_buffer("knots"), len(self.get_buffer("knots")) - 1
        x = torch.minimum(torch.maximum(x, knots[0]), knots[-1])
        x = self._as_fitted(x)
        below = self._last_not_above(x)
        low, high = knots.gather(0, below), knots.gather(0, torch.clamp(below + 1, max=last))
        share = (x - low) / torch.where(high > low, high - low, 1.0)
        first = self.get_buffer("first").gather(0, below)
        # a value that several knots have gets their middle
        level = torch.where(x == low, (below + first).double() / 2, below + share) / last
        low, high = _double(_EDGE, x), _double(1 - _EDGE, x)
        return normal_quantile(torch.minimum(torch.maximum(level, low), high))

    def _as_fitted(self, x: Tensor) -> Tensor:
        """Knots in the place of their copies in single precision, as TableEncoder has it."""
        knots, last = self.get_buffer("knots"), len(self.get_buffer("knots")) - 1
        below = self._last_not_above(x)

        def nearest(index: Tensor, step: int) -> tuple[Tensor, Tensor]:
            knot = knots.gather(0, torch.clamp(index, max=last))
            repeated = knot == knots.gather(0, torch.clamp(index + step, 0, last))
            return knot, repeated & ((x.float().double() == knot) | (x == knot.float().double()))

        (low, is_low), (high, is_high) = nearest(below, -1), nearest(below + 1, 1)
        moved = (x != low) & (is_low != is_high)
        return torch.where(moved, torch.where(is_low, low, high), x)

    def _last_not_above(self, x: Tensor) -> Tensor:
        """The last knot that is not above x, (n, n_numeric); ONNX has no search for it."""
        blocks, rows = self.get_buffer("blocks"), x.unsqueeze(1)
        block = (blocks[:, 0] <= rows).sum(1) - 1
        block_values = blocks.gather(0, block.unsqueeze(1).expand(-1, _BLOCK, -1))
        return block * _BLOCK + (block_values <= rows).sum(1) - 1


def _plausible_sizes(first: float, last: float) -> tuple[float, float]:
    """Smallest and largest absolute value in seconds of dates like those in fit.

    Units differ by factors of 1,000. Dates within the range of fit are always plausible, and so is
    zero, which is the same in all units.

    >>> years = 365.2425 * 86_400
    >>> [round(size / years, 1) for size in _plausible_sizes(50 * years, 54 * years)]  # since 1970
    [0.2, 16200.0]
    """
    size = max(abs(first), abs(last))
    return size / _UNIT_RATIO, size * _UNIT_RATIO


def normal_quantile(p: Tensor) -> Tensor:
    """Quantiles of the normal distribution, for p in [1e-7, 1 - 1e-7], to float64's precision.

    References
    ----------
    Wichura (1988), "Algorithm AS 241: the percentage points of the normal distribution".

    >>> normal_quantile(torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64))
    tensor([-1.9600,  0.0000,  1.9600], dtype=torch.float64)
    """
    # ONNX has neither this nor the inverse of erf
    q = p - 0.5
    tail = torch.sqrt(-torch.log(torch.minimum(p, 1 - p))) - _double(1.6, p)
    x = torch.stack([_double(0.180625, p) - q * q, tail]).unsqueeze(1)  # (2, 1, *p.shape)
    highest, *lower = (
        torch.tensor(ratio, dtype=p.dtype, device=p.device).view(2, 2, *[1] * p.ndim)
        for ratio in _PPND16
    )
    value = highest
    for ratio in lower:
        value = value * x + ratio
    middle, outer = value[:, 0] / value[:, 1]
    return torch.where(q.abs() <= _double(0.425, p), q * middle, torch.where(q < 0, -outer, outer))


def _double(number: float, like: Tensor) -> Tensor:
    """A constant that stays float64 in ONNX, where Python's numbers are rounded to float32."""
    return torch.tensor(number, dtype=torch.float64, device=like.device)


def _knot_blocks(knots: np.ndarray) -> np.ndarray:
    """Knots (n_knots, n_columns) -> (n_blocks, _BLOCK, n_columns), filled up with infinity."""
    lacking = -len(knots) % _BLOCK
    padded = np.concatenate([knots, np.full((lacking, knots.shape[1]), np.inf)])
    return padded.reshape(len(padded) // _BLOCK, _BLOCK, knots.shape[1])


# ---- A fitted estimator as one torch module: encoding, networks, answer --------------------------


class TableModule(nn.Module):
    """A fitted estimator, including its encoding, as a plain torch module.

    It is the result of ``to_torch``: a copy whose parameters can be trained further, moved,
    compiled and exported without the estimator. It computes on the device of its parameters.

    Parameters
    ----------
    encoder : TableEncoder
        Fitted encoder, which ``encode`` uses.
    networks : sequence of TableNetwork
        Stacks of networks for the encoded columns.
    answer : nn.Module
        Module from raw outputs (n_networks, n, n_outputs) to predictions.
    selected : sequence of int, optional
        Indices of the networks to average, with repetitions as weights. By default each network
        once.
    trees : sequence of nn.Module, optional
        Additional modules from encoded columns and codes to raw outputs. They count as networks
        after the others.

    Shape
    -----
    numbers : (n, n_numeric) float64, codes : (n, n_categorical) int64 -> (n, n_classes)
    probabilities, or (n,) or (n, n_outputs) predicted targets

    Notes
    -----
    ``numbers`` has the columns that are not categorical, in the order of the table: numbers,
    booleans as 0 and 1, dates as seconds since 1970-01-01 UTC, durations in seconds, and NaN for
    missing values. ``codes`` has the categorical columns: the position of the category in
    ``module.encoder.categories_[column]`` (plus one if the column has an embedding), and the codes
    of the encoder for missing, rare and unseen categories. ``encode`` returns both for a table. An
    estimator with ``precision="bf16-mixed"`` becomes a module that computes in float32, with less
    rounding.

    Examples
    --------
    >>> import pandas as pd
    >>> from combutab import MLPRegressor
    >>> X = pd.DataFrame({"size": [1.0, 2.0, None, 9.0] * 5, "kind": ["a", "b", "b", "a"] * 5})
    >>> reg = MLPRegressor(hidden_layer_sizes=(4,), max_iter=2, n_iter_no_change=float("inf"),
    ...                    random_state=0).fit(X, range(20))
    >>> module = reg.to_torch()
    >>> numbers, codes = module.encode(X[:3])
    >>> numbers.flatten().tolist(), codes.flatten().tolist(), module(numbers, codes).shape
    ([1.0, 2.0, nan], [0, 1, 1], torch.Size([3]))
    """

    def __init__(
        self,
        encoder: TableEncoder,
        networks: Sequence[TableNetwork],
        answer: nn.Module,
        selected: Sequence[int] | None = None,
        trees: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.encoding = TableEncoding(encoder)
        self.networks, self.answer = nn.ModuleList(networks), answer
        self.trees = nn.ModuleList(trees)
        self.selected: Tensor | None
        self.register_buffer("selected", None if selected is None else torch.tensor(list(selected)))

    def encode(self, X: Any) -> tuple[Tensor, Tensor]:
        """Convert a table to the inputs of the module.

        Parameters
        ----------
        X : table of shape (n, n_features)
            Rows, as for ``predict`` of the estimator.

        Returns
        -------
        numbers : Tensor, (n, n_numeric) float64
        codes : Tensor, (n, n_categorical) int64

        Raises
        ------
        ValueError
            As in ``predict``: for other columns, infinite values, or text in a numeric column.
        """
        device = self.encoding.get_buffer("centre").device
        numbers, codes = self.encoder.read(X)
        return torch.from_numpy(numbers).to(device), torch.from_numpy(codes).to(device)

    def raw(self, numbers: Tensor, codes: Tensor | None = None) -> Tensor:
        """Compute the raw outputs of all networks that are averaged, (n_networks, n, n_outputs)."""
        dense, coded = self.encoding(numbers, codes)
        outputs = []
        for net in self.networks:
            assert isinstance(net, TableNetwork)
            rows = dense.to(next(net.parameters()).dtype)
            inputs = (x.expand(net.n_members, *x.shape) for x in (rows, coded))
            outputs.append(net.by_head(net(*inputs)))
        outputs += [trees(dense, coded)[None].to(outputs[0].dtype) for trees in self.trees]
        raw = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return (raw if self.selected is None else raw[self.selected]).double()

    def forward(self, numbers: Tensor, codes: Tensor | None = None) -> Tensor:
        answer: Tensor = self.answer(self.raw(numbers, codes))
        return answer


# ---- How an estimator leaves the library ---------------------------------------------------------


class Exports(BaseEstimator):
    """A fitted estimator that can be given away as a torch module or an ONNX file."""

    @abstractmethod
    def _exported(self, dtype: torch.dtype | None) -> TableModule:
        """The estimator as a module, on the CPU; its weights in this dtype, or their own."""

    def to_torch(self) -> TableModule:
        """Convert the fitted estimator, including its encoding, to a plain torch module.

        Returns
        -------
        TableModule
            Module on the CPU, in eval mode. ``module(*module.encode(X))`` computes
            ``predict_proba(X)`` of a classifier and ``predict(X)`` of a regressor. The results
            differ by rounding errors only. It is differentiable with respect to its parameters and
            to the numbers.

        Examples
        --------
        >>> import torch
        >>> from sklearn.datasets import load_iris
        >>> from combutab import MLPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MLPClassifier((8,), max_iter=5, n_iter_no_change=float("inf"),
        ...                     random_state=0).fit(X, y)
        >>> module = clf.to_torch()
        >>> probabilities = module(*module.encode(X[:2])).detach().numpy()
        >>> abs(probabilities - clf.predict_proba(X[:2])).max() < 1e-6
        np.True_
        """
        check_is_fitted(self)
        return self._exported(None).eval()

    @abstractmethod
    def _thresholds(self, coverage: float) -> Tensor:
        """Thresholds of nonconformity scores, for intervals or sets of labels."""

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, coverage: float | None = None
    ) -> onnx.ModelProto | None:
        """Convert the fitted estimator, including its encoding, to an ONNX model.

        Parameters
        ----------
        path : str or path, optional
            File to write. After an error there is no incomplete file.
        coverage : float, optional
            Coverage of an additional output: "prediction_interval", as ``predict_interval`` of a
            regressor, or "prediction_set", as ``predict_set`` of a classifier.

        Returns
        -------
        onnx.ModelProto or None
            The model; None if it is written to ``path``. It has one input per column, with the name
            of the column and the shape (n, 1). Numbers are float64, with NaN for missing values.
            Dates and durations are int64, as ``astype("int64")`` makes them of a column with the
            dtype in ``fit``: counts since 1970-01-01 UTC, and counts of time, in the unit that the
            metadata name ("s", "ms", "us" or "ns"), with -2**63 for missing values, as NaT has.
            Dates of another unit raise an error in the runtime, whose message names the column.
            Categories are text, with "" for missing values (float64 if all known categories are
            numbers). Text must match exactly: unlike in ``predict``, "1.0" is not the category 1,
            and "2024-01-01" is not the category "2024-01-01 00:00:00". A column that held dates as
            text in ``fit`` takes dates, not text. Columns without names are "x0", "x1", ...; if all
            of these are numbers, there is one input "X" of shape (n, n_features). The outputs are
            those of skl2onnx: "label", (n,), and "probabilities", (n, n_classes), for a classifier,
            and "variable", (n, n_outputs), for a regressor.

        Raises
        ------
        ImportError
            If onnx or onnxscript is not installed: ``pip install onnx onnxscript onnxruntime``.
        ValueError
            If ``predict_interval`` or ``predict_set`` refuses the coverage, ONNX cannot express an
            activation (the message names it), a column is free text, its
            name is not possible for an input, two of its categories with different types have the
            same text, or the weights take 2 GB or more.
        OSError
            If the file cannot be written.

        Notes
        -----
        The metadata "combutab" of the model (JSON) has the column and the kind of each input, the
        unit of dates and durations, and the text or number for missing values. A column with the
        name of an output gets a "_" at its end.
        Networks compute in float32 for any ``precision``. The model predicts any row, also with
        infinite numbers, for which ``predict`` raises an error. The file contains the same
        information about categories and scales as that of ``save``, and none about the training.

        Examples
        --------
        >>> import pandas as pd
        >>> from combutab import MLPClassifier
        >>> X = pd.DataFrame({"area": [20.0, 35.0, 50.0, 90.0] * 5, "city": ["Rome", "Oslo"] * 10})
        >>> clf = MLPClassifier((4,), max_iter=2, n_iter_no_change=float("inf"), random_state=0)
        >>> model = clf.fit(X, X["area"] > 40).to_onnx()
        >>> [each.name for each in model.graph.input], [each.name for each in model.graph.output]
        (['area', 'city'], ['label', 'probabilities'])

        With a path it is a file for a runtime: ``onnxruntime.InferenceSession("clf.onnx").run(None,
        {"area": X[["area"]].to_numpy(), "city": X[["city"]].to_numpy(object)})``.
        """
        check_is_fitted(self)
        classes = getattr(self, "classes_", None)
        thresholds = None if coverage is None else self._thresholds(coverage)
        with nullcontext() if path is None else whole_file(path) as file:
            module = self._exported(torch.float32).eval()
            model = make_onnx(module, type(self).__name__, classes, thresholds)
            if file is None:
                return model
            file.write_bytes(model.SerializeToString())
        return None


_OWN = "combutab/"  # what names within the graph begin with, and no input does
_ROWS = "N"
_LOGGERS = ("torch.onnx", "onnxscript")  # which tell of what they skip
_MOST = 2**31 - 2**20  # bytes of a protocol buffer, less those of the graph


def make_onnx(
    module: TableModule,
    name: str,
    classes: np.ndarray | None,
    thresholds: Tensor | None = None,
) -> onnx.ModelProto:
    """The model; ``name`` is the estimator's class, ``classes`` are a classifier's labels.

    With ``thresholds`` there is an output of conformal intervals or sets of labels.

    Raises
    ------
    ImportError
        If onnx or onnxscript is not installed.
    ValueError
        If the columns' names, an activation or the size have no place in an ONNX file.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401
        from onnx import compose, helper, numpy_helper
    except ImportError as error:
        raise ImportError(
            "ONNX models need more libraries: pip install onnx onnxscript onnxruntime"
        ) from error
    n_bytes = sum(tensor.nbytes for tensor in module.state_dict().values())
    if n_bytes > _MOST:
        raise ValueError(
            f"the weights take {n_bytes / 1e9:.1f} GB, and an ONNX file holds 2 GB; use save"
        )
    inputs = _Inputs()
    inputs.add_columns(module.encoder)
    inner = compose.add_prefix(_traced(module, classes is not None, thresholds), _OWN)
    nodes, outputs = inputs.nodes, []
    constants = [*inputs.constants, *inner.graph.initializer]
    tables = [columns for columns in (inputs.numbers, inputs.codes) if columns]
    for columns, table in zip(tables, inner.graph.input, strict=True):
        nodes.append(helper.make_node("Concat", columns, [table.name], axis=1))
    nodes += inner.graph.node
    names = ["variable"] if classes is None else ["label", "probabilities"]
    if thresholds is not None:
        names.append("prediction_interval" if classes is None else "prediction_set")
    for value, output in zip(inner.graph.output, names, strict=True):
        kind, shape = value.type.tensor_type.elem_type, value.type.tensor_type.shape.dim
        node = helper.make_node("Identity", [value.name], [output])
        if classes is not None and len(shape) == 1:  # the place of the most probable class
            labels = numpy_helper.from_array(_labels(classes), f"{_OWN}classes")
            kind = labels.data_type
            constants.append(labels)
            node = helper.make_node("Gather", [labels.name, value.name], [output], axis=0)
        nodes.append(node)
        widths = [dimension.dim_value for dimension in shape[1:]]
        outputs.append(helper.make_tensor_value_info(output, kind, [_ROWS, *widths]))
    model = helper.make_model(
        helper.make_graph(nodes, name, inputs.values, outputs, constants),
        opset_imports=[helper.make_opsetid("ai.onnx.ml", 4), *inner.opset_import],
        ir_version=inner.ir_version,
        functions=list(inner.functions),
        producer_name="combutab",
        producer_version=__version__,
    )
    helper.set_model_props(
        model, {"combutab": json.dumps({"class": name, "inputs": inputs.described})}
    )
    onnx.checker.check_model(model)
    return model


def _labels(classes: np.ndarray) -> np.ndarray:
    """Class labels in a type that ONNX models are given: int64, float64, boolean or text."""
    kinds: dict[str, type] = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}
    if classes.dtype.kind in kinds:
        return classes.astype(kinds[classes.dtype.kind])
    return np.array([str(label) for label in classes], dtype=object)


# ---- the networks ------------------------------------------------------------------------------


class _Traced(nn.Module):
    """A module as a model computes it: the answer in columns, before it what class it says.

    It takes numbers and codes, or those of them that the table has. The class is the place of the
    most probable one, (n,); of several labels each is 0 or 1, (n, n_labels).
    """

    def __init__(self, module: TableModule, is_classifier: bool, thresholds: Tensor | None) -> None:
        super().__init__()
        self.module, self.is_classifier = module, is_classifier
        self.thresholds: Tensor | None
        self.register_buffer("thresholds", thresholds)

    def forward(self, first: Tensor, second: Tensor | None = None) -> tuple[Tensor, ...]:
        if not self.module.encoding.n_numeric:
            first, second = first[:, :0].double(), first
        raw = self.module.raw(first, second)
        answer = self.module.answer(raw)
        region: tuple[Tensor, ...] = ()
        if self.thresholds is not None:
            assert isinstance(self.module.answer, Answer)
            region = (self.module.answer.region(raw, self.thresholds),)
        if not self.is_classifier:
            return (answer if answer.ndim == 2 else answer.unsqueeze(1), *region)
        if getattr(self.module.answer.target, "multilabel", False):
            return (answer > 0.5).long(), answer
        return (answer.argmax(1), answer, *region)


def _traced(module: TableModule, is_classifier: bool, thresholds: Tensor | None) -> onnx.ModelProto:
    """The module by torch's exporter."""
    numbers = torch.zeros(2, module.encoding.n_numeric, dtype=torch.float64)
    codes = torch.zeros(2, len(module.encoder.category_maps_), dtype=torch.int64)
    inputs = [table for table in (numbers, codes) if table.shape[1]]
    try:
        return export(inputs, _Traced(module, is_classifier, thresholds).eval())
    except torch.onnx.errors.OnnxExporterError as error:
        for net in module.networks:
            assert isinstance(net, TableNetwork)
            for activation in dict.fromkeys(member.activation for member in net.members):
                _refuse_activation(activation)
        raise ValueError(f"torch cannot express the networks in ONNX: {_why(error)}") from error


def export(inputs: Sequence[Tensor], module: nn.Module) -> onnx.ModelProto:
    """A module of example inputs (n, ...), n free."""
    rows = torch.export.Dim(_ROWS)
    with torch.no_grad(), _exporter_silenced():
        program = torch.onnx.export(
            module,
            tuple(inputs),
            dynamic_shapes=tuple({0: rows} for _ in inputs),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def _refuse_activation(activation: ActivationSpec) -> None:
    """Raise ValueError if this activation cannot be expressed."""
    try:
        export([torch.zeros(2, 8)], build_activation(activation, 8).eval())
    except torch.onnx.errors.OnnxExporterError as error:
        raise ValueError(
            f"activation={activation!r} cannot be expressed in ONNX: {_why(error)}; fit with "
            "another one, or write its forward pass without branches on values, by operations "
            "that torch.onnx.export knows"
        ) from error


def _why(error: BaseException) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[0]}"[:300]


@contextmanager
def _exporter_silenced() -> Iterator[None]:
    """The exporter's remarks on its own workings are not for its users."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# ---- the columns -------------------------------------------------------------------------------


@dataclass
class _Inputs:
    """Inputs of a model, nodes that look up categories, and columns to join to each table."""

    values: list[onnx.ValueInfoProto] = field(default_factory=list)
    described: list[dict[str, Any]] = field(default_factory=list)  # of each, as the file's metadata
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)

    def add_columns(self, encoder: TableEncoder) -> None:
        """An input a column, or one of all where they are numbers without names."""
        from onnx import TensorProto

        names = getattr(encoder, "feature_names_in_", None)
        if names is None and {*encoder.kinds_} <= {"number", "bool"}:
            self._add("X", {"kind": "number"}, width=len(encoder.kinds_))
            self.numbers.append("X")
            return
        columns = [f"x{j}" for j in range(len(encoder.kinds_))] if names is None else list(names)
        maps = {category_map.column: category_map for category_map in encoder.category_maps_}
        for j, (column, name) in enumerate(zip(columns, _input_names(columns), strict=True)):
            described: dict[str, Any] = {"column": column, "kind": str(encoder.kinds_[j])}
            if encoder.kinds_[j] == "text":  # which is left out
                continue
            if encoder.units_[j]:
                position = len(self.numbers)
                scaler = encoder.numeric_scaler_
                ends = float(scaler.low[position]), float(scaler.high[position])
                is_date = encoder.kinds_[j] == "datetime"
                self._add_time(name, j, described, encoder.units_[j], ends if is_date else None)
                continue
            if j not in maps:
                self._add(name, described)
                self.numbers.append(name)
                continue
            codes, unseen, missing = maps[j].codes()
            if codes and all(_is_exact_number(key) for key in codes):
                self._add(name, described)
                keys = np.array([*codes, np.nan], dtype=np.float64)
            else:
                texts = _texts(codes, column)
                gap = _gap(texts)
                self._add(name, {**described, "missing": gap}, kind=TensorProto.STRING)
                keys = np.array([*texts, gap], dtype=object)
            self._look_up(name, f"{_OWN}code/{j}", keys, [*codes.values(), missing], unseen)

    def _add_time(
        self,
        name: str,
        j: int,
        described: dict[str, Any],
        unit: str,
        ends: tuple[float, float] | None,
    ) -> None:
        """An input of dates or durations, in int64, and the nodes that make seconds of it.

        Dates that are not of this unit, by ``ends``, the first and the last date of fit, are looked
        up where nothing is, so that the runtime raises an error.
        """
        from onnx import TensorProto, helper, numpy_helper

        self._add(name, {**described, "unit": unit, "missing": _NAT}, kind=TensorProto.INT64)
        prefix = f"{_OWN}time/{j}/"

        def constant(label: str, value: Any) -> str:
            self.constants.append(numpy_helper.from_array(np.array(value), prefix + label))
            return prefix + label

        def node(operator: str, output: str, *inputs: str, **options: Any) -> str:
            onnx_node = helper.make_node(operator, [*inputs], [prefix + output], **options)
            self.nodes.append(onnx_node)
            return prefix + output

        is_missing = node("Equal", "is_missing", name, constant("missing", _NAT))
        counts = node("Cast", "counts", name, to=TensorProto.DOUBLE)
        seconds = node("Div", "seconds", counts, constant("per_second", _PER_SECOND[unit]))
        seconds = node("Where", "known", is_missing, constant("nan", np.nan), seconds)
        if ends is not None and any(ends):
            smallest, largest = _plausible_sizes(*ends)
            size = node("Abs", "size", seconds)
            tests = {
                "is_small": ("Less", size, constant("smallest", smallest)),
                "is_positive": ("Greater", size, constant("zero", 0.0)),
                "is_large": ("Greater", size, constant("largest", largest)),
                "is_early": ("Less", seconds, constant("first", ends[0])),
                "is_late": ("Greater", seconds, constant("last", ends[1])),
            }
            nodes = {label: node(test[0], label, *test[1:]) for label, test in tests.items()}
            near = node("And", "is_near_zero", nodes["is_small"], nodes["is_positive"])
            odd = node("Or", "is_odd", near, nodes["is_large"])
            outside = node("Or", "is_outside", nodes["is_early"], nodes["is_late"])
            wrong = node("And", "is_wrong", odd, outside)
            index = node("Cast", "place", wrong, to=TensorProto.INT64)
            problem = (
                f"{described['column']}: dates must be int64, in the unit {unit} since 1970-01-01 "
                "UTC, and some are of another unit"
            )
            nothing = node("Gather", "nothing", constant("only", [0.0]), index, name=problem)
            seconds = node("Add", "checked", seconds, nothing)
        self.numbers.append(seconds)

    def _add(
        self, name: str, described: dict[str, Any], *, width: int = 1, kind: int | None = None
    ) -> None:
        from onnx import TensorProto, helper

        kind = TensorProto.DOUBLE if kind is None else kind
        self.values.append(helper.make_tensor_value_info(name, kind, [_ROWS, width]))
        self.described.append({"input": name, **described})

    def _look_up(
        self, name: str, code: str, keys: np.ndarray, codes: list[int], unseen: int
    ) -> None:
        from onnx import helper, numpy_helper

        node = helper.make_node(
            "LabelEncoder",
            [name],
            [code],
            domain="ai.onnx.ml",
            keys_tensor=numpy_helper.from_array(keys),
            values_tensor=numpy_helper.from_array(np.array(codes)),
            default_tensor=numpy_helper.from_array(np.array([unseen])),
        )
        self.nodes.append(node)
        self.codes.append(code)


_NAT = -(2**63)  # what NumPy's NaT is as int64
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_OUTPUTS = ("label", "probabilities", "variable", "prediction_interval", "prediction_set")


def _input_names(columns: Sequence[str]) -> list[str]:
    """Names of the inputs: the columns', but those of outputs with a _ behind."""
    used = {*columns, *_OUTPUTS}
    names = []
    for column in columns:
        if not column or column.startswith(_OWN):
            raise ValueError(
                f"the column {column!r} cannot name an input of an ONNX model; rename it, and fit"
            )
        name = column
        while name in _OUTPUTS or (name != column and name in used):
            name += "_"
        used.add(name)
        names.append(name)
    return names


def _is_exact_number(key: object) -> bool:
    return isinstance(key, float) or (isinstance(key, bool | int) and abs(key) <= 2**53)


def _texts(codes: dict[Any, int], column: str) -> list[str]:
    texts = [_text(key) for key in codes]
    if len(set(texts)) < len(texts):
        twice = next(text for i, text in enumerate(texts) if text in texts[:i])
        raise ValueError(
            f"column {column!r} has two categories that are written {twice!r}, and an input of an "
            "ONNX model has one type; convert the column to text, and fit"
        )
    return texts


def _text(key: object) -> str:
    try:
        return key.decode() if isinstance(key, bytes) else str(key)
    except UnicodeDecodeError:
        return str(key)


def _gap(texts: Sequence[str]) -> str:
    """The text that stands for a missing value."""
    gap = ""
    while gap in texts:
        gap = gap + "_" if gap else "<missing>"
    return gap
