"""The studies' reports: hand-worked cells, ranks and comparisons, and files that are whole."""

from __future__ import annotations

import importlib
import math
import os
from argparse import Namespace

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers.combu import figures
from benchmarks.papers.combu import report_numbers as numbers
from benchmarks.papers.combu import report_text as text
from benchmarks.papers.combu.expected import ACTIVATIONS, TABLES, load_expected
from benchmarks.papers.combu.report import (
    TablePage,
    across_text,
    judge_advantage,
    judge_cells,
    judge_lines,
    judge_ranks,
    write_figure2,
)
from benchmarks.papers.common.page import Page

METRICS = {"regression": ("mae", "mse"), "classification": ("accuracy", "f1")}
SEVEN = tuple(ACTIVATIONS)
STUDIES = {n: f"benchmarks.papers.combu.{table.name}" for n, table in TABLES.items()}


def fits(data, activation, scores, *, task="regression", protocol="paper", seeds=None, **columns):
    """Rows of one activation: ``scores`` of both metrics, a seed each, or splits of ``seeds``."""
    table = []
    for i, score in enumerate(scores):
        split, seed = divmod(i, seeds) if seeds else (0, i)
        row = {"protocol": protocol, "data": data, "task": task, "activation": activation}
        row |= {"split": split, "seed": seed, "n_train": 80, "n_test": 20, "seconds": 36.0}
        row |= dict.fromkeys(("mae", "mse", "accuracy", "f1"), np.nan)
        row |= dict.fromkeys(METRICS[task], score)
        row |= {"target_std_train": 1.0, "target_std_all": 1.0, "error": ""}
        table.append(row | columns)
    return table


def failing(row, message="the loss is not finite"):
    return row | {"mae": np.nan, "mse": np.nan, "error": message}


def make_rows(*parts):
    return pd.DataFrame([row for part in parts for row in part])


def write_report(rows, *, table, out, name="study", command="python study.py"):
    """A page as its study writes it; the files."""
    page = Page(name, "A study", command)
    claims = importlib.import_module(STUDIES[table]).CLAIMS if table else ()
    TablePage(name, table, claims)(page, Namespace(out=out), rows)
    page.write(out)
    return sorted(out.iterdir())


def make_cells(*parts):
    return numbers.make_cells(make_rows(*parts))


def compared(*parts, table=3):
    comparison = numbers.compare_with_paper(make_cells(*parts), load_expected(table))
    return comparison.set_index(["metric", "activation"])


def table3_rows(activations=SEVEN, protocols=("paper",), curves=False):
    """A whole study's rows with numbers near the paper's."""
    rng = np.random.default_rng(0)
    parts = []
    for protocol in protocols:
        for data in TABLES[3].data:
            for task, base in (("regression", 0.1), ("classification", 0.9)):
                for i, name in enumerate(activations):
                    many = {} if protocol == "paper" else {"seeds": 2}
                    scores = base + 0.001 * i + 0.001 * rng.standard_normal(6)
                    curve = " ".join(f"{2.0 - i / 10 + 1 / (block + 1):.4g}" for block in range(5))
                    extra = {"loss_curve": curve, "metric_curve": curve, "curve_block": 2}
                    parts += fits(
                        data, name, scores, task=task, protocol=protocol, **many,
                        **(extra if curves else {}),
                    )  # fmt: skip
    return pd.DataFrame(parts)


# --- cells ---


def test_a_cell_is_the_mean_and_spread_over_seeds_in_the_papers_units():
    cells = make_cells(
        fits("gs", "relu", [1.0, 2.0, 6.0]),
        fits("gs", "relu", [0.5, 0.7], task="classification"),
    ).set_index("metric")
    assert cells.loc["mae", ["mean", "runs", "failed"]].tolist() == [3.0, 3, 0]
    assert cells.loc["mae", "sd"] == pytest.approx(math.sqrt(7))  # 4 + 1 + 9 over 2
    assert cells.loc["mae", "sd0"] == pytest.approx(math.sqrt(14 / 3))
    assert cells.loc["f1", "mean"] == pytest.approx(60.0)
    assert cells.loc["f1", "sd"] == pytest.approx(10 * math.sqrt(2))


