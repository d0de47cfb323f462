"""The examples in the docstrings run, and print what they say."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

import combutab

MODULES = ["combutab"] + [
    info.name
    for info in pkgutil.walk_packages(combutab.__path__, "combutab.")
    if not info.name.endswith("__main__")
]


def examples(module_name):
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        if "pip install" in str(error):  # of an extra that is not installed
            return []
        raise
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@pytest.mark.parametrize("name", [name for name in MODULES if examples(name)])
def test_docstring_examples(name, capsys):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in examples(name):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runner.run(test)
    assert runner.failures == 0, capsys.readouterr().out


def test_the_main_names_have_examples():
    for name in ("MLPClassifier", "MLPRegressor", "StackedGridSearchCV", "CombU", "PLN"):
        assert ">>> " in getattr(combutab, name).__doc__, name
