"""Canaries in tables: what one row alone has is in no page, no finding and no text of a record."""

import base64
import datetime
import html
import re

import numpy as np
import pandas as pd
import pytest

from combutab.cli import main
from combutab.model_selection import compare_activations
from combutab.reports import evaluate_synthetic, render_report

pytestmark = pytest.mark.usefixtures("short_reports")

N = 120
# one row of each table has such values
CANARIES = {
    "real": ("zq-anna-41", "Vossgasse 7", "unheard", 918273645.4321, 871263549, "1931-07-19"),
    "held": ("zq-berta-42", "Xylopark 9", "unseen", -827364519.8765, 964127385, "2087-11-23"),
    "made": ("zq-carla-43", "Quarzweg 3", "unborn", 736451982.2468, 758392641, "1899-03-28"),
}


def people(seed, canary=None, *, n=N):
    """Rows with a name, an address, a class, a sum, an account and a birthday; one is a canary."""
    rng = np.random.default_rng(seed)
    income = np.exp(rng.normal(10, 0.5, n)).round(4)
    table = pd.DataFrame(
        {
            "name": [f"person {seed} {i}" for i in range(n)],
            "street": rng.choice([f"street {i}" for i in range(30)], n),
            "district": rng.choice(["north", "south", "harbour"], n),
            "income": income,
            "saved": np.where(rng.random(n) < 0.9, 0.0, income),
            "account": 200_000_000 + rng.permutation(10**6)[:n],
            "born": pd.Timestamp("1960-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), "D"),
            "rooms": rng.integers(1, 5, n),
            "label": np.where(income + rng.normal(0, 4000, n) > 22000, "yes", "no"),
        }
    )
    if canary is not None:
        name, street, label, number, account, date = CANARIES[canary]
        row = n // 2
        table.loc[row, ["name", "street", "district", "label"]] = [name, street, label, label]
        table.loc[row, ["income", "saved"]] = number
        table.loc[row, "account"] = account
        table.loc[row, "born"] = pd.Timestamp(date)
        table.loc[row, "rooms"] = 77313
    return table


def forms():
    """Every text in which a canary might be found."""
    for name, street, label, number, account, date in CANARIES.values():
        yield from (name, street, label)
        for value in (number, account, 77313):
            size = abs(value)
            yield from (f"{size:.0f}", f"{size:,.0f}", f"{int(size)}", f"{int(size):,}")
            yield from (f"{size:.4g}", f"{size:.5g}", f"{size:.6g}", f"{size:.3e}")
        day = datetime.date.fromisoformat(date)
        yield from (date, f"{day:%Y%m%d}", f"{day:%d.%m.%Y}", f"{day:%m/%d/%Y}")


def leaks(text):
    """Canaries in a text: as it is, unescaped, and in whatever of it is base64."""
    texts = [text, html.unescape(text), re.sub(r"\s+", " ", html.unescape(text))]
    for piece in re.findall(r"[A-Za-z0-9+/]{24,}={0,2}", text):
        texts.append(base64.b64decode(piece + "=" * (-len(piece) % 4)).decode("latin-1"))
    return sorted({form for form in forms() if any(form in each for each in texts)})


def tables():
    return {"real": people(0, "real"), "held": people(1, "held"), "made": people(2, "made")}


def test_the_search_finds_what_it_looks_for():
    for table in tables().values():
        assert len(leaks(table.to_csv(index=False))) >= 7
    hidden = base64.b64encode(b"the address is Vossgasse 7 in town").decode()
    assert leaks(f"<img src='data:image/png;base64,{hidden}'>") == ["Vossgasse 7"]
    assert leaks("Vossgasse&#32;7") == ["Vossgasse 7"]


@pytest.mark.parametrize(  # and "label" below, by the command
    ("target", "held"), [("income", True), ("district", False), (None, True)]
)
def test_a_report_holds_no_canary(target, held):
    given = tables()
    found = evaluate_synthetic(
        real_train=given["real"],
        synthetic=given["made"],
        real_test=given["held"] if held else None,
        target=target,
        learners=["linear"],
    )
    if held:
        assert found.findings[2].level == "good"  # of fresh rows, unlike the copied ones below
    page = render_report(found)
    assert leaks(page) == []
    for text in (repr(found), str(found), repr(found.findings), f"{found}"):
        assert leaks(text) == []
    # the page shows values that many have
    assert all(word in page for word in ("harbour", "south"))
    assert "Identifier, not shown" in page
    assert not any(name in page for name in ("person 0 ", "person 1 ", "person 2 "))


def test_a_canary_that_the_generator_learned_by_heart_is_not_shown():
    # one real row, and 40 synthetic ones that copy it: still one row's own
    given = tables()
    copied = pd.concat([given["made"][:80], *[given["real"][N // 2 : N // 2 + 1]] * 40])
    found = evaluate_synthetic(
        real_train=given["real"], synthetic=copied, real_test=given["held"], learners="linear"
    )
    assert leaks(render_report(found)) == []
    assert found.findings[2].level == "poor"  # and it is told, not by its value
    assert leaks(repr(found)) == []


def test_addresses_that_are_copied_are_told():
    """Rows of one's own with the addresses of others: 120 of 120, and no row is a copy."""
    given = tables()
    copied = people(7).assign(name=given["real"]["name"])
    found = evaluate_synthetic(
        real_train=given["real"], synthetic=copied, real_test=given["held"], learners="linear"
    )
    assert found.findings[2].level == "poor"
    assert "Values of 'name' that occur in a single training row are copied in 120" in (
        found.findings[2].sentence
    )


@pytest.mark.parametrize("least", [2, 5, 20, 0.25])
def test_no_category_of_fewer_rows_is_shown(least):
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"word": [f"word{i:02}x" for i in range(1, 41) for _ in range(i)]})
    real["x"] = rng.normal(size=len(real))
    shuffled = real.sample(frac=1, random_state=0)
    found = evaluate_synthetic(
        real_train=real, synthetic=shuffled, min_frequency=least, learners="linear"
    )
    shown = {int(n) for n in re.findall(r"word(\d\d)x", render_report(found))}
    needed = least if least >= 1 else least * len(real)
    assert all(n >= needed for n in shown)
    assert bool(shown) == (needed <= 40)


@pytest.mark.parametrize("bad", [0, -1, 1.5, 1.0, True, "5", None])
def test_bad_frequencies_are_refused_before_any_work(bad):
    told = []
    with pytest.raises(ValueError, match="min_frequency must be an integer of at least 1, or a"):
        evaluate_synthetic(
            real_train=people(0), synthetic=people(1), min_frequency=bad, progress=told.append
        )
    assert told == []


def test_the_command_prints_no_canary(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, table in tables().items():
        table.to_csv(f"{name}.csv", index=False)
    options = ["--test", "held.csv", "--target", "label", "--learners", "linear"]
    assert main(["evaluate", "real.csv", "made.csv", *options, "-o", "report.html"]) == 0
    assert leaks((tmp_path / "report.html").read_text("utf-8")) == []
    out, err = capsys.readouterr()
    assert leaks(out + err) == []


@pytest.mark.parametrize("target", ["income", "label"])
def test_a_comparison_holds_no_canary(target):
    table = people(0, "real", n=80).drop(columns=["account", "saved"])
    if target == "label":  # a class of one row is in no fold, and refused
        table = table.assign(label=np.where(table["label"] == "unheard", "no", table["label"]))
    with pytest.warns(UserWarning, match="nothing is learned from column 'name'") as told:
        found = compare_activations(
            table.drop(columns=target),
            table[target],
            activations=["relu", "tanh"],
            seeds=1,
            folds=2,
            epochs=2,
            hidden=[4],
            refit=False,
        )
    assert leaks(" ".join(str(each.message) for each in told)) == []
    assert leaks(render_report(found)) == []
    assert leaks(found.sentences) == []
    assert leaks(repr(found)) == []
