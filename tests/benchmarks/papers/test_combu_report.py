"""The studies' reports: hand-worked cells, ranks and comparisons, and files that are whole."""

from __future__ import annotations

import math
import os
from argparse import Namespace

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers.combu import figures, report, table3_formulas
from benchmarks.papers.combu import report_numbers as numbers
from benchmarks.papers.combu import report_text as text
from benchmarks.papers.combu.expected import ACTIVATIONS, TABLES, Table, load_expected
from benchmarks.papers.combu.openml_tables import write_figure2
from benchmarks.papers.common.page import Page

METRICS = {"regression": ("mae", "mse"), "classification": ("accuracy", "f1")}
SEVEN = tuple(ACTIVATIONS)


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
        row |= {"loss_curve": "", "metric_curve": "", "curve_block": np.nan}
        table.append(row | columns)
    return table


def failing(row, message="the loss is not finite"):
    return row | {"mae": np.nan, "mse": np.nan, "error": message}


def make_rows(*parts):
    return pd.DataFrame([row for part in parts for row in part])


def write_report(rows, out, table=TABLES[3], claims=table3_formulas.CLAIMS):
    """A page as its study writes it; its text."""
    page = Page(table.name, "A study", "python study.py")
    report.write_page(table, claims, page, Namespace(out=out), rows)
    page.write(out)
    return (out / f"{table.name}.md").read_text(encoding="utf-8")


def make_cells(*parts):
    return numbers.make_cells(make_rows(*parts))


def compared(*parts, table=3):
    paper, _ = numbers.split_ranks(load_expected(table))
    return numbers.compare_with_paper(make_cells(*parts), paper)


def by_cell(comparison):
    return comparison.set_index(["metric", "activation"])


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
    assert text.design_text(cells).startswith("Splits: 2, seeds of each: 2; mean ±")


def test_one_run_has_no_standard_deviation_and_a_failed_one_empties_its_cell():
    good, bad = fits("gs", "relu", [0.5, 0.6])
    cells = make_cells(
        [good, failing(bad)], fits("gs", "elu", [0.7, np.inf]), fits("gs", "combu", [0.5])
    )
    assert cells["failed"].tolist() == [1, 1, 1, 1, 0, 0]
    assert cells.loc[:3, ["mean", "sd", "sd0"]].isna().all(axis=None)
    assert cells.loc[4:, ["sd", "sd0"]].isna().all(axis=None)
    assert "| GS | MAE | failed 1 of 2 | failed 1 of 2 | **0.500** |" in text.cells_table(
        cells, TABLES[3], {}
    )


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
    maes = compared(
        fits("gs", "relu", [0.09, 0.11]),  # paper 0.088 ± 0.011; pooled sd 0.01267
        fits("gs", "combu", [0.10, 0.11]),  # paper 0.073 ± 0.005; pooled sd 0.00612
        fits("gs", "elu", [0.134, 0.174]),  # paper 0.114 ± 0.013; 0.02201, ddof 0: 0.01687
    ).query("metric == 'mae'")
    assert maes["difference"].tolist() == pytest.approx([0.012, 0.032, 0.040])
    assert maes["pooled_sd"].tolist() == pytest.approx(
        [math.sqrt(0.000321 / 2), math.sqrt(0.000075 / 2), math.sqrt(0.000969 / 2)]
    )
    assert maes["reproduced"].tolist() == [True, False, True]
    assert maes["reproduced_ddof0"].tolist() == [True, False, False]


def test_exactly_two_pooled_standard_deviations_or_the_rounding_are_within():
    # paper 97.14 ± 0.00: the pooled sd is ours over the root of 2; runs at m ± h have it at h
    half = 0.005
    mean = 0.9714 - 2 * half
    for scores, reproduced in (
        ([mean - half, mean + half], True),
        ([136 / 140] * 2, True),  # 97.14 by rounding alone
        ([135 / 140] * 2, False),
    ):
        table = compared(fits("breast-w", "elu", scores, task="classification"), table=5)
        assert by_cell(table).loc[("accuracy", "elu"), "reproduced"] == reproduced


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
    assert by_cell(table).loc[("f1", "relu"), "note"] == "lost in the text"
    assert by_cell(table).loc[("f1", "swish"), "difference"] == pytest.approx(96 - 95.16)
    assert text.counts_table(table, TABLES[5]) == "No cell can be compared."


