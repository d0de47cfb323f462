"""``combutab fit`` and ``combutab predict``: a model of a table in a file, and what it says."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

import combutab
from combutab import MLPClassifier, MLPRegressor, PackRegressor
from combutab.cli import _files, main
from tests.cli.people import people

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


def test_new_rows_are_read_as_those_of_the_fit(here, capsys):
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
    assert main(["predict", "model.safetensors", "new.csv", "-o", "out.parquet"]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), expected[["predicted_dear"]])


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


@pytest.fixture
def rows_set_aside(monkeypatch):
    """The rows that estimators are asked for predictions of, as ``fit`` says how good they are."""
    asked = []
    for cls in (MLPClassifier, PackRegressor):
        predict = cls.predict

        def noted(self, X, predict=predict):
            asked.append(X)
            return predict(self, X)

        monkeypatch.setattr(cls, "predict", noted)
    return asked


def test_a_classifier_is_measured_by_rows_that_it_has_not_learned_from(
    here, capsys, rows_set_aside
):
    rows = table(200, 7)
    write(rows, here / "many.csv")
    options = ["--drop", "price,since", "--epochs", "2", "--members", "1"]
    assert main(["fit", "many.csv", "--target", "dear", "-o", "m.safetensors", *options]) == 0
    words = capsys.readouterr().out.splitlines()[1]
    clf = combutab.load("m.safetensors")
    (X,) = rows_set_aside
    y = rows["dear"][X.index]
    assert len(y) == 40
    # that they are the rows set aside: the best epoch's score is minus their loss
    loss = log_loss(y, clf.predict_proba(X))
    np.testing.assert_allclose(clf.best_validation_score_, -loss, rtol=1e-4)
    right = sum(a == b for a, b in zip(clf.predict(X), y, strict=True)) / 40
    yes = (rows["dear"].drop(X.index) == "yes").mean()
    guess = "yes" if yes > 0.5 else "no"
    by_guess = sum(each == guess for each in y) / 40
    assert words.startswith(
        f"On the 40 rows set aside it is right on {100 * right:.1f} %; always answering '{guess}', "
        f"the most frequent, on {100 * by_guess:.1f} %. "
    )
    assert ("does not beat" in words) == (right <= by_guess)


def test_two_networks_are_measured_each_by_the_rows_that_it_has_not_learned_from(here, capsys):
    rows = table(200, 7)
    write(rows, here / "two.csv")
    for target, cls, other in (("dear", MLPClassifier, "price"), ("price", MLPRegressor, "dear")):
        options = ["--drop", f"{other},since", "--epochs", "2", "-o", "two.safetensors"]
        assert main(["fit", "two.csv", "--target", target, *options]) == 0
        first, words = capsys.readouterr().out.splitlines()[:2]
        model, y = combutab.load("two.safetensors"), rows[target].to_numpy()
        X = rows[model.feature_names_in_]
        splits = cls(**model.get_params()).encode_data(X, y).splits
        apart = [val.numpy() for _, val in splits]
        val = np.unique(np.concatenate(apart))
        assert [len(each) for each in (*apart, val)] == [40, 40, 80]
        raw = model._raw(X)  # of the two networks
        losses, answers = [], np.empty_like(y)
        for own, held_out in zip(raw, apart, strict=True):
            if cls is MLPClassifier:
                p = 1 / (1 + np.exp(-own.numpy()[held_out, 0]))
                answers[held_out] = np.where(p > 0.5, "yes", "no")
                losses.append(log_loss(y[held_out], p))
            else:
                mean, deviation = y.mean(), y.std()
                answers[held_out] = mean + deviation * own.numpy()[held_out, 0]
                losses.append(((answers[held_out] - y[held_out]) ** 2).mean() / y.var() / 2)
        assert first.startswith(
            f"{cls.__name__} of {target!r}: loss {np.mean(losses):.4g} on rows that were set aside"
        )
        where = "On the 80 rows set aside, each predicted by a network that has not seen it, it is "
        said = f"right on {100 * np.mean(answers[val] == y[val]):.1f} %; always"
        if cls is MLPRegressor:
            off = answers[val] - y[val]
            r2 = 1 - (off**2).sum() / ((y[val] - y[val].mean()) ** 2).sum()
            said = f"off by {abs(off).mean():.4g} on average (R2 {r2:.3f}); always"
        assert words.startswith(where + said)
        assert "get the mean of all" in words


def test_a_regressor_is_measured_in_the_units_of_its_target(here, capsys):
    rows = table(60, 8)
    write(rows, here / "some.csv")
    options = ["--model", "pack", "--members", "2", "--epochs", "1", "--drop", "dear,since"]
    assert main(["fit", "some.csv", "--target", "price", "-o", "r.safetensors", *options]) == 0
    words = capsys.readouterr().out.splitlines()[1]
    price = rows["price"].to_numpy()
    pack = combutab.PackRegressor(n_members=2, max_iter=1, random_state=0)
    pack.fit(rows.drop(columns=["price", "dear", "since"]), price)
    wrong = pack.oof_prediction_ - price
    r2 = 1 - (wrong**2).sum() / ((price - price.mean()) ** 2).sum()
    assert words.startswith(
        "On the 60 rows set aside, each predicted by networks that have not seen it, it is off by "
        f"{abs(wrong).mean():.4g} on average (R2 {r2:.3f}); always answering the median, "
        f"{np.median(price):.4g}, by {abs(price - np.median(price)).mean():.4g}."
    )


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
        ((*PREDICT, "bad.csv", "-o", "o.csv"), "no column 'zip'; .* fitted with it"),
        ((*PREDICT, "odd.csv", "-o", "o.csv"), "'since' does not hold dates .* 31.12.2024"),
        ((*PREDICT, "typed.parquet", "-o", "o.csv"), "'zip' holds numbers; .* with text"),
    ],
)
def test_what_cannot_be_done_is_said(here, complaint, arguments, said):
    rows = table(3, 5)
    write(rows.drop(columns="zip"), here / "bad.csv")
    rows.assign(since="2024-01-31").to_csv("odd.csv", index=False)
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
        ("", "the first in data row 400; --drop-missing-target leaves these rows out"),
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

    place = "split_target" if command == "fit" else "task_of"
    monkeypatch.setattr(*{
        "split_target": (combutab.datasets, "split_target"),
        "task_of": (_files, "task_of"),
    }[place], note)  # fmt: skip
    with pytest.raises(ValueError, match="noted"):
        main(arguments)
    assert len(seen[0][0]) == 50
    said = "10 of 60 rows are left out, in which the target 'y' is missing"
    assert said in capsys.readouterr().err
    write_target([""] * 60)
    assert len(rows) == 60
    assert main(arguments) == 2
    assert "the target 'y' is missing in all 60 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "option", "says"),
    [
        (lambda x: f"{x // 9},{x % 9}", ["--decimal", ","], "--decimal , reads them"),
        (lambda x: str(10**25 + x), ["--task", "regression"], "--task regression takes them as"),
        (lambda x: f"P{x:05}", ["--task", "classification"], "or give --task classification if"),
    ],
)
def test_the_option_that_an_error_names_is_a_way_out(
    here, complaint, monkeypatch, form, option, says
):
    write_target([form(i) for i in range(400)])
    fit = ["fit", "target.csv", "--target", "y", "-o", "t.safetensors"]
    assert says in complaint(*fit)
    learned = []
    fit_estimator = "combutab.cli._fit._train_whole"
    monkeypatch.setattr(fit_estimator, lambda *given: learned.append(given))
    with pytest.raises(AttributeError):  # of an estimator that is not fitted
        main([*fit, *option])
    ((estimator, _, y),) = learned
    kind = MLPClassifier if "classification" in option else MLPRegressor
    assert (type(estimator), y.dtype == float) == (kind, kind is MLPRegressor)


def test_a_column_that_nothing_is_learned_from_is_told_of_in_the_words_of_the_command(here, capsys):
    rows = write_target(np.arange(60) / 8)
    rows.assign(
        id=[f"P{i}" for i in range(60)], paid=[f"{'$€'[i % 2]}{i}" for i in range(60)]
    ).to_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "y", "-o", "t.safetensors", "--epochs", "1"]) == 0
    err = capsys.readouterr().err
    assert "'paid': its values look like numbers, but were read as text; convert to numb" in err
    assert "'id': nearly every row has a value of its own, as identifiers and free text" in err
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