def test_seeds_are_averaged_within_splits():
    cells = make_cells(fits("gs", "relu", [1.0, 3.0, 5.0, 7.0], seeds=2))
    assert cells["mean"].tolist() == [4.0, 4.0]
    assert cells["sd"].tolist() == pytest.approx([math.sqrt(8)] * 2)  # of 2 and 6


def test_one_run_has_no_standard_deviation():
    cells = make_cells(fits("gs", "relu", [0.5]))
    assert cells[["sd", "sd0"]].isna().all(axis=None)
    assert "| 0.500 |" in text.our_table(cells, ["relu"], None).replace("*", "")


def test_a_failed_run_empties_its_cell():
    good, bad = fits("gs", "relu", [0.5, 0.6])
    cells = make_cells([good, failing(bad)], fits("gs", "elu", [0.7, np.inf]))
    assert cells["failed"].tolist() == [1, 1, 1, 1]
    assert cells[["mean", "sd", "sd0"]].isna().all(axis=None)
    shown = text.our_table(cells, ["relu", "elu"], None)
    assert shown.count("failed 1 of 2") == 4


def test_a_study_without_rows_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        numbers.make_cells(make_rows(fits("gs", "relu", [1.0])).iloc[:0])


def test_cells_are_put_into_the_papers_order():
    cells = make_cells(
        fits("other", "relu", [1.0]),
        fits("ar", "pln-8", [1.0]),
        fits("ar", "combu", [1.0]),
        fits("ar", "relu", [1.0], protocol="sound"),
        fits("gs", "relu", [1.0]),
    )
    cells = numbers.sort_cells(cells, TABLES[3])
    cells = cells[cells["metric"] == "mae"]
    assert cells["data"].tolist() == ["gs", "ar", "ar", "other", "ar"]
    assert cells["activation"].tolist() == ["relu", "combu", "pln-8", "relu", "relu"]
    assert numbers.order_activations(["z", "combu", "a", "relu"]) == ["relu", "combu", "z", "a"]


# --- beside the paper's ---


def test_a_cell_is_reproduced_within_two_pooled_standard_deviations():
    table = compared(
        fits("gs", "relu", [0.09, 0.11]),  # paper 0.088 ± 0.011; pooled sd 0.01267
        fits("gs", "combu", [0.10, 0.11]),  # paper 0.073 ± 0.005; pooled sd 0.00612
        fits("gs", "elu", [0.134, 0.174]),  # paper 0.114 ± 0.013; 0.02201, ddof 0: 0.01687
    ).loc["mae"]
    assert table["difference"].tolist() == pytest.approx([0.012, 0.032, 0.040])
    assert table["pooled_sd"].tolist() == pytest.approx(
        [math.sqrt(0.000321 / 2), math.sqrt(0.000075 / 2), math.sqrt(0.000969 / 2)]
    )
    assert table["reproduced"].tolist() == [True, False, True]
    assert table["reproduced_ddof0"].tolist() == [True, False, False]


def test_a_mean_that_rounds_to_the_papers_is_reproduced_without_any_spread():
    # paper 97.14 ± 0.00, which is 136 of 140
    same = fits("breast-w", "elu", [136 / 140] * 2, task="classification")
    assert compared(same, table=5).loc[("accuracy", "elu"), "reproduced"]
    other = fits("breast-w", "elu", [135 / 140] * 2, task="classification")
    assert not compared(other, table=5).loc[("accuracy", "elu"), "reproduced"]


def test_exactly_two_pooled_standard_deviations_are_within():
    # paper 97.14 ± 0.00: the pooled sd is ours over the root of 2; runs at m ± h have it at h
    half = 0.005
    mean = 0.9714 - 2 * half
    table = compared(
        fits("breast-w", "elu", [mean - half, mean + half], task="classification"), table=5
    )
    assert table.loc[("accuracy", "elu"), "difference"] == pytest.approx(-1.0)
    assert table.loc[("accuracy", "elu"), "pooled_sd"] == pytest.approx(0.5)
    assert table.loc[("accuracy", "elu"), "reproduced"]


