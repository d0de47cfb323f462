"""What do the stored measurements say about a billion rows on 8 GPUs, and 10,000 fits on 64 hosts?

Arithmetic alone: from the results of ``scale_out``, ``scaling`` and ``clusters`` in a folder, and
from assumptions that the page names as such. Nothing is timed; it is to be run again after them.

    python -m benchmarks.speed.scale [--results benchmarks/speed/results]
        [--out benchmarks/speed/results]
"""

from __future__ import annotations

import math
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.speed.clusters import BAR, LONG
from benchmarks.speed.common import begin, block, write
from benchmarks.speed.scale_out import BATCH, COLUMNS, HIDDEN, Step, count_parameters
from benchmarks.speed.scaling import exponents

ROWS, GPUS = 1_000_000_000, 8
FITS, HOSTS = 10_000, 64
# assumed: nothing of it has been measured
GPU_SPEEDS = (2e12, 10e12, 40e12)  # useful floating-point operations a second
GPU_STEP = 1e-3  # seconds of a step that no rows make shorter: some hundred kernels are started
GPU_LINK = (100e9, 20e-6)  # bytes and seconds of a turn between GPUs of one host
STACK_FITS, STACK_SECONDS = 15, LONG  # where no search on a cluster is stored
PASSES = 2  # over the files in a streamed fit of one epoch: to learn the encoding, and to train

ORDER_BYTES = 56  # of a row, while an epoch's order is drawn: as fit_parquet's plan counts them

GPU_TEXT = """
A row takes {flop:.2f} million floating-point operations: six for each of the {n:,} parameters of
{layers} hidden layers of {width} (two forward, four backward). One thread of this machine does
{thread:.0f} thousand million of them a second (scale_out: {micro:.1f} microseconds a row). A step
of b rows in all by R GPUs takes

    t = f + 6 P b / (R G) + (2 (R - 1) / R) 4 P / B + 2 (R - 1) L

Assumed, never measured: G, the operations of use that a GPU does in a second, in three cases;
f = {fixed:g} ms, whatever the rows; B = {speed:.0f} GB/s and L = {turn:.0f} microseconds between
the GPUs of a host. An epoch takes (n / b) t.

"sent" is the network's part of a step. "most GPUs" is where half of a step is no work on rows: of
more than these, twice as many are less than 1.34 times as fast, and all of them are paid. Money:
R s / 3600 times the list price of a GPU's hour, s being the seconds; for the column "GPU hours"
that is the price times the number in it, for each epoch.
"""
HOST_TEXT = """
N fits in stacks of k are T = ceil(N / k) tasks of s seconds each. H workers (of one thread: a host
has as many as cores) take

    max(d T, s ceil(T / H))

as the calling process, which encodes, sends, scores and notes, takes d seconds a task, which nobody
shares. {source}

It stops where the calling process is as slow as all workers, beyond H = s / d, or where there are
no more tasks, beyond H = T: stacks are not made smaller for more workers. Fits of more rows make s
longer and d hardly, which the longer tasks below assume. What a worker is sent once, a fold's
encoded table, and the last round, in which some workers wait, are small beside these.

Money: "worker hours" times the list price of a host's hour over its workers.
"""


def wrapped(text: str) -> str:
    """Paragraphs in lines of one length; formulas are indented, and stay."""
    parts = text.strip("\n").split("\n\n")
    lines = [p if p[0] == " " else textwrap.fill(" ".join(p.split()), 100) for p in parts]
    return "\n\n".join(lines) + "\n"


def epochs_on_gpus(parameters: int) -> pd.DataFrame:
    """A row for each assumed speed and each batch: what an epoch of a billion rows takes."""
    rows = []
    for speed in GPU_SPEEDS:
        step = Step(GPU_STEP, 6 * parameters / speed, parameters)
        for batch in (BATCH, 8 * BATCH, 64 * BATCH):
            seconds = step.seconds(GPUS, batch, GPU_LINK)
            work = step.of_row * batch
            still = seconds - work / GPUS
            epoch = ROWS / batch * seconds
            rows.append(
                {
                    "TFLOP/s (assumed)": speed / 1e12,
                    "rows of a step": batch,
                    "ms a step": 1e3 * seconds,
                    "sent, ms": 1e3 * (still - GPU_STEP),
                    "seconds an epoch": epoch,
                    "GPU hours": GPUS * epoch / 3600,
                    "most GPUs": max(1, math.floor(work / still)),
                }
            )
    return pd.DataFrame(rows)


def of_row(hosts: pd.DataFrame) -> float:
    """Seconds of a row on one thread, as ``scale_out`` has taken them for its predictions."""
    part = hosts[(hosts["network"] == hosts["network"].iloc[0]) & (hosts["hosts"] == 8)]
    (few, many), (short, long) = part["rows of a step"], part["ms a step"]
    return float((long - short) / (many - few) * 8 / 1000)


