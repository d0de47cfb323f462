"""How probable each code of a row is, beside the codes that are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from combutab.generators.flow._steps import FlowSteps
from combutab.nn import StackedCascade


@torch.inference_mode()
def code_shares(
    steps: FlowSteps,
    network: StackedCascade,
    codes: np.ndarray,
    wanted: Sequence[int],
    allowed: Mapping[int, Sequence[int]],
    chunk: int,
) -> Iterator[tuple[slice, int, np.ndarray]]:
    """The probabilities of each span's codes, whatever the other unknown ones: means over members.

    ``codes`` are (n, n_spans), -1 for those that are not known. Gives, of some rows at a time, for
    each span that is wanted: these rows, the span, and probabilities (rows, size), 0 of codes that
    are not allowed.
    """
    spans = steps.codes_alone
    n_members = len(network.members)
    only = {}
    for i, some in allowed.items():
        only[i] = torch.full((spans.sizes[i],), -torch.inf, dtype=torch.float64)
        only[i][list(some)] = 0
    for start in range(0, len(codes), chunk):
        rows = slice(start, min(start + chunk, len(codes)))
        given = torch.from_numpy(codes[rows]).to(spans.device).expand(n_members, -1, -1)
        x = torch.empty(
            *given.shape[:2], steps.inputs.n_inputs, dtype=spans.dtype, device=spans.device
        )
        with steps.context():
            raw = network.codes(steps.inputs.write(x, given)).to(spans.dtype)
        for i in wanted:
            logits = spans.logits_of(i, raw).double().cpu()
            if i in only:
                logits = logits + only[i]
            yield rows, i, logits.softmax(-1).mean(0).numpy()