def test_lost_cells_failed_fits_single_runs_and_further_activations_are_not_judged():
    good, bad = fits("breast-w", "elu", [0.97, 0.97], task="classification")
    table = compared(
        fits("breast-w", "relu", [0.97, 0.98], task="classification"),  # lost in the text
        [good, bad | {"error": "diverged"}],
        fits("breast-w", "swish", [0.96], task="classification"),
        fits("breast-w", "pln-8", [0.96, 0.97], task="classification"),
        table=5,
    )
    assert table["reproduced"].isna().all()
    assert table.loc[("f1", "relu"), "note"] == "lost in the text"
    assert table.loc[("f1", "swish"), "difference"] == pytest.approx(96 - 95.16)
    counted = numbers.count_reproduced(table.reset_index())
    assert counted.empty
    assert text.counts_table(table.reset_index(), TABLES[5]) == "No cell can be compared."


def test_reproduced_cells_are_counted_by_data_set_and_metric():
    rows = [fits("gs", name, [0.09, 0.11]) for name in ("relu", "combu", "pln-8")]
    comparison = compared(*rows).reset_index()
    counts = numbers.count_reproduced(comparison).set_index("metric")
    # MAE: 0.1 ± 0.014 against 0.088 ± 0.011 and 0.073 ± 0.005; MSE against 0.017 and 0.014
    assert counts.loc["mae", ["reproduced", "compared"]].tolist() == [1, 2]
    assert counts.loc["mse", ["reproduced", "compared"]].tolist() == [0, 2]
    shown = text.counts_table(comparison, TABLES[3])
    assert "| GS | 1 of 2 | 0 of 2 | 1 of 4 |" in shown
    alone = text.counts_table(comparison[comparison["activation"] == "relu"], TABLES[3])
    assert "| median size of the difference | 0.012 | 0.083 |  |" in alone


def test_orders_are_correlated_over_the_activations_that_both_have():
    # the paper's order on GS by MAE: combu 0.073, nlrelu 0.078, relu 0.088
    alike = [fits("gs", n, [x]) for n, x in (("combu", 0.1), ("nlrelu", 0.2), ("relu", 0.3))]
    other = [fits("gs", "pln-8", [0.0])]
    row = numbers.rank_correlations(compared(*alike, *other).reset_index()).iloc[0]
    assert (row["n"], row["kendall"], row["spearman"]) == (3, pytest.approx(1), pytest.approx(1))
    swapped = [fits("gs", n, [x]) for n, x in (("combu", 0.2), ("nlrelu", 0.1), ("relu", 0.3))]
    row = numbers.rank_correlations(compared(*swapped).reset_index()).iloc[0]
    assert (row["kendall"], row["spearman"]) == (pytest.approx(1 / 3), pytest.approx(0.5))
    tied = [fits("gs", name, [0.1]) for name in ("combu", "nlrelu", "relu")]
    assert math.isnan(numbers.rank_correlations(compared(*tied).reset_index())["kendall"][0])
    assert numbers.rank_correlations(compared(*alike[:2]).reset_index()).empty


def test_errors_in_units_of_all_rows():
    rows = make_rows(fits("gs", "relu", [0.5], target_std_train=3.0, target_std_all=2.0))
    scaled = numbers.scale_by_all_rows(rows).iloc[0]
    assert scaled["mae"] == pytest.approx(0.75)
    assert scaled["mse"] == pytest.approx(1.125)


def test_the_effect_of_target_scaling_is_counted():
    # 0.2 ± 0.014 is not within two of the paper's 0.088 ± 0.011, half of it is
    rows = make_rows(
        fits("gs", "relu", [0.19, 0.21], target_std_train=1.0, target_std_all=2.0),
    )
    expected = load_expected(3)
    before = numbers.compare_with_paper(numbers.make_cells(rows), expected)
    after = numbers.compare_with_paper(
        numbers.make_cells(numbers.scale_by_all_rows(rows)), expected
    )
    shown = text.scaling_table(before, after, rows, TABLES[3])
    assert "| GS | MAE | 0.500 | 0 of 1 | 1 of 1 |" in shown


# --- ranks ---


