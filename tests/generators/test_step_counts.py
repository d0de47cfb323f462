"""How many operators of torch an epoch of a generator calls: one too many a step shows here.

Where a number has to grow, say in the commit what for; where it shrank, write it down. What it is
now stands in the message of a bound that is too low.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from combutab.core.device import Precision
from combutab.generators import CTGAN, TVAE
from combutab.generators._records import GeneratorPlan, TableRows, make_spans
from combutab.nn import Member
from combutab.preprocessing import ModeEncoder

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"amount": RNG.normal(size=200), "kind": RNG.choice(["a", "b", "c"], 200)})
CASES = {  # generator, steps in an epoch, operators in an epoch
    "gan": (CTGAN(batch_size=40, pac=5), 5, 2909),
    "vae": (TVAE(batch_size=40), 5, 1191),
}


@pytest.mark.parametrize("case", CASES)
def test_an_epoch_calls_no_more_operators(case):
    model, n_steps, most = CASES[case]
    precision = Precision(model.precision)
    cpu, encoder = torch.device("cpu"), ModeEncoder(random_state=0).fit(TABLE)
    spans = make_spans(encoder.layout_, cpu, precision)
    rows = TableRows.on(cpu, encoder.encode(TABLE), precision.dtype)
    training = model._training(rows, spans, [GeneratorPlan(Member(5, "combu"), model._rates())])
    for epoch in range(2):  # memory is asked for at first
        training.epoch(epoch)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        training.epoch(2)
    events = [e for e in profiler.events() if e.cpu_parent is None and e.name.startswith("aten::")]
    assert len(events) <= most, f"{len(events)} operators in {n_steps} steps, at most {most}"
