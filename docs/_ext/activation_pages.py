"""Equations of the activations, and plots of them and of their derivatives, drawn by the code."""

from __future__ import annotations

import contextlib
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure
from reference import put

import combutab
from combutab.activations import ACTIVATIONS, CombU, ComplexCombU, make_activation

_GROUP = r"\frac{x_i}{\sqrt{\frac{1}{|g|} \sum_{j \in g} x_j^2 + \varepsilon}}"
_STANDARD = r"\frac{x_i - \mu_g}{\sqrt{\sigma_g^2 + \varepsilon}}"
_LAYER = r"n_i = \frac{x_i - \mu}{\sqrt{\sigma^2 + \alpha}}"
_PARTS = r"g_1(x) = \max(0, x), \quad g_2(x) = \mathrm{ELU}(x), \quad g_3(x) = \ln(1 + \max(0, x))"
EQUATIONS = {
    "relu": r"y = \max(0, x)",
    "leaky_relu": r"y = \max(0, x) + 0.01 \min(0, x)",
    "prelu": r"y = \max(0, x) + a \min(0, x), \quad a \text{ learned}",
    "elu": r"y = \begin{cases} x & x > 0 \\ e^x - 1 & x \le 0 \end{cases}",
    "selu": r"y = \lambda \begin{cases} x & x > 0 \\ \alpha (e^x - 1) & x \le 0 \end{cases}, "
    r"\quad \lambda \approx 1.0507, \; \alpha \approx 1.6733",
    "celu": r"y = \max(0, x) + \min(0, \alpha (e^{x / \alpha} - 1)), \quad \alpha = 1",
    "pelu": r"y = \begin{cases} \frac{a}{b} x & x > 0 \\ a (e^{x / b} - 1) & x \le 0 \end{cases}, "
    r"\quad a, b > 0 \text{ learned}",
    "silu": r"y = x \, \sigma(x) = \frac{x}{1 + e^{-x}}",
    "swish": r"y = x \, \sigma(\beta x), \quad \beta = 1",
    "gelu": r"y = x \, \Phi(x) = \frac{x}{2} (1 + \mathrm{erf} \frac{x}{\sqrt{2}})",
    "mish": r"y = x \tanh(\ln(1 + e^x))",
    "tanh": r"y = \tanh(x)",
    "sigmoid": r"y = \sigma(x) = \frac{1}{1 + e^{-x}}",
    "logistic": r"y = \sigma(x) = \frac{1}{1 + e^{-x}}",
    "hardsilu": r"y = x \min(1, \max(0, \frac{x}{6} + \frac{1}{2}))",
    "softplus": r"y = \ln(1 + e^x)",
    "nlrelu": r"y = \ln(1 + \beta \max(0, x)), \quad \beta = 1",
    "identity": r"y = x",
    "dyt": r"y = \gamma \tanh(\alpha x) + \beta, \quad \alpha, \gamma, \beta \text{ learned}",
    "derf": r"y = \gamma \, \mathrm{erf}(\alpha x + s) + \beta, "
    r"\quad \alpha, s, \gamma, \beta \text{ learned}",
    "snake": r"y = x + \frac{\sin^2(a x)}{a}, \quad a > 0 \text{ learned}",
    "rational": r"y = c_0 + c_1 x + \frac{r_0 + r_1 x}{1 + (b_0 + b_1 x)^2}, "
    r"\quad \text{all learned}",
    "blend": r"y = (1 - w) x + w \, g(x), \quad g = \max(0, x), \; w \text{ learned}",
    "combu": r"y_i = g_{p(i)}(x_i), \quad p \text{ a partition of the units into parts}"
    + f"\n{_PARTS}",
    "combu-random": r"y_i = g_{p(i)}(x_i), \quad p \text{ a random partition}" + f"\n{_PARTS}",
    "complex-combu": r"y_j + i \, y_{j+n/2} = g_{p(j)}(z_j), \quad z_j = x_j + i \, x_{j+n/2}"
    "\n"
    r"u = \max(0, \mathrm{Re} \, z), \quad g_1(z) = u + i \max(0, \mathrm{Im} \, z)"
    "\n"
    r"g_2(z) = u + e^{\min(0, \mathrm{Re} \, z) + i \, \mathrm{Im} \, z} - 1, \quad "
    r"g_3(z) = \ln(1 + u + i \, \mathrm{Im} \, z)",
    "pln": r"y_i = " + _STANDARD + r", \quad |g| = 8",
    "pln-4": r"y_i = " + _STANDARD + r", \quad |g| = 4",
    "pln-8": r"y_i = " + _STANDARD + r", \quad |g| = 8",
    "pls": r"y_i = " + _GROUP + r", \quad |g| = 8",
    "pls-2": r"y_i = " + _GROUP + r", \quad |g| = 2",
    "la-silu": r"y_i = x_i \, \sigma(n_i), \quad " + _LAYER,
    "la-hardsilu": r"y_i = x_i \min(1, \max(0, \frac{n_i}{6} + \frac{1}{2})), \quad " + _LAYER,
}
"""Name in ``ACTIVATIONS`` -> its equation, as LaTeX, a line each."""

