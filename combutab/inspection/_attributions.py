"""Attributions of predictions to columns: integrated gradients, sampled Shapley values, SHAP."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from combutab.core.rng import RandomState, as_generator
from combutab.core.scores import class_labels, class_positions, predict_labels
from combutab.core.text import align_columns
from combutab.estimators import TableModule
from combutab.inspection._columns import Outputs, as_frame, predicted, sampled_rows
from combutab.nn import TableNetwork

Method = Literal["auto", "integrated_gradients", "shapley"]
_PAIRS = 4096  # rows of a network at a time
_STEPS = 16, 512  # of a path, at first and at most
_CLOSE = 0.002  # of the range of the outputs, that attributions may lack of their sum


@dataclass(frozen=True, eq=False)
class Attributions:
    """Result of `attributions`: the contribution of each column to the prediction of each row.

    Attributes
    ----------
    values : DataFrame of shape (n_rows, n_columns)
        The attributions, in units of the prediction. Their sum over the columns is ``predictions``
        minus ``base_values``.
    data : DataFrame of shape (n_rows, n_columns)
        The explained rows.
    predictions : ndarray of shape (n_rows,)
        Prediction for each row.
    base_values : ndarray of shape (n_rows,)
        Mean prediction for the background rows.
    outputs : list of str
        Description of the predicted quantity of each row, such as "probability of 'yes'".
    method : str
        ``"integrated_gradients"`` or ``"shapley"``.
    """

    values: pd.DataFrame
    data: pd.DataFrame
    predictions: np.ndarray
    base_values: np.ndarray
    outputs: list[str]
    method: str

    def __repr__(self) -> str:
        n_rows, n_columns = self.values.shape
        return f"Attributions(n_rows={n_rows}, n_columns={n_columns}, method={self.method!r})"

    def __str__(self) -> str:
        parts = []
        for i, (label, rows) in enumerate(self.table.groupby("row", sort=False)):
            values = [
                f"{value:.6g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")
                for value in rows["value"]
            ]
            columns: dict[str, Iterable[object]] = {"column": rows["column"], "value": values}
            columns["attribution"] = rows["attribution"]
            parts.append(
                f"Row {label}: {self.outputs[i]} {self.predictions[i]:.4g} (mean of other rows: "
                f"{self.base_values[i]:.4g}); contribution of each column to the difference\n\n"
                f"{align_columns(columns, '.4g')}"
            )
        return "\n\n".join(parts)

    @property
    def table(self) -> pd.DataFrame:
        """One line per row and column, with the largest attributions of each row first."""
        parts = []
        for i, label in enumerate(self.values.index):
            contributions = self.values.iloc[i]
            contributions = contributions.iloc[
                np.argsort(-contributions.abs().to_numpy(), kind="stable")
            ]
            cells = [self.data[name].iloc[i] for name in contributions.index]
            labels = {"row": label, "output": self.outputs[i], "column": list(contributions.index)}
            parts.append(
                pd.DataFrame({**labels, "value": cells, "attribution": contributions.to_numpy()})
            )
        return pd.concat(parts, ignore_index=True)


def attributions(
    estimator: Any,
    X: Any,
    background: Any = None,
    *,
    target: Any = None,
    method: Method = "auto",
    n_background: int = 50,
    random_state: RandomState = None,
) -> Attributions:
    """Attribute the predictions of rows to their columns.

    The prediction of a row is compared with the mean prediction of background rows. Attributions
    show how much each column contributes to the difference, and add up to it.

    Integrated gradients integrate the gradient of the network along the straight line from each
    background row to the row, in the encoded columns, and add up the encoded columns of each
    column. Shapley values change the columns from the values of a background row to those of the
    row in random orders, and their reverse orders, and average the changes of the prediction. They
    need only predictions and therefore also work for trees. They take longer for many columns, and
    are random estimates.

    Parameters
    ----------
    estimator : fitted classifier or regressor
        An estimator of this library; for Shapley values also any scikit-learn regressor, or
        classifier with ``predict_proba`` or ``decision_function``.
    X : table of shape (n_rows, n_features)
        Rows to explain.
    background : table of shape (n_samples, n_features), optional
        Rows to compare with, such as training rows. By default X.
    target : class label or int, optional
        Class, or position of one of several outputs. By default the second of two classes, or the
        predicted class of each row if there are more.
    method : {"auto", "integrated_gradients", "shapley"}, default="auto"
        "auto" is integrated gradients for networks. It is Shapley values for packs that contain
        trees (which have no gradients), for models with free text, and for estimators of other
        libraries.
    n_background : int, default=50
        Maximum number of background rows.
    random_state : int, RandomState, Generator or None, default=None
        Random seed for sampling background rows and orders of columns.

    Returns
    -------
    Attributions

    Raises
    ------
    ValueError
        If there are no background rows, if there are several outputs and no ``target``, or if
        integrated gradients are requested for a model without gradients.

    References
    ----------
    M. Sundararajan, A. Taly and Q. Yan, "Axiomatic attribution for deep networks", ICML 2017; the
    mean over background rows is that of expected gradients. E. Strumbelj and I. Kononenko,
    "Explaining prediction models and individual predictions with feature contributions", Knowledge
    and Information Systems 41, 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import MLPClassifier
    >>> from combutab.inspection import attributions
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = MLPClassifier(random_state=0).fit(X, y)
    >>> found = attributions(clf, X[:2], X, random_state=0)
    >>> found.outputs[0], found.table["column"].iloc[0][:5]
    ('probability of 0', 'petal')
    >>> gap = found.values.sum(axis=1) - (found.predictions - found.base_values)
    >>> bool(gap.abs().max() < 0.01)
    True
    """
    if method not in ("auto", "integrated_gradients", "shapley"):
        raise ValueError(
            f"method must be 'auto', 'integrated_gradients' or 'shapley', got {method!r}"
        )
    rows = as_frame(estimator, X)
    background_rows = rows if background is None else as_frame(estimator, background, "background")
    if background is None and len(rows) == 1:
        raise ValueError(
            "X is one row, and nothing to compare it with: give background rows, such as those of "
            "the training"
        )
    background_rows = background_rows[list(rows.columns)]
    rng = as_generator(random_state)
    background_rows = background_rows.iloc[sampled_rows(len(background_rows), n_background, rng)]
    answers, background_answers = predicted(estimator, rows), predicted(estimator, background_rows)
    outputs = Outputs.of(estimator, rows)
    output = outputs.find(target)
    if output is not None:
        row_outputs = np.full(len(rows), output)
    elif not outputs.classifies:
        raise ValueError(
            f"the model has {answers.shape[1]} outputs; give target, the position of one of them"
        )
    elif outputs.multilabel:
        raise ValueError(f"the model has the labels {outputs.labels}; give one as target")
    else:
        labels = predict_labels(estimator, rows)
        row_outputs = class_positions(labels, class_labels(estimator), "a prediction")
    module = _differentiable(estimator, method)
    if module is None:
        values = _shapley(estimator, rows, background_rows, row_outputs, rng)
    else:
        values = _integrated_gradients(module, rows, background_rows, row_outputs)
    return Attributions(
        pd.DataFrame(values, rows.index, rows.columns),
        rows,
        answers[np.arange(len(rows)), row_outputs],
        background_answers.mean(0)[row_outputs],
        [outputs.names[k] for k in row_outputs],
        "shapley" if module is None else "integrated_gradients",
    )


def _differentiable(estimator: Any, method: Method) -> TableModule | None:
    """The estimator as a module with gradients; None where Shapley values are to be computed."""
    if method == "shapley":
        return None
    module, why = None, "is no network of this library"
    if hasattr(estimator, "to_torch"):
        try:
            module, why = estimator.to_torch(), "contains trees"
        except ValueError as error:  # of columns of text
            why = f"cannot give them: {error}"
    if module is not None and not len(module.trees):
        return module.requires_grad_(False)
    if method == "auto":
        return None
    raise ValueError(
        f"integrated gradients need gradients, and this {type(estimator).__name__} {why}; use "
        "method='shapley'"
    )


# ---- Integrated gradients: along a line in the space of encoded columns --------------------------


def _integrated_gradients(
    module: TableModule, rows: pd.DataFrame, background_rows: pd.DataFrame, row_outputs: np.ndarray
) -> np.ndarray:
    """Attributions, (n_rows, n_columns): means over the background rows.

    The number of steps along the path is doubled until the attributions add up.
    """
    with warnings.catch_warnings():  # predictions of the same rows have warned already
        warnings.simplefilter("ignore")
        ends = [module.encoding(*module.encode(table)) for table in (rows, background_rows)]
    n_others, picked = len(background_rows), torch.from_numpy(row_outputs)
    with torch.no_grad():
        answers = [_outputs(module, dense, codes) for dense, codes in ends]
    goal = answers[0].gather(1, picked[:, None])[:, 0] - answers[1].mean(0)[picked]
    close = _CLOSE * float(torch.cat(answers).max() - torch.cat(answers).min())
    (dense, codes), (dense_0, codes_0) = ends
    n_columns, n_steps = len(rows.columns), _STEPS[0]
    values = torch.zeros(len(rows), n_columns, dtype=torch.float64)
    todo = torch.arange(len(rows))
    while len(todo):
        for row in todo.tolist():
            start, end = (dense_0, codes_0), (dense[row], codes[row])
            parts = _along(module, start, end, int(picked[row]), n_steps)
            values[row] = _by_column(module, *parts, n_columns) / n_others
        gap = (values[todo].sum(1) - goal[todo]).abs()
        todo, n_steps = todo[gap > close], 2 * n_steps
        if n_steps > _STEPS[1] and len(todo):
            warnings.warn(
                f"the attributions of {len(todo)} of {len(rows)} rows do not add up: they lack up "
                f"to {float(gap.max()):.3g} of the difference of the predictions; use "
                "method='shapley'",
                stacklevel=4,
            )
            break
    return values.numpy()


def _along(
    module: TableModule, start: tuple[Tensor, Tensor], end: tuple[Tensor, Tensor], output: int,
    n_steps: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Integrals of the gradient from all start rows to one end row, added up.

    By the dense columns, (n_dense,), and by those of codes, (n_codes,).
    """
    (dense_0, codes_0), (dense, codes) = start, end
    change = dense - dense_0
    shares = (torch.arange(n_steps, dtype=torch.float64) + 0.5) / n_steps  # midpoints
    by_dense = torch.zeros(dense.shape[-1], dtype=torch.float64)
    by_code = torch.zeros(codes.shape[-1], dtype=torch.float64)
    per_batch = max(1, _PAIRS // len(dense_0))
    for part in shares.split(per_batch):
        share = part.repeat_interleave(len(dense_0)).to(dense.dtype)[:, None]
        changes = change.repeat(len(part), 1)
        at = (dense_0.repeat(len(part), 1) + share * changes).requires_grad_()
        gates = share.repeat(1, len(by_code)).requires_grad_()
        ends = codes_0.repeat(len(part), 1), codes.expand(len(at), -1)
        with _embedded_between(module, ends, gates), torch.enable_grad():
            answer = _outputs(module, at, ends[0])[:, output].sum()
            slopes = torch.autograd.grad(answer, (at, gates), allow_unused=True)
        if slopes[0] is not None:
            by_dense += (slopes[0].double() * changes).sum(0) / n_steps
        if slopes[1] is not None:
            by_code += slopes[1].double().sum(0) / n_steps
    return by_dense, by_code


@contextmanager
def _embedded_between(
    module: TableModule, ends: tuple[Tensor, Tensor], gates: Tensor
) -> Iterator[None]:
    """Interpolate the embeddings of codes between those of two ends, by the gates."""
    hooks = []

    def hook(i: int) -> Any:
        def between(embedding: Any, inputs: Any, first: Tensor) -> Tensor:
            codes = ends[1][:, i].expand(len(first), -1)
            last = type(embedding).forward(embedding, codes)
            return first + gates[:, i, None].to(first.dtype) * (last - first)

        return between

    for net in module.networks:
        inputs: Any = net.inputs
        for i, embedding in enumerate(inputs.embeddings):
            hooks.append(embedding.register_forward_hook(hook(i)))
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()


def _outputs(module: TableModule, dense: Tensor, codes: Tensor) -> Tensor:
    """Predictions of the module for encoded rows: (n, n_outputs)."""
    raw = []
    for net in module.networks:
        assert isinstance(net, TableNetwork)
        shared = (x.expand(net.n_members, *x.shape) for x in (dense, codes))
        raw.append(net.by_head(net(*shared)))
    together = torch.cat(raw).double()
    chosen = together if module.selected is None else together[module.selected]
    answer: Tensor = module.answer(chosen)
    return answer.reshape(len(dense), -1)


def _by_column(module: TableModule, by_dense: Tensor, by_code: Tensor, n_columns: int) -> Tensor:
    """Attributions of the encoded columns, summed for each column of the table."""
    values = torch.zeros(n_columns, dtype=torch.float64)
    for span in module.encoder.spans_:
        contributions = by_code if span.kind == "code" else by_dense
        values[span.column] += contributions[span.slice].sum()
    return values


# ---- Shapley values, by columns that are set in random order -------------------------------------


def mixed(table: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    """A table whose cells come from these rows of each column: rows is (n, n_columns)."""
    columns = [column.iloc[rows[:, j]].array for j, (_, column) in enumerate(table.items())]
    return pd.DataFrame(dict(enumerate(columns))).set_axis(table.columns, axis=1)


def _shapley(
    estimator: Any,
    rows: pd.DataFrame,
    background_rows: pd.DataFrame,
    row_outputs: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    n_columns, n_others = len(rows.columns), len(background_rows)
    values = np.zeros((len(rows), n_columns))
    step = np.arange(n_columns + 1)[:, None]
    for i, output in enumerate(row_outputs.tolist()):
        both = pd.concat([rows.iloc[[i]], background_rows])
        orders = [rng.permutation(n_columns) for _ in range(n_others)]
        orders += [order[::-1] for order in orders]
        when = np.argsort(np.array(orders), 1)[:, None]  # the step after which a column is set
        start = np.tile(np.arange(1, n_others + 1), 2)[:, None, None]
        cells = np.where(when < step, 0, start)  # (orders, steps, n_columns)
        answers = predicted(estimator, mixed(both, cells.reshape(-1, n_columns)))[:, output]
        changes = np.diff(answers.reshape(len(orders), -1), axis=1)
        values[i] = np.take_along_axis(changes, when[:, 0], 1).mean(0)
    return values


# ---- SHAP's explainers on tables of any columns --------------------------------------------------


class TableMasker:
    """Masker for explainers of the shap library, for tables with text, dates and missing values.

    ``shap.Explainer(clf.predict_proba, X)`` works if X has only numbers, because shap subtracts
    values. For tables with other columns, pass this object instead of X.

    Parameters
    ----------
    X : DataFrame of shape (n_samples, n_features)
        Background rows, whose values replace masked values.
    max_samples : int, default=50
        Maximum number of these rows that are used, evenly spaced.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from combutab.inspection import TableMasker
    >>> masker = TableMasker(pd.DataFrame({"size": [1.0, 2.0], "city": ["Rome", "Oslo"]}))
    >>> (masked,) = masker(np.array([True, False]), np.array([9.0, "Bern"], dtype=object))
    >>> masked.to_dict("list")
    {'size': [9.0, 9.0], 'city': ['Rome', 'Oslo']}
    """

    def __init__(self, X: pd.DataFrame, max_samples: int = 50) -> None:
        n_kept = min(len(X), max_samples)
        positions = np.linspace(0, len(X) - 1, n_kept).round().astype(int)
        self.data = X.iloc[positions].reset_index(drop=True)
        self.shape = self.data.shape
        self.feature_names = [str(name) for name in X.columns]

    def __call__(self, mask: Any, x: Any) -> tuple[pd.DataFrame]:
        """The background rows with the values of ``x`` where the mask is true."""
        is_shown = np.broadcast_to(np.asarray(mask, dtype=bool), self.shape[1])
        changed = {}
        for j, (name, column) in enumerate(self.data.items()):
            if is_shown[j]:
                column = pd.Series([np.asarray(x, dtype=object)[j]] * len(column)).astype(
                    column.dtype
                )
            changed[name] = column
        return (pd.DataFrame(changed),)
