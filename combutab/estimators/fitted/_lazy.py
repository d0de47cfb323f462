"""The network that predicts, kept beside a fitted estimator but never pickled with it."""

from __future__ import annotations

from combutab.nn import TableNetwork


class LazyNetwork:
    """Holds the network that predicts; a copy or a pickle of it is empty, to be built anew."""

    def __init__(self) -> None:
        self.network: TableNetwork | None = None

    def __reduce__(self) -> tuple[type[LazyNetwork], tuple[()]]:
        return LazyNetwork, ()