def test_average_ranks_share_ties_put_failures_last_and_leave_out_what_is_not_whole():
    good, bad = fits("ns", "relu", [0.1, 0.1])
    cells = make_cells(
        fits("gs", "relu", [0.1]), fits("gs", "elu", [0.1]), fits("gs", "combu", [0.2]),
        [good, failing(bad)], fits("ns", "elu", [0.9]), fits("ns", "combu", [0.5]),
        fits("ar", "relu", [0.1]), fits("ar", "combu", [0.2]),
    )  # fmt: skip
    names = ["relu", "elu", "combu"]
    scores, left_out = numbers.scores_by_data(cells, "mae", names)
    assert list(scores.index) == ["gs", "ns"]
    assert left_out == ["ar"]
    ranks = numbers.rank_activations(scores, "mae")
    assert ranks.to_dict() == {"relu": (1.5 + 3) / 2, "elu": (1.5 + 2) / 2, "combu": (3 + 1) / 2}
    shown = text.our_table(cells, names, TABLES[3])
    assert "| Avg. rank | MAE | 2.25 | **1.75** | 2.00 |" in shown
    assert "for want of some activations: AR." in shown


def test_a_greater_accuracy_ranks_better_and_failures_still_last():
    good, bad = fits("gs", "combu", [0.9, 0.9], task="classification")
    cells = make_cells(
        fits("gs", "relu", [0.5], task="classification"),
        fits("gs", "elu", [0.6], task="classification"),
        [good, bad | {"error": "diverged"}],
    )
    scores, _ = numbers.scores_by_data(cells, "f1", ["relu", "elu", "combu"])
    assert numbers.rank_activations(scores, "f1").tolist() == [2.0, 1.0, 3.0]


def test_means_that_differ_by_rounding_alone_share_a_rank():
    scores = pd.DataFrame({"relu": [0.1 + 0.2], "elu": [0.3], "combu": [0.2]}, index=["gs"])
    assert scores.at["gs", "relu"] != scores.at["gs", "elu"]
    assert numbers.rank_activations(scores, "accuracy").tolist() == [1.5, 1.5, 3.0]


def test_further_activations_stand_behind_the_seven_and_are_ranked_on_their_own():
    rows = table3_rows((*SEVEN, "pln-8", "relu+ln+proxy"))
    cells = numbers.sort_cells(numbers.make_cells(rows), TABLES[3])
    seven = text.our_table(cells, SEVEN, TABLES[3])
    all_nine = text.our_table(cells, [*SEVEN, "pln-8", "relu+ln+proxy"], TABLES[3])
    assert seven.splitlines()[0].endswith("| GELU | CombU |")
    assert all_nine.splitlines()[0].endswith("| GELU | CombU | pln-8 | relu+ln+proxy |")
    for shown, n in ((seven, 7), (all_nine, 9)):
        ranks = next(line for line in shown.splitlines() if line.startswith("| Avg. rank | MAE"))
        values = [float(cell.strip(" *")) for cell in ranks.split("|")[3:-1]]
        assert len(values) == n
        assert sum(values) == pytest.approx(n * (n + 1) / 2, abs=0.05)


# --- claims ---


def test_the_papers_claims_are_judged_from_the_cells():
    levels = {"combu": 0.1, "relu": 0.1, "elu": 0.3}  # combu and relu share the first rank
    comparison = numbers.compare_with_paper(
        make_cells(*(fits(d, n, [x]) for d in TABLES[3].data for n, x in levels.items())),
        load_expected(3),
    )
    found = judge_ranks(comparison)
    assert found.verdict == "holds"
    assert found.numbers == "mean ranks MAE 1.50 (least 1.50), MSE 1.50 (least 1.50)"
    assert judge_lines(8, comparison).numbers == "best in 8 of 8 lines"
    assert judge_lines(9, comparison).verdict == "does not hold here"
    assert judge_cells(comparison) is None, "one run has no standard deviation"
    worse = comparison.assign(mean=comparison["mean"].mask(comparison["activation"] == "relu", 0.0))
    assert judge_ranks(worse).verdict == judge_lines(1, worse).verdict == "does not hold here"
    apart = comparison[comparison["activation"] != "combu"]
    assert judge_ranks(apart) is judge_lines(1, apart) is judge_advantage(apart) is None


