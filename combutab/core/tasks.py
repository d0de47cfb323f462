"""scikit-learn's callbacks (1.9 and later): what a fit tells them, task by task.

This module alone knows whether scikit-learn has them; with an earlier one fits have no tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from combutab.core.world import current, unshared

if TYPE_CHECKING:

    class CallbackSupport:
        """Gives an estimator ``set_callbacks``, where scikit-learn has it."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin as CallbackSupport
    except ImportError:

        class CallbackSupport:
            """Gives an estimator nothing: this scikit-learn has no callbacks."""


# Attributes that fitting would have by now, for a callback that asks for a fitted estimator
Fitted = Callable[[], Mapping[str, Any] | None]


class CallbackTask:
    """The task of a fit, of which others are parts.

    Parameters
    ----------
    estimator : the estimator that is fitted
    context : sklearn.callback.CallbackContext
    data : dict
        What is fitted to, in the words of the callbacks' hooks: ``X``, ``y`` and ``metadata``.
    """

    def __init__(self, estimator: Any, context: Any, data: Mapping[str, Any]) -> None:
        self.estimator, self.context, self.data = estimator, context, data
        self.n_begun = 0

    @property
    def watched(self) -> bool:
        """Whether somebody is told."""
        return has_callbacks(self.estimator)

    def begin(self, name: str, fitted: Fitted | None = None) -> Any:
        """Begin a part, and return it for ``end``."""
        part = self.context.subcontext(task_name=name)
        self.n_begun += 1
        with unshared():  # what a callback fits is rank 0's own
            part.call_on_fit_task_begin(
                estimator=self.estimator, **self.data, reconstruction_attributes=fitted
            )
        return part

    def end(self, part: Any, fitted: Fitted | None = None) -> bool:
        """End a part; returns whether a callback wants the fit to stop there."""
        with unshared():
            stop = part.call_on_fit_task_end(
                estimator=self.estimator, **self.data, reconstruction_attributes=fitted
            )
        return bool(stop)

    def count(self, name: str, n_done: int) -> None:
        """Begin and end parts until so many are done."""
        while self.n_begun < n_done:
            self.end(self.begin(name))

    @contextmanager
    def part_of(self, name: str, sub_estimator: Any) -> Iterator[None]:
        """Make a part of another estimator's fit, which is done within."""
        part = self.context.subcontext(task_name=name)
        with part.propagate_callback_context(sub_estimator):
            part.call_on_fit_task_begin(estimator=self.estimator, **self.data)
            yield
            part.call_on_fit_task_end(estimator=self.estimator, **self.data)


@contextmanager
def fit_task(
    estimator: Any, X: Any = None, y: Any = None, sample_weight: Any = None, *, n_parts: int = 0
) -> Iterator[CallbackTask | None]:
    """Tell an estimator's callbacks of its fit, which is done within and has so many parts.

    None where scikit-learn has no callbacks, or another rank than the first shares a fit. Within a
    method of ``sklearn.base._fit_context``, which ends what begins here.
    """
    if not hasattr(estimator, "_init_callback_context") or current().number:
        yield None
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    data = {"X": X, "y": y, "metadata": metadata}
    with unshared():
        context = estimator._init_callback_context(max_subtasks=n_parts)
        context.call_on_fit_task_begin(estimator=estimator, **data)
    yield CallbackTask(estimator, context, data)
    with unshared():
        context.call_on_fit_task_end(estimator=estimator, **data, reconstruction_attributes={})


def has_callbacks(estimator: Any) -> bool:
    """Tell whether callbacks were given to an estimator by ``set_callbacks``."""
    return bool(getattr(estimator, "_skl_callbacks", None))
