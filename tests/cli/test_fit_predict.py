"""``combutab fit`` and ``combutab predict``: a model of a table in a file, and what it says."""

import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import combutab
from combutab import MLPClassifier, MLPRegressor, PackRegressor
from combutab.cli import main
from combutab.evaluation import evaluate_held_out
from tests.cli.people import people
from tests.trust.forked import Forked, needs_fork

pytestmark = pytest.mark.usefixtures("few_trees", "few_resamples")
COLUMNS = ["age", "city", "zip", "since", "floor"]


def table(n, seed):
    """People with a post code that begins with zeros, and a day in the German form."""
    rng = np.random.default_rng(seed)
    zips, days = rng.choice(["00501", "00502", "10115"], n), rng.integers(0, 400, n)
    since = pd.Timestamp("2023-12-01") + pd.to_timedelta(days, unit="D")
    return people(n, seed).assign(zip=zips, since=since, floor=rng.choice([0, 1], n))


def write(frame, path):
    frame.assign(since=frame["since"].dt.strftime("%d.%m.%Y")).to_csv(path, index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    write(table(40, 0), folder / "people.csv")
    options = ["--epochs", "2", "--discrete", "floor", "--drop", "price", "--activation", "relu"]
    model = ["--target", "dear", "-o", str(folder / "model.safetensors")]
    assert main(["fit", str(folder / "people.csv"), *model, *options]) == 0
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_predictions_on_standard_output(here, capsys):
    predict = ["predict", "model.safetensors", "people.csv", "--proba", "-o"]
    assert main([*predict, "out.csv"]) == 0
    assert capsys.readouterr().out == ""
    assert main([*predict, "-"]) == 0
    assert capsys.readouterr().out == (here / "out.csv").read_text("utf-8")
    assert main(predict[:-1]) == 0  # the default
    assert capsys.readouterr().out == (here / "out.csv").read_text("utf-8")


@needs_fork
def test_reader_of_standard_output_may_end_early(here):
    predict = ["predict", "model.safetensors", "people.csv", "-o", "-"]
    reader, writer = os.pipe()
    os.close(reader)
    with tempfile.TemporaryFile("w+") as err:
        process = Forked(lambda: main(predict), here, [writer, err.fileno()])
        os.close(writer)
        process.communicate()
        err.seek(0)
        assert (process.returncode, err.read()) == (0, "")


@pytest.mark.parametrize("target", ["dear", "price"])
def test_predictions_with_intervals_or_sets_of_labels(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(table(220, 0), "people.csv")
    drop = {"dear": "price", "price": "dear"}[target]
    fit = ["fit", "people.csv", "--target", target, "--drop", drop, "--epochs", "2"]
    assert main([*fit, "-o", "m.safetensors"]) == 0
    assert main(["predict", "m.safetensors", "people.csv", "--coverage", "0.8", "-o", "o.csv"]) == 0
    model, rows = combutab.load("m.safetensors"), table(220, 0)
    X, written = rows[list(model.feature_names_in_)], pd.read_csv("o.csv")
    if target == "dear":
        expected, columns = model.predict_set(X, 0.8), ["in_set_no", "in_set_yes"]
    else:
        expected = model.predict_interval(X, 0.8)
        columns = ["predicted_price_low", "predicted_price_high"]
    np.testing.assert_allclose(written[columns].to_numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("coverage", ["0.9", "90"])
def test_coverage_that_cannot_be_met(coverage, here, capsys):
    predict = ["predict", "model.safetensors", "people.csv", "-o", "none.csv"]
    assert main([*predict, "--coverage", coverage]) == 2
    assert {"0.9": "9 rows", "90": "between 0 and 1"}[coverage] in capsys.readouterr().err
    assert not Path("none.csv").exists()


def test_the_file_is_the_estimator_of_these_options(here):
    clf = combutab.load("model.safetensors")
    assert type(clf) is MLPClassifier
    assert (clf.max_iter, clf.activation, clf.random_state) == (2, "relu", 0)
    assert clf.feature_names_in_.tolist() == COLUMNS
    assert clf.encoder_.kinds_ == ("number", *["category"] * 2, "datetime", "category")
    rows = table(40, 0)
    X = rows[COLUMNS].astype({"floor": "category"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again = MLPClassifier(**clf.get_params()).fit(X, rows["dear"])
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(X))


def test_predict_reads_rows_as_fit_did(here, capsys):
    new = table(12, 1).iloc[:, ::-1].assign(id=np.arange(12))
    new["zip"] = ["00501"] * 6 + ["00502"] * 6  # which alone would be numbers
    new["since"] = pd.Timestamp("2024-02-01")  # or the second of January
    write(new.drop(columns="dear"), here / "new.csv")
    out = ["--proba", "--keep", "id,zip"]
    assert main(["predict", "model.safetensors", "new.csv", "-o", "out.csv", *out]) == 0
    assert capsys.readouterr() == ("", "")
    clf = combutab.load("model.safetensors")
    X = new[COLUMNS]
    found = pd.read_csv("out.csv", dtype={"zip": str})
    expected = pd.DataFrame({"id": new["id"], "zip": new["zip"], "predicted_dear": clf.predict(X)})
    probabilities = pd.DataFrame(clf.predict_proba(X), columns=["no", "yes"])
    expected = expected.join(probabilities.add_prefix("probability_"))
    pd.testing.assert_frame_equal(found, expected)
    assert main(["predict", "model.safetensors", "new.csv", "-o", "out.parquet", *out]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), expected)


def test_dates_in_another_form_are_read_in_theirs(here):
    new = table(12, 1)
    new["since"] = pd.Timestamp("2024-03-25")
    predictions = []
    for form in ("%d.%m.%Y", "%Y-%m-%d", "%m/%d/%Y"):
        rows = new.assign(since=new["since"].dt.strftime(form))
        rows.to_csv("form.csv", index=False)
        assert main(["predict", "model.safetensors", "form.csv", "-o", "out.csv", "--proba"]) == 0
        predictions.append(Path("out.csv").read_text())
    assert len(set(predictions)) == 1


def test_new_rows_have_the_separators_of_the_fit(here, shown_on_terminal):
    rows = table(40, 6).assign(city=lambda each: each["city"] + "\u00e9", age=np.arange(40) + 0.25)
    german = {"index": False, "sep": ";", "decimal": ",", "encoding": "latin-1"}
    rows[["age", "city", "dear"]].to_csv("g.csv", **german)
    options = ["--sep", ";", "--decimal", ",", "--encoding", "latin-1", "--epochs", "1"]
    assert main(["fit", "g.csv", "--target", "dear", "-o", "g.safetensors", *options]) == 0
    new = rows[["age", "city"]].head(6)
    new.to_csv("g-new.csv", **german)
    new.to_csv("plain.csv", index=False)
    new.to_csv("g-new.tsv", index=False, sep="\t", decimal=",", encoding="latin-1")
    plain = ["--sep", ","]  # it is UTF-8, and is seen to be
    expected = combutab.load("g.safetensors").predict_proba(new)
    for file, given in {"g-new.csv": [], "g-new.tsv": [], "plain.csv": plain}.items():
        assert main(["predict", "g.safetensors", file, "-o", "o.csv", "--proba", *given]) == 0
        form = {"sep": ",", "decimal": "."} if given else {"sep": ";", "decimal": ","}
        found = pd.read_csv("o.csv", **form)[["probability_no", "probability_yes"]]
        np.testing.assert_allclose(found, expected)
    shown = shown_on_terminal("predict", "g.safetensors", "g-new.csv", "-o", "o.csv")
    assert "g-new.csv: read with separator ';', decimal ',', encoding latin-1" in shown


def fitted_again(model, X, y, **given):
    """The estimator of a model's file, fitted in Python, with predictions for rows set aside."""
    return type(model)(**model.get_params()).fit(X, y, **given)


MODELS = [
    ("dear", "price", [], "3 networks", 120),  # each sets a fifth aside
    ("dear", "price", ["--preset", "fast"], "1 network", 40),
    ("price", "dear", [], "3 networks", 120),
    ("price", "dear", ["--model", "pack", "--members", "2"], "2 networks", 200),
]


@pytest.mark.parametrize(("target", "other", "options", "networks", "n_rows"), MODELS)
def test_printed_scores_are_of_held_out_rows(
    here, capsys, target, other, options, networks, n_rows
):
    rows = table(200, 7)
    write(rows, here / "many.csv")
    options = [*options, "--drop", f"{other},since", "--epochs", "2", "-o", "m.safetensors"]
    assert main(["fit", "many.csv", "--target", target, *options]) == 0
    out = capsys.readouterr().out
    model = combutab.load("m.safetensors")
    X, y = rows[model.feature_names_in_], rows[target].to_numpy()
    again = fitted_again(model, X, y)
    expected = evaluate_held_out(again, y)
    assert expected.n_rows == n_rows
    assert str(expected) in out
    task = "Classification" if target == "dear" else "Regression"
    kind = "pack" if "pack" in options else "mlp"
    assert out.startswith(f"{task} of '{target}' with {kind}: {networks}, 2 epochs\n")
    worse = "is not better than the baseline's" in out
    assert worse is not expected.beats_baseline


def test_the_metric_comes_first_and_chooses_the_epoch(here, capsys):
    write(table(200, 7), here / "many.csv")
    fit = ["fit", "many.csv", "--epochs", "2", "--drop", "since", "-o", "m.safetensors"]
    for target, metric, title, scoring in [
        ("dear", "balanced-accuracy", "balanced accuracy", "balanced_accuracy"),
        ("dear", "ROC AUC", "ROC AUC", "roc_auc"),
        ("dear", "precision", "precision", "precision"),
        ("price", "mae", "MAE", "neg_mean_absolute_error"),
        ("price", "rmse", "RMSE", "loss"),
    ]:
        assert main([*fit, "--target", target, "--metric", metric, "--preset", "fast"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[4].startswith(f"{title} ")
        assert combutab.load("m.safetensors").early_stopping_scoring == scoring
    pack = ["--model", "pack", "--members", "2", "--metric", "accuracy"]
    assert main([*fit, "--target", "dear", *pack]) == 0
    assert combutab.load("m.safetensors").scoring == "accuracy"


@pytest.fixture
def series(here):
    """Rows in the order of time, whose target drifts."""
    rng = np.random.default_rng(0)
    n = 500
    rows = table(n, 3)[["age", "city"]]
    rows["when"] = pd.date_range("2024-01-01", periods=n, freq="h")
    rows["who"] = rng.choice([f"customer {i}" for i in range(30)], n)
    rows["load"] = np.arange(n) / 10 + rng.normal(size=n)
    rows.to_csv("series.csv", index=False)
    return rows


SERIES = ("fit", "series.csv", "--target", "load", "-o", "s.safetensors", "--epochs", "1")


@pytest.mark.parametrize("options", [[], ["--model", "pack", "--members", "2"]])
def test_the_latest_rows_are_set_aside(series, capsys, options):
    assert main([*SERIES, "--split", "time:when", *options]) == 0
    out, err = capsys.readouterr()
    assert "random rows" not in err
    model, latest = combutab.load("s.safetensors"), np.arange(500) >= 400
    assert "when" in model.feature_names_in_
    X, y = series[model.feature_names_in_], series["load"].to_numpy()
    model.set_params(**({"cv": latest} if options else {"validation_split": latest}))
    again = fitted_again(model, X, y)
    assert len(again.members_ if options else again._states) >= 2
    assert evaluate_held_out(again, y).rows.tolist() == np.flatnonzero(latest).tolist()
    assert str(evaluate_held_out(again, y)) in out


@pytest.mark.parametrize("options", [[], ["--model", "pack", "--members", "2"]])
def test_whole_groups_are_set_aside(series, capsys, options):
    assert main([*SERIES, "--split", "group:who", *options]) == 0
    out = capsys.readouterr().out
    model = combutab.load("s.safetensors")
    assert model.feature_names_in_.tolist() == ["age", "city", "when"]
    X, y = series[model.feature_names_in_], series["load"].to_numpy()
    again = fitted_again(model, X, y, groups=series["who"])
    assert str(evaluate_held_out(again, y)) in out
    series.drop(columns="load").head().to_csv("new.csv", index=False)
    assert main(["predict", "s.safetensors", "new.csv", "-o", "o.csv"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [[], ["--preset", "fast"], ["--model", "tabm"], ["--model", "pack", "--members", "2"]],
)
def test_refit_trains_the_saved_model_on_all_rows(series, capsys, options):
    given = [*SERIES, "--split", "time:when", "--epochs", "4", *options]
    assert main(given) == 0
    out = capsys.readouterr().out
    assert "The rows set aside are the latest by 'when', from 2024-01-17 16:00:00 to 2024-01" in out
    assert main([*given, "--refit", "--report", "r.html"]) == 0
    again = capsys.readouterr().out
    *scores, told = again.splitlines()
    assert scores == out.splitlines()  # of the model before
    assert "s.safetensors was trained again on all 500 rows" in told
    assert "trained again on all rows" in Path("r.html").read_text("utf-8")
    model = combutab.load("s.safetensors")
    X, y = series[model.feature_names_in_], series["load"].to_numpy()
    if "pack" in options:
        assert model.cv == "auto"
    else:
        n_epochs = int(re.search(r"for (\d) epoch", told)[1])
        assert (model.max_iter, model.early_stopping) == (n_epochs, False)
        assert model.n_iter_ == n_epochs
        assert model.n_members == (3 if not options else 1)
    expected = fitted_again(model, X, y).predict(X)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-6)


def test_ctrl_c_in_refit_keeps_the_scored_model(series, capsys, monkeypatch):
    fit = MLPRegressor.fit

    def interrupted(self, *arguments, **options):
        if self.early_stopping is False:
            raise KeyboardInterrupt
        return fit(self, *arguments, **options)

    monkeypatch.setattr(MLPRegressor, "fit", interrupted)
    assert main([*SERIES, "--split", "time:when", "--refit"]) == 130
    assert "interrupted; s.safetensors has the model of these scores" in capsys.readouterr().err
    assert combutab.load("s.safetensors").early_stopping == "auto"


def test_hint_at_random_split_of_sorted_rows(series, capsys):
    fit = [*SERIES, "--preset", "fast", "--epochs", "1"]
    main(fit)
    assert "use --split time:when to set the latest rows aside" in capsys.readouterr().err
    main([*fit, "--split", "time:when"])
    assert "--split" not in capsys.readouterr().err
    series.sample(frac=1, random_state=0).to_csv("series.csv", index=False)
    main(fit)
    assert "--split" not in capsys.readouterr().err


@pytest.mark.parametrize("split", ["random", "time:when"])
def test_latest_rows_may_be_a_new_class(series, capsys, split):
    late = np.arange(500) >= 400
    series.assign(load=np.where(late, "late", "early")).to_csv("series.csv", index=False)
    given = ["--preset", "fast", "--split", split, "--report", "r.html"]
    assert main([*SERIES, *given]) == 0
    assert "Confusion matrix" in capsys.readouterr().out
    page = Path("r.html").read_text("utf-8")
    assert ("increase of log loss" in page) == (split != "random")


def test_a_bar_counts_a_packs_networks(series, shown_on_terminal):
    pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
    options = ["--model", "pack", "--members", "2", "--max-time", "1h", "--set", "boosting=false"]
    shown = shown_on_terminal(*SERIES, *options)
    assert re.search(r"pack .*\D2/2\D.*networks.* left", shown, re.DOTALL)


def test_parameters_and_time_as_options(series, capsys):
    given = ["--set", "dropout=0.3", "--set", "hidden_layer_sizes=(8,)", "--set", "init=kaiming"]
    given += ["--set", "early_stopping=true", "--max-time", "1h", "--preset", "fast"]
    assert main([*SERIES, *given]) == 0
    model = combutab.load("s.safetensors")
    assert (model.dropout, model.hidden_layer_sizes, model.init) == (0.3, (8,), "kaiming")
    assert (model.early_stopping, model.max_time, model.n_members) == (True, 3600, 1)
    given = ["--set", "dropout=0.3", "--set", "boosting=False", "--members", "2"]
    assert main([*SERIES, *given, "--preset", "best"]) == 0
    pack = combutab.load("s.safetensors")
    assert (type(pack), pack.boosting, pack.member_params) == (
        PackRegressor,
        False,
        {"dropout": 0.3},
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--split", "time:wen"],
            "--split time:wen: there is no column 'wen'; did you mean 'when'",
        ),
        (
            ["--split", "time:city"],
            "'city' holds .* needs a column of numbers, or of dates in one format",
        ),
        (
            ["--split", "latest"],
            "'latest' is not a way to split rows; give random, time:COLUMN or group:COLUMN",
        ),
        (["--metric", "acuracy"], "--metric: 'acuracy' is not a known metric"),
        (
            ["--metric", "roc_auc"],
            "--metric: 'roc_auc' is a metric of classification, .* regression",
        ),
        (
            ["--preset", "fast", "--model", "pack"],
            "--preset fast and --model pack cannot be combined",
        ),
        (
            ["--set", "droput=0.3"],
            "--set droput: there is no such parameter of the model mlp; did you mean 'dropout'",
        ),
        (
            ["--set", "dropout"],
            "--set dropout is not in the form NAME=VALUE, such as --set dropout=0.3",
        ),
        (["--set", "n_members=3"], "--set n_members is not possible; use --members instead"),
        (["--set", "dropout=2"], "--set dropout must be a float in the range .* Got 2 instead"),
        (["--set", "loss=sqared"], "--set loss must be a str among"),
    ],
)
def test_options_that_cannot_be(series, complaint, options, says):
    line = complaint(*SERIES, *options)
    assert re.search(says, line), line


def test_a_model_of_columns_without_names(here):
    X = np.random.default_rng(0).normal(size=(20, 2))
    reg = MLPRegressor("quantile", (2,), max_iter=1, n_iter_no_change=np.inf).fit(X, X)
    reg.save("plain.safetensors")
    pd.DataFrame(X, columns=["a", "b"]).to_csv("plain.csv", index=False)
    assert main(["predict", "plain.safetensors", "plain.csv", "-o", "plain-out.csv"]) == 0
    np.testing.assert_allclose(pd.read_csv("plain-out.csv"), reg.predict(X))
    assert pd.read_csv("plain-out.csv").columns.tolist() == ["predicted_0", "predicted_1"]


FIT = ("fit", "people.csv", "-o", "new.safetensors", "--target")


PREDICT = ("predict", "model.safetensors")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*PREDICT, "bad.csv", "-o", "o.csv"), "no column 'zip'; .* fitted on this column"),
        (
            (*PREDICT, "odd.csv", "-o", "o.csv"),
            "'since' holds values that are not dates .* 31.12.2024",
        ),
        (
            (*PREDICT, "typed.parquet", "-o", "o.csv"),
            "'zip' holds numbers, but held text when the model was fitted",
        ),
    ],
)
def test_what_cannot_be_done_is_said(here, complaint, arguments, said):
    rows = table(3, 5)
    write(rows.drop(columns="zip"), here / "bad.csv")
    rows.assign(since="soon").to_csv("odd.csv", index=False)
    rows.assign(zip=[501, 502, 10115]).to_parquet("typed.parquet")
    line = complaint(*arguments)
    assert re.search(said, line), line


