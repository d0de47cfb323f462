"""Rows of a mixture of product distributions."""

import pytest
import torch

from combutab.generators.private._mixture import MixtureTable
from combutab.generators.sampling import RowRequest


@pytest.mark.parametrize("key", [0, 1, 2**40])
def test_components_are_drawn_evenly(key):
    """Of 50 components with a code each, 100 rows have each code twice, in random order."""
    table = torch.eye(50)
    request = RowRequest([key], 100, torch.zeros(1, 100, 0), {})
    given = torch.full((100, 1), -1)
    found = MixtureTable(table)._components([table], given, {}, request)
    assert torch.bincount(found, minlength=50).tolist() == [2] * 50
    assert found.tolist() != sorted(found.tolist())


def test_components_follow_what_is_known():
    """A row whose code only one component has is of that component."""
    table = torch.eye(50)
    request = RowRequest([0], 50, torch.zeros(1, 50, 0), {})
    given = torch.arange(50).flip(0)[:, None]
    assert MixtureTable(table)._components([table], given, {}, request).equal(given[:, 0])