def test_reproduced_cells_are_counted_by_data_set_and_metric():
    rows = [fits("gs", name, [0.09, 0.11]) for name in ("relu", "combu", "pln-8")]
    comparison = compared(*rows)
    # MAE: 0.1 ± 0.014 against 0.088 ± 0.011 and 0.073 ± 0.005; MSE against 0.017 and 0.014
    shown = text.counts_table(comparison, TABLES[3])
    assert "| GS | 1 of 2 | 0 of 2 | 1 of 4 |" in shown
    alone = text.counts_table(comparison[comparison["activation"] == "relu"], TABLES[3])
    assert "| median size of the difference | 0.012 | 0.083 |  |" in alone


@pytest.mark.parametrize(
    ("combu", "nlrelu", "shown"),
    [(0.1, 0.2, "3 | +1.00 | +1.00"), (0.2, 0.1, "3 | +0.33 | +0.50"), (0.3, 0.3, "3 | — | —")],
)
def test_orders_are_correlated_over_the_activations_that_both_have(combu, nlrelu, shown):
    # the paper's order on GS by MAE: combu 0.073, nlrelu 0.078, relu 0.088
    means = {"combu": combu, "nlrelu": nlrelu, "relu": 0.3, "pln-8": 0.0}
    comparison = compared(*(fits("gs", name, [x]) for name, x in means.items()))
    assert f"| GS | MAE | {shown} |" in text.correlations_table(comparison, TABLES[3])
    two = comparison[comparison["activation"].isin(["combu", "relu"])]
    assert text.correlations_table(two, TABLES[3]) == "No row has three activations to order."


def test_errors_in_units_of_all_rows():
    rows = make_rows(fits("gs", "relu", [0.5], target_std_train=3.0, target_std_all=2.0))
    scaled, ratios = numbers.scale_by_all_rows(rows)
    assert scaled["mae"].tolist() == pytest.approx([0.75])
    assert scaled["mse"].tolist() == pytest.approx([1.125])
    assert ratios.to_dict() == {"gs": 1.5}


# --- ranks ---


def test_average_ranks_share_ties_put_failures_last_and_leave_out_what_is_not_whole():
    good, bad = fits("ns", "relu", [0.1, 0.1])
    cells = make_cells(
        fits("gs", "relu", [0.1]), fits("gs", "elu", [0.1]), fits("gs", "combu", [0.2]),
        [good, failing(bad)], fits("ns", "elu", [0.9]), fits("ns", "combu", [0.5]),
        fits("ar", "relu", [0.1]), fits("ar", "combu", [0.2]),
    )  # fmt: skip
    assert list(numbers.scores_by_data(cells, "mae").index) == ["gs", "ns"]
    ranks = numbers.rank_activations(cells)
    expected = {"relu": (1.5 + 3) / 2, "elu": (1.5 + 2) / 2, "combu": (3 + 1) / 2}
    assert ranks["mae"].to_dict() == expected
    shown = text.cells_table(cells, TABLES[3], ranks)
    assert "| Avg. rank | MAE | 2.25 | **1.75** | 2.00 |" in shown
    assert "| AR | MAE | **0.100** | — | 0.200 |" in shown


def test_a_greater_accuracy_ranks_better_and_failures_still_last():
    good, bad = fits("gs", "combu", [0.9, 0.9], task="classification")
    cells = make_cells(
        fits("gs", "relu", [0.5], task="classification"),
        fits("gs", "elu", [0.6], task="classification"),
        [good, bad | {"error": "diverged"}],
    )
    ranks = numbers.rank_activations(cells)["f1"]
    assert ranks.to_dict() == {"relu": 2.0, "elu": 1.0, "combu": 3.0}


def test_means_that_differ_by_rounding_alone_share_a_rank():
    means = {"relu": 0.1 + 0.2, "elu": 0.3, "combu": 0.2}
    assert means["relu"] != means["elu"]
    ranks = numbers.rank_activations(make_cells(*(fits("gs", n, [x]) for n, x in means.items())))
    assert ranks["mae"].tolist() == [2.5, 2.5, 1.0]


# --- claims ---


def test_the_papers_claims_are_judged_from_the_cells():
    levels = {"combu": 0.1, "relu": 0.1, "elu": 0.3, "pln-8": 0.01}  # the first two share a rank
    comparison = compared(*(fits(d, n, [x]) for d in TABLES[3].data for n, x in levels.items()))
    found = report.judge_ranks(comparison)
    assert found.verdict == "holds", "the paper does not have pln-8"
    assert found.numbers == "mean ranks MAE 1.50 (least 1.50), MSE 1.50 (least 1.50)"
    assert report.judge_lines(8, comparison).numbers == "best in 8 of 8 lines"
    assert report.judge_lines(9, comparison).verdict == "does not hold here"
    assert report.judge_cells(comparison) is None, "one run has no standard deviation"
    worse = comparison.assign(mean=comparison["mean"].mask(comparison["activation"] == "relu", 0.0))
    assert report.judge_ranks(worse).verdict == "does not hold here"
    assert report.judge_lines(1, worse).verdict == "does not hold here"
    others = comparison[comparison["activation"] != "combu"]
    assert report.judge_ranks(others) is None
    assert report.judge_advantage(others) is None
    assert report.judge_lines(1, others) is None


