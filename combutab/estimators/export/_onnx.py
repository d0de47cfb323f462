"""A fitted estimator as an ONNX model: torch's exporter, and an input for each column around it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from combutab._version import __version__
from combutab.estimators.export._module import TableModule
from combutab.nn import ActivationSpec, TableNetwork, build_activation
from combutab.preprocessing import TableEncoder

if TYPE_CHECKING:
    import onnx

_OWN = "combutab/"  # what names within the graph begin with, and no input does
_ROWS = "N"
_LOGGERS = ("torch.onnx", "onnxscript")  # which tell of what they skip
_MOST = 2**31 - 2**20  # bytes of a protocol buffer, less those of the graph


def make_onnx(module: TableModule, name: str, classes: np.ndarray | None) -> onnx.ModelProto:
    """The model; ``name`` is the estimator's class, ``classes`` are a classifier's labels.

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
        from onnx import compose, helper
    except ImportError as error:
        raise ImportError("ONNX needs two libraries: pip install 'combutab[onnx]'") from error
    n_bytes = sum(tensor.nbytes for tensor in module.state_dict().values())
    if n_bytes > _MOST:
        raise ValueError(
            f"the weights take {n_bytes / 1e9:.1f} GB, and an ONNX file holds 2 GB; use save"
        )
    inputs = _Inputs()
    inputs.add_columns(module.encoder)
    inner = compose.add_prefix(_traced(module), _OWN)
    outputs = [] if classes is None else _labelled(inputs, inner, module, classes)
    outputs += _answered(inputs, inner, module, is_classifier=classes is not None)
    graph = helper.make_graph(
        [*inputs.before, *inner.graph.node, *inputs.after],
        name,
        inputs.values,
        outputs,
        [*inner.graph.initializer, *inputs.constants],
    )
    domains = [helper.make_opsetid("ai.onnx.ml", 4), *inner.opset_import]
    model = helper.make_model(
        graph,
        opset_imports=domains,
        ir_version=inner.ir_version,
        functions=list(inner.functions),
        producer_name="combutab",
        producer_version=__version__,
    )
    helper.set_model_props(model, {"combutab": json.dumps({"class": name, "inputs": inputs.told})})
    onnx.checker.check_model(model)
    return model


# ---- the networks ------------------------------------------------------------------------------


def _traced(module: TableModule) -> onnx.ModelProto:
    """The module by torch's exporter: numbers and codes in, its answer out."""
    n_numeric = module.encoding.n_numeric
    n_codes = len(module.encoder.category_maps_)
    inputs = {"numbers": torch.zeros(2, n_numeric, dtype=torch.float64)}
    if n_codes:
        inputs["codes"] = torch.zeros(2, n_codes, dtype=torch.int64)
    try:
        return export(inputs, module)
    except torch.onnx.errors.OnnxExporterError as error:
        for net in module.networks:
            assert isinstance(net, TableNetwork)
            for activation in dict.fromkeys(member.activation for member in net.members):
                _refuse(activation)
        raise ValueError(f"torch cannot express the networks in ONNX: {_why(error)}") from error


def export(inputs: dict[str, Tensor], module: nn.Module) -> onnx.ModelProto:
    """A module of example inputs (n, ...) by name, n free; its one output is named "answer"."""
    rows = torch.export.Dim(_ROWS)
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=["answer"],
            dynamic_shapes=tuple({0: rows} for _ in inputs),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def _refuse(activation: ActivationSpec) -> None:
    """Raise ValueError if this activation cannot be expressed."""
    try:
        export({"x": torch.zeros(2, 8)}, build_activation(activation, 8).eval())
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
def _quiet() -> Iterator[None]:
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


# ---- what is around them -----------------------------------------------------------------------