def test_an_advantage_is_what_nemenyis_test_says():
    def cells(n):
        return make_cells(
            *(
                fits(f"set {i}", name, [level])
                for i in range(n)
                for name, level in (("combu", 0.1), ("relu", 0.2), ("elu", 0.3))
            )
        )

    # of ranks 1, 2, 3 the critical difference is 3.314 sqrt(3 * 4 / 12 n) / sqrt(2) at n rows
    assert judge_advantage(cells(12)).numbers.startswith("MAE better than 2 (Friedman p < 0.001)")
    assert judge_advantage(cells(4)).numbers.startswith("MAE better than 1 (Friedman p = 0.018)")
    assert judge_advantage(cells(2)).verdict == "does not hold here"


# --- tables ---


@pytest.mark.parametrize(
    ("mean", "sd", "metric", "shown"),
    [
        (0.1234, 0.0567, "mae", "0.123 ± 0.057"),
        (0.00123, 0.00048, "mse", "0.0012 ± 0.0005"),  # two digits of the mean
        (90.456, 1.234, "accuracy", "90.46 ± 1.23"),
        (0.5, math.nan, "mae", "0.500"),
        (math.nan, math.nan, "mae", "—"),
        (0.0, 0.0, "mae", "0.000 ± 0.000"),
    ],
)
def test_how_a_cell_is_shown(mean, sd, metric, shown):
    assert text.mean_and_sd(mean, sd, metric) == shown


def test_the_papers_table_shows_lost_cells_as_a_dash():
    shown = text.paper_table(load_expected(5), TABLES[5])
    assert (
        "| BW (breast-w) | Acc. | — | **97.14 ± 0.00** | — | 95.71 ± 0.00 | 95.29 ± 0.03 "
        "| 95.43 ± 0.35 | 95.43 ± 0.03 |" in shown
    )
    assert "| Avg. rank | F1 | 5.25 | 4.00 | 4.50 | 4.00 | 4.00 | 3.25 | **2.75** |" in shown
    notes = text.paper_notes(load_expected(5), TABLES[5])
    assert "PW (PhishingWebsites), Acc., GELU: repeats SELU's accuracy" in notes
    assert "8 of 56 cells (—) are lost" in notes


def test_the_comparison_marks_what_is_reproduced():
    comparison = compared(
        fits("gs", "relu", [0.09, 0.11]), fits("gs", "combu", [0.10, 0.11])
    ).reset_index()
    shown = text.comparison_table(comparison, TABLES[3])
    assert "| GS | MAE | +0.012 ✓ | — | — | — | — | — | +0.032 ✗ |" in shown


def test_failures_and_unfinished_cells_are_named():
    one, two, three = fits("gs", "nlrelu", [0.1, 0.2, 0.3])
    rows = make_rows([one, failing(two, "a | b"), three], fits("gs", "relu", [0.1, 0.2]))
    shown = text.failures_table(rows)
    assert "1 of the 5 fits failed" in shown
    assert "| paper | gs | regression | nlrelu | 1 of 3 | a \\| b |" in shown
    cells = numbers.make_cells(rows)
    assert text.unfinished_text(cells, TABLES[3]) == "Fewer runs than 3: GS relu 2."
    assert text.failures_table(rows[rows["error"] == ""]) == "None of the 4 fits failed."


def test_what_equal_rows_on_both_sides_are_worth():
    cells = make_cells(
        *(
            fits("wine_quality", name, scores, protocol=protocol)
            for name in ("relu", "combu")
            for protocol, scores in (("sound", [0.6]), ("sound-ungrouped", [0.5]))
        )
    )
    shown = text.duplicates_table(cells, "sound", "sound-ungrouped", TABLES[6])
    assert "| WQ (wine_quality) | MAE | 2 | 0.600 | 0.500 | -0.100 |" in shown
    alone = cells[cells["protocol"] == "sound"]
    assert text.duplicates_table(alone, "sound", "sound-ungrouped", TABLES[6]) == ""


# --- which differences are real ---


