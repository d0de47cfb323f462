"""How many laws does a guessed form recover, built as a network and fitted on rows?

`expression_network` writes the guess down as a network, whose weights that are not zero are then
fitted to 300 rows without noise (Levenberg and Marquardt's method, 100 evaluations at most). A law
is recovered where the error at new rows is below 1e-6 of its standard deviation. The guesses:

- right: the law with every variable 5 % off at most and all of it 10 %, as in other units;
- nearly right: the same times the root of a variable, a factor too many;
- wrong: the form of the next law of as many variables in the tables that is another.

    python -m benchmarks.formulas.recovery [--quick] [--equations N] [--data-home FOLDER]

Networks are built with room: a quarter of a variable's range beyond it (of a positive one down to a
tenth of its least value), or where the law has no value there, a tenth, or none. All 120 equations
take 15 minutes of one core; --equations cuts them as `share` does, by the order of
`equations.spread`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
import sympy
import torch
from matplotlib.figure import Figure
from scipy.optimize import least_squares
from scipy.stats import binomtest
from torch import Tensor
from torch.func import functional_call, jacrev

from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.page import Page
from benchmarks.common.results import Row
from benchmarks.formulas.equations import Equation, all_equations, choose_equations
from combutab.constructions import ConstructedNetwork, expression_network

RECOVERED = 1e-6
GUESSES = ("right", "nearly right", "wrong")
N_ROWS, N_TEST, MOST_EVALUATIONS = 300, 1000, 100
ROOMS = (0.25, 0.1, 0.0)  # of a range, beyond it; the first that can be built
# the same laws in forms whose parts' bounds show that they have a value
REWRITTEN = {
    "test_10": "2*arctan(sqrt((1+v/c)/(1-v/c))*tan(theta2/2))",
    "test_13": "1/(4*pi*epsilon)*q/sqrt((d-r)**2+2*r*d*(1-cos(alpha)))",
}
SETTINGS = ("equation", "guess", "rows")
RESULTS = (
    *("has_angles", "form", "n_weights", "evaluations"),
    *("error_start", "error_inside", "error_outside", "cpu_seconds", "failure"),
)


def own_form(equation: Equation) -> Equation:
    """The equation as it can be built."""
    formula = REWRITTEN.get(equation.name, equation.formula)
    return Equation(equation.name, formula, equation.domain)


def other_forms(
    equation: Equation, known: tuple[Equation, ...]
) -> Iterator[tuple[str, sympy.Expr]]:
    """Laws of as many variables, from the next in the tables on, in this one's variables."""
    names = [name for name, _, _ in equation.domain]
    place = [e.name for e in known].index(equation.name)
    for other in (*known[place + 1 :], *known[:place]):
        if len(other.domain) == len(names):
            theirs = [sympy.Symbol(name) for name, _, _ in other.domain]
            own = dict(zip(theirs, map(sympy.Symbol, names), strict=True))
            form = own_form(other).expression().subs(own, simultaneous=True)
            if form != equation.expression():
                yield other.name, form


def build(form: sympy.Expr, equation: Equation) -> ConstructedNetwork:
    """The network of a form on the equation's ranges, with room where it has a value there.

    Raises ValueError where it has none on the ranges themselves.
    """
    error = ValueError()
    for room in ROOMS:
        domain = {}
        for name, low, high in equation.domain:
            below = low - room * (high - low)
            if low > 0 and room:
                below = max(below, low / 10)
            domain[name] = (below, high + room * (high - low))
        try:
            return expression_network(form, domain)
        except ValueError as found:
            error = found
    raise error


