"""What the rows of proxynorm_random_nets say, as tables."""

from __future__ import annotations

import pandas as pd

from benchmarks.papers.proxynorm.random_nets_model import RHO
from combutab.evaluation import holm, wilcoxon

TERMS = ["P1", "P2", "P3", "P4"]
CONSTANT = 0.01  # of the power, all that Theorem 1's "up to small constants" is allowed here


def excess(rows: pd.DataFrame) -> pd.DataFrame:
    """The LN rows with ``varying`` = P - P1 and ``bound`` = rho^(l-1)."""
    own = rows[rows["norm"] == "LN"].copy()
    own["varying"] = own[["P2", "P3", "P4"]].sum(axis=1)  # not by the difference: no cancellation
    own["bound"] = RHO ** (own["depth"] - 1.0)
    return own


def bound_table(rows: pd.DataFrame) -> pd.DataFrame:
    """How the bound of Theorem 1 holds, a row for each width of each kind of net."""
    own = excess(rows[(rows["net"] != "residual") & (rows["phi"] == "relu")])
    table = []
    for (kind, width), part in own.groupby(["net", "width"]):
        over = part["varying"] - part["bound"]
        deepest = part[part["depth"] == part["depth"].max()]
        line = {"net": kind, "width": width, "draws": part["draw"].nunique()}
        line["depths"] = int(part["depth"].max())
        line["cells"] = len(part)
        # y has P <= 1, and at l = 1 the bound is 1: rounding there is no violation
        line["above the bound"] = int((over > 1e-6).sum())
        line["worst excess"] = max(0.0, float(over.max()))
        line["at depth"] = int(part.loc[over.idxmax(), "depth"]) if over.max() > 1e-6 else 0
        line["last P - P1"] = mean_sd(deepest["varying"], 5)
        line["last bound"] = float(deepest["bound"].iloc[0])
        table.append(line)
    return pd.DataFrame(table)


def equality_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Proposition 6: with phi = identity, how far P - P1 is from rho^(l-1), a row a width."""
    own = excess(rows[rows["phi"] == "identity"])
    own["error"] = (own["varying"] - own["bound"]).abs()
    table = []
    for (kind, width), part in own.groupby(["net", "width"]):
        worst = part.groupby("draw")["error"].max()  # over depths
        line = {"net": kind, "width": width, "largest error": worst.mean()}
        table.append({**line, "of all draws": worst.max()})
    return pd.DataFrame(table)


def mean_sd(values: pd.Series, digits: int = 3) -> str:
    """Mean and standard deviation over draws."""
    spread = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"


def main_nets(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each kind of net at the width that has all norms."""
    own = rows[rows["phi"] == "relu"]
    full = {}
    for kind, part in own.groupby("net", sort=False):
        counts = part.groupby("width")["norm"].nunique()
        full[str(kind)] = part[part["width"] == counts.idxmax()]
    return full


def at_depth(rows: pd.DataFrame, column: str, depth: int) -> pd.DataFrame:
    """A column at one depth, draws x norms."""
    own = rows[rows["depth"] == depth]
    return own.pivot(index="draw", columns="norm", values=column)[list(dict.fromkeys(own["norm"]))]


def depth_table(rows: pd.DataFrame, column: str, depths: list[int], digits: int) -> pd.DataFrame:
    """Means and standard deviations over draws, norms x depths."""
    columns = {}
    for depth in depths:
        values = at_depth(rows, column, depth)
        columns[f"l = {depth}"] = {norm: mean_sd(values[norm], digits) for norm in values}
    return pd.DataFrame(columns).rename_axis("norm").reset_index()


def terms_table(rows: pd.DataFrame, depth: int) -> pd.DataFrame:
    """All four terms at one depth, with how far they are from BN's."""
    far = from_bn(rows, depth)
    columns = {term: at_depth(rows, term, depth) for term in TERMS}
    return pd.DataFrame(
        [
            {"norm": norm}
            | {term: mean_sd(values[norm]) for term, values in columns.items()}
            | {"from BN": mean_sd(far[norm])}
            for norm in far
        ]
    )


def from_bn(rows: pd.DataFrame, depth: int) -> pd.DataFrame:
    """The share of the power that lies elsewhere than BN's in the same draw, draws x norms."""
    values = [at_depth(rows, term, depth) for term in TERMS]
    return sum(each.sub(each["BN"], axis=0).abs() for each in values) / 2


def comparisons(rows: pd.DataFrame, depth: int) -> pd.DataFrame:
    """Paired tests over draws that the first norm's P1 is above the second's; p after Holm."""
    values = at_depth(rows, "P1", depth)
    pairs = [("LN", "GN"), ("LN", "LN+PN"), ("GN", "GN+PN"), ("LN", "LN+WS"), ("LN+WS", "LN+PN")]
    if "IN" in values:
        pairs.append(("GN", "IN"))
    table = pd.DataFrame(
        [
            {
                "higher": high,
                "lower": low,
                "difference": mean_sd(values[high] - values[low]),
                "draws": f"{int((values[high] > values[low]).sum())} of {len(values)}",
                "p": wilcoxon(values[high], values[low]).pvalue,
            }
            for high, low in pairs
        ]
    )
    table["p (Holm)"] = holm(table.pop("p"))
    return table
