"""A hook of a contract that is of another type fails the type check, and no other does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]  # its pyproject.toml, wherever combutab is installed
HOOKS = {
    "generators": """
from collections.abc import Sequence

from combutab.generators._ctgan import CTGAN
from combutab.generators._ctgan import GANShape
from combutab.generators._records import GeneratorPlan, Rates, RowsDrawn, TableRows
from combutab.generators._tvae import TVAE
from combutab.generators._tvae import VAETraining
from combutab.nn import RowSpans, StackedRowDecoder


class Right(TVAE):
    def _rates(self) -> dict[str, Rates]:
        return {"decoder": Rates(1e-3)}


class Wrong(TVAE):
    def _rates(self) -> dict[str, float]:  # wrong
        return {"decoder": 1e-3}

    def _make_shape(self) -> GANShape:  # wrong
        return GANShape.of(self, ())

    def _draw(
        self, network: StackedRowDecoder, spans: RowSpans, asked: TableRows  # wrong
    ) -> RowsDrawn:
        raise NotImplementedError


class Another(CTGAN):
    def _training(  # wrong
        self, rows: TableRows, spans: RowSpans, plans: Sequence[GeneratorPlan]
    ) -> VAETraining:
        raise NotImplementedError
""",
    "estimators": """
from combutab import MLPRegressor
from combutab.nn import MLPSpec
from combutab.training import Loss


class Wrong(MLPRegressor):
    def _make_spec(self, n_rows: int) -> tuple[int, ...]:  # wrong
        return self._hidden_layer_sizes(n_rows)

    def _loss(self) -> str:  # wrong
        return self.loss


class Right(MLPRegressor):
    def _make_spec(self, n_rows: int) -> MLPSpec:
        return MLPSpec(self.encoder_.n_dense_, (4,), self.target_.n_raw_outputs)

    def _loss(self) -> Loss:
        return super()._loss()
""",
}


# Without the libraries' own types, which take ten times as long as ours; so what is a module of
# torch is anything, and of a contract's types only those of ours are told apart.
CONFIG = """
[mypy]
python_version = 3.11
ignore_missing_imports = True

[mypy-joblib.*,matplotlib.*,numpy.*,pandas.*,safetensors.*,scipy.*,sklearn.*,torch.*]
follow_imports = skip
follow_imports_for_stubs = True

[mypy-combutab.*]
follow_imports = silent
"""


@pytest.mark.slow
def test_wrong_hooks_fail_the_type_check(tmp_path):
    pytest.importorskip("mypy")
    for name, code in HOOKS.items():
        (tmp_path / f"{name}.py").write_text(code.strip())
    (tmp_path / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", *(str(tmp_path / f"{name}.py") for name in HOOKS)]
    command += ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    errors = [line.split(":", 2) for line in out.splitlines() if ": error:" in line]
    found = {(Path(path).stem, int(number)) for path, number, _ in errors}
    wrong = {
        (name, number)
        for name, code in HOOKS.items()
        for number, line in enumerate(code.strip().splitlines(), 1)
        if "# wrong" in line
    }
    assert found == wrong, out
    assert all(" incompatible with " in what for _, _, what in errors), out