def guess(kind: str, equation: Equation, data_home: str | None) -> tuple[str, ConstructedNetwork]:
    """The name of the form, and its network; ValueError if there is none."""
    if kind == "wrong":
        for name, form in other_forms(equation, all_equations(data_home)):
            try:
                return name, build(form, equation)
            except ValueError:
                continue
        raise ValueError("no other law of as many variables has values on these ranges")
    known = [e.name for e in all_equations(data_home)]
    rng = np.random.default_rng(known.index(equation.name))
    symbols = [sympy.Symbol(name) for name, _, _ in equation.domain]
    scales = 1 + rng.uniform(-0.05, 0.05, len(symbols))
    scaled = {s: sympy.Float(float(a)) * s for s, a in zip(symbols, scales, strict=True)}
    form = sympy.Float(1.1) * own_form(equation).expression().subs(scaled, simultaneous=True)
    if kind == "nearly right":
        positive = [s for s, (_, low, _) in zip(symbols, equation.domain, strict=True) if low > 0]
        if not positive:
            raise ValueError("no variable is positive, of which to take the root")
        form = form * sympy.sqrt(positive[0])
    return equation.name, build(form, equation)


def fit_weights(network: ConstructedNetwork, x: Tensor, y: Tensor, most: int) -> tuple[int, int]:
    """Fit the weights that are not zero, in place; how many, and evaluations."""
    own = {name: p.detach() for name, p in network.named_parameters()}
    flat = torch.cat([p.flatten() for p in own.values()])
    free, sizes = torch.nonzero(flat)[:, 0], [p.numel() for p in own.values()]

    def parts(free_values: Tensor) -> dict[str, Tensor]:
        values = flat.index_put((free,), free_values).split(sizes)
        return {n: v.view_as(p) for (n, p), v in zip(own.items(), values, strict=True)}

    def residuals(values: Tensor) -> Tensor:
        return (functional_call(network, parts(values), (x,))[:, 0] - y) / y.std()

    def as_numpy(values: np.ndarray) -> np.ndarray:
        # outside of where it has values a step is refused, and a shorter one tried
        with torch.no_grad():
            return np.nan_to_num(residuals(torch.from_numpy(values)).numpy(), nan=1e6, posinf=1e6)

    slopes = jacrev(residuals)
    found = least_squares(
        as_numpy,
        flat[free].numpy(),
        jac=lambda values: slopes(torch.from_numpy(values)).numpy(),
        x_scale="jac",
        max_nfev=most,
        ftol=1e-15,
        xtol=1e-15,
        gtol=1e-15,
    )
    network.load_state_dict(parts(torch.from_numpy(found.x)))
    return len(free), int(found.nfev)


@torch.no_grad()
def error_of(network: ConstructedNetwork, X: pd.DataFrame, y: np.ndarray) -> float:
    """Root mean square error in standard deviations of the law."""
    residual = network(torch.from_numpy(X.to_numpy()))[:, 0].numpy() - y
    return float(np.sqrt(np.mean(residual**2)) / np.std(y))


def run(equation: Equation, kind: str, data_home: str | None, quick: bool) -> list[Row]:
    """Build and fit one guess; a row."""
    warnings.filterwarnings("ignore")
    rows, n_test, most = (40, 40, 3) if quick else (N_ROWS, N_TEST, MOST_EVALUATIONS)
    found: dict[str, object] = {"has_angles": int(equation.has_angles)}
    started = time.process_time()
    try:
        found["form"], network = guess(kind, equation, data_home)
        X, y = equation.rows(rows, 0, data_home)
        inside, outside = equation.rows(n_test, 1, data_home), equation.rows_outside(n_test, 1)
        found["error_start"] = f"{error_of(network, *inside):.3g}"
        fitted = fit_weights(network, torch.from_numpy(X.to_numpy()), torch.from_numpy(y), most)
        found["n_weights"], found["evaluations"] = fitted
        found["error_inside"] = f"{error_of(network, *inside):.3g}"
        found["error_outside"] = f"{error_of(network, *outside):.3g}"
    except (ValueError, np.linalg.LinAlgError) as error:
        found["failure"] = " ".join(str(error).split())[:200]
    found["cpu_seconds"] = f"{time.process_time() - started:.3g}"
    return [{name: str(found.get(name, "")) for name in RESULTS}]


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    quick = arguments.quick
    for equation in choose_equations(2 if quick else arguments.equations, arguments.data_home):
        for kind in GUESSES:
            values = (equation.name, kind, str(40 if quick else N_ROWS))
            task = partial(run, equation, kind, arguments.data_home, quick)
            settings = dict(zip(SETTINGS, values, strict=True))
            yield Job([settings], task, f"{equation.name}, {kind}")


