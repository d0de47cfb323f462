"""The headline numbers: scores computed independently from the stored rows, and what is quoted."""

import math
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t, wilcoxon

from benchmarks import headlines
from benchmarks.quality import imputation
from benchmarks.speed.scaling import exponents

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "HEADLINES.md"
FOUR = ["scikit-learn MLP", "HistGradientBoosting", "CatBoost", "RealMLP-TD"]
EIGHT = {"autoMpg", "boston", "breast-w", "california_housing", "diabetes", "wdbc"}
EIGHT |= {"PhishingWebsites", "wine_quality"}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w,.]*\d)")


def table_of(study, name):
    return pd.read_csv(ROOT / "benchmarks" / study / "results" / f"{name}.csv.gz")


def number(text):
    return float(text.replace(",", "")) if text not in ("", "—") else math.nan


def page():
    """Section -> caption -> rows of cells by column; the first column is the name "of"."""
    found = defaultdict(dict)
    section = caption = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line[1:-1].split(" | ")]
            if caption not in found[section]:
                head, found[section][caption] = ["of", *cells[1:]], []
            elif not cells[0].startswith("---"):
                found[section][caption].append(dict(zip(head, cells, strict=True)))
        elif line.startswith("<summary>"):
            caption = line.removeprefix("<summary>").removesuffix("</summary>")
    return found


def shown(text, value, slack=0.0):
    """Whether a cell's first number is the value, to the digits that it shows."""
    if math.isnan(value):
        return text in ("", "—")
    digits = len(text.split()[0].partition(".")[2].partition("e")[0])
    exponent = int(text.split()[0].partition("e")[2] or 0)
    least = 0.5001 * 10.0 ** (exponent - digits)
    if digits == 0 and abs(value) >= 1000:  # three digits of a large number
        least = 0.5001 * 10.0 ** max(0, math.floor(math.log10(abs(value))) - 2)
    return abs(number(text.split()[0].strip("[]")) - value) <= least + slack


