"""``import combutab`` loads what a fit needs, and nothing else."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

import combutab

# needed by a command, a figure, a file format or a peer, not by a fit
LAZY = {"matplotlib", "rich", "typer", "sympy", "pooch", "pyarrow", "polars"}
LAZY |= {"sdv", "ctgan", "sdmetrics", "openml", "skorch"}


def run(code):
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def loaded_by(statement):
    """Top-level modules that a statement loads in a fresh interpreter."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(run(code).split())


def test_import_loads_no_optional_library():
    # torch, scikit-learn and pandas load some of these themselves where they are installed
    before = loaded_by("import torch, sklearn.model_selection, pandas, scipy.stats")
    after = loaded_by("import combutab")
    assert {"torch", "sklearn", "combutab"} <= after
    assert not (after - before) & LAZY


def test_the_check_sees_what_is_loaded():
    assert "sympy" in loaded_by("import sympy")


def test_import_leaves_global_state_alone():
    code = """
import random, numpy, torch, warnings
random.seed(1); numpy.random.seed(1); torch.manual_seed(1)
def state():
    return (
        random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist(),
        torch.get_num_threads(), torch.get_default_dtype(), numpy.geterr(), warnings.filters[:],
    )
import sklearn, pandas, scipy.stats, sklearn.model_selection, safetensors, joblib
before = state()
import combutab
assert state() == before
"""
    run(code)


def test_version_is_that_of_the_distribution():
    try:
        installed = version("combutab")
    except PackageNotFoundError:
        pytest.skip("combutab is not installed")
    assert combutab.__version__ == installed