def level_cells(n):
    """Cells of n data sets, on all of which combu is before relu, and relu before elu."""
    return make_cells(
        *(
            fits(f"set {i}", name, [level])
            for i in range(n)
            for name, level in (("relu", 0.2), ("combu", 0.1), ("elu", 0.3))
        )
    )


def test_an_advantage_is_what_nemenyis_test_finds():
    # of ranks 1, 2, 3 the critical difference is 3.314 sqrt(3 * 4 / 12 n) / sqrt(2) at n rows
    found = [report.judge_advantage(level_cells(n)) for n in (12, 4, 2)]
    assert found[0].numbers.startswith("MAE better than 2 (Friedman p < 0.001)")
    assert found[1].numbers.startswith("MAE better than 1 (Friedman p = 0.018)")
    assert found[2].verdict == "does not hold here"
    result = numbers.across_data(level_cells(4), "mae")
    assert result.mean_ranks.to_dict() == {"combu": 1.0, "relu": 2.0, "elu": 3.0}
    assert numbers.across_data(level_cells(1), "mae") is None
    two = level_cells(4).query("activation != 'elu'")
    assert numbers.across_data(two, "mae") is None


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
    cell = pd.Series({"mean": mean, "sd": sd, "metric": metric, "best": False})
    assert text.cell_text(cell) == shown


def test_the_papers_table_shows_lost_cells_as_a_dash():
    paper, ranks = numbers.split_ranks(load_expected(5))
    shown = text.cells_table(paper, TABLES[5], ranks)
    assert (
        "| BW (breast-w) | Acc. | — | **97.14 ± 0.00** | — | 95.71 ± 0.00 | 95.29 ± 0.03 "
        "| 95.43 ± 0.35 | 95.43 ± 0.03 |" in shown
    )
    assert "| Avg. rank | F1 | 5.25 | 4.00 | 4.50 | 4.00 | 4.00 | 3.25 | **2.75** |" in shown
    notes = text.paper_notes(load_expected(5))
    assert "PhishingWebsites accuracy gelu: repeats SELU's accuracy" in notes
    assert "8 of 56 cells (—) are lost" in notes


def test_failures_are_named():
    one, two, three = fits("gs", "nlrelu", [0.1, 0.2, 0.3])
    rows = make_rows([one, failing(two, "a | b"), three], fits("gs", "relu", [0.1, 0.2]))
    shown = text.failures_table(rows)
    assert "1 of the 5 fits failed" in shown
    assert "| paper | gs | regression | nlrelu | 1 of 3 | a \\| b |" in shown
    assert text.failures_table(rows[rows["error"] == ""]) == "None of the 4 fits failed."


def test_what_equal_rows_on_both_sides_are_worth():
    scores = {"sound": 0.6, "sound-ungrouped": 0.5}
    cells = make_cells(
        *(
            fits("wine_quality", name, [score], protocol=protocol)
            for name in ("relu", "combu")
            for protocol, score in scores.items()
        ),
        fits("wine_quality", "elu", [0.9], protocol="sound"),  # the other is to come
    )
    shown = text.duplicates_table(cells, TABLES[6])
    assert "| WQ (wine_quality) | MAE | 0.600 | 0.500 | -0.100 |" in shown


# --- which differences are real, on one data set ---


def split_rows():
    """Four splits of two seeds: relu is worse, combu and elu are alike."""
    noise = 0.01 * np.sin(np.arange(8))
    return [
        row
        for i, (name, level) in enumerate((("relu", 0.5), ("combu", 0.3), ("elu", 0.31)))
        for row in fits("gs", name, level + np.roll(noise, i), seeds=2)
    ]


def test_activations_are_compared_split_by_split():
    comparison, sentences = numbers.within_data(make_rows(split_rows()), "mae")
    assert comparison["activation"].tolist() == ["combu", "elu", "relu"]
    assert comparison["n_resamples"].tolist() == [4, 4, 4]
    assert comparison["distinguishable"].tolist() == [False, False, True]
    assert sentences.startswith("combu has the best mean MAE: 0.3")
    assert "Significantly different from combu at the 5 % level: relu" in sentences
    shown = text.verdicts_table([comparison, comparison])
    assert shown.endswith("| relu | 0 | 0 | 2 |\n| elu | 0 | 2 | 0 |\n| combu | 2 | 0 | 0 |\n")