def before_epochs(points: pd.DataFrame) -> str:
    """What a billion rows take beside the network: memory, encoding, reading."""
    slopes = exponents(points)
    rows = points[points["dimension"] == "rows"].sort_values("size").iloc[-1]
    times, slope = ROWS / rows["size"], slopes.loc["rows"]
    seconds = rows["seconds"] * times ** slope["seconds"]
    memory = rows["megabytes"] * times ** slope["megabytes"] / 1000
    rows_in_words, gigabytes = f"{int(rows['size']):,} rows", rows["megabytes"] / 1000
    text = f"""
    In memory (fit): {rows_in_words} took {rows["seconds"]:.1f} s, with an epoch of a tiny network,
    and {gigabytes:.1f} GB. By the exponents {slope["seconds"]:.2f} and {slope["megabytes"]:.2f} a
    billion take {seconds / 60:.0f} minutes on one core, and {memory:.0f} GB in each of {GPUS}
    processes: {GPUS * memory / 1000:.1f} TB on their host. On each GPU the encoded rows are
    {ROWS * COLUMNS * 4 / 1e9:.0f} GB, and the drawing of an epoch's order takes
    {ROWS * ORDER_BYTES / 1e9:.0f} more: it ends where these do not fit."""
    streamed = points[points["dimension"] == "streamed"].sort_values("size")
    if streamed.empty:
        return text.lstrip() + "\n\nStreamed (fit_parquet): not measured yet, see scaling."
    last = streamed.iloc[-1]
    reading = last["seconds"] / last["size"] / PASSES
    return f"""{text.lstrip()}

Streamed (fit_parquet): {int(last["size"]):,} rows took {last["seconds"]:.0f} s in {PASSES} passes,
and {last["megabytes"]:.0f} MB, which do not grow with rows: {1e6 * reading:.2f} microseconds a row
and pass at most, as the making of the rows and a tiny network are in it. A billion rows take
{ROWS * reading / 60:.0f} minutes a pass on one core, by a thread that reads ahead of the training.
Each process reads all rows, so that more GPUs make this no shorter: an epoch takes what it takes,
or the steps above, whichever is longer, and where reading is, one GPU is as fast as {GPUS}."""


def search_on_hosts(engines: pd.DataFrame | None) -> tuple[pd.DataFrame, str]:
    """A row for each length of tasks and number of workers, and what the numbers rest on."""
    fits, seconds, of_caller = STACK_FITS, STACK_SECONDS, BAR * STACK_SECONDS
    source = (
        f"No search on a cluster is stored: assumed are k = {fits}, s = {seconds:g} and d = "
        f"{of_caller:g}, a tenth of it, which is the most that is allowed."
    )
    if engines is not None:
        found = engines.set_index("engine")
        serial, n_tasks, n_fits = found.loc["one process", ["seconds", "tasks", "fits"]]
        fits, seconds = round(n_fits / n_tasks), serial / n_tasks
        beyond = found.loc["dask", "seconds"] - found.loc["threads", "seconds"]
        of_caller = max(0.0, beyond) / n_tasks
        source = (
            f"clusters has measured k = {fits}, s = {seconds:.2f} and d = {of_caller:.3f}: what "
            "Dask takes beyond threads, a task."
        )
    n_tasks = math.ceil(FITS / fits)
    rows = []
    for longer in (1, 10, 100):
        for workers in (1, HOSTS, 8 * HOSTS, 64 * HOSTS):
            working = longer * seconds * math.ceil(n_tasks / workers)
            taken = max(working, of_caller * n_tasks)
            rows.append(
                {
                    "seconds of a task": longer * seconds,
                    "workers": workers,
                    "seconds": taken,
                    "times as fast": longer * seconds * n_tasks / taken,
                    "worker hours": workers * taken / 3600,
                    "bound by": "the workers" if taken == working else "the caller",
                }
            )
    return pd.DataFrame(rows), source


def main() -> None:
    folder = Path(__file__).parent / "results"
    arguments = begin(__doc__, "the same: it is arithmetic", results=folder)
    folder, parameters = arguments.results, count_parameters(HIDDEN)
    of_thread = of_row(pd.read_csv(folder / "scale_out_hosts.csv.gz"))
    file = folder / "speed_clusters.csv.gz"
    gpus = epochs_on_gpus(parameters)
    hosts, source = search_on_hosts(pd.read_csv(file) if file.exists() else None)
    before = before_epochs(pd.read_csv(folder / "scaling.csv.gz"))
    search = HOST_TEXT.format(source=source)
    speed, turn = GPU_LINK
    words = GPU_TEXT.format(
        flop=6 * parameters / 1e6,
        n=parameters,
        layers=len(HIDDEN),
        width=HIDDEN[0],
        thread=6 * parameters / of_thread / 1e9,
        micro=1e6 * of_thread,
        fixed=1e3 * GPU_STEP,
        speed=speed / 1e9,
        turn=1e6 * turn,
    )
    pages = [
        f"## One fit of {ROWS:,} rows of {COLUMNS} columns on {GPUS} GPUs\n\n{wrapped(words)}",
        block(gpus.round(2), "An epoch", index=False),
        f"## Beside the epochs\n\n{wrapped(before)}",
        f"## A search of {FITS:,} fits on {HOSTS} hosts\n\n{wrapped(search)}",
        block(hosts.round(2), index=False),
    ]
    table = pd.concat({"gpus": gpus, "hosts": hosts}, names=["part"]).reset_index("part")
    write(arguments.out, "scale", table.replace({np.nan: None}), *pages, index=False)


if __name__ == "__main__":
    main()
