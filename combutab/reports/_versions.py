"""The software that made a report."""

from __future__ import annotations

import platform
from importlib.metadata import version

from combutab._version import __version__

_LIBRARIES = ("torch", "scikit-learn", "pandas", "numpy")


def versions() -> dict[str, str]:
    """Of combutab, of the libraries that results depend on, and of Python.

    Examples
    --------
    >>> list(versions())
    ['combutab', 'torch', 'scikit-learn', 'pandas', 'numpy', 'Python']
    """
    libraries = {name: version(name) for name in _LIBRARIES}
    return {"combutab": __version__, **libraries, "Python": platform.python_version()}
