"""The commands' options and help, a command a file; their work is imported once one is run.

Used by the application alone. `--version` and `--help` come without torch, pandas and scikit-learn.
"""

from combutab.cli.commands._compare import compare
from combutab.cli.commands._evaluate import evaluate
from combutab.cli.commands._fit import fit
from combutab.cli.commands._impute import impute
from combutab.cli.commands._predict import predict
from combutab.cli.commands._sample import sample
from combutab.cli.commands._synth import synth

__all__ = ["compare", "evaluate", "fit", "impute", "predict", "sample", "synth"]
