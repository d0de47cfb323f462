"""What a target and a list beside the table mean to the generators."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from combutab import CTGAN, TVAE, TabFlow

SMALL = {
    CTGAN: {"generator_dim": (8,), "discriminator_dim": (8,), "batch_size": 20, "embedding_dim": 4},
    TVAE: {"compress_dims": (8,), "decompress_dims": (8,), "embedding_dim": 4},
    TabFlow: {"hidden_layer_sizes": (8,)},
}
TABLE = pd.DataFrame({"x": np.arange(40.0), "code": np.arange(40) % 3})


def make(**params):
    return TVAE(epochs=1, random_state=0, **SMALL[TVAE], **params)


def test_target_is_ignored_and_list_means_discrete_columns():
    target = np.arange(40) % 2
    plain = make().fit(TABLE).sample(9)
    for y in (target, pd.Series(target), target.astype(str), None):
        pd.testing.assert_frame_equal(make().fit(TABLE, y).sample(9), plain)
    piped = make_pipeline(FunctionTransformer(), make()).fit(TABLE, target)
    pd.testing.assert_frame_equal(piped[-1].sample(9), plain)
    for listed in (["code"], ("code",), pd.Index(["code"])):
        model = make().fit(TABLE, listed)
        assert list(model.encoder_.categories_) == ["code"]
        pd.testing.assert_frame_equal(
            make().fit(TABLE, discrete_columns=list(listed)).sample(9), model.sample(9)
        )
    with pytest.raises(ValueError, match="40"):
        make().fit(TABLE, np.array(["code"]))
    with pytest.raises(ValueError, match="a target of 4 rows"):
        make(min_frequency=1).fit(TABLE[:4], "code")
    for given in (["x"], "x"):
        with pytest.raises(ValueError, match=r"given twice.*'code'.*'x'"):
            make().fit(TABLE, ["code"], discrete_columns=given)
    with pytest.raises(ValueError, match="cod"):
        make().fit(TABLE, ["cod"])


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("sample", {"n": -1}, r"'n'.*TVAE"),
        ("sample", {"n": 2, "max_tries": 0}, r"'max_tries'.*TVAE"),
        ("sample_from", {"conditions": TABLE, "on_shortfall": "stop"}, "of TVAE.sample_from must"),
        ("impute", {"X": TABLE, "n_draws": 0}, r"'n_draws'.*TVAE"),
        ("sample", {"n": 1, "seed_data": 5}, r"seed_data.*DataFrame"),
    ],
)
def test_wrong_arguments_are_named_with_their_method(method, arguments, words):
    with pytest.raises(ValueError, match=words):
        getattr(make().fit(TABLE), method)(**arguments)
