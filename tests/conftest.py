"""One thread a process, unless told otherwise: the tests' networks are too small to share.

Threads that wait for each other spin, which on a busy machine makes a run ten times as long.
"""

import gc
import os
import signal

import hypothesis
import pytest

from tests import short

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it
# a run tries what the last one tried; longer ones try something else each time
hypothesis.settings.register_profile(
    "any machine",
    derandomize=os.environ.get("COMBUTAB_TRUST_BUDGET", "1") == "1",
    deadline=None,  # no test fails because a machine is busy
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job
    # processes that the tests start would ignore Ctrl-C as well
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without looking for garbage, and never look among what that has loaded."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _set_defaults(patch, of):
    """Let the estimators have the defaults that ``of`` gives for (task, name, default)."""
    from combutab import MLPClassifier, MLPRegressor
    from tests.paper_networks import UNSHAPELY

    for task, cls in (("classification", MLPClassifier), ("regression", MLPRegressor)):
        init = cls.__init__
        positional = init.__code__.co_varnames[1 : 1 + len(init.__defaults__)]
        named = {n: v if n in UNSHAPELY else of(task, n, v) for n, v in init.__kwdefaults__.items()}
        patch.setattr(init, "__kwdefaults__", named)
        given = zip(positional, init.__defaults__, strict=True)
        patch.setattr(init, "__defaults__", tuple(of(task, n, v) for n, v in given))


@pytest.fixture
def no_defaults(monkeypatch):
    """Leave MLPClassifier and MLPRegressor without defaults: where one is used, it shows.

    Those of `UNSHAPELY`, which no network depends on, stay.
    """
    nothing = object()
    _set_defaults(monkeypatch, lambda task, name, now: nothing)


@pytest.fixture(scope="module")
def paper_defaults():
    """Let MLPClassifier and MLPRegressor be the CombU paper's network where nothing else is asked.

    For tests of single parts, which say what of these parts they need: what the whole of the
    defaults is must not matter to them.
    """
    from combutab import paper_recipe

    with pytest.MonkeyPatch.context() as patch:
        _set_defaults(patch, lambda task, name, now: paper_recipe(task).get(name, now))
        yield


@pytest.fixture
def few_epochs(monkeypatch):
    """For code that has to run, whatever its networks learn."""
    _set_defaults(monkeypatch, lambda task, name, now: 3 if name == "max_iter" else now)


@pytest.fixture
def single_stacks():
    """Each network trains in a stack of its own."""
    with short.small_stacks(1):
        yield


@pytest.fixture
def every_epoch(monkeypatch):
    """A checkpoint is written after each epoch, however short it is."""
    monkeypatch.setattr("combutab._model_files.SECONDS", 0.0)


@pytest.fixture(scope="module")
def few_trees():
    """For tests of what is done with a learner's scores, and not of how well it learns."""
    with short.few_trees():
        yield


@pytest.fixture(scope="module")
def few_resamples():
    """For tests of what is done with intervals of scores, and not of how wide they are."""
    with short.few_resamples():
        yield


@pytest.fixture
def few_steps():
    """For tests of private fits that do not judge the rows."""
    with short.few_steps():
        yield


@pytest.fixture(scope="module")
def short_reports():
    """For tests of what a report holds and shows, and not of how it judges."""
    with short.short_reports():
        yield


@pytest.fixture
def short_report():
    """As `short_reports`, for one test among those that judge."""
    with short.short_reports():
        yield
