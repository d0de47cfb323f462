"""Model files that are none of ours, or spoiled: what is refused, and in which words."""

import json
import pickle

import numpy as np
import pytest
import safetensors.numpy
import torch

from combutab import MLPClassifier, MLPRegressor, load
from tests.estimators.test_files import QUICK, X, Y, header_of


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A model's file."""
    path = tmp_path_factory.mktemp("good") / "model"
    MLPClassifier(**QUICK).fit(X, Y).save(path)
    return path


def forge(good, path, change):
    """Write a good model's file with a changed header."""
    header, arrays = header_of(good), safetensors.numpy.load_file(good)
    change(header, arrays)
    safetensors.numpy.save_file(arrays, path, {"combutab": json.dumps(header)})


RAN = []


def evil(*args, **keywords):
    RAN.append(args)


def set_to(*place, value):
    def change(header, arrays):
        for key in place[:-1]:
            header = header[key]
        header[place[-1]] = value

    return change


def drop(*place):
    def change(header, arrays):
        for key in place[:-1]:
            header = header[key]
        del header[place[-1]]

    return change


def partial(name):
    return {"partial": name, "args": ["echo gotcha"], "keywords": {"dict": []}}


FORGERIES = {
    "class os.system": (set_to("class", value="os.system"), "holds a os.system, which is none of"),
    "class BaseMLP": (set_to("class", value="BaseMLP"), "none of"),
    "class is a list": (set_to("class", value=["x"]), "none of|damaged"),
    "partial of os.system": (
        set_to("params", "activation", value=partial("os.system")),
        "'os.system' is not a class of",
    ),
    "partial of a dunder": (
        set_to("params", "activation", value=partial("__builtins__")),
        "is not a class of combutab",
    ),
    "partial of a module": (
        set_to("params", "activation", value=partial("_combu")),
        "is not a class",
    ),
    "partial of eval": (set_to("target_state", "classes", value=partial("eval")), "is not a class"),
    "a method is replaced": (set_to("fitted", "predict", value="x"), "sets 'predict', which no"),
    "the class is replaced": (
        set_to("fitted", "__class__", value="x"),
        "sets '__class__', which no",
    ),
    "the dict is replaced": (
        set_to("fitted", "__dict__", value={"dict": []}),
        "sets '__dict__', which no",
    ),
    "unknown parameter": (set_to("params", "bogus", value=1), r"lacks: \['bogus'\]"),
    "wrong parameter": (set_to("params", "dropout", value=7.0), "The 'dropout' parameter"),
    "format of the future": (set_to("format", value=99), "has format 99, this version of combutab"),
    "no parameters": (drop("params"), "damaged"),
    "no class": (drop("class"), "damaged"),
    "no shape": (drop("shape"), "damaged"),
    "shape with more": (set_to("shape", "bogus", value=1), "damaged"),
    "other widths": (set_to("shape", "hidden", value=[8, 9]), "shape"),
    "other depth": (set_to("shape", "hidden", value=[8]), "does not fit the network"),
    "encoder is text": (set_to("encoder", value="x"), "damaged|encoder"),
    "fitted is a list": (set_to("fitted", value=[1]), "damaged"),
    "unknown value": (set_to("params", "alpha", value={"bogus": 1}), "damaged"),
    "fewer arrays": (
        lambda header, arrays: arrays.popitem(),
        "damaged|does not fit|lacks the arrays",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_files_are_refused_in_clear_words(forgery, good, tmp_path):
    change, words = FORGERIES[forgery]
    forge(good, tmp_path / "model", change)
    with pytest.raises(ValueError, match=words):
        load(tmp_path / "model")


def test_loading_unpickles_nothing(good, monkeypatch):
    monkeypatch.setattr(pickle, "loads", evil)
    monkeypatch.setattr(pickle, "load", evil)
    monkeypatch.setattr(pickle, "Unpickler", evil)
    monkeypatch.setattr(torch, "load", evil)
    assert load(good).predict(X).shape == (150,)
    assert not RAN


def test_files_that_are_no_models(good, tmp_path):
    path = tmp_path / "model"
    whole = good.read_bytes()
    for data in (
        b"",
        b"hello",
        whole[:5],
        whole[:300],
        whole[:-10],
        pickle.dumps(load(good)),
        b"{}" * 99,
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="is not a safetensors file, or is cut short"):
            load(path)
    safetensors.numpy.save_file({"a": np.zeros(3)}, path)
    with pytest.raises(ValueError, match="is a safetensors file, but not a model of combutab"):
        load(path)
    for header, words in [
        ("{", "is not JSON"),
        ("[1]", "damaged"),
        ("3", "damaged"),
        ("{}", "damaged"),
    ]:
        safetensors.numpy.save_file({"a": np.zeros(3)}, path, {"combutab": header})
        with pytest.raises(ValueError, match=words):
            load(path)
    with pytest.raises(FileNotFoundError, match=r"no such file.*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match="is a directory; name a file in it"):
        load(tmp_path)


def test_the_wrong_class_and_device_are_named(good):
    with pytest.raises(ValueError, match="holds a MLPClassifier, not a MLPRegressor"):
        MLPRegressor.load(good)
    with pytest.raises(ValueError, match="device must be"):
        load(good, device="toaster")
    assert load(good, device="cpu").device == "cpu"