PROXY = (
    r"z_i = \frac{\varphi(\gamma_i y_i + \beta_i) - \mathrm{E}[\varphi(\gamma_i Y_i + \beta_i)]}"
    r"{\sqrt{\mathrm{Var}[\varphi(\gamma_i Y_i + \beta_i)] + \varepsilon}}, "
    r"\quad Y_i \sim N(\tilde{\beta}_i, (1 + \tilde{\gamma}_i)^2)"
)
WIDTH = 8
CURVES = (("y", "#0072b2", "-"), ("first derivative", "#d55e00", "--"),
          ("second derivative", "#009e73", ":"))  # fmt: skip


def others() -> torch.Tensor:
    """The other units of the layer, where an activation looks at them: fixed, (WIDTH,)."""
    return torch.tensor([0.0, 0.5, -1.0, 1.5, -0.5, 1.0, -1.5, 0.2], dtype=torch.float64)


def curves(name: str, unit: int = 0) -> list[torch.Tensor]:
    """A unit's input, output, and the output's first two derivatives by that input."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make_activation(name, WIDTH).double()
    x = torch.linspace(-4, 4, 400, dtype=torch.float64, requires_grad=True)  # 0 is not among them
    rows = others().repeat(len(x), 1)
    y = module(torch.cat([rows[:, :unit], x[:, None], rows[:, unit + 1 :]], 1))[:, unit]
    found = [x.detach(), y.detach()]
    for _ in range(2):
        grown = torch.autograd.grad(y.sum(), x, create_graph=True, allow_unused=True)[0]
        y = torch.zeros_like(x) if grown is None else grown
        found.append(y.detach())
        if not y.requires_grad:
            y = 0 * x
    return found


def draw(name: str) -> Figure:
    """Plot an activation and its derivatives; of CombU, a unit of each kind."""
    module = make_activation(name, WIDTH)
    spans = [(None, 0)]
    if isinstance(module, CombU) and module.partition is not None:
        order = [int((module.partition == k).nonzero()[0]) for k in range(len(module.spans))]
        spans = [(part, at) for (part, _, _), at in zip(module.spans, order, strict=True)]
    elif isinstance(module, CombU | ComplexCombU):  # of complex numbers the real part
        spans = [(part, start) for part, start, _ in module.spans]
    figure = Figure(figsize=(3.4 * max(1.35, len(spans) * 0.85), 2.5), layout="constrained")
    panels = figure.subplots(1, len(spans), sharey=True, squeeze=False)[0]
    for axes, (title, unit) in zip(panels, spans, strict=True):
        x, *lines = curves(name, unit)
        for line, (label, color, style) in zip(lines, CURVES, strict=True):
            axes.plot(x, line, style, color=color, label=label, linewidth=1.8)
        axes.set_ylim(-2.2, 4.2)
        axes.set_xlim(-4, 4)
        axes.axhline(0, color="#888888", linewidth=0.6)
        axes.axvline(0, color="#888888", linewidth=0.6)
        axes.set_xlabel("x, one unit's input" if title is None else f"x, a unit of {title}")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize=7, loc="upper left")
    return figure


@contextlib.contextmanager
def repeatable_svg():
    """Let two drawings of the same be the same file, with its text as text."""
    with matplotlib.rc_context({"svg.hashsalt": "combutab", "svg.fonttype": "none"}):
        yield


def homes() -> dict[str, list[str]]:
    """Full name of a class of combutab -> the names in `ACTIVATIONS` that make one."""
    found: dict[str, list[str]] = {}
    for name in ACTIVATIONS:
        cls = type(make_activation(name, WIDTH))
        if cls.__module__.startswith("combutab."):
            home = "combutab" if cls.__name__ in combutab.__all__ else "combutab.activations"
            found.setdefault(f"{home}.{cls.__name__}", []).append(name)
    return found


def described(name: str, folder: str) -> list[str]:
    """Equation and plot, as reStructuredText; ``folder`` leads to the pictures."""
    looks = "A unit's output" + (
        "" if getattr(make_activation(name, WIDTH), "unitwise", True)
        else ", the seven units beside it held still"
    )  # fmt: skip
    lines = EQUATIONS[name].splitlines() if name in EQUATIONS else []
    equation = [part for line in lines for part in (".. math::", "", f"   {line}", "")]
    return [
        *equation,
        f".. image:: {folder}/{name}.svg",
        f"   :alt: {looks} and its first two derivatives by its input, for {name}",
        "   :class: dark-light plot",
        "",
    ]


def pages(pictures: str) -> dict[str, list[str]]:
    """What stands below the class of an activation, and the page of them all."""
    found: dict[str, list[str]] = {}
    for full, names in homes().items():
        lines = ["Equation and shape", "-" * 18, ""]
        for name in names[:1]:
            lines += described(name, pictures)
        by = ", ".join(f"``{name}``" for name in names)
        lines += [f"By name, for ``activation=``: {by}.", ""]
        found[full] = lines
    found["combutab.ProxyNorm"] = ["Equation", "-" * 8, "", ".. math::", "", f"   {PROXY}", ""]
    return found


def overview(pictures: str) -> str:
    """Lay out the page of all activations."""
    of = {name: full for full, names in homes().items() for name in names}
    lines = ["The activations, drawn", "=" * 22, ""]
    lines += [
        "Each name that ``activation=`` takes: its equation, and a plot of one unit's output, with "
        "the first two derivatives by its input, computed by the code as it is. Where a unit's "
        "output depends on its neighbours (PLN, PLS, LayerAct), the layer is of eight units and "
        "the seven others are held still. :math:`\\sigma` is the logistic function, :math:`\\Phi` "
        "the normal distribution function, and learned parameters are where they start. "
        "What suits which table is in :doc:`/guide/activations`.",
        "",
    ]
    for name in ACTIVATIONS:
        lines += [name, "-" * len(name), ""]
        if name in of:
            lines += [f"A :py:class:`{of[name]}`.", ""]
        lines += described(name, pictures)
    return "\n".join(lines) + "\n"


def write(docs: Path) -> None:
    """Draw what is not drawn yet, and write the page of all."""
    folder = docs / "made" / "activations"
    folder.mkdir(parents=True, exist_ok=True)
    with repeatable_svg():
        for name in ACTIVATIONS:
            draw(name).savefig(
                folder / f"{name}.svg", transparent=True, metadata={"Date": None, "Creator": None}
            )
    put(docs / "api" / "activations_drawn.rst", overview("/made/activations"))
