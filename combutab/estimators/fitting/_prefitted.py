"""Hand fits that a stack trained to scikit-learn's search, which clones and fits one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import _num_samples

from combutab._ranks import plain_parameters

if TYPE_CHECKING:
    from combutab.estimators.fitted import Fitted


@dataclass
class FitOutcome:
    """The outcome of a fit: its share of the stack's seconds, and the error if it failed."""

    seconds: float
    error: Exception | None = None


@dataclass(frozen=True)
class TrainedFit:
    """A fit that is done: an unfitted clone carries it until its ``fit`` takes it over."""

    estimator: BaseEstimator
    outcome: FitOutcome
    n_rows: int


class FitHandout:
    """Gives the clones of one estimator each its own of the fits that a stack trained, in order.

    Nothing is found by way of a thread, a context or a process: a clone has its fit with it
    wherever it is sent. Clones made before ``open`` hand the handout on, those made after it are
    ordinary ones.
    """

    def __init__(self, fits: Sequence[TrainedFit] = ()) -> None:
        self._left, self._state = deque(fits), "waiting" if fits else "closed"

    def __reduce__(self) -> tuple[type[FitHandout], tuple[()]]:
        return FitHandout, ()  # of use in the process that clones alone

    @contextmanager
    def open(self) -> Iterator[None]:
        """Within, each clone gets the next fit."""
        self._state = "open"
        try:
            yield
        finally:
            self._state = "closed"
        if self._left:
            raise RuntimeError(f"{len(self._left)} of the fits were not asked for")

    def equip(self, clone: Fitted) -> None:
        """Give a new clone what it is to have."""
        if self._state == "waiting":
            clone._handout = self
        elif self._state == "open":
            clone._trained_fit = self._left.popleft()


def take_over(estimator: BaseEstimator, X: Any) -> bool:
    """Adopt the fit that the estimator carries, if any; raise its error, if it failed."""
    trained: TrainedFit | None = estimator.__dict__.pop("_trained_fit", None)
    if trained is None:
        return False
    # a clone's objects cannot be told apart
    wanted = repr(plain_parameters(estimator)), _num_samples(X)
    got = repr(plain_parameters(trained.estimator)), trained.n_rows
    if wanted != got:
        raise RuntimeError(f"the search asked for a fit of {wanted}, the stack trained {got}")
    if trained.outcome.error is not None:
        raise trained.outcome.error
    parameters = estimator.get_params(deep=False)
    fitted = vars(trained.estimator).items()
    estimator.__dict__.update({n: v for n, v in fitted if n not in parameters})
    return True
