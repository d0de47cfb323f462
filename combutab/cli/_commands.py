"""The commands' options and help; what a command does is imported once it is run."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from combutab.cli._columns import Identifiers, MinFrequency, ShownFrequency
from combutab.cli._console import interruptible
from combutab.core.text import parse_seconds

# ---- Options that several commands have, and how the work of a command is imported ---------------

SEP = 'What is between the cells of a text file, such as ";", "|" or "tab".'
DECIMAL = '"," if a text file has numbers such as 0,125; "." if 0.125.'
ENCODING = "Of a text file, such as latin-1 or cp1252."
MODEL = "tabflow"  # that synthetic rows come from, unless another one is named
SEEDS = 2**32 - 1


def generator_names() -> list[str]:
    """List the values of ``--model``: all generators that are registered, or will be on import."""
    if (package := sys.modules.get("combutab.generators")) is not None:
        return sorted(name.lower() for name in package.find_generators())
    homes = import_module("combutab")._HOMES
    names = [name for name, home in homes.items() if home == "generators"]
    return sorted(name.lower() for name in names if not name.endswith("Imputer"))


def known_generator(name: str | None) -> str | None:
    if name is None:
        return None
    if name.lower() not in generator_names():
        names = ", ".join(map(repr, generator_names()))
        raise typer.BadParameter(f"{name!r} is not one of {names}.")
    return name.lower()


def _known_time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_seconds(f"{text}s" if text[-1:].isdigit() else text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no number of seconds, nor a time such as 90s, 2min or 1h."
        ) from None


Model = Annotated[
    str,
    typer.Option(
        metavar=f"<{'|'.join(generator_names())}>",
        callback=known_generator,
        help="Kind of generator.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(help="Passes over the rows, at most.", min=1, show_default="the generator's own"),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        callback=_known_time,
        help="Seconds, or 90s, 2min, 1h, after which the training ends with the epoch.",
        show_default="no limit",
    ),
]
Discrete = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS",
        help="Columns, separated by commas, whose numbers are categories; '*' for all. "
        "Those of text and truth values are in any case.",
        show_default=False,
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        help="File for the generator, from which `combutab sample` makes more rows. "
        "It is written as soon as it is trained.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="File to write: .csv, .tsv (both also with .gz) or .parquet.",
        show_default=False,
    ),
]
Conditions = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        metavar="CONDITION",
        help='What all rows must meet: "city=Rome", "city=Rome|Oslo", "age=30", "age=30..50", '
        '"age=30..". May be given several times, for different columns.',
        show_default=False,
    ),
]
Guard = Annotated[
    bool,
    typer.Option(
        "--guard-formulas",
        help="In a .csv or .tsv, put a ' before text that a spreadsheet would run as a formula.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS", help="Columns, separated by commas, to leave out.", show_default=False
    ),
]
Sep = Annotated[str | None, typer.Option(help=SEP, show_default="by its ending")]
Decimal = Annotated[str, typer.Option(help=DECIMAL)]
Encoding = Annotated[str, typer.Option(help=ENCODING)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


# ---- The options and help of ``combutab compare`` ------------------------------------------------

# BASELINES and DEFAULT_ACTIVATIONS of model_selection, which to import would take seconds
_BASELINES = "guess,linear,boosting"
_ACTIVATIONS = "relu,elu,selu,swish,nlrelu,gelu,combu,pln-4,la-silu,la-hardsilu"


def compare(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx. "
            "Without it, two small data sets are compared on: wdbc and the formula AR.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of DATA to predict.", show_default=False)
    ] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    activations: Annotated[
        str,
        typer.Option(
            help="Names, separated by commas; also pln-N and pls-N.",
            show_default=_ACTIVATIONS.replace(",", ", "),
        ),
    ] = _ACTIVATIONS,
    seeds: Annotated[int, typer.Option(help="Networks a fold and activation.")] = 5,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of every network.",
            show_default="80; for large tables to 20; the recipe's own with --recipe default",
        ),
    ] = None,
    hidden: Annotated[str, typer.Option(help="Widths such as 128,128, or auto.")] = "auto",
    recipe: Annotated[
        str,
        typer.Option(
            help="paper, which is the CombU paper's network, or default, the estimators' own."
        ),
    ] = "paper",
    metric: Annotated[
        str | None,
        typer.Option(
            help="accuracy, f1, log_loss or roc_auc; r2, mae or mse.",
            show_default="accuracy or r2",
        ),
    ] = None,
    test: Annotated[
        str, typer.Option(help="corrected-t or wilcoxon, with Holm's correction.")
    ] = "corrected-t",
    baselines: Annotated[
        str, typer.Option(help="What networks are measured against, of these; or none.")
    ] = _BASELINES,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the folds and of all networks.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Stacks that train at the same time, each in a thread.",
            min=1,
            show_default="one a core; 1 on a GPU",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Scheduler of a Dask cluster, such as tcp://10.0.0.1:8786, whose workers train.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for the files. Where a run was interrupted, the same command goes on "
            "from the scores in it."
        ),
    ] = Path("combutab-compare"),
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Train anew, and overwrite the results that the folder holds."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML page to write for a person to read, such as report.html. "
            "Without DATA there is one for each data set, whose name is added.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the best activation for a table, and whether the difference is real."""
    options = locals()
    with interruptible():
        from combutab.cli._compare import compare as run

        run(**options)


