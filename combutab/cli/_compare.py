"""``combutab compare``: compare activation functions or models by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo, refusals
from combutab.core.text import counted, in_words

if TYPE_CHECKING:
    import pandas as pd

    from combutab.datasets.formats import FileFormat
    from combutab.model_selection import ComparisonPlan, ModelComparison

MODEL = "best_model.safetensors"  # of a comparison of activations
FILES = ("results.csv", "summary.csv", "baselines.csv", "comparison.png", MODEL)
JOURNAL = "journal.jsonl"  # the settings of the comparison, and the scores to continue from
# BASELINES and DEFAULT_ACTIVATIONS of model_selection, whose import would take seconds
BASELINES = "guess,linear,boosting"
ACTIVATIONS = "relu,elu,selu,swish,nlrelu,gelu,combu,pln-4,la-silu,la-hardsilu"
_CPU_RATE = 5e10  # floating-point operations per second in training, measured on two cores
_SETTINGS = ("task", "folds", "epochs", "test", "device", "recipe")  # of the plan
_SEEDS = 2  # per fold and activation
_LONG_SECONDS = 20.0  # longer trainings are announced with their duration


@dataclass(frozen=True)
class _DataSet:
    """A data set to compare on, and the format of its file."""

    name: str
    X: pd.DataFrame
    y: pd.Series
    forms: FileFormat


@dataclass(frozen=True)
class _Comparison:
    """The plan of a comparison on one data set, and the files of its results."""

    plan: ComparisonPlan
    forms: FileFormat
    target: str
    folder: Path
    report: Path | None

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL

    @property
    def files(self) -> tuple[str, ...]:
        return FILES if self.plan.activations else FILES[:-1]


@dataclass(frozen=True, kw_only=True)
class CompareOptions(_options.ReadOptions):
    """The options of ``combutab compare``.

    Options
    -------
    data : DATA
        Table with a header line: READABLE. Without it, the comparison runs on two small data sets:
        wdbc (breast cancer, classification) and 600 rows of the impedance formula (regression).
    target : COLUMN
        Column of DATA to predict.
    out : FOLDER
        Folder to write the results to. After an interrupted run, the same command continues from
        the scores in the folder.
    force
        Train all networks again, and overwrite the results in the folder.
    report : FILE
        HTML report to write, such as report.html. Without DATA one report is written per data set,
        with the name of the data set added to the file name.

    Networks
    --------
    activations : NAMES, default these ten
        Activation functions to compare, separated by commas, such as relu, elu, selu, swish,
        nlrelu, gelu, combu, pln-4, la-silu, la-hardsilu; N in pln-N and pls-N is the number of
        units per group.
    models : NAMES
        Models to compare instead of activation functions, separated by commas: mlp (the networks of
        `combutab fit`), pack, tabm, boosting (gradient boosting) and linear (linear model), such as
        mlp,pack,boosting,linear.
    seeds : NUMBER, default 2; 1 with --models
        Number of seeds: networks to train per fold and activation function, or fits per model.
    epochs : NUMBER, default 100; with --recipe paper: 80, fewer for large tables, at least 20
        Number of epochs per network (passes over the training rows). With --recipe default it is a
        maximum, because the networks stop early.
    hidden : WIDTHS
        Widths of the hidden layers, such as 128,128, or auto for those of the recipe.
    recipe : NAME
        Networks and training settings: default (those of `combutab fit`) or paper (those of the
        CombU paper). Both train one network per seed.

    Scores
    ------
    folds : NUMBER
        Number of cross-validation folds.
    split : SPLIT
        How rows are split into folds. random: at random. group:COLUMN: rows with the same value of
        the column are in one fold, and the column is not used as a feature. time:COLUMN: networks
        are trained on earlier and tested on later rows by a column of dates or numbers.
    metric : NAME, default accuracy; r2 for regression
        Metric to compare the activation functions by: METRICS. The default is roc_auc if one class
        has more than two thirds of the rows.
    test : NAME
        Significance test of the differences: corrected-t (corrected resampled t-test) or wilcoxon
        (signed-rank test). p-values are adjusted by Holm's method.
    baselines : NAMES
        Baselines to score on the same folds, separated by commas: guess (ignores the features),
        linear (linear model) and boosting (gradient boosting); or none.

    Computation
    -----------
    jobs : NUMBER, default number of CPU cores; 1 on a GPU
        Number of threads. Each trains a batch of networks at a time.
    cluster : ADDRESS
        Address of the scheduler of a Dask cluster that trains the networks, such as
        tcp://10.0.0.1:8786.
    """

    data: Annotated[Path | None, typer.Argument()] = None
    target: str | None = None
    out: _options.Out = Path("combutab-compare")
    force: bool = False
    report: Path | None = None
    activations: str = ACTIVATIONS
    models: str | None = None
    seeds: _options.OptionalCount = None
    epochs: _options.OptionalCount = None
    hidden: str = "auto"
    recipe: str = "default"
    folds: Annotated[int, typer.Option(min=2)] = 5
    split: _options.Split = "random"
    metric: str | None = None
    test: str = "corrected-t"
    baselines: str = BASELINES
    task: _options.Task = "auto"
    drop: _options.Columns = None
    drop_missing_target: bool = False
    seed: _options.Seed = 0
    device: str = "auto"
    jobs: _options.OptionalCount = None
    cluster: str | None = None


def compare(options: CompareOptions) -> None:
    """Compare activation functions, or models, on a table by cross-validation.

    The command prints the mean score of each activation function with its 95 % confidence interval,
    says which differences are significant, compares them with baselines such as gradient boosting,
    and ends with advice. It saves the scores, a figure, and a model with the best activation
    function. With --models it compares models such as a pack, boosting and a linear model.

    Example: combutab compare customers.csv --target churn --activations relu,combu
    """
    if options.models is not None:
        for option in options.changed("activations", "epochs", "hidden", "recipe", "baselines"):
            raise UserError(
                f"{option} cannot be used with --models, which compares models with their default "
                "settings; leave one of them out"
            )
    if options.jobs is not None and options.cluster is not None:
        raise UserError(
            "--jobs cannot be used with --cluster, because it sets the threads of this machine; "
            "leave --jobs out"
        )
    _options.check_folder(options.out)
    tables = _default_data(options) if options.data is None else [_read_data_set(options)]

    from joblib import cpu_count

    comparisons = [_plan(options, table) for table in tables]
    for comparison in comparisons:
        outputs = {"--report": comparison.report}
        outputs |= {name: comparison.folder / name for name in comparison.files}
        _options.check_outputs(outputs, {"DATA": options.data}, make_folders=True)
        if not options.force:
            _refuse_other_results(comparison)
    with _workers(options.cluster):
        for comparison in comparisons:
            n_jobs = options.jobs
            if n_jobs is None and options.cluster is None:
                n_jobs = cpu_count() if comparison.plan.device == "cpu" else 1
            results = _run_or_resume(comparison, n_jobs, options.force)
            _print(results)
            _write(comparison, results)


# ---- input -------------------------------------------------------------------------------------


def _read_data_set(options: CompareOptions) -> _DataSet:
    data, target, reading = options.data, options.target, options.reading
    if data is None or target is None:
        raise UserError(f"give the column of {data} to predict: --target COLUMN")

    from combutab.cli import _files
    from combutab.datasets import split_target

    table, forms = _files.read_file(data, reading)
    table = _files.leave_out(table, options.drop, target, options.drop_missing_target)
    X, y = split_target(table, _options.find_target(target, table.columns))
    _files.task_of(y, options.task, data, reading)
    _files.hint_at_odd_columns(table, reading, target=y.name)
    return _DataSet(data.name.split(".")[0], X, y, forms)


def _default_data(options: CompareOptions) -> list[_DataSet]:
    for option, value in options.changed("target", "metric", "task", "split").items():
        raise UserError(f"{option} {value} needs a table: combutab compare DATA")

    import pandas as pd
    from sklearn.datasets import load_breast_cancer, make_friedman2

    from combutab.datasets.formats import FileFormat

    wdbc = load_breast_cancer(as_frame=True)
    labels = wdbc.target.map(dict(enumerate(wdbc.target_names)))
    circuits, impedance = make_friedman2(600, random_state=0)
    columns = ["resistance", "angular frequency", "inductance", "capacitance"]
    X = pd.DataFrame(circuits, columns=columns)
    return [
        _DataSet("wdbc", wdbc.data, labels, FileFormat()),
        _DataSet("impedance", X, pd.Series(impedance, name="impedance"), FileFormat()),
    ]


def _plan(options: CompareOptions, data: _DataSet) -> _Comparison:
    from combutab.model_selection import ComparisonError, plan_comparison

    X, y, folding = _folding(data.X, data.y, options.split, options.folds)
    by_models = options.models is not None
    baselines = "guess" if by_models else options.baselines.replace("none", "")
    hidden: Any = options.hidden
    widths = options.hidden.split(",")
    if all(width.strip().isdecimal() for width in widths):
        hidden = [int(width) for width in widths]
    with refusals(ComparisonError):
        plan = plan_comparison(
            X,
            y,
            activations=_split_names(options.activations),
            models=_split_names(options.models) if options.models is not None else None,
            seeds=options.seeds or (1 if by_models else _SEEDS),
            hidden=hidden,
            scoring=options.metric,
            random_state=options.seed,
            baselines=_split_names(baselines),
            name=data.name,
            **{name: getattr(options, name) for name in _SETTINGS},
            **folding,
        )
    folder, report = options.out, options.report
    if options.data is None:
        folder = options.out / data.name
        if report is not None and report.name:  # a folder is refused later
            report = report.with_name(f"{report.stem}-{data.name}{report.suffix}")
    return _Comparison(plan, data.forms, str(y.name), folder, report)


def _folding(
    X: pd.DataFrame, y: pd.Series, split: str, folds: int
) -> tuple[pd.DataFrame, pd.Series, dict[str, Any]]:
    """Return the table, sorted by time for a time split, and the parameters of its folds."""
    from combutab.cli import _files
    from combutab.core.splits import PeriodSplit

    if split == "random":
        return X, y, {}
    method, column = _files.column_of_split(X, split)
    if method == "group":
        return X.drop(columns=column), y, {"groups": X[column].astype(str).to_numpy()}
    order = X[column].argsort(kind="stable")
    X, y = X.iloc[order].reset_index(drop=True), y.iloc[order].reset_index(drop=True)
    return X, y, {"cv": PeriodSplit(folds, X[column].to_numpy(), split)}


@contextmanager
def _workers(cluster: str | None) -> Iterator[None]:
    """Train on the workers of a Dask cluster, if the address of its scheduler is given."""
    if cluster is None:
        yield
        return
    from joblib import parallel_config

    try:
        from distributed import Client

        client = Client(cluster, set_as_default=False)
    except ImportError:
        raise UserError("--cluster needs Dask: pip install dask distributed") from None
    except (OSError, ValueError) as error:
        raise UserError(f"--cluster {cluster}: no Dask scheduler answers ({error})") from error
    with client, parallel_config(backend="dask", client=client):
        workers = client.scheduler_info()["workers"]
        echo(f"on {len(workers)} workers of the Dask cluster at {cluster}", error=True)
        yield


def _split_names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if names]


# ---- training ----------------------------------------------------------------------------------


def _refuse_other_results(comparison: _Comparison) -> None:
    """Raise UserError if the folder holds results of another comparison."""
    from combutab.model_selection import checkpoint_differences

    folder, journal = comparison.folder, comparison.journal
    with refusals(OSError, ValueError, prefix=f"cannot read {journal}: "):
        difference = checkpoint_differences(journal, comparison.plan)
    old_files = [name for name in comparison.files if (folder / name).exists()]
    if difference is None and old_files:
        difference = f"{old_files[0]} without {JOURNAL}"
    if difference:
        raise UserError(
            f"{folder} holds other results ({difference}); choose another folder with --out, or "
            "overwrite them with --force"
        )


def _announce(plan: ComparisonPlan) -> None:
    counts = ((len(plan.names), plan.group), (len(plan.splits), "fold"), (plan.seeds, "seed"))
    product = " x ".join(counted(n, noun) for n, noun in counts)
    line = (
        f"{plan.data}: {counted(len(plan.y), 'row')}, {plan.task}; training "
        f"{counted(plan.n_networks, plan.fit_noun)} ({product})"
    )
    if plan.activations:
        line += f", hidden layers {'-'.join(map(str, plan.hidden))}, {plan.epoch_words}"
    echo(f"{line}, on {plan.device}", error=True)
    if "pack" in plan.models:
        echo("A fit of pack takes about 10 times as long as one of mlp.", error=True)
    seconds = plan.operations / _CPU_RATE
    if seconds > _LONG_SECONDS and plan.device == "cpu":
        echo(
            f"This may take about {in_words(seconds)} on two cores. To shorten it, use --seeds 1, "
            "--folds 3, --epochs 10, --hidden 128,128, or --device cuda.",
            error=True,
        )


def _run_or_resume(comparison: _Comparison, n_jobs: int | None, force: bool) -> ModelComparison:
    """Train the networks and compare; an error or interrupt names the file of the saved scores."""
    from combutab.core.parallel import BrokenBackend, OtherVersions, WorkerDied
    from combutab.model_selection import ComparisonError, count_checkpoint_fits, run_comparison

    plan, journal = comparison.plan, comparison.journal
    saved_scores = (
        f"the scores of {{}} of {plan.n_networks} {plan.fit_noun}s are kept in {journal}; the same "
        "command continues from them"
    )
    try:
        _announce(plan)
        if force:
            journal.unlink(missing_ok=True)
        if n_networks := count_checkpoint_fits(journal):
            trained = f"{counted(n_networks, plan.fit_noun)} trained"
            echo(f"Continuing from {journal}, with {trained}", error=True)
        return run_comparison(
            plan, progress=True, refit=bool(plan.activations), n_jobs=n_jobs, checkpoint=journal
        )
    except KeyboardInterrupt:
        none = f"no {plan.fit_noun} was finished, so no scores are kept"
        n_networks = count_checkpoint_fits(journal)
        raise KeyboardInterrupt(
            f"; {saved_scores.format(n_networks) if n_networks else none}"
        ) from None
    except ComparisonError as error:
        raise UserError(str(error)) from error
    except (BrokenBackend, OtherVersions, WorkerDied) as error:
        n_fits = count_checkpoint_fits(journal)
        raise UserError(f"{error}; {saved_scores.format(n_fits)}") from error


# ---- output ------------------------------------------------------------------------------------


def _print(results: ModelComparison) -> None:
    from rich.console import Console

    from combutab.reports import comparison_table

    console = Console(markup=False, highlight=False, emoji=False)
    for line in ("", f"{results.data}: {results.measure.description}", results.design, ""):
        echo(line, wrap=True)
    console.print(comparison_table(results, console.width))
    for line in ("", *results.sentences.splitlines()):
        echo(line, wrap=True)


def _write(comparison: _Comparison, results: ModelComparison) -> None:
    """Write the files after the results were printed: the report, and all others together."""
    from combutab.cli import _files
    from combutab.core.files import whole_files
    from combutab.plotting import plot_comparison
    from combutab.reports import write_report

    report = comparison.report
    if report is not None:
        with _options.writing(report):
            report.parent.mkdir(parents=True, exist_ok=True)
            write_report(results, report)
    summary = results.summary.copy()
    summary.insert(0, "data", results.data)
    summary.insert(2, "metric", results.metric)
    with _options.writing(comparison.folder):
        comparison.folder.mkdir(parents=True, exist_ok=True)
        with whole_files(comparison.folder, comparison.files) as folder:
            results.results.to_csv(folder / "results.csv", index=False)
            summary.to_csv(folder / "summary.csv", index=False)
            results.baseline_results.to_csv(folder / "baselines.csv", index=False)
            plot_comparison(results).savefig(folder / "comparison.png", dpi=150)
            if (best := results.best_estimator) is not None:
                _files.save_with_format(best, folder / MODEL, comparison.forms, comparison.target)
    echo(f"Wrote {', '.join(comparison.files)} to {comparison.folder}", wrap=True)
    if report is not None:
        echo(f"Wrote {report}")
