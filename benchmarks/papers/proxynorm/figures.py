"""The looks of norms in the figures of both studies."""

from __future__ import annotations

from benchmarks.common.looks import Look

# Okabe and Ito's colours, one a norm and its marker; PN is on a solid line
LOOKS = {"BN": ("#000000", "o"), "LN": ("#D55E00", "s"), "GN": ("#0072B2", "^")}
LOOKS |= {"LN+WS": ("#CC79A7", "X"), "GN+WS": ("#009E73", "D")}


def look(norm: str) -> Look:
    return *LOOKS[norm.removesuffix("+PN")], "-" if norm.endswith("+PN") else (0, (3, 2))