def mean_and_interval(text, logs):
    """Whether a cell is a geometric mean with the interval of a bootstrap."""
    if not shown(text, math.exp(np.mean(logs))):
        return False
    draws = np.random.default_rng(1).choice(logs, (4000, len(logs))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    told = map(number, re.search(r"\[(.+), (.+)\]", text).groups())
    slack = 0.1 * (high - low)
    return all(
        abs(a - math.exp(b)) < 6e-4 + slack * a for a, b in zip(told, (low, high), strict=True)
    )


# ---- what each section is, by its own arithmetic -------------------------------------------------


SCORES = ["test_error", "log_loss", "seconds"]


def rows_of(size):
    """The rows of the splits that our defaults have run on, with seconds where ours have them."""
    rows = table_of("quality", "quality_predictions")
    rows = rows[rows["rows"] == int(size)]
    ours = rows.loc[rows["model"] == "combutab", ["data", "split", "seconds"]]
    assert ours["data"].nunique() == (21 if size == "10000" else 39)
    rows = rows.merge(ours, on=["data", "split"], suffixes=("", " of ours"))
    rows.loc[rows["seconds of ours"].isna(), "seconds"] = np.nan
    return rows


def errors_of(rows):
    """Means over splits by model and table; and the task of the table."""
    rows = rows.copy()
    least = np.where(rows["task"] == "classification", 0.5 / rows["n_test"], 0)
    rows["test_error"] = np.maximum(rows["test_error"], least)
    return rows.groupby(["model", "data", "task"])[SCORES].mean().reset_index("task")


def over_best(found, model, which, names, task=""):
    """Logarithms of ratios to the best of the four peers, or of seconds to RealMLP-TD's."""
    peers = found.loc[FOUR[3:] if which == "seconds" else FOUR, which].groupby("data").min()
    own = found.loc[model]
    own = own[own.index.isin(names) & own["task"].str.startswith(task)]
    return np.log(own[which] / peers).dropna()


COLUMNS = {"error": ("test_error", ""), "classification": ("test_error", "c")}
COLUMNS |= {"regression": ("test_error", "r"), "log loss": ("log_loss", "")}
COLUMNS |= {"seconds / RealMLP-TD": ("seconds", "")}


def test_predictions():
    tables = page()["Predictions"]
    for size in ("500", "10000", "3000"):
        found = errors_of(rows_of(size))
        names_of = found.reset_index("data").groupby(level="model")["data"].agg(set)
        captions = [each for each in tables if f"{size} training rows" in each]
        assert len(captions) == (2 if size == "3000" else 1)
        for caption in captions:
            names = EIGHT if "8 tables" in caption else names_of["combutab"]
            rows = rows_of(size)
            rows = rows[rows["data"].isin(names)]
            models = {model for model, own in names_of.items() if names <= own}
            if "8 tables" in caption:  # splits that all of them have
                rows = rows[rows["model"].isin(models)]
                ran = rows.groupby(["data", "split"])["model"].transform("nunique")
                rows = rows[ran == len(models)]
            else:  # models that have all splits
                ran = rows.groupby("model").size()
                models &= {*ran.index[ran == ran["combutab"]]}
            assert {row["of"] for row in tables[caption]} == models
            rows = rows[rows["model"].isin(models)]
            here = errors_of(rows)
            ranks = (
                rows.groupby(["data", "split"])["test_error"].rank().groupby(rows["model"]).mean()
            )
            costs = rows.groupby("model")[["seconds", "megabytes"]].median()
            for row in tables[caption]:
                assert shown(row["mean rank"], ranks[row["of"]])
                assert shown(row["seconds"], costs.loc[row["of"], "seconds"])
                assert shown(row["MB"], costs.loc[row["of"], "megabytes"])
                for column, (which, task) in COLUMNS.items():
                    if size == "10000" and which == "seconds":  # nothing was timed
                        continue
                    logs = over_best(here, row["of"], which, names, task)
                    assert mean_and_interval(row[column], logs), (caption, row["of"], column)
                errors = np.exp(over_best(here, row["of"], "test_error", names))
                assert shown(row["median error"], np.median(errors))
        beside(rows_of(size), tables[f"At most {size} rows, as ratios to our defaults"])
    kept = rows_of(size)
    kept = kept[kept["data"].isin(names_of["combutab Pack, 5 s"])]
    beside(kept, tables["Packs with a time limit, at most 3000 rows, as ratios to our defaults"])
    behind = tables[
        "Tables on which our error is at least 10 % above the best peer's, at most 3000 rows"
    ]
    errors = found["test_error"].unstack("model")
    ratios = errors.div(errors[FOUR].min(axis=1), axis=0)
    assert {row["of"] for row in behind} == set(ratios.index[ratios["combutab"] >= 1.1])
    for row in behind:
        assert shown(row["combutab"], ratios.loc[row["of"], "combutab"])
        assert shown(row["combutab Pack"], ratios.loc[row["of"], "combutab Pack"])
        assert row["best peer"] == errors.loc[row["of"], FOUR].idxmin()


def beside(rows, table):
    """Check ratios to our defaults, on the tables and splits that both models have."""
    p = {}
    for row in table:
        both = rows[rows["model"] == row["of"]][["data", "split"]]
        found = errors_of(rows.merge(both, on=["data", "split"]))
        ratios = np.log(found.loc[row["of"], SCORES] / found.loc["combutab", SCORES])
        logs = ratios["test_error"].dropna()
        assert row["tables"] == str(len(logs))
        assert mean_and_interval(row["error"], logs)
        assert mean_and_interval(row["log loss"], ratios["log_loss"].dropna())
        assert row["better / worse"] == f"{(logs < 0).sum()} / {(logs > 0).sum()}"
        assert shown(row["seconds"], math.exp(ratios["seconds"].mean()))
        p[row["of"]] = wilcoxon(logs[logs != 0]).pvalue
    least = 0.0
    for i, name in enumerate(sorted(p, key=p.get)):  # Holm
        least = max(least, min(1.0, (len(p) - i) * p[name]))
        (row,) = (row for row in table if row["of"] == name)
        assert number(row["p"]) == pytest.approx(least, rel=0.3, abs=0.006)


def test_bars_that_are_missed_stand_beside_those_that_are_met():
    caption = "Target values set for the means; they meet 10 of 22"
    bars = page()["Predictions"][caption]
    met = 0
    for row in bars:
        column, most = row["target value"].split(" at most ")
        for size in ("500", "3000", "10000"):
            found = errors_of(rows_of(size))
            which, task = COLUMNS[column]
            if size == "10000" and which == "seconds":  # nothing was timed
                assert row["10000 rows"] == "not judged"
                continue
            logs = over_best(found, row["of"], which, found.loc["combutab"].index, task)
            mean, word = math.exp(logs.mean()), row[f"{size} rows"]
            assert shown(word.partition(":")[0], mean)
            assert (": met" in word) == (mean <= float(most)) != (": missed" in word)
            half = t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
            gap = math.log(float(most)) - logs.mean()
            if abs(abs(gap) - half) > 0.06 * half:
                words = {gap > half: "(holds over", gap < -half: "(does not hold"}
                assert words.get(True, "(not de") in word
            met += ": met" in word
    assert (len(bars), met) == (8, 10)


@pytest.mark.parametrize("name", ["speed_fit", "speed_generators"])
def test_stored_ratios_are_those_of_the_stored_seconds(name):
    rows = table_of("speed", name)
    steps = {"preprocessing": "before, s", "epoch": "epochs, s", "sample": "sample, s"}
    for column in rows.filter(like=" / ours"):
        if name == "speed_fit":
            peer, _, network = column.replace(",", "").partition(" / ours ")
            seconds, ours = rows[f"{peer} {network}"], rows[f"ours {network}"]
        else:
            model, _, step = column.partition(":")[0].rpartition(" ")
            seconds, ours = (
                rows[f"{package} {model or 'CTGAN'} {steps[step]}"]
                for package in ("ctgan", "combutab")
            )
        np.testing.assert_allclose(rows[column], seconds / ours, rtol=1e-6)


def test_exponents_of_powers():
    sizes = np.array([1.0, 10.0, 100.0, 1000.0])
    points = pd.DataFrame({"dimension": "rows", "size": sizes, "seconds": sizes**2})
    points["megabytes"] = [1.0, 100.0, 100.0, 1000.0]
    row = exponents(points).loc["rows"]
    expected = {"seconds": 2.0, "seconds, steepest": 2.0}
    expected |= {"megabytes": 1.0, "megabytes, steepest": 2.0}
    assert row.to_dict() == pytest.approx(expected)


def test_imputation_errors_are_averaged_over_tables():
    rows = pd.DataFrame({"model": ["a", "a", "b"], "data": ["x", "y", "x"], "coverage": 0.9})
    rows[[*imputation.RESULTS[3:]]] = rows.reindex(columns=imputation.RESULTS[3:]).fillna(1.0)
    rows["rmse_ratio"] = [2.0, 8.0, 3.0]
    rows["rmse_ratio_low"] = [1.5, 0.5, 2.0]
    found = imputation.summary(rows)
    assert found[imputation.WORDS["rmse_ratio"]].to_dict() == pytest.approx({"a": 4.0, "b": 3.0})
    assert found.filter(like="better").iloc[:, 0].to_dict() == {"a": "1 of 2", "b": "1 of 1"}


def test_synthetic_rows():
    rows = table_of("quality", "quality_generators").query("error.isna()")
    for learner in ("boosting", "linear"):
        rows[learner] = rows[f"{learner}_mae"].fillna(1 - rows[f"{learner}_accuracy"])
    likeness = ["c2st", "closest", "shapes", "pairs", "sample_seconds", "megabytes"]
    columns = ["boosting", "linear", "n_train", "n_test", *likeness]
    cells = rows.groupby(["model", "data"])[columns].mean()
    timed = rows.groupby(["model", "data", "cpu"])["fit_seconds"].mean()
    real, tvae = cells.loc["real rows"], cells.loc["combutab TVAE"]

    def gaps(own, learner):
        least = np.maximum(0.01 * real[learner], 0.5 / own["n_test"])
        return np.maximum(own[learner] - real[learner], least).loc[own.index]

    def over_tvae(own, learner="boosting"):
        return math.exp(np.log(gaps(own, learner) / gaps(tvae, learner)).mean())

    *tables, same = page()["Synthetic rows"].items()
    large = set(real.index[real["n_train"] >= 1000])
    for (_, table), among in zip(tables, (set(real.index), large), strict=True):
        assert {row["of"] for row in table} == set(cells.index.unique("model"))
        for row in table:
            own = cells.loc[row["of"]]
            own = own[own.index.isin(among)]
            assert row["tables"] == str(len(own))
            for learner in ("boosting", "linear"):
                assert shown(row[f"gap / TVAE, {learner}"], over_tvae(own, learner))
            means = [*own[likeness[:4]].mean(), *own[likeness[4:]].median()]
            for column, value in zip(likeness, means, strict=True):
                assert shown(row[column], value)
            ratios = (timed.loc[row["of"]] / timed.loc["combutab TVAE"]).dropna()
            ratios = ratios[ratios.index.isin(among, level="data")]
            assert shown(row["fit / TVAE"], math.exp(np.log(ratios).mean()))
    for row in same[1]:
        own, flow = cells.loc[row["of"]], cells.loc["combutab TabFlow"]
        own = own[own.index.isin(large)]
        flow = flow.loc[own.index]
        assert shown(row["gap"], over_tvae(own))
        assert shown(row["gap of TabFlow"], over_tvae(flow))
        assert shown(row["C2ST"], own["c2st"].mean())
        assert shown(row["C2ST of TabFlow"], flow["c2st"].mean())


def test_private_rows():
    rows = table_of("quality", "quality_private").query("error.isna()").astype({"epsilon": str})
    rows["columns"] = rows["columns"].astype(str).replace("100", "all")
    keys = ["model", "columns", "epsilon"]
    rows = rows.set_index([*keys, "data", "run"])[["pairs", "boosting"]].sort_index()
    beside, alone = page()["Private rows"].values()
    assert {(r["of"], r["columns"], r["epsilon"]) for r in beside} == {
        key[:3] for key in rows.index if key[0].endswith(", dpmm")
    }
    for told in beside:
        at = told["columns"], told["epsilon"]
        ours, peer = (rows.loc[(model, *at)] for model in ("PrivateSynthesizer", told["of"]))
        both = ours.index.intersection(peer.index)
        assert told["runs"] == str(both.unique("run").size)
        ours, peer = (each.loc[both].groupby("data").mean() for each in (ours, peer))
        n, of_aim = len(ours), told["of"] == "AIM, dpmm" and len(ours) == 7
        assert told["tables"] == str(n)
        for score in ("pairs", "boosting"):
            assert shown(told[score], ours[score].mean())
            assert shown(told[f"{score}, peer"], peer[score].mean())
        nearer = (ours["pairs"] <= peer["pairs"]).sum()
        close = (ours["boosting"] >= peer["boosting"] - 0.03).sum()
        words = (": met" if nearer >= 5 / 7 * n else ": missed") if of_aim else ""
        assert told["pairs at most the peer's"] == f"{nearer} of {n}{words}"
        words = (": met" if close == n else ": missed") if of_aim and at[1] == "1" else ""
        assert told["boosting at least the peer's - 0.03"] == f"{close} of {n}{words}"
    assert {(r["of"], r["columns"]) for r in alone} == {
        key[:2] for key in rows.index if key[2] == "none"
    }
    for told in alone:
        own = rows.loc[(told["of"], told["columns"], "none")]
        assert told["runs"] == str(own.index.unique("run").size)
        own = own.groupby("data").mean()
        assert told["tables"] == str(len(own))
        assert shown(told["pairs"], own["pairs"].mean())
        assert shown(told["boosting"], own["boosting"].mean())


def test_the_page_is_what_the_rows_give():
    assert str(headlines.page()) == PAGE.read_text("utf-8"), "run python -m benchmarks.headlines"
    assert set(page()) == set(headlines.SECTIONS)


# ---- what is quoted ------------------------------------------------------------------------------

OTHER_NAMES = {"a pack": "combutab Pack", "ours": "combutab", "scikit-learn's MLP": FOUR[0]}
OTHER_NAMES |= {"the CombU paper's recipe": "combutab, paper", "our TabM": "combutab TabM"}
OTHER_NAMES |= {"a default network": "default", "`combutab, one network`": "combutab, one network"}
OTHER_NAMES |= {"TabFlow": "combutab TabFlow", "our TVAE": "combutab TVAE"}
OTHER_NAMES |= {"our CTGAN": "combutab CTGAN", "`ctgan` TVAE": "ctgan TVAE"}
OTHER_NAMES |= {"`ctgan` CTGAN": "ctgan CTGAN", "TabularARGN": "mostlyai TabularARGN"}
OTHER_NAMES |= {"GaussianCopula": "sdv GaussianCopula", "TabDiff": "TabDiff, published"}
OTHER_NAMES |= {"TabPC": "TabPC, published"}


def quotes():
    """Each text that quotes numbers, with its section here: lines of README and the docs."""
    titles = {title.lower().replace(" ", "-"): title for title in headlines.SECTIONS}
    found = []
    for name, begin, end in (
        ("README.md", "Mean test error", "## Try it"),
        ("README.md", "## Numbers", "## Where to go next"),
        ("benchmarks/README.md", "## Last results", None),
        ("docs/choose.md", "[headline numbers]", "### How the defaults"),
    ):
        text = (ROOT / name).read_text("utf-8").partition(begin)[2]
        text = text.partition(end)[0] if end else text
        section = "predictions"
        for part in re.split(r"\n(?=[|-])|\n\n", text):
            if "WHICH_ACTIVATION" not in part:  # which has a test of its own
                anchor = re.search(r"HEADLINES\.md#([\w-]+)", part)
                section = anchor[1] if anchor else section
                part = re.sub(r"\]\([^)]*\)|torch [\d.]+|\(family[^)]*\)", "]", part)
                found.append((name, part, titles[section]))
    return found


def near(quoted, told):
    digits = len(quoted.partition(".")[2])
    return abs(number(quoted) - told) <= 0.5001 * 10.0**-digits


def numbers(text):
    return [number(each) for each in NUMBER.findall(text)]


def test_what_is_quoted_is_in_the_page():
    text = PAGE.read_text("utf-8")
    seen = 0
    for place, quote, section in quotes():
        own = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
        cells = [row for table in page()[section].values() for row in table]
        around = [line for line in own.splitlines() if not re.match(r"\| (?!.*\| ---)", line)]
        heads = {key for row in cells for key in row}
        context = numbers(" ".join([*around, *heads, *(row["of"] for row in cells)]))
        names = {**OTHER_NAMES, **{row["of"]: row["of"] for row in cells}}
        by_length = sorted(map(re.escape, names), key=len, reverse=True)
        of = None
        for found in re.finditer(
            rf"({'|'.join(by_length)})(?!\w)|({NUMBER.pattern})|[;.:|]\s", quote
        ):
            if found[1]:
                of = names[found[1]]
            elif not found[2]:
                of = None
            else:
                rows = [row for row in cells if of is None or row["of"] == of]
                told = numbers(" ".join(v for row in rows for k, v in row.items() if k != "of"))
                seen += 1
                assert any(near(found[2], each) for each in [*told, *context]), (
                    f"{place}: {found[2]} of {of} is not in {section}: {quote}"
                )
    assert seen > 100


def test_what_is_quoted_of_activations_is_on_their_page():
    readme = (ROOT / "README.md").read_text("utf-8")
    (quote,) = (line for line in readme.splitlines() if line.startswith("| which activation"))
    told = numbers((ROOT / "benchmarks" / "WHICH_ACTIVATION.md").read_text("utf-8"))
    quoted = NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", quote))
    assert quoted
    assert all(any(near(each, value) for value in told) for each in quoted)