def split_rows():
    """Four splits of two seeds: relu is worse, combu and elu are alike."""
    noise = 0.01 * np.sin(np.arange(8))
    return [
        row
        for i, (name, level) in enumerate((("relu", 0.5), ("combu", 0.3), ("elu", 0.31)))
        for row in fits("gs", name, level + np.roll(noise, i), seeds=2)
    ]


def test_activations_are_compared_split_by_split():
    (finding,) = numbers.within_data(make_rows(split_rows()), "mae", ["relu", "combu", "elu"])
    assert finding.comparison["activation"].tolist() == ["combu", "elu", "relu"]
    assert finding.comparison["n_resamples"].tolist() == [4, 4, 4]
    assert finding.comparison["distinguishable"].tolist() == [False, False, True]
    assert finding.text.startswith("combu has the best mean MAE: 0.3")
    assert "Significantly different from combu at the 5 % level: relu" in finding.text
    shown = text.verdicts_table([finding], ["relu", "combu", "elu"])
    assert "| relu | 0 | 0 | 1 |" in shown
    assert "| combu | 1 | 0 | 0 |" in shown
    assert "| elu | 0 | 1 | 0 |" in shown


def test_failed_activations_are_left_out_of_the_tests_and_named():
    rows = split_rows()
    rows[9] = failing(rows[9])  # a run of combu
    (finding,) = numbers.within_data(make_rows(rows), "mae", ["relu", "combu", "elu"])
    assert finding.comparison["activation"].tolist() == ["elu", "relu"]
    assert finding.text.startswith("Left out for failed runs: combu. elu has the best mean")


def test_only_runs_that_all_have_are_compared():
    rows = make_rows(split_rows()[:-1])  # the last run of elu is to come
    (finding,) = numbers.within_data(rows, "mae", ["relu", "combu", "elu"])
    assert finding.text.startswith("Only the 7 of 8 runs that all activations finished.")
    assert finding.comparison["n_resamples"].tolist() == [4, 4, 4]
    (finding,) = numbers.within_data(rows[rows["split"] == 0], "mae", ["relu", "combu", "elu"])
    assert finding.comparison is None
    assert "Two splits" in finding.text


def test_data_sets_are_compared_by_ranks():
    cells = make_cells(
        *(
            fits(f"set {i}", name, [level + 0.01 * i])
            for i in range(8)
            for name, level in (("relu", 0.3), ("combu", 0.1), ("elu", 0.2))
        )
    )
    names = ["relu", "combu", "elu"]
    result = numbers.across_data(cells, "mae", names)
    assert result.mean_ranks.to_dict() == {"combu": 1.0, "elu": 2.0, "relu": 3.0}
    words = across_text(cells, "mae", names)
    assert words.startswith("Friedman's test over 8 data sets: the 3 activations differ")
    assert "combu ranks better than relu." in words
    assert numbers.across_data(cells, "mae", names[:2]) is None
    assert "at least 2 data sets" in across_text(cells.iloc[:6], "mae", names)
    shown = text.ranks_table(cells, "mae", names)
    assert "| combu | 1.00 | 0.135 | 8 | 0 |" in shown


def test_a_tie_is_won_by_each():
    scores = pd.DataFrame({"relu": [0.1, 0.2], "combu": [0.1, 0.1]})
    assert text.wins(scores, greater_is_better=False).tolist() == [1, 2]
    assert text.wins(scores, greater_is_better=True).tolist() == [2, 1]


# --- figures ---


def test_radar_values_are_scaled_by_the_range_and_averaged_over_metrics():
    cells = make_cells(
        *(
            [row | {"mse": mse} for row in fits("gs", name, [mae])]
            for name, mae, mse in (("relu", 0.1, 3.0), ("elu", 0.2, 1.0), ("combu", 0.3, 2.0))
        )
    )
    scores = figures.normalised(cells, ["relu", "elu", "combu"], {"gs": "GS"})
    assert scores.index.tolist() == ["GS"]
    assert scores.loc["GS"].tolist() == pytest.approx([0.5, 0.75, 0.25])


