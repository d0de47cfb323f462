"""The commands' options and help; their work is imported once one is run.

So `--version` and `--help` come without torch, pandas and scikit-learn.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from combutab._seconds import parse_seconds
from combutab.cli._console import interruptible
from combutab.cli.synth._kept import Identifiers, MinFrequency, ShownFrequency

_MODEL = "tabflow"  # that synthetic rows come from, unless another one is named
_SEEDS = 2**32 - 1
# BASELINES and DEFAULT_ACTIVATIONS of model_selection, which to import would take seconds
_BASELINES = "guess,linear,boosting"
_ACTIVATIONS = "relu,elu,selu,swish,nlrelu,gelu,combu,pln-4,la-silu,la-hardsilu"


def generator_names() -> list[str]:
    """List the values of ``--model``: all generators that are registered, or will be on import."""
    if (package := sys.modules.get("combutab.generators")) is not None:
        return sorted(name.lower() for name in package.find_generators())
    homes = import_module("combutab")._HOMES
    names = [name for name, home in homes.items() if home == "generators"]
    return sorted(name.lower() for name in names if not name.endswith("Imputer"))


def _known_model(name: str | None) -> str | None:
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
        metavar=f"<{'|'.join(generator_names())}>", callback=_known_model, help="Kind of generator."
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
Sep = Annotated[
    str | None,
    typer.Option(
        help='What is between the cells of a text file, such as ";", "|" or "tab".',
        show_default="by its ending",
    ),
]
Decimal = Annotated[str, typer.Option(help='"," if a text file has numbers such as 0,125.')]
Encoding = Annotated[str, typer.Option(help="Of a text file, such as latin-1 or cp1252.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


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
        str, typer.Option(help="Names, separated by commas; also pln-N and pls-N.")
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
    _run("_compare", "compare", locals())


def synth(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx.",
            show_default=False,
        ),
    ],
    out: Out,
    model: Model = _MODEL,
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
    min_frequency: MinFrequency = 5,
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
        int, typer.Option(help="Of the training and of the rows.", min=0, max=_SEEDS)
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
    _run("synth._synth", "synth", locals())


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
            callback=_known_model,
            help="Kind of generator that learns DATA.",
            show_default=_MODEL,
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
    min_frequency: MinFrequency = 5,
    identifiers: Identifiers = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    epochs: Epochs = None,
    max_time: MaxTime = None,
    seed: Annotated[
        int, typer.Option(help="Of the training and of what is filled in.", min=0, max=_SEEDS)
    ] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
    save: Save = None,
) -> None:
    """Fill the missing cells of a table by a generator that learns the table, or has learned.

    Ctrl-C ends the training, and fills by what it has learned, beside files that are there.
    """
    if model_file is None:
        model = model or _MODEL
    _run("synth._impute", "impute", locals())


def sample(
    model: Annotated[
        Path, typer.Argument(help="File that `combutab synth --save` wrote.", show_default=False)
    ],
    out: Out,
    rows: Annotated[int, typer.Option(help="Rows to write.", min=1)] = 1000,
    condition: Conditions = None,
    seed: Annotated[int, typer.Option(help="Of the rows.", min=0, max=_SEEDS)] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
) -> None:
    """Write rows of a generator that `combutab synth` has trained.

    The same rows, conditions and seed as there give the same table as there.
    """
    _run("synth._synth", "sample", locals())


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
        int, typer.Option(help="Of the learners and of what is drawn.", min=0, max=_SEEDS)
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(help="Tables to work on at the same time.", min=1, show_default="1"),
    ] = None,
) -> None:
    """Say how useful and how alike synthetic rows are, and whether they give real rows away."""
    _run("_evaluate", "evaluate", locals())


def _run(module: str, name: str, options: dict[str, Any]) -> None:
    """Import a command's module, which takes seconds, and run it."""
    with interruptible():
        getattr(import_module(f"combutab.cli.{module}"), name)(**options)
