"""What a training step asks of torch: operators called, tensors allocated, bytes of them.

The clock is not looked at: an operator or a temporary too many in a step shows here, on any
machine. Where a number has to grow, say in the commit what for; where it shrank, write it down:

    COMBUTAB_PRINT_COUNTS=1 pytest -s tests/nn/test_step_counts.py
"""

import json
import os

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import OptimizerConfig, RowOptimizer

ROWS, WIDTH, HIDDEN, RATE = 500, 256, 2, 0.1
SLACK = 256  # KiB: what libraries take differs by version; a layer's temporary has 500
VIEWS = {
    *("aten::" + name for name in ("alias", "as_strided", "detach", "expand", "narrow", "select")),
    *("aten::" + name for name in ("slice", "split", "squeeze", "t", "transpose", "unsqueeze")),
    *("aten::" + name for name in ("view", "_unsafe_view", "unbind", "unflatten", "flatten")),
    *("aten::" + name for name in ("reshape", "view_as", "movedim", "permute", "detach_")),
}
# activation, normalisation, dropout -> operators, allocations, KiB allocated
COUNTS = {
    ("relu", "none", 0.1): (39, 10, 0),
    ("prelu", "none", 0.1): (55, 12, 2),
    ("mish", "none", 0.1): (41, 12, 1000),
    ("combu", "none", 0.1): (55, 10, 0),
    ("combu-random", "none", 0.1): (73, 22, 1),
    ("pln-8", "none", 0.1): (67, 22, 0),
    ("pls-2", "none", 0.1): (55, 14, 0),
    ("la-silu", "none", 0.1): (61, 30, 4023),
    # masks take 21 operators and 8 allocations of any of them, so a few do for a step without
    ("relu", "none", 0.0): (18, 2, 0),
    ("relu", "layer", 0.1): (125, 226, 2274),
    ("combu", "layer", 0.1): (223, 599, 3721),
    ("gelu", "layer", 0.1): (104, 109, 6725),
    ("relu", "batch", 0.1): (49, 36, 3022),
    ("relu", "pln", 0.1): (71, 26, 2000),
}


class Squares:
    """Half the sum of squares, whose derivative is the output."""

    def __call__(self, raw):
        return 0.5 * raw.square().sum()

    def gradient(self, raw):
        return raw


def counts_of(step, folder):
    """(operators, allocations, kibibytes) of a step that has run before."""
    for _ in range(2):
        step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    operators = [
        event.name
        for event in profiler.events()
        if event.cpu_parent is None and event.name.startswith(("aten::", "mkldnn::"))
    ]
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    sizes = [e["args"]["Bytes"] for e in events if e["name"] == "[memory]"]
    taken = [n for n in sizes if n > 0]
    return sum(name not in VIEWS for name in operators), len(taken), sum(taken) // 1024


def step_of(name, normalization="none", dropout=RATE):
    shape = MLPSpec(
        WIDTH,
        (WIDTH,) * HIDDEN,
        1,
        normalization=normalization,
        proxy_norm=normalization == "layer",
    )
    net = StackedMLP(shape, [Member(0, name, dropout)])
    masks = net.mask_maker()
    optimizer = RowOptimizer(OptimizerConfig(), net.flat.values, net.n_decayed)
    x = torch.randn(1, ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    keys, objective = [1], Squares()
    (rates,) = optimizer.place_rates([[1e-3]], [0.0])

    def step():
        drawn = masks.draw(keys, ROWS) if dropout else None
        net.gradients(x, objective, masks=drawn)
        optimizer.step(net.flat.values, net.flat.grads, [0], rates)

    return step


@pytest.mark.parametrize("case", COUNTS, ids=str)
def test_a_step_asks_for_no_more(case, tmp_path, monkeypatch):
    monkeypatch.setattr("combutab.nn._chain._by_one_dnn", lambda: False)  # it allocates its results
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        counts = counts_of(step_of(*case), tmp_path)
    finally:
        torch.set_num_threads(threads)
    if os.environ.get("COMBUTAB_PRINT_COUNTS"):
        print(f"\n    {case}: {counts},")
    operators, allocations, kibibytes = COUNTS[case]
    for count, most in zip(counts, (operators, allocations, kibibytes + SLACK), strict=True):
        assert count <= most, f"operators, allocations, KiB: {counts}, at most {COUNTS[case]}"