def test_on_a_radar_a_failed_activation_is_worst_and_leaves_the_others_as_they_are():
    good, bad = fits("gs", "elu", [0.1, 0.1])
    parts = [fits("gs", "relu", [0.1]), fits("gs", "swish", [0.2]), fits("gs", "combu", [0.3])]
    cells = make_cells(*parts, [good, failing(bad)])
    scores = figures.normalised(cells, ["relu", "swish", "combu", "elu"], {})
    assert scores.loc["gs"].tolist() == pytest.approx([1.0, 0.5, 0.0, 0.0])


def test_a_radar_draws_every_activation_around_once():
    rows = table3_rows((*SEVEN, "pln-8"))
    cells = numbers.make_cells(rows)
    scores = figures.normalised(cells, [*SEVEN, "pln-8"], TABLES[3].data)
    assert scores.index.tolist() == [
        f"{name} {task}" for task in ("reg", "clf") for name in ("GS", "AR", "NS", "BS")
    ]
    figure = figures.plot_radar({"ours": scores})
    (axes,) = figure.axes
    assert len(axes.lines) == 8
    for line, name in zip(axes.lines, scores.columns, strict=True):
        values = scores[name].tolist()
        assert line.get_ydata().tolist() == [*values, values[0]]
    looks = {(line.get_color(), line.get_marker()) for line in axes.lines}
    assert len(looks) == 8
    (legend,) = figure.legends
    assert [entry.get_text() for entry in legend.get_texts()] == [*ACTIVATIONS.values(), "pln-8"]


def test_fourteen_activations_all_look_different():
    others = (
        "pln-4",
        "pln-8",
        "pls-2",
        "la-silu",
        "la-hardsilu",
        "relu+ln+proxy",
        "combu+ln+proxy",
    )
    assert len(set(map(str, figures.styles([*SEVEN, *others]).values()))) == 14


def test_curves_skip_the_first_epochs_and_runs_that_ended_early():
    rows = pd.DataFrame(
        fits("gs", "relu", [1.0], loss_curve="9 3 2 1", curve_block=2)
        + fits("gs", "relu", [1.0], loss_curve="9 5 4 3", curve_block=2)
        + fits("gs", "relu", [1.0], loss_curve="9 5", curve_block=2)
        + fits("gs", "relu", [1.0], loss_curve=np.nan, curve_block=np.nan)
    )
    epochs, values = figures.read_curves(rows, "loss_curve", skip=2)
    assert epochs.tolist() == [3.5, 5.5, 7.5]  # of epochs 3 and 4, 5 and 6, 7 and 8
    assert values.tolist() == [[3.0, 2.0, 1.0], [5.0, 4.0, 3.0]]
    epochs, _ = figures.read_curves(rows, "loss_curve", skip=3)
    assert epochs.tolist() == [5.5, 7.5]
    assert figures.read_curves(rows.iloc[3:], "loss_curve") is None
    figure = figures.plot_curves(rows, figures.CURVES[0], ["relu"], {"gs": "GS"})
    (axes,) = figure.axes
    assert axes.lines[0].get_ydata().tolist() == [4.0, 3.0, 2.0]
    assert axes.get_title("left") == "GS"
    for curve, scale in (("9 2 2 1", "linear"), ("9 4 2 1", "log"), ("9 9 4 0", "linear")):
        figure = figures.plot_curves(
            rows.iloc[:1].assign(loss_curve=curve),
            figures.CURVES[0], ["relu"], {},
        )  # fmt: skip
        assert figure.axes[0].get_yscale() == scale


# --- files ---


