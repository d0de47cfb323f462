"""Pictures as they come: to lay them out takes longer than all else of a study's quick form."""

import pytest
from matplotlib.figure import Figure


@pytest.fixture(autouse=True)
def no_layout(monkeypatch):
    savefig = Figure.savefig

    def as_it_comes(self, *places, **options):
        self.set_layout_engine("none")
        savefig(self, *places, **options)

    monkeypatch.setattr(Figure, "savefig", as_it_comes)
