"""How many equations does a network recover that is built from a guessed form and fitted to rows?

`expression_network` writes the guess as a network, whose non-zero weights are then fitted to 300
rows without noise (Levenberg and Marquardt's method, at most 100 evaluations). An equation is
recovered if the root mean square error on new rows is below 1e-6 standard deviations of the target.
The forms:

- right: the equation with every variable scaled by up to 5 % and the whole by 10 %;
- nearly right: the same times the square root of a variable, which is one factor too many;
- wrong: the next equation in the list with the same number of variables.

*Not built*: by the bounds of its parts, the form may be undefined somewhere in the ranges.
*Outside*: new rows of which at least one variable is up to a fifth of its range beyond it. The
stored rows are of 23 of the 120 equations, spread evenly over the list.

    python -m benchmarks.formulas.recovery [--quick] [--equations N] [--data-home FOLDER]

Networks are built with room: a quarter of a variable's range beyond it (for a positive one, down to
a tenth of its smallest value), or where the equation has no value there, a tenth, or none. All 120
equations take 15 minutes of one core; --equations N takes N of them, spread evenly.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import sympy
import torch
from scipy.optimize import least_squares
from torch import Tensor
from torch.func import functional_call, jacrev

from benchmarks.common import Arguments, Experiment, Job, Page, Row, Study
from benchmarks.formulas.equations import Equation, all_equations, choose_equations, wilson
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
    return replace(equation, formula=REWRITTEN.get(equation.name, equation.formula))


def build(form: sympy.Expr, equation: Equation) -> ConstructedNetwork:
    """The network of a form on the equation's ranges, with room where it has a value there.

    Raises ValueError where it has none on the ranges themselves.
    """
    error = ValueError()
    for room in ROOMS:
        domain = {name: (a - room * (b - a), b + room * (b - a)) for name, a, b in equation.domain}
        if room:  # what is positive stays so
            low = {name: max(domain[name][0], a / 10) for name, a, _ in equation.domain if a > 0}
            domain |= {name: (low[name], domain[name][1]) for name in low}
        try:
            return expression_network(form, domain)
        except ValueError as found:
            error = found
    raise error


def guess(kind: str, equation: Equation, data_home: str | None) -> tuple[str, ConstructedNetwork]:
    """The name of the form, and its network; ValueError if there is none."""
    known, symbols = all_equations(data_home), [sympy.Symbol(n) for n, _, _ in equation.domain]
    place = [e.name for e in known].index(equation.name)
    if kind == "wrong":
        for other in (*known[place + 1 :], *known[:place]):
            theirs = [sympy.Symbol(name) for name, _, _ in other.domain]
            if len(theirs) == len(symbols):
                own = dict(zip(theirs, symbols, strict=True))
                form = own_form(other).expression().subs(own, simultaneous=True)
                with suppress(ValueError):
                    if form != equation.expression():
                        return other.name, build(form, equation)
        raise ValueError("no other law of as many variables has values on these ranges")
    scales = 1 + np.random.default_rng(place).uniform(-0.05, 0.05, len(symbols))
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
    options = {"x_scale": "jac", "max_nfev": most, "ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
    options["jac"] = lambda values: slopes(torch.from_numpy(values)).numpy()
    found = least_squares(as_numpy, flat[free].numpy(), **options)
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
    found: Row = {"has_angles": int(equation.has_angles)}
    started = time.process_time()
    try:
        found["form"], network = guess(kind, equation, data_home)
        X, y = equation.rows(rows, 0, data_home)
        inside, outside = equation.rows(n_test, 1, data_home), equation.rows_outside(n_test, 1)
        found["error_start"] = error_of(network, *inside)
        fitted = fit_weights(network, torch.from_numpy(X.to_numpy()), torch.from_numpy(y), most)
        found["n_weights"], found["evaluations"] = fitted
        found["error_inside"] = error_of(network, *inside)
        found["error_outside"] = error_of(network, *outside)
    except (ValueError, np.linalg.LinAlgError) as error:
        found["failure"] = " ".join(str(error).split())[:200]
    return [found | {"cpu_seconds": time.process_time() - started}]


def jobs(arguments: Arguments) -> Iterator[Job]:
    quick = arguments.quick
    chosen = choose_equations(2 if quick else arguments.equations, arguments.data_home)
    for equation, kind in product(chosen, GUESSES):
        values = (equation.name, kind, 40 if quick else N_ROWS)
        task = partial(run, equation, kind, arguments.data_home, quick)
        yield Job([dict(zip(SETTINGS, values, strict=True))], task)


def write_page(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """Fill the page."""
    head = ["form", "equations", "built", "recovered", "95 % interval", "also recovered outside"]
    lines = []
    for kind, own in rows.groupby("guess", sort=False):
        good = own["error_inside"] < RECOVERED
        outside = int((good & (own["error_outside"] < RECOVERED)).sum())
        medians = [f"{own[c].median():.1e}" for c in ("error_start", "error_inside")]
        line = [kind, len(own), own["error_inside"].count(), *wilson(good), outside, *medians]
        lines.append([*line, f"{own['cpu_seconds'].median():.2g}"])
    medians = ["median error before the fit", "median error after the fit", "median CPU seconds"]
    page.table([*head, *medians], lines)
    missed = rows[(rows["guess"] == "right") & ~(rows["error_inside"] < RECOVERED)]
    listed = ", ".join(f"{r.equation} ({r.error_inside:.1e})" for r in missed.itertuples())
    page.text(f"Not recovered from the right form (error; nan: not built): {listed or 'none'}.")


ROWS = Experiment("formulas_recovery", SETTINGS, RESULTS, jobs, packages=("scipy", "cpu"))
TITLE = "AI Feynman equations recovered from a guessed form"
OPTIONS = {"equations": 120}
STUDY = Study("benchmarks.formulas.recovery", TITLE, __doc__, [ROWS], write_page, OPTIONS)

if __name__ == "__main__":
    STUDY.main()