def write_target(y):
    rows = table(len(y), 0)[["age", "city"]].assign(y=y)
    rows.to_csv("target.csv", index=False)
    return rows


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ("n.a!", "has 399 numbers, and 'n.a!' (data row 400); correct these cells or remove their"),
        ("", "the first in data row 400; use --drop-missing-target to leave these rows out"),
    ],
)
def test_a_bad_cell_makes_no_classifier(here, complaint, last, says):
    write_target([*np.arange(399) / 8, last])
    Path("m.safetensors").unlink(missing_ok=True)
    fit = ["fit", "target.csv", "--target", "y", "-o", "m.safetensors"]
    compare = ["compare", "target.csv", "--target", "y"]
    for arguments in (fit, [*fit, "--task", "regression"], compare):
        assert says in complaint(*arguments)


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_rows_without_a_target_are_dropped_if_wanted(here, monkeypatch, capsys, command):
    rows = write_target([*np.arange(50) / 8, *[""] * 10])
    arguments = [command, "target.csv", "--target", "y", "--drop-missing-target"]
    arguments += ["-o", "t.safetensors"] if command == "fit" else ["--folds", "2"]
    seen = []

    def note(first, second, *given, **options):
        seen.append((first, second))
        raise ValueError("noted")

    place = "datasets.split_target" if command == "fit" else "cli._files.task_of"
    monkeypatch.setattr(f"combutab.{place}", note)
    with pytest.raises(ValueError, match="noted"):
        main(arguments)
    assert len(seen[0][0]) == 50
    said = "10 of 60 rows are left out, because the target 'y' is missing"
    assert said in capsys.readouterr().err
    write_target([""] * 60)
    assert len(rows) == 60
    assert main(arguments) == 2
    assert "the target 'y' is missing in all 60 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "option", "says"),
    [
        (
            lambda x: f"{x // 9},{x % 9}",
            ["--decimal", ","],
            "use --decimal , to read them as numbers",
        ),
        (
            lambda x: str(10**25 + x),
            ["--task", "regression"],
            "use --task regression to treat them as",
        ),
        (lambda x: f"P{x:05}", ["--task", "classification"], "or use --task classification if"),
    ],
)
def test_option_named_by_an_error_works(here, complaint, monkeypatch, form, option, says):
    write_target([form(i) for i in range(400)])
    fit = ["fit", "target.csv", "--target", "y", "-o", "t.safetensors"]
    assert says in complaint(*fit)
    learned = []
    fit_estimator = "combutab.cli._fit._train_with_progress"
    monkeypatch.setattr(fit_estimator, lambda *given: learned.append(given))
    with pytest.raises(AttributeError):  # of an estimator that is not fitted
        main([*fit, *option])
    ((estimator, _, _, y, _),) = learned
    kind = MLPClassifier if "classification" in option else MLPRegressor
    assert (type(estimator), y.dtype == float) == (kind, kind is MLPRegressor)


