"""Device names: what exists is taken, what does not is said."""

from __future__ import annotations

import pytest
import torch

from combutab.core.device import Precision, resolve_device


def test_auto_and_cpu():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "meta", "xpu", "mps", "cpu:3", "", 7.5])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match=r"device must be .* got"):
        resolve_device(name)


def test_cuda_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="no CUDA device; use 'auto'"):
        resolve_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"sees 2 CUDA device\(s\)"):
        resolve_device("cuda:2")
    assert resolve_device("cuda:1").index == 1


def test_precisions():
    assert Precision("float64").dtype == torch.float64
    assert Precision("bf16-mixed").dtype == torch.float32
    with Precision("bf16-mixed").context(torch.device("cpu"))():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="precision"):
        Precision("float16")
