"""The examples in the docstrings run, and print what they say."""

import doctest
import importlib
import warnings
from pathlib import Path

import pytest

import combutab

PACKAGE = Path(combutab.__file__).parent
# by their text: to import them all takes seconds, in every process that collects tests
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


class Runner(doctest.DocTestRunner):
    """Skips, as a module that cannot be imported is, what asks for a library to be installed."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        if isinstance(exc_info[1], ImportError) and "pip install" in str(exc_info[1]):
            pytest.skip(str(exc_info[1]))
        super().report_unexpected_exception(out, test, example, exc_info)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, capsys):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install" not in str(error):
            raise
        pytest.skip(str(error))
    runner = Runner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(module):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0, capsys.readouterr().out


def test_the_main_names_have_examples():
    estimators = ("MLPClassifier", "MLPRegressor", "PackClassifier", "PackRegressor")
    for name in (*estimators, "StackedGridSearchCV", "CombU", "PLN"):
        assert ">>> " in getattr(combutab, name).__doc__, name
