"""What the rows of the study on PLN as normalisation say: contrasts with tests, and verdicts."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from combutab.evaluation import corrected_resampled_ttest, holm, wilcoxon

LEVEL = 0.05
MARGINAL = 0.02  # of accuracy or R2: a mean difference up to this is called marginal
PAPER = ("relu", "sigmoid", "tanh")  # Figure 10's, beside none
OTHERS = ("batch", "layer", "none")  # what stands against PLN-8
Kind = tuple[str, str]  # normalisation and activation
NAMES = {"none": "none", "batch": "batch norm", "layer": "layer norm", "pln": "PLN-8"}
ACTIVATION_NAMES = {"identity": "none", "relu": "ReLU", "combu": "CombU"}


def shown(kind: Kind) -> str:
    """A kind of network in a sentence."""
    normalization, activation = kind
    first = "no normalisation" if normalization == "none" else NAMES[normalization]
    second = "no activation" if activation == "identity" else activation_name(activation)
    return f"{first} with {second}"


def activation_name(name: str) -> str:
    return ACTIVATION_NAMES.get(name, name)


def mean_scores(rows: pd.DataFrame, data: str, depth: int) -> pd.DataFrame:
    """Mean and standard deviation over splits, by normalisation and activation."""
    own = rows[(rows["data"] == data) & (rows["depth"] == depth)]
    by_kind = own.groupby(["normalization", "activation"], sort=False)["score"]
    return by_kind.agg(["mean", "std"])


@dataclass(frozen=True)
class Contrast:
    """One kind of network against another.

    Attributes
    ----------
    left, right : what is compared
    per_data : DataFrame
        One row a data set: ``data``, ``difference`` (left minus right, mean over splits) and ``p``
        (corrected resampled t-test, Holm-adjusted over the data sets).
    p : float
        Wilcoxon's over the data sets' mean differences.
    """

    left: Kind
    right: Kind
    per_data: pd.DataFrame
    p: float

    @property
    def mean(self) -> float:
        """The mean difference over the data sets."""
        return float(self.per_data["difference"].mean())

    @property
    def told_apart(self) -> bool:
        """Whether a test tells the kinds apart: over the data sets, or on the one there is."""
        p = self.p if len(self.per_data) > 1 else float(self.per_data["p"].iloc[0])
        return p < LEVEL

    @property
    def better(self) -> list[str]:
        """Data sets on which left is better, told apart by the test."""
        return self._found(1.0)

    @property
    def worse(self) -> list[str]:
        """Data sets on which left is worse, told apart by the test."""
        return self._found(-1.0)

    def _found(self, sign: float) -> list[str]:
        own = self.per_data
        found = own[(own["p"] < LEVEL) & (sign * own["difference"] > 0.0)]
        return list(found["data"])

    def words(self) -> str:
        """The difference and its tests, in brackets the data sets that decide for and against."""
        n = len(self.per_data)
        p = f"Wilcoxon p = {self.p:.2g}" if n > 1 else f"p = {self.per_data['p'].iloc[0]:.2g}"
        told = "told apart" if self.told_apart else "not told apart"
        single = f"; by data set {len(self.better)} for, {len(self.worse)} against" if n > 1 else ""
        return f"{self.mean:+.3f} ({p}, {told}{single})"


def contrast(rows: pd.DataFrame, left: Kind, right: Kind) -> Contrast:
    """Compare two kinds of network over all data sets in the rows, of one depth each."""
    lines = []
    for data, own in rows.groupby("data", sort=False):
        wide = own.pivot(index="split", columns=["normalization", "activation"], values="score")
        test = corrected_resampled_ttest(
            wide[left], wide[right], n_train=own["n_train"].mean(), n_test=own["n_test"].mean()
        )
        difference = float((wide[left] - wide[right]).mean())
        lines.append({"data": data, "difference": difference, "p": test.pvalue})
    table = pd.DataFrame(lines)
    table["p"] = holm(table["p"])
    differences = table["difference"]
    p = wilcoxon(differences, 0.0 * differences).pvalue if len(table) > 1 else float("nan")
    return Contrast(left, right, table, p)


def verdict_activation(rows: pd.DataFrame) -> str:
    """The paper: beside PLN-8, ReLU improves marginally, and sigmoid and tanh make it worse."""
    gains = {name: contrast(rows, ("pln", name), ("pln", "identity")) for name in PAPER}
    relu, *others = gains.values()
    claims = [relu.mean <= MARGINAL, *(other.mean < 0.0 for other in others)]
    said = "; ".join(f"{activation_name(name)} {gain.words()}" for name, gain in gains.items())
    return (
        f"**{fate(claims)}** (ReLU must gain at most {MARGINAL:g}, sigmoid and tanh lose). Beside "
        f"PLN-8, against no activation: {said}."
    )


def verdict_nonlinear(rows: pd.DataFrame) -> str:
    """Without activations PLN-8 must beat the normalisations that leave a network linear."""
    against = {
        name: contrast(rows, ("pln", "identity"), (name, "identity"))
        for name in ("none", "batch", "layer")
    }
    claims = [against[n].mean > 0.0 and against[n].told_apart for n in ("none", "batch")]
    said = "; ".join(f"{NAMES[name]} {result.words()}" for name, result in against.items())
    return (
        f"**{fate(claims)}** (it must be told apart as better than none and than batch norm, which "
        f"leave the network linear). PLN-8 against {said}."
    )


def verdict_match(rows: pd.DataFrame, activations: list[str]) -> str:
    """Whether PLN-8 is as good as batch and layer normalisation before the same activation."""
    claims, worse = [], []
    for activation in activations:
        for normalization in ("batch", "layer"):
            result = contrast(rows, ("pln", activation), (normalization, activation))
            good = result.mean >= -MARGINAL and not (result.mean < 0.0 and result.told_apart)
            claims.append(good)
            if not good:
                worse.append(f"{shown((normalization, activation))} {result.words()}")
    listed = f" Not so against {'; '.join(worse)}." if worse else ""
    return (
        f"**{fate(claims)}** (in {sum(claims)} of {len(claims)} comparisons PLN-8 is neither told "
        f"apart as worse nor more than {MARGINAL:g} behind on average).{listed}"
    )


def match_table(rows: pd.DataFrame, activations: list[str]) -> list[list[str]]:
    """A line an activation: PLN-8 against each other normalisation before it, in words."""
    return [
        [
            activation_name(activation),
            *(
                contrast(rows, ("pln", activation), (normalization, activation)).words()
                for normalization in OTHERS
            ),
        ]
        for activation in activations
    ]


def fate(claims: list[bool]) -> str:
    """All, some or none of a finding's claims hold."""
    return "Holds" if all(claims) else "Holds in part" if any(claims) else "Does not hold"