def test_where_runs_failed_or_are_to_come_it_says_so_and_compares_nothing():
    rows = split_rows()
    failed = [*rows[:9], failing(rows[9]), *rows[10:]]  # a run of combu
    for lacking, reason in (
        (make_rows(failed), "(activation: combu)"),
        (make_rows(rows[:-2]), "elu lacks 1"),  # its last split is to come
        (make_rows(rows).query("split == 0"), "at least 2 resamples"),
    ):
        comparison, sentence = numbers.within_data(lacking, "mae")
        assert comparison is None
        assert sentence.startswith("Not compared: ")
        assert reason in sentence


# --- figures ---


def test_radar_values_are_scaled_by_the_range_and_averaged_over_metrics():
    good, bad = fits("gs", "swish", [0.1, 0.1])
    cells = make_cells(
        *(
            [row | {"mse": mse} for row in fits("gs", name, [mae])]
            for name, mae, mse in (("relu", 0.1, 3.0), ("elu", 0.2, 1.0), ("combu", 0.3, 2.0))
        ),
        [good, failing(bad)],  # the worst, and leaves the others as they are
        *(fits("ar", name, [0.5]) for name in ("relu", "elu", "combu", "swish")),
        fits("ns", "relu", [0.5]),
    )
    scores = figures.normalised(cells, {"gs": "GS"})
    assert scores.index.tolist() == ["GS", "ar"]
    assert scores.columns.tolist() == ["relu", "elu", "swish", "combu"]
    assert scores.loc["GS"].tolist() == pytest.approx([0.5, 0.75, 0.0, 0.25])
    assert scores.loc["ar"].tolist() == [1.0] * 4


def test_a_radar_draws_every_activation_around_once():
    names = [*SEVEN, "pln-8"]
    values = np.random.default_rng(0).random((3, 8))
    scores = pd.DataFrame(values, index=["GS reg", "GS clf", "AR"], columns=names)
    (axes,) = figures.plot_radar({"ours": scores}).axes
    assert len(axes.lines) == 8
    for line, name in zip(axes.lines, names, strict=True):
        assert line.get_ydata().tolist() == [*scores[name], scores[name].iloc[0]]
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == 8
    (legend,) = axes.figure.legends
    assert [entry.get_text() for entry in legend.get_texts()] == [*ACTIVATIONS.values(), "pln-8"]


def test_fourteen_activations_all_look_different():
    looks = figures.styles([*SEVEN, *(f"other {i}" for i in range(7))])
    assert len(set(map(str, looks.values()))) == 14
    assert len({color for color, _, _ in list(looks.values())[:10]}) == 10
    assert figures.styles(["combu"])["combu"] == looks["combu"]


def test_curves_skip_the_first_epochs():
    rows = make_rows(
        fits("gs", "relu", [1.0], loss_curve="9 3 2 1", curve_block=2),
        fits("gs", "relu", [1.0], loss_curve="9 5 4 3", curve_block=2),
    )
    curves = figures.read_curves(rows, "loss_curve")
    assert curves.columns.tolist() == [3.5, 5.5, 7.5]  # of epochs 3 and 4, 5 and 6, 7 and 8
    assert curves.to_numpy().tolist() == [[3.0, 2.0, 1.0], [5.0, 4.0, 3.0]]
    single = figures.read_curves(rows.assign(curve_block=1), "loss_curve")
    assert single.columns.tolist() == [3.0, 4.0]
    page = Page("study", "A study", "python study.py")
    figures.add_curves(page, rows, {"gs": "GS"})
    (figure,) = page._figures.values()
    axes = figure.axes[0]
    assert axes.lines[0].get_ydata().tolist() == [4.0, 3.0, 2.0]
    assert axes.get_title("left") == "GS"
    assert axes.get_yscale() == "log"


# --- files ---


