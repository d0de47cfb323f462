"""The figure of a schema: tables, columns, keys."""

import pandas as pd
import pytest

from combutab.plotting import plot_schema
from combutab.preprocessing import ForeignKey


def test_schema_has_tables_columns_and_keys():
    people = pd.DataFrame({"id": [1, 2], "$a_b$": [1, 2]})
    visits = pd.DataFrame({f"column {i}": [1, 2] for i in range(9)}).assign(who=[1, 2])
    figure = plot_schema({"visits": visits, "people": people}, [("visits", "who", "people", "id")])
    *texts, arrow = figure.axes[0].texts
    first = ["visits", "who", *(f"column {i}" for i in range(7)), "… 2 more"]
    assert [text.get_text() for text in texts] == ["people", "id", "$a_b$", *first]
    assert arrow.xy[0] < arrow.xyann[0]  # from the child to its parent, which is on the left


def test_schema_refuses_unknown_columns():
    keys = [ForeignKey("visits", ("who",), "people", ("id",))]
    with pytest.raises(ValueError, match="people"):
        plot_schema({"visits": ["who"], "people": ["age"]}, keys)