def test_unlearned_columns_are_named_without_parameters(here, capsys):
    rows = write_target(np.arange(60) / 8)
    rows.assign(
        id=[f"P{i}" for i in range(60)], paid=[f"{'$€'[i % 2]}{i}" for i in range(60)]
    ).to_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "y", "-o", "t.safetensors", "--epochs", "1"]) == 0
    err = capsys.readouterr().err
    assert "'paid': its values look like numbers, but were read as text; write them as" in err
    assert "'id': nearly every row has a value of its own, as identifiers have" in err
    assert "max_onehot" not in err
    assert "min_frequency" not in err


def test_an_interrupt_leaves_nothing(here, monkeypatch, capsys, files):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(MLPClassifier, "fit", stop)
    before = files(here)
    assert main([*FIT, "dear"]) == 130
    assert capsys.readouterr().err == "combutab: interrupted; nothing is kept\n"
    assert files(here) == before


@pytest.mark.parametrize("model", ["mlp", "pack"])
def test_several_targets(tmp_path, monkeypatch, capsys, complaint, model):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=220), "kind": rng.choice(list("pq"), 220)})
    rows = rows.assign(a=rows["x"] * 2, **{"b, c": 3 - rows["x"]})
    rows.to_csv("t.csv", index=False)
    options = ["--model", model, "--epochs", "2", "--drop", "kind", *["--members", "2"]]
    assert main(["fit", "t.csv", "--target", "a,b", "-o", "m", *options]) == 2
    assert "--target: there is no column 'b'" in capsys.readouterr().err
    rows = rows.rename(columns={"b, c": "b"})
    rows.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "a, b", "-o", "m", *options]) == 0
    out = capsys.readouterr().out
    assert f"Regression of 'a', 'b' with {model}: " in out
    assert re.search(r"means over the targets\. R2 of each: 'a' -?[\d.e-]+, 'b' -?[\d.e-]+\.", out)
    assert main(["predict", "m", "t.csv", "-o", "o.csv"]) == 0
    found = pd.read_csv("o.csv")
    assert list(found) == ["predicted_a", "predicted_b"]
    np.testing.assert_allclose(found, combutab.load("m").predict(rows[["x"]]))
    assert "m predicts 2 columns, but only models of one" in complaint("explain", "m", "t.csv")
    fit = ["fit", "t.csv", "-o", "new", "--target"]
    assert "several targets can only be predicted by regression, but 'kind' seems" in complaint(
        *fit, "a,kind"
    )
    assert "--target names all columns" in complaint(*fit, "a,b", "--drop", "x,kind")
    assert "--drop leaves out 'b'" in complaint(*fit, "a,b", "--drop", "b")
    rows.to_csv("u.csv", index=False)
    for command in (["compare", "t.csv"], ["evaluate", "t.csv", "u.csv"]):
        assert "--target names 2 columns, 'a', 'b'; name one" in complaint(*command, "--target=a,b")


def test_training_that_reaches_its_time_limit_says_so(here, tmp_path, capsys):
    out, table = str(tmp_path / "out.csv"), str(here / "people.csv")
    for command in (["fit", table, "--target", "dear", "-o", out], ["synth", table, "-o", out]):
        assert main([*command, "--max-time", "0.001"]) == 0
        assert "training reached --max-time after 1 epoch;" in capsys.readouterr().err
        Path(out).unlink()


def test_learning_rate_as_a_number_names_the_right_parameter(here, complaint):
    arguments = ["fit", "people.csv", "--target", "dear", "-o", "m", "--set", "learning_rate=0.01"]
    assert "use learning_rate_init=0.01" in complaint(*arguments)
