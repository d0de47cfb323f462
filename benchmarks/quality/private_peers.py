"""AIM, MST or PrivBayes of dpmm in a Python of its own: codes in, synthetic codes out.

    PYTHON benchmarks/quality/private_peers.py MODEL EPSILON DELTA SEED IN.npz OUT.npz

No module of ours is imported here: dpmm 0.1.9 (``pip install dpmm``, Apache 2.0, Mahiou et al.
2025, arXiv 2506.00322) needs Python 3.10 or 3.11 and older versions of packages than we do. All
settings are its defaults. Its noise comes from OpenDP and has no seed: no two fits are the same.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from pathlib import Path

import numpy as np

MODELS = {"aim": "AIMGM", "mst": "MSTGM", "priv_bayes": "PrivBayesGM"}


def peak():
    """The most memory that this program has held, in MiB; NaN if the system is not Linux.

    That of ``resource.getrusage`` can be the most that the program had which started this one.
    """
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:
        return float("nan")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main(model, epsilon, delta, seed, given, out):
    warnings.filterwarnings("ignore")
    rows = np.load(given)
    pandas = importlib.import_module("pandas")
    kind = getattr(importlib.import_module(f"dpmm.models.{model}"), MODELS[model])
    before = peak()
    started = time.process_time()
    names = [f"c{i}" for i in range(len(rows["sizes"]))]
    table = pandas.DataFrame(rows["codes"], columns=names)
    fitted = kind(
        epsilon=float(epsilon),
        delta=float(delta),
        domain=dict(zip(names, map(int, rows["sizes"]), strict=True)),
        random_state=np.random.RandomState(int(seed)),
        n_jobs=1,
    )
    fitted.fit(table)
    made = fitted.generate(n_records=len(table))[names].to_numpy()
    seconds = time.process_time() - started
    np.savez(out, codes=made.astype(np.int64), seconds=seconds, mebibytes=peak() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
