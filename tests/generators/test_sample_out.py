"""sample(out=) writes the rows of sample part by part, and all of them or nothing."""

import os
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from combutab import TVAE
from combutab.cli import main
from combutab.generators import ShortfallError, sampling
from combutab.preprocessing import ModeEncoder
from tests.generators.small import WIDTHS, make
from tests.trust.test_writing import limited

pq = pytest.importorskip("pyarrow.parquet")


def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n), "count": rng.integers(0, 60, n)})
    frame["kind"] = pd.Categorical(rng.choice(["a", "b", "c"], n), ordered=True)
    frame["text"] = rng.choice(["u", "v", None], n, p=[0.1, 0.1, 0.8])
    frame["some"] = pd.array(rng.integers(0, 9, n), dtype="Int64")
    frame.loc[rng.random(n) < 0.2, ["some", "x"]] = None
    frame["flag"] = rng.random(n) < 0.5
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), "D")
    frame["id"] = [f"user{i}@mail.org" if i % 3 else None for i in range(n)]
    frame["row"] = np.arange(n)
    frame["one"] = "always"
    return frame


@pytest.fixture(scope="module", params=WIDTHS, ids=lambda cls: cls.__name__)
def model(request):
    with pytest.warns(UserWarning, match="identifiers"):
        return make(request.param, epochs=1, device="cpu", n_members=2).fit(table())


@pytest.fixture
def small_parts():
    with mock.patch.object(sampling, "PART", 50), mock.patch.object(sampling, "CHUNK", 30):
        yield


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("n", [0, 1, 170])
def test_the_file_has_the_rows_of_sample(model, tmp_path, n):
    out = tmp_path / "rows.parquet"
    expected = model.sample(n, random_state=3)
    assert model.sample(n, random_state=3, out=out) is None
    if not n:
        assert pq.read_schema(out).names == list(expected), "categories are there with rows alone"
        return
    pd.testing.assert_frame_equal(pd.read_parquet(out), expected)
    assert pq.read_metadata(out).num_row_groups == -(-n // 60)
    assert expected["row"].is_unique, "identifiers go on from part to part"
    assert os.listdir(tmp_path) == ["rows.parquet"]


def test_rows_that_meet_conditions(model, tmp_path):
    out = tmp_path / "rows.parquet"
    for asked in ({"conditions": {"flag": True, "x": [0.5]}}, {"balance": "flag"}):
        expected = model.sample(10, random_state=3, **asked)
        with mock.patch.object(sampling, "PART", 4):
            model.sample(10, random_state=3, **asked, out=out)
        assert pq.read_metadata(out).num_row_groups == 3
        pd.testing.assert_frame_equal(pd.read_parquet(out), expected)


def test_random_numbers_go_on_as_without_a_file(model, tmp_path):
    model.set_random_state(5)
    first, second = model.sample(3), model.sample(3)
    model.set_random_state(5)
    model.sample(3, out=tmp_path / "1.parquet")
    model.sample(3, out=tmp_path / "2.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "1.parquet"), first)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "2.parquet"), second)


def test_values_of_several_types(tmp_path):
    X = pd.DataFrame({"x": [1, "a"] * 30})
    model = make(TVAE, epochs=1).fit(X)
    with pytest.raises(ValueError, match="column 'x'"):
        model.sample(7, out=tmp_path / "rows.parquet")
    assert os.listdir(tmp_path) == []


# ---- all or nothing ----------------------------------------------------------------------------


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("before", [None, b"what was there"])
def test_ctrl_c_and_a_full_disk_leave_nothing(model, tmp_path, before):
    out = tmp_path / "rows.parquet"
    if before is not None:
        out.write_bytes(before)
    calls = []
    decode = ModeEncoder.decode

    def interrupted(self, values, codes, **options):
        calls.append(len(codes))
        if len(calls) > 2:
            raise KeyboardInterrupt
        return decode(self, values, codes, **options)

    with mock.patch.object(ModeEncoder, "decode", interrupted), pytest.raises(KeyboardInterrupt):
        model.sample(400, out=out)
    with limited(3000), pytest.raises(OSError, match=r"rows\.parquet"):
        model.sample(400, out=out)
    assert os.listdir(tmp_path) == ([] if before is None else ["rows.parquet"])
    assert before is None or out.read_bytes() == before


def test_bad_output_path_is_refused_before_sampling(model, tmp_path):
    with (
        mock.patch.object(type(model), "_sampler", side_effect=AssertionError("drawn")),
        pytest.raises(FileNotFoundError, match="none does not exist"),
    ):
        model.sample(3, out=tmp_path / "none" / "rows.parquet")
    with pytest.raises(ValueError, match=r"seed_data.*out"):
        model.sample(seed_data=table()[["kind"]], out=tmp_path / "rows.parquet")


def test_rows_that_are_too_few(model, tmp_path):
    out = tmp_path / "rows.parquet"
    draw = model._sampler_class.draw

    def draw_two(self, n, *others):
        values, codes, made = draw(self, n, *others)
        return values[:2], codes[:2], made

    asked = {"n": 3, "conditions": {"flag": True}, "random_state": 0, "out": out}
    with mock.patch.object(model._sampler_class, "draw", draw_two):
        with pytest.raises(ShortfallError, match="only 2 of") as caught:
            model.sample(**asked)
        assert len(caught.value.rows) == 2
        assert not out.exists()
        with pytest.warns(UserWarning, match="only 2 of"):
            model.sample(**asked, on_shortfall="return")
    pd.testing.assert_frame_equal(pd.read_parquet(out), caught.value.rows)


# ---- the command line --------------------------------------------------------------------------


@pytest.mark.usefixtures("small_parts")
def test_the_command_line_writes_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = table()
    frame.assign(day=frame["day"].dt.date).to_parquet("data.parquet")
    options = ["--epochs", "1", "--model", "tvae", "--device", "cpu"]
    assert main(["synth", "data.parquet", "-o", "rows.parquet", "--rows", "170", *options]) == 0
    found = pq.read_table("rows.parquet")
    assert found.num_rows == 170
    assert pq.read_metadata("rows.parquet").num_row_groups == 3
    assert str(found.schema.field("day").type) == "date32[day]"
    made = ["--save", "model", "--rows", "170", *options]
    assert main(["synth", "data.parquet", "-o", "rows.csv", *made]) == 0
    again = pd.read_csv("rows.csv", parse_dates=["day"])
    frame = pd.read_parquet("rows.parquet")
    np.testing.assert_allclose(frame["x"], again["x"])
    assert frame["id"].tolist() == again["id"].where(again["id"].notna(), None).tolist()
    assert frame["day"].tolist() == again["day"].dt.date.tolist()
    assert main(["sample", "model", "-o", "more.parquet", "--rows", "170"]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet("more.parquet"), frame)