@dataclass
class _Inputs:
    """A model's inputs, and the nodes around the exported ones."""

    values: list[onnx.ValueInfoProto] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)  # of each, as the file's metadata
    before: list[onnx.NodeProto] = field(default_factory=list)
    after: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def add_columns(self, encoder: TableEncoder) -> None:
        """An input a column, or one of all where they are numbers without names."""
        from onnx import TensorProto, helper, numpy_helper

        names = getattr(encoder, "feature_names_in_", None)
        if names is None and not encoder.category_maps_:
            self._add("X", TensorProto.DOUBLE, len(encoder.kinds_), {"kind": "number"})
            self._join(["X"], "numbers")
            return
        columns = [f"x{j}" for j in range(len(encoder.kinds_))] if names is None else list(names)
        inputs = _input_names(columns)
        maps = {each.column: each for each in encoder.category_maps_}
        numbers, codes = [], []
        for j, (column, name) in enumerate(zip(columns, inputs, strict=True)):
            told: dict[str, Any] = {"column": column, "kind": str(encoder.kinds_[j])}
            if j not in maps:
                self._add(name, TensorProto.DOUBLE, 1, told)
                numbers.append(name)
                continue
            known, unseen, missing = maps[j].codes()
            if known and all(_is_number(key) for key in known):
                self._add(name, TensorProto.DOUBLE, 1, told)
                keys = np.array([*known, np.nan], dtype=np.float64)
                coded = np.array([*known.values(), missing])
                settings: dict[str, Any] = {
                    "keys_tensor": helper.make_tensor(
                        "keys", TensorProto.DOUBLE, [len(keys)], keys
                    ),
                    "values_tensor": helper.make_tensor(
                        "values", TensorProto.INT64, [len(coded)], coded
                    ),
                    "default_tensor": helper.make_tensor(
                        "default", TensorProto.INT64, [1], [unseen]
                    ),
                }
            else:
                texts = _texts(known, column)
                gap = _gap(texts)
                self._add(name, TensorProto.STRING, 1, {**told, "missing": gap})
                settings = {
                    "keys_strings": [*texts, gap],
                    "values_int64s": [*known.values(), missing],
                    "default_int64": unseen,
                }
            code = f"{_OWN}code/{j}"
            codes.append(code)
            self.before.append(
                helper.make_node("LabelEncoder", [name], [code], domain="ai.onnx.ml", **settings)
            )
        self._join(numbers, "numbers")
        self._join(codes, "codes")
        if not numbers:  # a table of no columns, whose rows are counted
            for name, value in (("none", 0), ("columns", 1)):
                self.constants.append(numpy_helper.from_array(np.array([value]), _OWN + name))
            ends = [_OWN + name for name in ("codes", "none", "none", "columns")]
            self.before += [
                helper.make_node("Slice", ends, [f"{_OWN}empty"]),
                helper.make_node(
                    "Cast", [f"{_OWN}empty"], [f"{_OWN}numbers"], to=TensorProto.DOUBLE
                ),
            ]

    def _add(self, name: str, dtype: int, width: int, told: dict[str, Any]) -> None:
        from onnx import helper

        self.values.append(helper.make_tensor_value_info(name, dtype, [_ROWS, width]))
        self.told.append({"input": name, **told})

    def _join(self, names: Sequence[str], whole: str) -> None:
        from onnx import helper

        if names:
            self.before.append(helper.make_node("Concat", list(names), [_OWN + whole], axis=1))


def _labelled(
    inputs: _Inputs, inner: onnx.ModelProto, module: TableModule, classes: np.ndarray
) -> list[onnx.ValueInfoProto]:
    """The output "label", of the most probable class, or of each label whether it is probable."""
    from onnx import TensorProto, helper, numpy_helper

    answer, found = inner.graph.output[0].name, f"{_OWN}found"
    if getattr(module.answer, "multilabel", False):
        inputs.constants.append(numpy_helper.from_array(np.array(0.5), f"{_OWN}half"))
        inputs.after += [
            helper.make_node("Greater", [answer, f"{_OWN}half"], [found]),
            helper.make_node("Cast", [found], ["label"], to=TensorProto.INT64),
        ]
        return [helper.make_tensor_value_info("label", TensorProto.INT64, [_ROWS, len(classes)])]
    kinds: dict[str, type] = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}
    labels: np.ndarray
    if classes.dtype.kind in kinds:
        labels = classes.astype(kinds[classes.dtype.kind])
    else:
        labels = np.array([str(each) for each in classes], dtype=object)
    constant = numpy_helper.from_array(labels, f"{_OWN}classes")
    inputs.constants.append(constant)
    inputs.after += [
        helper.make_node("ArgMax", [answer], [found], axis=1, keepdims=0),
        helper.make_node("Gather", [f"{_OWN}classes", found], ["label"], axis=0),
    ]
    return [helper.make_tensor_value_info("label", constant.data_type, [_ROWS])]


def _answered(
    inputs: _Inputs, inner: onnx.ModelProto, module: TableModule, *, is_classifier: bool
) -> list[onnx.ValueInfoProto]:
    """The output "probabilities", or "variable", which has a column a target."""
    from onnx import TensorProto, helper, numpy_helper

    (answer,) = inner.graph.output
    shape = [each.dim_value for each in answer.type.tensor_type.shape.dim[1:]]
    name = "probabilities" if is_classifier else "variable"
    if shape:
        inputs.after.append(helper.make_node("Identity", [answer.name], [name]))
    else:
        inputs.constants.append(numpy_helper.from_array(np.array([1]), f"{_OWN}axis"))
        node = helper.make_node("Unsqueeze", [answer.name, f"{_OWN}axis"], [name])
        inputs.after.append(node)
    return [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [_ROWS, *(shape or [1])])]


_OUTPUTS = ("label", "probabilities", "variable")


def _input_names(columns: Sequence[str]) -> list[str]:
    """Names of the inputs: the columns', but those of outputs with a _ behind."""
    taken = {*columns, *_OUTPUTS}
    names = []
    for column in columns:
        if not column or column.startswith(_OWN):
            raise ValueError(
                f"the column {column!r} cannot name an input of an ONNX model; rename it, and fit"
            )
        name = column
        while name in _OUTPUTS or (name != column and name in taken):
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _is_number(key: object) -> bool:
    return isinstance(key, float) or (isinstance(key, bool | int) and abs(key) <= 2**53)


def _texts(known: dict[Any, int], column: str) -> list[str]:
    texts = [str(key) for key in known]
    if len(set(texts)) < len(texts):
        twice = next(text for i, text in enumerate(texts) if text in texts[:i])
        raise ValueError(
            f"column {column!r} has two categories that are written {twice!r}, and an input of an "
            "ONNX model has one type; convert the column to text, and fit"
        )
    return texts


def _gap(texts: Sequence[str]) -> str:
    """The text that stands for a missing value."""
    gap = ""
    while gap in texts:
        gap = gap + "_" if gap else "<missing>"
    return gap