# ---- The options and help of ``combutab fit`` ----------------------------------------------------

_MODELS = ("mlp", "pack", "tabm")


def _known_model(name: str) -> str:
    if name.lower() not in _MODELS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, _MODELS))}.")
    return name.lower()


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx.",
            show_default=False,
        ),
    ],
    target: Annotated[str, typer.Option(help="Column of DATA to predict.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="File for the model, such as model.safetensors, for `combutab predict`.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar=f"<{'|'.join(_MODELS)}>",
            callback=_known_model,
            help="A perceptron, a pack of many kinds of them, or TabM.",
        ),
    ] = "mlp",
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    activation: Annotated[
        str | None,
        typer.Option(
            help="Of all hidden layers; also pln-N and pls-N.", show_default="the model's own"
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            help="Networks whose predictions are averaged, or that a pack chooses from.",
            min=1,
            show_default="1; 16 of a pack",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the rows, at most.", min=1, show_default="the model's own"),
    ] = None,
    discrete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns, separated by commas, whose numbers are categories. Those of text are "
            "in any case.",
            show_default=False,
        ),
    ] = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    seed: Annotated[int, typer.Option(help="Of the training.", min=0, max=SEEDS)] = 0,
    device: Device = "auto",
) -> None:
    """Fit a model that predicts one column of a table from the others.

    Where rows are set aside (of 200 or more; a pack's, of 50), the last line says how good the
    model is on them, beside a guess. The file holds no rows. Ctrl-C ends the training, and nothing
    is written.
    """
    options = locals()
    with interruptible():
        from combutab.cli._estimators import fit as run

        run(**options)


# ---- The options and help of ``combutab predict`` ------------------------------------------------

_FITTED = "as the model's table"


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="File that `combutab fit` wrote, or an estimator's save.", show_default=False
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with the columns that the model was fitted with, in any order; others are "
            "passed over. .csv, .tsv (both also with .gz), .parquet or .xlsx.",
            show_default=False,
        ),
    ],
    out: Out,
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the probability of each class too.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of DATA, separated by commas, to write beside the predictions; '*' for "
            "all.",
            show_default=False,
        ),
    ] = None,
    sep: Annotated[
        str | None,
        typer.Option(help=SEP, show_default="of a .csv as in the model's; else by its ending"),
    ] = None,
    decimal: Annotated[str | None, typer.Option(help=DECIMAL, show_default=_FITTED)] = None,
    encoding: Annotated[
        str | None, typer.Option(help=ENCODING, show_default="UTF-8, or as in the model's")
    ] = None,
    device: Device = "auto",
    guard_formulas: Guard = False,
) -> None:
    """Write what a model predicts for each row of a table, in the order of the rows.

    The model's file says what the table was like that it was fitted on: dates, --sep, --decimal and
    --encoding. DATA is read in the same way, unless they are given; text of UTF-8 as that.
    """
    options = locals()
    with interruptible():
        from combutab.cli._estimators import predict as run

        run(**options)


# ---- The options and help of ``combutab synth`` --------------------------------------------------


def synth(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx.",
            show_default=False,
        ),
    ],
    out: Out,
    model: Model = MODEL,
    activation: Annotated[
        str | None,
        typer.Option(
            help="Of all hidden layers; also pln-N, pls-N, and original.",
            show_default="the generator's own",
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Rows to write.", min=1, show_default="as many as DATA has")
    ] = None,
    discrete: Discrete = None,
    min_frequency: MinFrequency = None,
    identifiers: Identifiers = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    condition: Conditions = None,
    epochs: Epochs = None,
    max_time: MaxTime = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Rows in a batch.", min=1, show_default="the generator's own"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the training and of the rows.", min=0, max=SEEDS)
    ] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
    save: Save = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File that the training is written to every half minute, and by Ctrl-C. If it is "
            "there, training goes on from it.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="File for a report, such as report.html, of how good the rows are, as `combutab "
            "evaluate` writes it.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="With --report: column that learners are to predict.", show_default=False
        ),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="With --report: share of the rows that the generator does not learn from, to "
            "compare with; 0 for none.",
            show_default="0.2",
        ),
    ] = None,
) -> None:
    """Train a generator on a table, and write a synthetic one of the same columns.

    Ctrl-C ends the training and writes what it has learned, beside files that are there.
    """
    options = locals()
    with interruptible():
        from combutab.cli._generators import synth as run

        run(**options)


