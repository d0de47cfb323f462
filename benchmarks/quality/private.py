"""How good are synthetic rows with differential privacy, compared with dpmm's, by epsilon?

All models are given the same bounds, bins and categories, which count as known beforehand: bounds
are the 1 % and 99 % points of a column in the whole file, between them are 16 bins of equal width
(columns of fewer values are categories), and all but the 32 most frequent categories are one.
A gap is a bin of its own. Rows are drawn uniformly within bins. "PrivateSynthesizer, own bins" is
given the bounds only, and chooses bins itself, as by default. Each run has training rows of its
own (4:1), of two sizes: 5,000 of them with six columns (the first five and the target), and at most
10,000 with all columns. Measures:

- pairs: the mean total variation distance of all two-way marginals, on these bins, between the
  training rows and as many synthetic rows; 0 is best;
- boosting: gradient boosting is trained on synthetic rows and scored on the rows held out (ROC AUC,
  or R2 in a regression);
- C2ST: the ROC AUC of gradient boosting between held-out and synthetic rows; 0.5 is best;
- CPU seconds of the fit and of sampling, and the peak growth of the process in MB.

"TabFlow" and "independent columns" have no privacy; they show what it costs. Delta is 1e-6. With
six columns PrivateSynthesizer has five runs, and so have the others at epsilon 1; the rest is of
one run. Cells are means, with 95 % t-intervals over runs where there are several. The target
values: pairs at most those of AIM on five of seven tables, and boosting at epsilon 1 at most 0.03
worse than AIM's on all.

AIM (McKenna et al. 2022), MST (McKenna et al. 2021) and PrivBayes (Zhang et al. 2017) are those of
dpmm 0.1.9, with its default settings. AIM is not run on all columns, because a fit takes too long.
At epsilon 10 it has run on two tables; its fits on magic and beijing were stopped after 13 minutes.
The memory of the stored rows of dpmm was not measured. Seconds are of the first run, except those
of PrivateSynthesizer with six columns: other runs were made beside other work.

The tables other than california_housing and PhishingWebsites are UCI's files.

    python -m benchmarks.quality.private --data-home FOLDER [--quick] [--runs 5] [--rows 5000 10000]
        [--columns 6 100] [--bins 16] [--data NAME ...] [--models NAME ...]
        [--epsilons 1 10 0.3 3] [--limit SECONDS] [--dpmm PYTHON]

--rows and --columns belong together: the first of each is the first size. dpmm runs in a Python of
its own, --dpmm PYTHON, which has it installed. What takes longer than --limit is listed as failed.
A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import combutab
from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats
from benchmarks.quality.generators import Found, add_failures, run_apart
from benchmarks.quality.synthesizers import SYNTHESIZERS, Sample, Task, make_rows
from benchmarks.quality.tables import DATA, lines, number, read_rows, wanted
from combutab.evaluation import detection, ml_efficacy, t_interval

DELTA = 1e-6
PEER = str(Path(__file__).with_name("private_peers.py"))
MOST_CATEGORIES = 32
OURS, OWN_BINS, AIM = "PrivateSynthesizer", "PrivateSynthesizer, own bins", "AIM, dpmm"
PEERS = {AIM: "aim", "MST, dpmm": "mst", "PrivBayes, dpmm": "priv_bayes"}
MOST_OF_AIM = 6  # columns
OPEN = {"TabFlow": "combutab TabFlow", "independent columns": "independent columns"}
MODELS = (OURS, OWN_BINS, *PEERS, *OPEN)
ALL = 100  # columns, more than any table has
MOST, LOSS = 5 / 7, 0.03  # target values: of tables, and of a score
BARS = ("pairs at most the peer's", f"boosting at least the peer's - {LOSS}")
USUAL = ("magic", "shoppers", "default", "beijing", "diabetes130")
USUAL += ("california_housing", "PhishingWebsites")
SETTINGS = ("data", "run", "epsilon", "model", "rows", "columns", "bins")
SCORES = ("pairs", "boosting", "c2st")
RESULTS = ("task", "n_train", "n_test", *SCORES, "real", "seconds", "megabytes", "error")
SHOWN = (*SCORES, "seconds", "megabytes")
WORDS = {"pairs": "pairs (TV)", "c2st": "C2ST", "megabytes": "MB", "seconds": "CPU seconds"}


# ---- bins that are known beforehand ------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """What counts as known of a table: bounds of numbers, categories of the others.

    Attributes
    ----------
    edges : dict of column to ndarray
        Ends of the bins of numbers.
    categories : dict of column to list
    integers : set of columns
        Numbers that are integers.
    """

    edges: dict[str, np.ndarray]
    categories: dict[str, list[Any]]
    integers: set[str]

    @classmethod
    def of(cls, table: pd.DataFrame, n_bins: int) -> Domain:
        """Read bounds and categories off the whole file."""
        edges, integers = {}, set()
        for name in table.select_dtypes("number"):
            low, high = table[name].quantile([0.01, 0.99], interpolation="nearest")
            values = table[name].dropna().clip(low, high).unique()
            if len(values) <= n_bins:
                continue  # its values are categories
            edges[name] = np.linspace(low, high, n_bins + 1)
            if (values % 1 == 0).all():
                integers.add(name)
                edges[name] = np.unique(edges[name].round())
        categorical = [name for name in table if name not in edges]
        categories = {
            n: list(_texts(table[n]).value_counts().index[:MOST_CATEGORIES]) for n in categorical
        }
        return cls(edges, categories, integers)

    def bound(self, table: pd.DataFrame) -> pd.DataFrame:
        """Clip numbers; rare categories become "other"."""
        columns = {}
        for name, values in table.items():
            if name in self.edges:
                values = values.clip(self.edges[name][0], self.edges[name][-1])
                is_integer = name in self.integers and values.notna().all()
                columns[name] = values.round().astype("int64") if is_integer else values
            else:
                categories, texts = self.categories[name], _texts(values)
                texts = texts.where(texts.isin(categories) | values.isna(), "other")
                columns[name] = pd.Categorical(texts, categories=[*categories, "other"])
        return pd.DataFrame(columns)

    def sizes(self) -> np.ndarray:
        """Codes of each column, numbers first: bins or categories, "other", and the gap."""
        kinds = [len(categories) + 2 for categories in self.categories.values()]
        return np.array([*(len(e) for e in self.edges.values()), *kinds])

    def encode(self, table: pd.DataFrame) -> np.ndarray:
        """Bounded rows as codes, (n, n_columns)."""
        codes = []
        for name, edges in self.edges.items():
            values = table[name].to_numpy(float)
            bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
            codes.append(np.where(np.isnan(values), len(edges) - 1, bins))
        for name, categories in self.categories.items():
            values = table[name].cat.codes.to_numpy()
            codes.append(np.where(values < 0, len(categories) + 1, values))
        return np.column_stack(codes)

    def decode(self, codes: np.ndarray, columns: list[str], seed: int) -> pd.DataFrame:
        """Rows drawn uniformly within their bins."""
        rng, rows = np.random.default_rng(seed), {}
        for (name, edges), column_codes in zip(self.edges.items(), codes.T, strict=False):
            at = np.minimum(column_codes, len(edges) - 2)
            values = edges[at] + rng.random(len(column_codes)) * (edges[at + 1] - edges[at])
            values = np.floor(values) if name in self.integers else values
            rows[name] = np.where(column_codes == len(edges) - 1, np.nan, values)
        category_codes = codes.T[len(self.edges) :]
        for (name, categories), column_codes in zip(
            self.categories.items(), category_codes, strict=True
        ):
            category_index = np.where(column_codes == len(categories) + 1, -1, column_codes)
            rows[name] = pd.Categorical.from_codes(category_index, [*categories, "other"])
        return pd.DataFrame(rows)[columns]


def _texts(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.isna(), column.astype(str))


def pair_distance(first: np.ndarray, second: np.ndarray, sizes: np.ndarray) -> float:
    """Mean total variation distance of all two-way marginals of codes.

    >>> zeros, mixed = np.zeros((4, 2), int), np.array([[0, 0], [0, 0], [0, 0], [1, 1]])
    >>> pair_distance(zeros, mixed, np.array([2, 2]))
    0.25
    """
    distances = []
    for i, j in itertools.combinations(range(len(sizes)), 2):
        shares = [
            np.bincount(t[:, i] * sizes[j] + t[:, j], minlength=sizes[i] * sizes[j]) / len(t)
            for t in (first, second)
        ]
        distances.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(distances))


# ---- one run -----------------------------------------------------------------------------------


def measure(row: Row, home: str, python: str, limit: float, quick: bool) -> Found:
    """Train the model of a row of settings, and score its rows, in this process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    model, seed = row["model"], row["run"]
    table, target, classify = read_rows(row["data"], home)
    features = [column for column in table if column != target]
    table = table[[*features[: row["columns"] - 1], target]]
    domain = Domain.of(table, row["bins"])
    order = np.random.default_rng(seed).permutation(len(table))
    bounded = domain.bound(table).iloc[order].reset_index(drop=True)
    test = bounded[: len(table) // 5]
    real = bounded[len(test) :][: row["rows"]].reset_index(drop=True)
    codes, sizes = domain.encode(real), domain.sizes()
    task = Task(real, target, classify, seed, quick)
    if model in PEERS:
        words = [PEERS[model], row["epsilon"], f"{DELTA}", str(seed)]
        peer_codes, seconds, megabytes = _peer([python, PEER, *words], limit, codes, sizes)
        rows = domain.decode(peer_codes, list(real), seed)
    else:
        ours = partial(_private, domain, row["epsilon"], model == OWN_BINS), "combutab"
        maker = SYNTHESIZERS[OPEN[model]] if model in OPEN else ours
        rows, (*costs, megabytes) = make_rows(maker, task, time.process_time)
        rows, seconds = domain.bound(rows), sum(costs)
    result: Found = {"task": task.kind, "n_train": len(real), "n_test": len(test)}
    result |= {"pairs": pair_distance(codes, domain.encode(rows), sizes)}
    return result | judge(task, test, rows) | {"seconds": seconds, "megabytes": megabytes}


def _private(domain: Domain, epsilon: str, own_bins: bool, task: Task) -> Sample:
    floats = [name for name in domain.integers if task.table[name].dtype.kind == "f"]
    bounds = {name: (e[0], e[-1]) if own_bins else e for name, e in domain.edges.items()}
    public_facts = {"bounds": bounds, "decimals": dict.fromkeys(floats, 0)}
    budget = {"epsilon": float(epsilon), "delta": DELTA, "random_state": task.seed}
    model = combutab.PrivateSynthesizer(**budget, **public_facts, **task.short(epochs=2))
    return model.fit(task.table).sample


def _peer(
    command: list[str], limit: float, codes: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Codes that a peer made, its seconds, and by how many MB it grew."""
    with tempfile.TemporaryDirectory() as folder:
        input_file, output_file = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(input_file, codes=codes, sizes=sizes)
        subprocess.run([*command, str(input_file), str(output_file)], check=True, timeout=limit)
        output = np.load(output_file)
        return output["codes"], float(output["seconds"]), float(output["mebibytes"]) * 2**20 / 1e6


def judge(task: Task, test: pd.DataFrame, rows: pd.DataFrame) -> dict[str, float]:
    """What boosting learns from synthetic rows, and how well it tells them from real ones."""
    boosting = {"learners": "hist_gradient_boosting", "random_state": task.seed}
    real = {"real_train": task.table, "real_test": test, "target": task.target, "task": task.kind}
    learned = ml_efficacy(synthetic=rows, **real, **boosting).set_index(["source", "metric"])
    metric = "roc_auc" if task.classify else "r2"
    score, best = (float(learned.loc[(of, metric), "mean"]) for of in ("synthetic", "real"))
    c2st = detection(real=test, synthetic=rows[: len(test)], **boosting)["mean"].item()
    return {"boosting": score, "real": best, "c2st": float(c2st)}


def _jobs(arguments: Arguments) -> Iterator[Job]:
    names, home = wanted(arguments)
    if not arguments.data:
        names = [name for name in USUAL if name in names] or names
    quick = arguments.quick
    models = [model for model in arguments.models if model not in PEERS or arguments.dpmm]
    sizes = [*zip(arguments.rows, arguments.columns, strict=True)]
    sizes, levels = ([(200, 6)], [10.0]) if quick else (sizes, arguments.epsilons)
    runs = range(1 if quick else arguments.runs)
    for run, (n_rows, width), epsilon, name, model in itertools.product(
        runs, sizes, levels, names, models
    ):
        if model in OPEN and epsilon != levels[0]:
            continue  # they have no epsilon
        if model == AIM and width > MOST_OF_AIM:
            continue
        epsilon_text = "none" if model in OPEN else f"{epsilon:g}"
        row = dict(
            zip(
                SETTINGS,
                (name, run, epsilon_text, model, n_rows, width, arguments.bins),
                strict=True,
            )
        )
        measure_arguments = (row, home, arguments.dpmm, arguments.limit, quick)
        yield Job(
            [row],
            partial(run_apart, "benchmarks.quality.private:measure", measure_arguments, quick),
        )


# ---- the page ----------------------------------------------------------------------------------


def same_runs(rows: pd.DataFrame, score: str, peer: str) -> pd.DataFrame:
    """Scores of ours and of a peer by size, epsilon and table, means over the runs of both."""
    wide = rows.pivot_table(score, ["columns", "epsilon", "data", "run"], "model")
    both = wide.reindex(columns=[OURS, peer]).dropna()
    return both.groupby(["columns", "epsilon", "data"]).mean()


def _against(peer: str, score: str, allowance: float = 0.0) -> Callable[[pd.DataFrame, float], Any]:
    """Judge ours beside a peer on the tables that both were run on."""

    def judge(rows: pd.DataFrame, margin: float) -> Verdict | None:
        both = same_runs(rows, score, peer)
        if both.empty:
            return None
        return beats(both[OURS] + allowance, both[peer], margin, greater_is_better=score != "pairs")

    return judge


def beside_peers(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over tables of ours and each peer, in the runs that both have, and target values."""
    table_rows = []
    for peer in PEERS:
        pairs, boosting = (same_runs(rows, score, peer) for score in ("pairs", "boosting"))
        runs = rows[rows["model"] == peer].groupby(["columns", "epsilon"])["run"].nunique()
        for at in sorted(
            pairs.index.droplevel("data").unique(), key=lambda at: (at[0], float(at[1]))
        ):
            pair_scores, boosting_scores = pairs.loc[at], boosting.loc[at]
            nearer, n = (pair_scores[OURS] <= pair_scores[peer]).sum(), len(pair_scores)
            close = (boosting_scores[OURS] >= boosting_scores[peer] - LOSS).sum()
            table_rows.append(
                {"peer": peer, "columns": _width(at[0]), "epsilon": at[1], "tables": n}
            )
            table_rows[-1] |= {"runs": runs[at]}
            for score, scores in (("pairs", pair_scores), ("boosting", boosting_scores)):
                table_rows[-1] |= {
                    score: scores[OURS].mean(),
                    f"{score}, peer": scores[peer].mean(),
                }
            is_judged = peer == AIM and n == len(USUAL)
            verdicts = (
                _met(nearer, n, MOST * n * is_judged),
                _met(close, n, n * (is_judged and float(at[1]) == 1)),
            )
            table_rows[-1] |= dict(zip(BARS, verdicts, strict=True))
    return pd.DataFrame(table_rows).set_index("peer") if table_rows else pd.DataFrame()


def without_privacy(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over tables of the models without privacy, over all runs."""
    table_rows = []
    for (model, width), model_rows in rows[rows["model"].isin(OPEN)].groupby(["model", "columns"]):
        scores = model_rows.groupby("data")[["pairs", "boosting"]].mean()
        table_rows.append({"model": model, "columns": _width(width), "tables": len(scores)})
        table_rows[-1] |= {"runs": model_rows["run"].nunique(), **scores.mean()}
    return pd.DataFrame(table_rows).set_index("model") if table_rows else pd.DataFrame()


def _width(columns: int) -> str:
    return f"{columns}" if columns < ALL else "all"


def _met(count: int, n: int, target: float) -> str:
    """
    >>> _met(4, 7, 5), _met(4, 7, 0)
    ('4 of 7: missed', '4 of 7')
    """
    return f"{count} of {n}" + (": met" if count >= target else ": missed") * bool(target)


CLAIMS = [
    claim
    for peer in PEERS
    for claim in (
        Claim(f"against {peer}", "The error of two-way marginals is smaller", "table",
              _against(peer, "pairs"), 0.0, "pairs"),
        Claim(f"against {peer}", f"The score of boosting is at most {LOSS} lower", "table",
              _against(peer, "boosting", LOSS), 0.0, f"boosting + {LOSS}"),
    )
]  # fmt: skip


def _write(page: Page, _: Arguments, rows: pd.DataFrame) -> None:
    failed, rows = rows[rows["error"] != ""], rows[rows["error"] == ""]
    rows = rows.assign(epsilon=rows["epsilon"].astype(str), place=rows["model"].map(MODELS.index))
    rows["level"] = rows["epsilon"].replace("none", "inf").astype(float)
    rows = rows.sort_values(["columns", "level", "place"], kind="stable")
    missing = [model for model in MODELS if model not in set(rows["model"])]
    page.text(*[f"Not run: {'; '.join(missing)}."] * bool(missing))
    levels = rows[rows["epsilon"] != "none"].groupby(["columns", "epsilon"], sort=False)
    samples = {f"{_width(w)} columns, epsilon {e}": group for (w, e), group in levels}
    add_claims(page, CLAIMS, samples)
    for title, group in (
        ("Means over tables, in the runs that both have:", beside_peers(rows)),
        ("Without privacy:", without_privacy(rows)),
    ):
        if len(group):
            page.text(title)
            page.table([group.index.name, *group], lines(group.astype(object), number))
    page.heading("By table")
    for (name, width), group in rows.groupby(["data", "columns"], sort=False):
        first = group.iloc[0]
        kind = "R2" if first["task"] == "regression" else "ROC AUC"
        counts = f"{first['n_train']} training rows, {first['n_test']} test rows"
        summary = f"{name}, {_width(width)} columns: {counts}"
        with page.details(f"{summary}; {kind} {group['real'].mean():.3f} after the training rows"):
            cells = [
                [*key, *map(_cell, (one[column] for column in SHOWN))]
                for key, one in group.groupby(["epsilon", "model"], sort=False)
            ]
            page.table(["epsilon", "model", *(WORDS.get(c, c) for c in SHOWN)], cells)
    add_failures(page, failed, SETTINGS)


def _cell(values: pd.Series) -> str:
    """
    >>> _cell(pd.Series([0.1, 0.2, 0.3], name="pairs")), _cell(pd.Series([12.0], name="seconds"))
    ('0.200 [-0.048, 0.448]', '12')
    """
    if values.isna().all():
        return "—"
    if values.name in ("seconds", "megabytes"):
        return f"{values.mean():,.0f}"
    if values.nunique() < 2:
        return f"{values.mean():.3f}"
    low, high = t_interval(values)[1:]
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


ROWS = Experiment("quality_private", SETTINGS, RESULTS, _jobs, packages=("opendp", "cpu"))
EPSILONS = {"type": float, "nargs": "+", "default": [1.0, 10.0, 0.3, 3.0]}
SIZES = {name: {"type": int, "nargs": "+", "default": default}
         for name, default in (("rows", [5_000, 10_000]), ("columns", [6, ALL]))}  # fmt: skip
OPTIONS = {"data": DATA, "runs": 5, **SIZES, "bins": 16}
OPTIONS |= {"epsilons": EPSILONS, "models": MODELS, "limit": 900.0}
OPTIONS |= {"dpmm": {"metavar": "PYTHON"}}
TITLE = "Synthetic tables with differential privacy"
STUDY = Study("benchmarks.quality.private", TITLE, __doc__, [ROWS], _write, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
