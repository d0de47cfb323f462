"""Our models beside AutoGluon's own, fitted by AutoGluon on tables of a folder.

Each model is fitted as TabArena does it: by `TabularPredictor` with eight bagged folds, or alone
with --folds 0; a table's rows are split 4:1, and errors are of the rows held out.

    python -m benchmarks.tabarena.run --data-home FOLDER [--data NAME ...] [--folds 8]
        [--rows 1000] [--time-limit 300] [--peers GBM ...]
"""

from __future__ import annotations

import argparse
import tempfile
import warnings

import pandas as pd
from autogluon.tabular import TabularPredictor

from benchmarks.machine import describe_machine
from benchmarks.quality.predictions import split_rows
from benchmarks.quality.tables import files, load
from benchmarks.tabarena.models import MODELS


def fit_table(name: str, arguments: argparse.Namespace) -> pd.DataFrame:
    """AutoGluon's leaderboard on the rows held out: error, seconds of fit and prediction."""
    X, y, classify = load(name, arguments.data_home)
    train, test = split_rows(X, 0, arguments.rows)
    table = X.assign(target=y.astype(str) if classify else y.astype(float))
    metric = "rmse" if not classify else "roc_auc" if y.nunique() == 2 else "log_loss"
    models = {model: {} for model in (*MODELS, *arguments.peers)}
    more = {"time_limit": arguments.time_limit, "num_cpus": arguments.num_cpus}
    if arguments.folds:
        one_by_one = {"fold_fitting_strategy": "sequential_local"}
        more |= {"num_bag_folds": arguments.folds, "ag_args_ensemble": one_by_one}
    more |= {"fit_weighted_ensemble": False, "raise_on_model_failure": True}
    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor("target", eval_metric=metric, path=folder, verbosity=0)
        predictor.fit(table.iloc[train], hyperparameters=models, **more)
        found = predictor.leaderboard(table.iloc[test], silent=True)
    columns = ["model", "eval_metric", "score_test", "score_val", "fit_time", "pred_time_test"]
    return found[columns].assign(data=name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-home", required=True)
    parser.add_argument("--data", nargs="+", metavar="NAME")
    parser.add_argument("--rows", type=int, default=1000, help="training rows at most")
    parser.add_argument("--folds", type=int, default=8)
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds, for all models")
    parser.add_argument("--num-cpus", type=int, default=1)
    parser.add_argument("--peers", nargs="*", default=["GBM"], help="keys of AutoGluon's models")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(describe_machine())
    tables = [fit_table(name, arguments) for name in arguments.data or files(arguments.data_home)]
    print(pd.concat(tables).to_string(index=False))


if __name__ == "__main__":
    main()
