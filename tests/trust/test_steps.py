"""Random configurations of the steps that work in memory of their own, beside autograd."""

import numpy as np
import pytest
import torch

from combutab.activations import ACTIVATIONS
from combutab.core.rng import Stream, fold_in
from combutab.nn import (
    NORMALIZATIONS,
    Member,
    MLPSpec,
    StackedMLP,
)
from tests.short import BUDGET

UNITWISE = sorted(
    set(ACTIVATIONS) - {n for n in ACTIVATIONS if n.startswith(("pln", "pls", "la-", "complex-"))}
)


def _choose(rng, options):
    return options[int(rng.integers(len(options)))]


def _random_network(seed):
    """A shape and members, and what they are trained on."""
    rng = np.random.default_rng(seed)
    normalization = _choose(rng, NORMALIZATIONS)
    proxy_norm = normalization in ("layer", "group") and bool(rng.integers(2))
    names = UNITWISE if proxy_norm else sorted(ACTIVATIONS)
    multiple = 8 if normalization in ("group", "pln") else 1  # PLN has no group of one
    hidden = tuple(multiple * int(rng.integers(2, 6)) for _ in range(rng.integers(0, 4)))
    kinds = [_choose(rng, names) for _ in range(rng.integers(1, 4))]
    if "complex-combu" in kinds:  # of pairs
        hidden = tuple(width + width % 2 for width in hidden)
    members = [
        Member(fold_in(seed, Stream.MEMBER, i), kind, float(_choose(rng, [0.0, 0.3])))
        for i, kind in enumerate(kind for kind in kinds for _ in range(rng.integers(1, 3)))
    ]
    shape = MLPSpec(
        int(rng.integers(1, 5)),
        hidden,
        int(rng.integers(1, 4)),
        cardinalities=tuple(int(c) for c in rng.integers(2, 12, rng.integers(0, 3))),
        normalization=normalization,
        proxy_norm=proxy_norm,
        init=_choose(rng, ["torch", "kaiming", "ntk"]),
    )
    return rng, shape, members


def _data(rng, shape, members):
    rows = int(_choose(rng, [1, 2, 3, 7, 20]))
    m = len(members)
    dense = torch.from_numpy(rng.normal(0, _choose(rng, [0.1, 1, 30]), (m, rows, shape.n_dense)))
    codes = None
    if shape.cardinalities:
        columns = [rng.integers(0, c, (m, rows)) for c in shape.cardinalities]
        codes = torch.from_numpy(np.stack(columns, -1))
    valid = None
    if rng.integers(3) == 0:
        counts = torch.from_numpy(rng.integers(0, rows + 1, m))
        valid = torch.arange(rows) < counts.unsqueeze(1)
    weight = torch.from_numpy(rng.normal(size=(m, rows, shape.n_outputs)))
    if valid is not None:
        weight = weight * valid.unsqueeze(-1)
    return dense, codes, valid, weight


def _both(net, twin, dense, codes, valid, weight, key):
    dropped = any(member.dropout for member in net.members)
    keys = [fold_in(key, Stream.MEMBER, i) for i in range(net.n_members)]

    def masks():
        return net.mask_maker().draw(keys, dense.shape[1]) if dropped else None

    def objective(raw):
        return (raw * weight).sum() + ((raw * weight) ** 2).sum()

    net.gradients(dense, objective, codes, masks(), valid)
    twin.flat.backward(objective(twin(dense, codes, masks(), valid)))
    torch.testing.assert_close(net.flat.grads, twin.flat.grads, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(net.flat_buffers.values, twin.flat_buffers.values)


# 893: two activations of one class and two names, in ProxyNorms that share their moments
@pytest.mark.parametrize("seed", sorted({*range(120 * BUDGET if BUDGET > 1 else 40), 893}))
def test_random_networks_have_autograds_gradients(seed):
    rng, shape, members = _random_network(seed)
    net, twin = (StackedMLP(shape, members, dtype=torch.float64) for _ in range(2))
    for step in range(2):  # the second one in memory that the first has left
        _both(net, twin, *_data(rng, shape, members), fold_in(seed, Stream.DROPOUT, step))
    keep = sorted(rng.choice(len(members), int(rng.integers(1, len(members) + 1)), replace=False))
    net.select(keep)
    twin.select(keep)
    members = [members[k] for k in keep]
    dense, codes, valid, weight = _data(rng, shape, members)
    _both(net, twin, dense, codes, valid, weight, seed)
    net.eval()
    twin.eval()
    rows = None if codes is None else codes[0]
    with torch.no_grad():
        shared = dense[:1].expand(len(members), -1, -1)
        expected = twin(shared, None if rows is None else codes[:1].expand(len(members), -1, -1))
    got = net.predict(dense[0], rows, chunk=3)
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-9)
    for i in range(len(members)):  # and alone
        alone = StackedMLP(shape, [members[i]], dtype=torch.float64).eval()
        alone.load_member(0, net.member_state(i))
        torch.testing.assert_close(alone.predict(dense[0], rows, 64)[0], expected[i])