# ---- The options and help of ``combutab sample`` -------------------------------------------------


def sample(
    model: Annotated[
        Path, typer.Argument(help="File that `combutab synth --save` wrote.", show_default=False)
    ],
    out: Out,
    rows: Annotated[int, typer.Option(help="Rows to write.", min=1)] = 1000,
    condition: Conditions = None,
    seed: Annotated[int, typer.Option(help="Of the rows.", min=0, max=SEEDS)] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
) -> None:
    """Write rows of a generator that `combutab synth` has trained.

    The same rows, conditions and seed as there give the same table as there.
    """
    options = locals()
    with interruptible():
        from combutab.cli._generators import sample as run

        run(**options)


# ---- The options and help of ``combutab impute`` -------------------------------------------------


def impute(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx; "
            "its empty cells are filled.",
            show_default=False,
        ),
    ],
    out: Out,
    n_draws: Annotated[
        int,
        typer.Option(
            help="Tables to write, each filled anew: with 2 and -o out.csv, out-1.csv and "
            "out-2.csv. What differs between them is not known.",
            min=1,
        ),
    ] = 1,
    model: Annotated[
        str | None,
        typer.Option(
            metavar=f"<{'|'.join(generator_names())}>",
            callback=known_generator,
            help="Kind of generator that learns DATA.",
            show_default=MODEL,
        ),
    ] = None,
    model_file: Annotated[
        Path | None,
        typer.Option(
            help="File of a generator that has learned a table of the same columns (`combutab "
            "synth --save`), to fill by, instead of one that learns DATA.",
            show_default=False,
        ),
    ] = None,
    discrete: Discrete = None,
    min_frequency: MinFrequency = None,
    identifiers: Identifiers = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    epochs: Epochs = None,
    max_time: MaxTime = None,
    seed: Annotated[
        int, typer.Option(help="Of the training and of what is filled in.", min=0, max=SEEDS)
    ] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
    save: Save = None,
) -> None:
    """Fill the missing cells of a table by a generator that learns the table, or has learned.

    Ctrl-C ends the training, and fills by what it has learned, beside files that are there.
    """
    if model_file is None:
        model = model or MODEL
    options = locals()
    with interruptible():
        from combutab.cli._impute import impute as run

        run(**options)


# ---- The options and help of ``combutab evaluate`` -----------------------------------------------


def evaluate(
    real: Annotated[
        Path,
        typer.Argument(
            help="The real rows that the generator learned from: .csv, .tsv (both also with .gz), "
            ".parquet or .xlsx.",
            show_default=False,
        ),
    ],
    synthetic: Annotated[
        Path, typer.Argument(help="The synthetic rows, in the same columns.", show_default=False)
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Column that learners are to predict, to see how useful the rows are.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            help="Real rows that the generator has not seen: learners are tested on them, and "
            "privacy is judged beside them. Without, learners are tested on a fifth of REAL, and "
            "of privacy copies alone are known.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File for the report, such as report.html.", show_default=False
        ),
    ] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    discrete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns, separated by commas, whose numbers are categories.",
            show_default=False,
        ),
    ] = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    learners: Annotated[
        str,
        typer.Option(
            help="standard, paper, or names separated by commas: linear, decision_tree, "
            "random_forest, hist_gradient_boosting, mlp, xgboost, catboost."
        ),
    ] = "standard",
    model: Annotated[
        Path | None,
        typer.Option(
            help="File of the generator (`combutab synth --save`), for the report to say how the "
            "rows were made.",
            show_default=False,
        ),
    ] = None,
    min_frequency: ShownFrequency = 5,
    seed: Annotated[
        int, typer.Option(help="Of the learners and of what is drawn.", min=0, max=SEEDS)
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(help="Tables to work on at the same time.", min=1, show_default="1"),
    ] = None,
) -> None:
    """Say how useful and how alike synthetic rows are, and whether they give real rows away."""
    options = locals()
    with interruptible():
        from combutab.cli._evaluate import evaluate as run

        run(**options)
