"""Report the tasks of a fit to scikit-learn's callbacks (1.9 and later).

Only this module checks whether scikit-learn has callbacks. With earlier versions, fits have no
tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from combutab.core.world import current, unshared

if TYPE_CHECKING:

    class CallbackSupport:
        """Gives an estimator ``set_callbacks``, if scikit-learn has it."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin as CallbackSupport
    except ImportError:

        class CallbackSupport:
            """Has no methods, because this scikit-learn has no callbacks."""


# Returns the current fitted attributes, for callbacks that need a fitted estimator
Fitted = Callable[[], Mapping[str, Any] | None]


class CallbackTask:
    """The task of a fit, which is divided into other tasks.

    Parameters
    ----------
    estimator : the estimator that is fitted
    context : sklearn.callback.CallbackContext
    data : dict
        Data of the fit, with the names of the callbacks' hooks: ``X``, ``y`` and ``metadata``.
    """

    def __init__(self, estimator: Any, context: Any, data: Mapping[str, Any]) -> None:
        self.estimator, self.context, self.data = estimator, context, data
        self.n_begun = 0

    def begin(self, name: str, fitted: Fitted | None = None) -> Any:
        """Begin a part, and return it for ``end``."""
        part = self.context.subcontext(task_name=name)
        self.n_begun += 1
        with unshared():  # fits of a callback run on rank 0 only
            part.call_on_fit_task_begin(
                estimator=self.estimator, **self.data, reconstruction_attributes=fitted
            )
        return part

    def end(self, part: Any, fitted: Fitted | None = None) -> bool:
        """End a part; returns whether a callback stops the fit."""
        with unshared():
            stop = part.call_on_fit_task_end(
                estimator=self.estimator, **self.data, reconstruction_attributes=fitted
            )
        return bool(stop)

    def count(self, name: str, n_done: int) -> None:
        """Begin and end parts until ``n_done`` are done."""
        while self.n_begun < n_done:
            self.end(self.begin(name))

    @contextmanager
    def part_of(self, name: str, sub_estimator: Any) -> Iterator[None]:
        """Report the fit of another estimator in this context as a part."""
        part = self.context.subcontext(task_name=name)
        with part.propagate_callback_context(sub_estimator):
            part.call_on_fit_task_begin(estimator=self.estimator, **self.data)
            yield
            part.call_on_fit_task_end(estimator=self.estimator, **self.data)


@contextmanager
def fit_task(
    estimator: Any, X: Any = None, y: Any = None, sample_weight: Any = None, *, n_parts: int = 0
) -> Iterator[CallbackTask | None]:
    """Report a fit in this context to the callbacks of an estimator.

    Yields None if scikit-learn has no callbacks, or on other ranks than the first. It must be used
    in a method with ``sklearn.base._fit_context``, which ends the context of the callbacks.
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
    """Tell whether ``set_callbacks`` has given callbacks to an estimator."""
    return bool(getattr(estimator, "_skl_callbacks", None))


def check_callbacks(callbacks: Iterable[Any] | None) -> None:
    """Raise ValueError if a callback of the training is not one."""
    for callback in callbacks or ():
        if not callable(getattr(callback, "on_epoch_end", None)):
            raise ValueError(
                f"callbacks must be combutab.training.Callback objects, got {callback!r}"
            )
