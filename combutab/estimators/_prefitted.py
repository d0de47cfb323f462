"""Hand fits that a stack trained to code that calls ``fit`` one estimator at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Number

from sklearn.base import BaseEstimator


@dataclass
class FitOutcome:
    """What came of a fit: its share of the stack's seconds, and the error if it failed."""

    seconds: float
    error: Exception | None = None
    invalid: bool = False  # a parameter's value: ``fit`` itself says so, before it is served


_PREFITTED: ContextVar[deque[tuple[BaseEstimator, FitOutcome]] | None] = ContextVar(
    "combutab_prefitted", default=None
)


@contextmanager
def serve_fits(fits: Sequence[tuple[BaseEstimator, FitOutcome]]) -> Iterator[None]:
    """Within, the next calls of ``fit`` in this thread take these fits over, in order.

    This is how scikit-learn's own search scores, reports and fails on what a stack trained. Once
    the fits are used up, ``fit`` trains as always (the refit).
    """
    token = _PREFITTED.set(deque(fit for fit in fits if not fit[1].invalid))
    try:
        yield
    finally:
        _PREFITTED.reset(token)


def _plain_parameters(estimator: BaseEstimator) -> str:
    """The parameters that can be told apart by their words; a clone's objects cannot."""
    parameters = estimator.get_params(deep=False).items()
    return repr({n: v for n, v in parameters if isinstance(v, bool | str | Number | tuple | list)})


def take_prefitted(estimator: BaseEstimator) -> bool:
    """Adopt the next served fit, if there is one; raise its error, if it failed."""
    queue = _PREFITTED.get()
    if not queue:
        return False
    fitted, outcome = queue.popleft()
    wanted, got = _plain_parameters(estimator), _plain_parameters(fitted)
    if wanted != got:
        raise RuntimeError(f"the search asked for a fit of {wanted}, the stack trained {got}")
    if outcome.error is not None:
        raise outcome.error
    parameters = estimator.get_params(deep=False)
    estimator.__dict__.update({n: v for n, v in vars(fitted).items() if n not in parameters})
    return True
