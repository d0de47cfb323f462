"""A training that was stopped goes on to the model that it would have given in one go."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from combutab import TVAE
from tests.generators.small import EVERY, assert_same
from tests.generators.small import make as make_small
from tests.models import Told

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": RNG.normal(size=120), "kind": RNG.choice(["a", "b"], 120)})

make = partial(make_small, epochs=6)
pytestmark = pytest.mark.usefixtures("every_epoch")


@EVERY
def test_more_epochs_go_on_from_the_end(cls, tmp_path):
    path = tmp_path / "training"
    make(cls).fit(TABLE, checkpoint=path)
    before = path.read_bytes()
    make(cls, callbacks=[Told(KeyboardInterrupt(), 1)]).fit(TABLE, checkpoint=path)
    assert path.read_bytes() == before  # nothing was left to train
    longer = make(cls, epochs=9).fit(TABLE, checkpoint=path)
    assert_same(longer, make(cls, epochs=9).fit(TABLE))


def test_first_epoch_is_checkpointed_with_list_widths(tmp_path, monkeypatch):
    monkeypatch.setattr("combutab._model_files.SECONDS", 1e9)
    path = tmp_path / "training"
    with pytest.warns(UserWarning, match="interrupted"):
        make(TVAE, compress_dims=[16], callbacks=[Told(KeyboardInterrupt(), 2)]).fit(
            TABLE, checkpoint=path
        )
    assert_same(make(TVAE).fit(TABLE, checkpoint=path), make(TVAE).fit(TABLE))


def test_unwritable_folder_is_refused_before_training(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("combutab._model_files.check_writable", refuse)
    with pytest.raises(OSError, match=f"no file can be written in {tmp_path}: Permission denied"):
        make(TVAE).fit(object(), checkpoint=tmp_path / "training")


def test_widths_in_a_series_are_taken_up_again(tmp_path):
    table = pd.DataFrame({"x": np.arange(40.0)})
    for epochs in (1, 2):
        model = TVAE(compress_dims=pd.Series([4]), decompress_dims=[4], epochs=epochs)
        model.set_params(random_state=0).fit(table, checkpoint=tmp_path / "half")
    assert len(model.history_) == 2
