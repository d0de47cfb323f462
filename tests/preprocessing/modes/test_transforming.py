"""ModeEncoder as a transformer of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from combutab.preprocessing import ModeEncoder

X = pd.DataFrame({"age": [30.0, 31.0, np.nan, 75.0, 76.0, 75.0] * 5, "city": list("abbabc") * 5})
X["fixed"] = "x"


@pytest.fixture
def encoder():
    return ModeEncoder(random_state=0).fit(X)


def test_one_array_holds_values_and_codes_and_is_inverted(encoder):
    table, rows = encoder.encode(X), encoder.transform(X)
    assert_array_equal(rows, np.hstack([table.values, table.codes]))
    pd.testing.assert_frame_equal(encoder.inverse_transform(rows), X)
    assert_array_equal(clone(encoder).fit_transform(X), rows)
    array = ModeEncoder(random_state=0).fit(X[["age"]].to_numpy())
    back = array.inverse_transform(array.transform(X[["age"]].to_numpy()))
    assert_array_equal(back[:, 0], X["age"])


def test_columns_have_names_that_frames_get(encoder):
    names = encoder.get_feature_names_out().tolist()
    assert sorted(names) == ["age_mode", "age_value", "city"]
    assert names[0] == "age_value"
    spans = [encoder.schema_.keys[span.column] for span in encoder.layout_.spans]
    assert [name.removesuffix("_mode") for name in names[1:]] == spans
    shifted = X.set_axis(range(7, 37))
    frame = encoder.set_output(transform="pandas").transform(shifted)
    assert list(frame) == names
    assert frame.index.tolist() == shifted.index.tolist()
    pd.testing.assert_frame_equal(encoder.inverse_transform(frame), X)
    pipeline = make_pipeline(ModeEncoder(random_state=0), FunctionTransformer())
    assert_array_equal(pipeline.fit_transform(X), frame)


def test_rows_that_cannot_be_decoded_are_refused(encoder):
    rows = encoder.transform(X)
    with pytest.raises(ValueError, match=r"shape \(n_rows, 3\), got \(30, 2\)"):
        encoder.inverse_transform(rows[:, :2])
    rows[0, 2] += 0.5
    with pytest.raises(ValueError, match="the last 2 columns are codes"):
        encoder.inverse_transform(rows)
