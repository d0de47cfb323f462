"""AIM in a Python of its own: codes in, synthetic codes out, by NumPy files.

    PYTHON benchmarks/quality/private_peers.py EPSILON DELTA SEED IN.npz OUT.npz

No module of ours is imported here, so that AIM may need other versions of packages than we do. Its
code comes from the folder ``mechanisms`` of a clone of https://github.com/ryan112358/mbi, which
MBI_MECHANISMS names, and calls the package mbi 2.0. In code that is older than mbi 2.0, replace the
estimators' argument ``potentials=`` by ``warm_start=model``.
"""

from __future__ import annotations

import importlib
import itertools
import os
import resource
import sys
import time
import warnings

import numpy as np

MODEL_SIZE, ITERATIONS = 8, 250  # AIM's own 80 MB and 1000 take hours


def aim(codes, sizes, epsilon, delta, seed):
    sys.path.insert(0, os.environ["MBI_MECHANISMS"])
    from aim import AIM
    from mbi import Dataset, Domain

    names = tuple(f"c{i}" for i in range(len(sizes)))
    data = Dataset(dict(zip(names, codes.T, strict=True)), Domain(names, tuple(map(int, sizes))))
    workload = [(pair, 1.0) for pair in itertools.combinations(names, 2)]
    mechanism = AIM(epsilon, delta, max_model_size=MODEL_SIZE, max_iters=ITERATIONS)
    mechanism.prng = np.random.RandomState(seed)
    _, made = mechanism.run(data, workload, num_synth_rows=len(codes))
    return np.stack([np.asarray(made.data[name]) for name in names], axis=1)


def main(epsilon, delta, seed, given, out):
    warnings.filterwarnings("ignore")
    rows = np.load(given)
    importlib.import_module("mbi")  # no part of a fit
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started = time.process_time()
    made = aim(rows["codes"], rows["sizes"], float(epsilon), float(delta), int(seed))
    seconds = time.process_time() - started
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MiB, on Linux
    np.savez(out, codes=made.astype(np.int64), seconds=seconds, mebibytes=grown - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