def write_page(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    """Fill the page."""
    n = rows["equation"].nunique()
    page.text(
        f"{n} of the 120 equations, the first of the spread order (`benchmarks/formulas/share.py` "
        f"has the rule), {N_ROWS} rows without noise. *Not built*: the form has no value somewhere "
        "on the ranges, as far as the bounds of its parts tell (a root of zero, a pole, arcsin at "
        "1). Errors are root mean squares in standard deviations of the law; *outside* is where "
        "one variable at least is up to a fifth of its range beyond it.",
    )
    head = ["guess", "laws", "built", "recovered", "share of all", "95 % interval"]
    head += ["recovered outside too", "median error before", "median error", "CPU seconds"]
    lines = []
    for kind in GUESSES:
        own = rows[rows["guess"] == kind]
        if own.empty:
            continue
        good = own["error_inside"] < RECOVERED
        interval = binomtest(int(good.sum()), len(own)).proportion_ci(method="wilson")
        outside = good & (own["error_outside"] < RECOVERED)
        medians = [f"{own[c].median():.1e}" for c in ("error_start", "error_inside")]
        share = [f"{good.mean():.0%}", f"{interval.low:.0%} to {interval.high:.0%}"]
        counts = [len(own), int(own["error_inside"].notna().sum()), int(good.sum())]
        seconds = f"{own['cpu_seconds'].median():.2g}"
        lines.append([kind, *counts, *share, int(outside.sum()), *medians, seconds])
    page.table(head, lines)
    page.figure(
        plot_errors(rows), "Errors of the fitted guesses, sorted; below the line: recovered"
    )
    page.heading("Laws not recovered from the right form")
    right = rows[(rows["guess"] == "right") & ~(rows["error_inside"] < RECOVERED)]
    formulas = {e.name: e.formula for e in all_equations(arguments.data_home)}
    page.table(
        ["equation", "law", "error", "why not built"],
        [
            [r.equation, f"`{formulas[r.equation]}`", _number(r.error_inside), r.failure]
            for r in right.fillna({"failure": ""}).itertuples()
        ],
    )
    found = rows[(rows["guess"] == "wrong") & (rows["error_inside"] < RECOVERED)]
    page.heading("Wrong forms from which a law was recovered")
    if found.empty:
        page.text("None.")
        return
    page.text("Exponents are weights, so that one product of powers is as good a guess as another.")
    page.table(
        ["equation", "law", "guessed: that of", "error"],
        [
            [r.equation, f"`{formulas[r.equation]}`", f"{r.form}: `{formulas[r.form]}`",
             _number(r.error_inside)]
            for r in found.itertuples()
        ],
    )  # fmt: skip


def _number(error: float) -> str:
    return "—" if np.isnan(error) else f"{error:.1e}"


def plot_errors(rows: pd.DataFrame) -> Figure:
    """Draw sorted errors, a line a guess."""
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for kind, colour in zip(GUESSES, ("#0072B2", "#009E73", "#D55E00"), strict=True):
        errors = np.sort(rows.loc[rows["guess"] == kind, "error_inside"].dropna().clip(lower=1e-16))
        axes.plot(np.arange(1, len(errors) + 1), errors, "o-", color=colour, label=kind)
    axes.axhline(RECOVERED, color="0.4", linestyle="--", linewidth=1)
    axes.set(yscale="log", xlabel="laws that could be built", ylabel="error at new rows")
    axes.legend(frameon=False, title="form guessed")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--equations", type=int, default=120, help="so many (%(default)s)")
    parser.add_argument("--data-home", help="folder of the Feynman tables")


ROWS = Experiment("formulas_recovery", SETTINGS, RESULTS, jobs, packages=("scipy", "cpu"))
STUDY = Study(
    "formulas_recovery",
    "Laws recovered from a guessed form",
    __doc__.splitlines()[0],
    "benchmarks.formulas.recovery",
    [ROWS],
    write_page,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