def table3_rows():
    """A study of half of Table 3, with curves and a failed run; of numbers near the paper's."""
    rng = np.random.default_rng(0)
    parts = []
    for protocol, seeds in (("paper", None), ("sound", 1), ("sound-ungrouped", 1)):
        for data in ("gs", "ar"):
            for task, base in (("regression", 0.1), ("classification", 0.9)):
                for i, name in enumerate((*SEVEN, "pln-8")):
                    scores = base + 0.001 * i + 0.001 * rng.standard_normal(2)
                    curve = f"3 {2.0 - i / 10} 1" if data == "gs" else ""
                    extra = {"loss_curve": curve, "metric_curve": curve, "curve_block": 2}
                    parts += fits(data, name, scores, task=task, protocol=protocol,
                                  seeds=seeds, **extra)  # fmt: skip
    rows = pd.DataFrame(parts)
    bad = (rows["data"] == "ar") & (rows["activation"] == "nlrelu") & rows["mae"].notna()
    rows.loc[bad, ["mae", "mse"]] = np.nan
    rows.loc[bad, "error"] = "the loss is not finite"
    return rows


def test_a_whole_report(tmp_path):
    markdown = write_report(table3_rows(), tmp_path)
    names = {path.name.removeprefix("table3_formulas") for path in tmp_path.iterdir()}
    curves = {f"_curves_{kind}.png" for kind in figures.CURVES}
    ranks = {
        f"_ranks_{protocol}_{metric}.png"
        for protocol in ("paper", "sound")
        for metric in ("mae", "mse", "accuracy", "f1")
    }
    assert names == {".md", "_comparison.csv", "_radar.png"} | curves | ranks
    for path in tmp_path.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"({path.name})" in markdown
    for words in (
        "`python study.py`", "failed 2 of 2", "Ours, sound protocol", "(activation: nlrelu)",
        "The paper's", "misprint: the cells give 4.25", "GS 1.000, AR 1.000",
        "Equal rows on both sides", "Friedman's test over 2 data sets",
        "Figure 6: training accuracy",
    ):  # fmt: skip
        assert words in markdown, words
    comparison = pd.read_csv(tmp_path / "table3_formulas_comparison.csv")
    assert len(comparison) == 3 * 2 * 4 * 8
    assert comparison.loc[comparison["activation"] == "pln-8", "paper_mean"].isna().all()


@pytest.mark.parametrize("table", [3, 5, 6])
def test_a_study_that_has_hardly_begun_is_reported(table, tmp_path):
    data = next(iter(TABLES[table].data))
    task = "classification" if table == 5 else "regression"
    for name, protocol in (("relu", "paper"), ("pln-8", "sound")):
        rows = make_rows(fits(data, name, [0.5], task=task, protocol=protocol))
        markdown = write_report(rows, tmp_path, TABLES[table])
    assert "Too few data sets or activations for Friedman's test." in markdown
    assert len(list(tmp_path.iterdir())) == 2


def test_a_study_of_which_all_fits_failed_is_reported(tmp_path):
    rows = [failing(row) for name in SEVEN for row in fits("gs", name, [0.5, 0.6])]
    markdown = write_report(pd.DataFrame(rows), tmp_path)
    assert "14 of the 14 fits failed" in markdown
    assert "No cell can be compared." in markdown


def test_a_study_of_many_data_sets(tmp_path):
    rows = [
        row
        for i in range(12)
        for j, name in enumerate((*SEVEN, "pln-8"))
        for row in fits(f"I.{i}", name, 0.1 * (j + 1) + 0.001 * np.arange(2), protocol="seeds")
    ]
    rows[-1] = failing(rows[-1])
    markdown = write_report(pd.DataFrame(rows), tmp_path, Table("laws", "Laws", {}), ())
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"laws.md", "laws_cells.csv", "laws_ranks_seeds_mae.png",
                     "laws_ranks_seeds_mse.png"}  # fmt: skip
    assert "Friedman's test over 12 data sets: the 8 activations differ" in markdown
    assert "relu 1.00, elu 2.00" in markdown
    assert "I.11" not in markdown.split("seeds protocol")[1]  # single ones are in the file
    cells = pd.read_csv(tmp_path / "laws_cells.csv")
    assert len(cells) == 12 * 8 * 2
    assert cells["failed"].sum() == 2


def test_figure_2_takes_both_tables(tmp_path):
    tables = [
        make_rows(
            *(fits(d, n, [0.5 + 0.01 * i], task=task) for d in data for i, n in enumerate(SEVEN))
        )
        for data, task in ((["wdbc"], "classification"), (["boston", "autoMpg"], "regression"))
    ]
    write_figure2(tmp_path, tables[1])
    assert not list(tmp_path.iterdir()), "too few to draw"
    write_figure2(tmp_path, *tables)
    assert (tmp_path / "figure2_radar.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    rows = make_rows(fits("gs", "relu", [0.5, 0.6]))
    write_report(rows, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def disk_is_full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", disk_is_full)
    with pytest.raises(OSError, match="no space left"):
        write_report(rows.assign(mae=0.7), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
