"""``combutab compare``: what it prints and writes, and one clear line for each user's error."""

import gzip
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import combutab
from combutab import model_selection
from combutab.cli import _compare, _tables, main
from combutab.cli._compare import FILES, JOURNAL
from combutab.cli._console import one_line_warnings

pytestmark = pytest.mark.usefixtures("few_trees")

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
SMALL = ["--seeds", "1", "--folds", "3", "--epochs", "2", "--hidden", "8"]
SMALL += ["--activations", "relu,combu,pln-4"]
QUICK = [*SMALL, "--baselines", "none"]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.columns = ["a", "b", "c", "d"]
    return X.assign(kind=y.map({0: "setosa", 1: "versicolor", 2: "virginica"}))


@pytest.fixture
def folder(tmp_path, monkeypatch, iris):
    """The working directory, with iris.csv in it."""
    iris.to_csv(tmp_path / "iris.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- a good run ------------------------------------------------------------------------------


def test_compare_prints_a_table_and_writes_its_files(folder, capsys, iris, files):
    assert main(["compare", "iris.csv", "--target", "kind", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "iris: 150 rows, classification; training 9 networks (3 activations x 3 folds x 1 seed), "
        "hidden layers 8, 2 epochs, on " + err.rsplit(" ", 1)[1].strip()
    ]
    assert "\niris: accuracy (higher is better)\n3 folds x 1 seed, 2 epochs\n" in out
    assert "has the best mean accuracy" in out
    assert max(map(len, out.splitlines())) <= 80

    place = folder / "combutab-compare"
    written = [f"combutab-compare/{name}" for name in [*FILES, JOURNAL]]
    assert files(folder) == sorted([*written, "iris.csv"])
    results = pd.read_csv(place / "results.csv")
    assert len(results) == 9
    baselines = pd.read_csv(place / "baselines.csv")["baseline"]
    assert baselines.unique().tolist() == ["guess", "linear", "boosting"]
    summary = pd.read_csv(place / "summary.csv")
    assert summary.columns[:4].tolist() == ["data", "activation", "metric", "mean"]
    rows = [line for line in out.splitlines() if re.match(r"(relu|combu|pln-4) +\d", line)]
    assert [row.split()[0] for row in rows] == summary["activation"].tolist()
    for row, (_, line) in zip(rows, summary.iterrows(), strict=True):
        shown = [float(number) for number in re.findall(r"-?\d+\.\d+", row)]
        wanted = line[["mean", "low", "high", "mean_rank", "p"]].dropna()
        np.testing.assert_allclose(shown, wanted.astype(float), atol=0.006)
    assert (place / "comparison.png").read_bytes().startswith(b"\x89PNG")
    best = combutab.load(place / "best_model.safetensors")
    assert best.activation == summary["activation"].iloc[0]
    assert set(best.predict(iris.drop(columns="kind"))) <= set(iris["kind"])


def test_an_earlier_run_is_overwritten_with_the_same_results(folder, files):
    arguments = ["compare", "iris.csv", "--target", "kind", *QUICK, "--out", "x/y"]
    assert main(arguments) == 0
    first = pd.read_csv("x/y/results.csv").drop(columns="seconds")
    for name in FILES:
        Path("x/y", name).write_text("old")
    assert main(arguments) == 0
    pd.testing.assert_frame_equal(pd.read_csv("x/y/results.csv").drop(columns="seconds"), first)
    assert main([*arguments, "--seed", "1", "--force"]) == 0
    assert not pd.read_csv("x/y/results.csv")["log_loss"].equals(first["log_loss"])
    assert files(folder / "x") == sorted(f"y/{name}" for name in [*FILES, JOURNAL])


def test_options_reach_the_comparison(folder, capsys, iris):
    iris.to_csv("iris.tsv", sep="\t", index=False)
    options = ["--task", "regression", "--metric", "mse", "--test", "wilcoxon", "--device", "cpu"]
    options += ["--baselines", "linear"]
    options += ["--hidden", "8,4", "--folds", "4", "--seeds", "2", "--epochs", "3"]
    assert main(["compare", "iris.tsv", "--target", "a", *QUICK, *options]) == 0
    out, err = capsys.readouterr()
    assert "\niris: MSE in variances of the target (lower is better)\n4 folds x 2 seeds" in out
    assert "hidden layers 8-4, 3 epochs, on cpu" in err
    summary = pd.read_csv("combutab-compare/summary.csv")
    assert (summary["test"] == "wilcoxon").all()
    assert summary["mean"].is_monotonic_increasing
    results = pd.read_csv("combutab-compare/results.csv")
    assert results[["fold", "seed", "epochs"]].nunique().tolist() == [4, 2, 1]
    baselines = pd.read_csv("combutab-compare/baselines.csv")["baseline"]
    assert set(baselines) == {"linear"}


@pytest.mark.parametrize("kind", ["csv.gz", "parquet"])
def test_other_files(folder, iris, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        iris.set_axis(range(5), axis=1).to_parquet("t.parquet")
    else:
        Path("t.csv.gz").write_bytes(gzip.compress(iris.to_csv(index=False).encode()))
    target = "4" if kind == "parquet" else "kind"
    assert main(["compare", f"t.{kind}", "--target", target, *QUICK]) == 0
    assert len(pd.read_csv("combutab-compare/results.csv")) == 9


def test_without_data_two_data_sets_are_compared(tmp_path, monkeypatch, capsys, files):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", *QUICK, "--out", "here", "--report", "pages/r.html"]) == 0
    out, err = capsys.readouterr()
    assert "wdbc: accuracy" in out
    assert "ar: MAE in standard deviations of the target (lower is better)" in out
    assert "\x1b" not in out + err
    assert len(err.splitlines()) == 2  # no bar in a pipe
    names = ("ar", "wdbc")
    assert files(tmp_path) == sorted(
        [f"here/{d}/{f}" for d in names for f in [*FILES, JOURNAL]]
        + [f"pages/r-{d}.html" for d in names]
    )
    for name in names:
        page = Path(f"pages/r-{name}.html")
        assert f"<h1>{name}: which activation is best?</h1>" in page.read_text("utf-8")
        assert f"Wrote {page}\n" in out
    labels = combutab.load(tmp_path / "here/wdbc/best_model.safetensors").classes_
    assert labels.tolist() == ["benign", "malignant"]


@pytest.mark.parametrize(
    ("name", "target", "task"),
    [
        ("california_housing.csv.gz", "median_house_value", "regression"),
        ("PhishingWebsites.csv.gz", "Result", "classification"),
    ],
)
def test_real_tables(tmp_path, capsys, name, target, task):
    path = SHARED / "openml" / name
    if not path.exists():
        pytest.skip(f"{name} is not in shared/data/openml beside the checkout")
    options = ["--seeds", "1", "--folds", "2", "--epochs", "10", "--hidden", "64,64"]
    options += [
        "--activations",
        "relu,combu",
        "--baselines",
        "none",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(["compare", str(path), "--target", target, *options]) == 0
    assert f"rows, {task}" in capsys.readouterr().err
    means = pd.read_csv(tmp_path / "out" / "summary.csv")["mean"]
    assert (means > (0.9 if task == "classification" else 0.6)).all()


def test_a_long_run_is_announced_with_the_way_out_and_ended_by_ctrl_c(
    folder, capsys, monkeypatch, files
):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_compare, "_LONG", 0.0)
    monkeypatch.setattr(model_selection, "run_comparison", interrupt)
    options = ["--target", "kind", *QUICK, "--device", "cpu"]
    assert main(["compare", "iris.csv", *options]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert "This may take long, about 0 minutes on two cores. Shorter: --seeds 1" in err
    assert err.splitlines()[-1] == (
        "combutab: interrupted; no network was finished, so there are no scores to keep"
    )
    assert files(folder) == ["iris.csv"]


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line(folder, capsys, iris):
    iris[:102].to_csv("rare.csv", index=False)
    assert main(["compare", "rare.csv", "--target", "kind", *QUICK]) == 0
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2
    assert err[0].startswith("combutab: warning: class 'virginica' has fewer rows than there are")


def test_dates_and_zeros_of_a_csv_are_read_as_for_fit(folder, capsys, iris):
    days = pd.Timestamp("2024-01-31") + pd.to_timedelta(range(len(iris)), unit="D")
    zips = ["00501", "10115"] * 75
    iris.assign(day=days.strftime("%d.%m.%Y"), zip=zips).to_csv("days.csv", index=False)
    assert main(["compare", "days.csv", "--target", "kind", *QUICK]) == 0
    assert "day" not in capsys.readouterr().err.replace("days:", "")
    model = "combutab-compare/best_model.safetensors"
    assert combutab.load(model).encoder_.kinds_ == (*["number"] * 4, "datetime", "category")
    assert main(["predict", model, "days.csv", "-o", "out.csv"]) == 0
    assert pd.read_csv("out.csv").columns.tolist() == ["predicted_kind"]


@pytest.mark.filterwarnings("always")
def test_a_warning_that_all_networks_give_is_printed_once(capsys):
    with one_line_warnings():
        for said in ("one", "two", "one"):
            warnings.warn(said, UserWarning, stacklevel=1)
    warned = [f"combutab: warning: {said}" for said in ("one", "two")]
    assert capsys.readouterr().err.splitlines() == warned


@pytest.mark.filterwarnings("ignore:The classifier answers class")  # of a few units
def test_a_terminal_gets_a_progress_bar(folder, shown_on_terminal, capsys):
    arguments = ["compare", "iris.csv", "--target", "kind", *QUICK, "--epochs", "40"]
    bar = shown_on_terminal(*arguments)
    assert "/9 networks" in bar
    assert "0:00 so far" in bar  # a run of less than a second
    assert "\x1b" not in capsys.readouterr().out


# ---- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no file t.csv"),
        ("", "t.csv is empty"),
        ("a,y\n", "t.csv has a header and no rows"),
        ("a,y\n1,2\n", r"the table has 1 row\(s\); at least 2 are needed"),
        ("a;y\n1;2\n3;4\n", "separator seems to be a semicolon"),
        ("a,b\n1,2\n3,4\n", "there is no column 'y'; there are 'a', 'b'"),
        ("y\n1\n2\n", "no column but the target"),
        (
            "a,y\n1,2\n3,\n5,6\n",
            r"'y' has 1 missing value\(s\), the first in data row 2",
        ),
        ("a,y\n1,2.5\n3,2.5\n", "the target 'y' is 2.5 in all 2 rows"),
        ("a,y\n1,yes\n3,yes\n", "the target 'y' is yes in all 2 rows: one class"),
        ("a,y\n1,p\n2,q\n3,p\n4,q\n", "3 folds are more than the rows of any class"),
        ("a,y\n1,p\n2,q\n3,p\n4,p\n", "class 'q' has a single row"),
        ("a,y\n1,p\n2,q\n", "3 folds are more than the 2 rows"),
        ("a,y\n1,1.5\n2,2.5\n3,3.5\n4,4.5\n", "4 rows are too few for 3 folds"),
        ("a,y\n1,2\n3,inf\n5,6\n", "infinite"),
    ],
)
def test_bad_tables(tmp_path, monkeypatch, complaint, text, says):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("t.csv").write_text(text)
    assert re.search(says, complaint("compare", "t.csv", "--target", "y", *QUICK))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--folds", "1"], "--folds must be a whole number of at least 2, got 1"),
        (["--folds", "151"], "151 folds are more than the 150 rows"),
        (["--seeds", "0"], "--seeds must be a whole number of at least 1, got 0"),
        (["--epochs", "0"], "--epochs must be a whole number of at least 1, got 0"),
        (["--recipe", "best"], "--recipe must be one of paper, default, got 'best'"),
        (["--epochs", "many"], "Invalid value for '--epochs'.* valid integer"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--hidden", "128,"], "--hidden must be 'auto' or widths such as 128,128, got '128,'"),
        (["--hidden", "0"], "each width of --hidden must be a whole number of at least 1, got 0"),
        (["--activations", "relu,reloo"], r"unknown activation 'reloo' \(did you mean 'relu'\?\)"),
        (["--activations", "relu,,elu"], "unknown activation ''"),
        (["--activations", "relu, relu"], "activation 'relu' is named twice"),
        (
            ["--device", "abacus"],
            "device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'ab",
        ),
        (["--task", "ranking"], "--task ranking is not one of auto, classification, regression"),
        (["--task", "regression"], "the target 'kind' has text that is not numbers"),
        (["--metric", "mae"], "--metric must be one of accuracy, f1, log_loss, roc_auc for class"),
        (["--test", "t"], "--test must be one of corrected-t, wilcoxon, got 't'"),
        (["--target"], "'--target' requires an argument"),
        (["--colour", "red"], "[Nn]o such option: --colour"),
        (["more.csv"], "unexpected extra argument"),
        (["--out", "iris.csv"], "cannot write to iris.csv: .*iris.csv is not a directory"),
        (["--out", "iris.csv/sub/sub"], "cannot write to iris.csv/sub/sub"),
        (["--out", "taken"], "cannot write taken/results.csv: it is a directory"),
        (["--out", "dangling/x"], "cannot write to dangling/x: .*dangling is a broken link"),
    ],
)
def test_bad_options(folder, complaint, options, says):
    Path("taken/results.csv").mkdir(parents=True)
    Path("dangling").symlink_to("nowhere")
    arguments = ["compare", "iris.csv", "--target", "kind", *QUICK, *options]
    assert re.search(says, complaint(*arguments))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["iris.csv"], "name the column of iris.csv to predict: --target COLUMN"),
        (["--target", "kind"], "--target kind needs a table: combutab compare DATA"),
        (["--metric", "r2"], "--metric r2 needs a table"),
        (["--task", "regression"], "--task regression needs a table"),
    ],
)
def test_data_and_target_go_together(folder, complaint, arguments, says):
    assert says in complaint("compare", *arguments)


def test_a_read_only_folder_is_found_out_before_training(folder, complaint, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    def train(*arguments, **options):
        raise AssertionError("trained for nothing")

    monkeypatch.setattr(_tables, "check_writable", refuse)
    monkeypatch.setattr(model_selection, "run_comparison", train)
    says = complaint("compare", "iris.csv", "--target", "kind", *QUICK)
    assert "cannot write to combutab-compare: Permission denied" in says


def test_a_disk_that_fills_up_leaves_nothing_half_written(folder, capsys, files, monkeypatch):
    def fail(self, path):
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(combutab.MLPClassifier, "save", fail)
    assert main(["compare", "iris.csv", "--target", "kind", *QUICK]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[-1] == "combutab: error: cannot write to combutab-compare: No space left on device"
    assert files(folder) == [f"combutab-compare/{JOURNAL}", "iris.csv"]


def test_a_bug_is_not_dressed_up_as_a_users_error(folder, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("a bug")

    monkeypatch.setattr(model_selection, "run_comparison", fail)
    with pytest.raises(ValueError, match="a bug"):
        main(["compare", "iris.csv", "--target", "kind", *QUICK])
