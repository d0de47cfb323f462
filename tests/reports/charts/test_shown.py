"""Which columns a page takes for identifiers, from the tables as they were given."""

import numpy as np
import pandas as pd
import pytest

from combutab.evaluation import align_tables
from combutab.reports._charts import is_identifier

RNG = np.random.default_rng(0)
N = 200
IDENTIFIERS = {
    "row": range(N),
    "row with gaps": [None, *range(1000, 1000 + N - 1)],
    "customer_id": RNG.permutation(10**6)[:N] * 17,  # by its name alone
    "mail": [f"user{i}@mail.org" for i in range(N)],
    "pairs": [f"family {i // 2}" for i in range(N)],  # of two rows each
    "decimals": [f"x{RNG.random():.12f}" for _ in range(N)],
    "read as text": [f"{RNG.random():.12f}" for _ in range(N)],
}
OTHERS = {
    "income": RNG.normal(1e4, 1e3, N),
    "population": RNG.permutation(10**6)[:N] * 17,
    "great": RNG.normal(0, 1e300, N),
    "city": RNG.choice(["Rome", "Oslo", "Cork"], N),
    "day": pd.date_range("2001-01-01", periods=N),
    "member": RNG.random(N) < 0.5,
    "nothing": [None] * N,
}


@pytest.mark.parametrize("name", [*IDENTIFIERS, *OTHERS])
def test_identifiers_and_others(name):
    table = pd.DataFrame({name: (IDENTIFIERS | OTHERS)[name]})
    aligned = align_tables({"real": table}, reference="real")["real"]
    assert is_identifier(aligned[name]) == (name in IDENTIFIERS)


def test_of_few_rows_text_that_nearly_all_differs_is_left_out_as_well():
    table = pd.DataFrame({"name": [f"person {i}" for i in range(30)], "age": range(30)})
    aligned = align_tables({"real": table}, reference="real")["real"]
    assert is_identifier(aligned["name"])
    assert not is_identifier(aligned["age"])
