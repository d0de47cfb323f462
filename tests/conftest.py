"""One thread a process, unless told otherwise: the tests' networks are too small to share.

Threads that wait for each other spin, which on a busy machine makes a run ten times as long.
"""

import gc
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without looking for garbage, and never look among what that has loaded."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def no_defaults(monkeypatch):
    """Leave MLPClassifier and MLPRegressor without defaults: where one is used, it shows.

    Those of `UNSHAPELY`, which no network depends on, stay.
    """
    from combutab import MLPClassifier, MLPRegressor
    from tests.paper_networks import UNSHAPELY

    for cls in (MLPClassifier, MLPRegressor):
        init = cls.__init__
        named = {n: v if n in UNSHAPELY else NO_DEFAULT for n, v in init.__kwdefaults__.items()}
        monkeypatch.setattr(init, "__kwdefaults__", named)
        monkeypatch.setattr(init, "__defaults__", (NO_DEFAULT,) * len(init.__defaults__))


NO_DEFAULT = object()
