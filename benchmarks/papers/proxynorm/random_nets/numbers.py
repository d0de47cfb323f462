"""What the rows of random_nets say, as tables."""

from __future__ import annotations

import pandas as pd

from benchmarks.papers.proxynorm.random_nets.model import RHO
from combutab.evaluation import holm, wilcoxon

TERMS = ["P1", "P2", "P3", "P4"]


def main_net(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of one kind of net at the width that has all norms."""
    own = rows[rows["phi"] == "relu"]
    return own[own["width"] == own.groupby("width")["norm"].nunique().idxmax()]


def excess(rows: pd.DataFrame) -> pd.DataFrame:
    """The LN rows with ``varying`` = P - P1 and ``bound`` = rho^(l-1)."""
    own = rows[(rows["norm"] == "LN") & (rows["net"] != "residual")]
    varying = own[["P2", "P3", "P4"]].sum(axis=1)  # not by the difference: no cancellation
    return own.assign(varying=varying, bound=RHO ** (own["depth"] - 1.0))


def bound_table(rows: pd.DataFrame) -> pd.DataFrame:
    """How the bound of Theorem 1 holds, a row for each width of each kind of net."""
    table = []
    for (kind, width), part in excess(rows[rows["phi"] == "relu"]).groupby(["net", "width"]):
        over = part["varying"] - part["bound"]
        deepest = part[part["depth"] == part["depth"].max()]
        # y has P <= 1, and at l = 1 the bound is 1: rounding there is no violation
        is_above = over > 1e-6
        table.append(
            {
                "net": kind,
                "width": width,
                "draws": part["draw"].nunique(),
                "depths": int(part["depth"].max()),
                "cells": len(part),
                "above the bound": int(is_above.sum()),
                "worst excess": max(0.0, float(over.max())),
                "at depth": int(part.loc[over.idxmax(), "depth"]) if is_above.any() else 0,
                "last P - P1": mean_sd(deepest["varying"], 5),
                "last bound": float(deepest["bound"].iloc[0]),
            }
        )
    return pd.DataFrame(table)


def equality_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Proposition 6: with phi = identity, how far P - P1 is from rho^(l-1), a row a width."""
    own = excess(rows[rows["phi"] == "identity"])
    own["error"] = (own["varying"] - own["bound"]).abs()
    worst = own.groupby(["net", "width", "draw"])["error"].max()  # over depths
    table = worst.groupby(["net", "width"]).agg(["mean", "max"]).reset_index()
    return table.set_axis(["net", "width", "largest error", "of all draws"], axis=1)


def mean_sd(values: pd.Series, digits: int = 3) -> str:
    """Mean and standard deviation over draws."""
    spread = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"


def at_depth(rows: pd.DataFrame, column: str, depth: int) -> pd.DataFrame:
    """A column at one depth, draws x norms."""
    own = rows[rows["depth"] == depth]
    return own.pivot(index="draw", columns="norm", values=column)[list(dict.fromkeys(own["norm"]))]


def depth_table(rows: pd.DataFrame, column: str, depths: list[int], digits: int) -> pd.DataFrame:
    """Means and standard deviations over draws, norms x depths."""
    columns = {f"l = {d}": at_depth(rows, column, d).agg(mean_sd, digits=digits) for d in depths}
    return pd.DataFrame(columns).rename_axis("norm").reset_index()


def terms_table(rows: pd.DataFrame, depth: int) -> pd.DataFrame:
    """All four terms at one depth, with how far they are from BN's."""
    columns = {term: at_depth(rows, term, depth) for term in TERMS}
    columns["from BN"] = from_bn(rows, depth)
    table = pd.DataFrame({name: values.agg(mean_sd) for name, values in columns.items()})
    return table.rename_axis("norm").reset_index()


def from_bn(rows: pd.DataFrame, depth: int) -> pd.DataFrame:
    """The share of the power that lies elsewhere than BN's in the same draw, draws x norms."""
    values = [at_depth(rows, term, depth) for term in TERMS]
    return sum(each.sub(each["BN"], axis=0).abs() for each in values) / 2


def comparisons(rows: pd.DataFrame, depth: int) -> pd.DataFrame:
    """Paired tests over draws that the first norm's P1 is above the second's; p after Holm."""
    values = at_depth(rows, "P1", depth)
    pairs = [("LN", "GN"), ("LN", "LN+PN"), ("GN", "GN+PN"), ("LN", "LN+WS"), ("LN+WS", "LN+PN")]
    pairs += [("GN", "IN")] * ("IN" in values)
    gaps = [values[high] - values[low] for high, low in pairs]
    return pd.DataFrame(pairs, columns=["higher", "lower"]).assign(
        difference=[mean_sd(gap) for gap in gaps],
        draws=[f"{int((gap > 0).sum())} of {len(gap)}" for gap in gaps],
        **{"p (Holm)": holm([wilcoxon(values[a], values[b]).pvalue for a, b in pairs])},
    )
