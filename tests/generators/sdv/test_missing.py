"""Without SDV all but its synthesizers works, and these say what to install."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_without_sdv_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("combutab.generators.sdv")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sdv", None)
    with pytest.raises(ImportError, match=r"pip install 'combutab\[sdv\]'"):
        importlib.import_module("combutab.generators.sdv")
