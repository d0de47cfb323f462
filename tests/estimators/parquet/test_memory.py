"""Files of several times the limit train within the limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LIMIT = 64_000_000
FILES, ROWS = 16, 200_000  # rows of each
SCRIPT = """
import json, resource, sys
import numpy as np, pandas as pd
from combutab import MLPRegressor

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

folder, limit = sys.argv[1], int(sys.argv[2])
settings = dict(hidden_layer_sizes=(8,), max_iter=1, n_iter_no_change=np.inf, random_state=0,
                batch_size=1000, device="cpu", early_stopping=True)
small = folder + "/small.parquet"
frame = pd.DataFrame({"x": np.arange(4e3), "s": ["a", "b"] * 2000, "y": np.arange(4e3)})
frame.to_parquet(small)
MLPRegressor(**settings).fit_parquet(small, "y")  # all libraries are loaded
base = status("VmRSS")
# and no more is to be had than an address space that is far smaller than the table
space = status("VmSize") + 3 * limit
resource.setrlimit(resource.RLIMIT_AS, (space, space))
open("/proc/self/clear_refs", "w").write("5")
model = MLPRegressor(**settings).fit_parquet(folder + "/large", "y", memory_limit=limit)
print(json.dumps({"taken": status("VmHWM") - base, "t": model.t_, "loss": model.loss_}))
"""


@pytest.mark.slow
def test_files_of_eight_times_the_limit(tmp_path):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("measures memory by /proc")
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=ROWS) for i in range(20)}
    columns["s"] = pa.array(["u", "v"] * (ROWS // 2))
    columns["y"] = columns["x0"] - columns["x1"]
    part = pa.table(columns)
    assert FILES * part.nbytes > 8 * LIMIT
    folder = tmp_path / "large"
    folder.mkdir()
    pq.write_table(part, folder / "0.parquet", row_group_size=20_000)
    for i in range(1, FILES):  # the same rows: what matters is how many
        (folder / f"{i}.parquet").hardlink_to(folder / "0.parquet")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path), str(LIMIT)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["taken"] < LIMIT
    assert 0 < found["t"] < FILES * ROWS, "some rows validate"
    assert found["loss"] < 0.5  # the target's variance is 1