def test_a_whole_report(tmp_path):
    rows = table3_rows((*SEVEN, "pln-8"), ("paper", "sound"), curves=True)
    bad = (rows["data"] == "ar") & (rows["activation"] == "nlrelu") & (rows["seed"] == 0)
    rows.loc[bad, ["mae", "mse"]] = np.nan
    rows.loc[bad & (rows["task"] == "regression"), "error"] = "the loss is not finite"
    written = write_report(rows, table=3, out=tmp_path, name="table3_formulas")
    names = {path.name.removeprefix("table3_formulas") for path in written}
    curves = {
        f"_curves_{kind}{end}.png"
        for kind in ("loss_reg", "error_reg", "loss_clf", "accuracy_clf")
        for end in ("", "_all")
    }
    ranks = {
        f"_ranks_{protocol}_{metric}.png"
        for protocol in ("paper", "sound")
        for metric in ("mae", "mse", "accuracy", "f1")
    }
    assert names == {".md", "_comparison.csv", "_radar.png", "_radar_all.png"} | curves | ranks
    markdown = (tmp_path / "table3_formulas.md").read_text(encoding="utf-8")
    for path in written:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            assert f"({path.name})" in markdown
    for words in (
        "`python study.py`", "failed 1 of 6", "failed 3 of 6", "Ours, sound protocol",
        "Left out for failed runs: nlrelu", "The paper's", "misprint: the cells give 4.25",
        "Friedman's test over 4 data sets", "calls it absolute error, but it is the loss",
    ):  # fmt: skip
        assert words in markdown, words
    comparison = pd.read_csv(tmp_path / "table3_formulas_comparison.csv")
    assert len(comparison) == 2 * 4 * 4 * 8
    assert comparison.loc[comparison["activation"] == "pln-8", "paper_mean"].isna().all()


@pytest.mark.parametrize("table", [3, 5, 6])
def test_a_study_that_has_hardly_begun_is_reported(table, tmp_path):
    data = next(iter(TABLES[table].data))
    task = "classification" if table == 5 else "regression"
    write_report(pd.DataFrame(fits(data, "relu", [0.5], task=task)), table=table, out=tmp_path)
    write_report(
        pd.DataFrame(fits(data, "pln-8", [0.5], task=task, protocol="sound")),
        table=table,
        out=tmp_path,
    )
    assert len(list(tmp_path.iterdir())) == 2


def test_a_study_of_which_all_fits_failed_is_reported(tmp_path):
    rows = [failing(row) for name in SEVEN for row in fits("gs", name, [0.5, 0.6])]
    write_report(pd.DataFrame(rows), table=3, out=tmp_path)
    markdown = (tmp_path / "study.md").read_text(encoding="utf-8")
    assert "14 of the 14 fits failed" in markdown
    assert "No cell can be compared." in markdown


def test_a_study_of_many_data_sets(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        row
        for i in range(12)
        for j, name in enumerate((*SEVEN, "pln-8"))
        for row in fits(f"I.{i}", name, 0.1 * (j + 1) + 0.01 * rng.random(2), protocol="seeds")
    ]
    rows[-1] = failing(rows[-1])
    written = write_report(pd.DataFrame(rows), table=None, name="laws", out=tmp_path)
    assert {path.name for path in written} == {
        "laws.md", "laws_cells.csv", "laws_ranks_seeds_mae.png", "laws_ranks_seeds_mse.png",
    }  # fmt: skip
    markdown = (tmp_path / "laws.md").read_text(encoding="utf-8")
    assert markdown.startswith("# A study\n")
    assert "| relu | 1.00 |" in markdown
    assert "| pln-8 | 8.00 |" in markdown
    assert "Friedman's test over 12 data sets: the 8 activations differ" in markdown
    assert "I.11" not in markdown.split("## seeds protocol")[1]  # single ones are in the file
    cells = pd.read_csv(tmp_path / "laws_cells.csv")
    assert len(cells) == 12 * 8 * 2
    assert cells["failed"].sum() == 2


def test_figure_2_takes_both_tables(tmp_path):
    parts = []
    for table, task in ((5, "classification"), (6, "regression")):
        for data in TABLES[table].data:
            for i, name in enumerate(SEVEN):
                parts += fits(data, name, [0.5 + 0.01 * i], task=task)
    rows = pd.DataFrame(parts)
    write_figure2(tmp_path, rows[rows["task"] == "regression"], rows[rows["task"] != "regression"])
    assert (tmp_path / "figure2_radar.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "few").mkdir()
    write_figure2(tmp_path / "few", rows[rows["data"].isin(["boston", "wdbc"])])
    assert not list((tmp_path / "few").iterdir())


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    rows = pd.DataFrame(fits("gs", "relu", [0.5, 0.6]))
    write_report(rows, table=3, out=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def disk_is_full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", disk_is_full)
    with pytest.raises(OSError, match="no space left"):
        write_report(rows.assign(mae=0.7), table=3, out=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
