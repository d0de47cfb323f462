"""Tables as companies export them: amounts, dates, texts and gaps as a country writes them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

NOTES = ["Kunde wünscht Rückruf", "offer sent, no answer", "très déçu du délai", "Señor Núñez"]
NOTES += ["prefers e-mail", "asked for a discount of 10 %", "ill until Monday", "paid late again"]


@dataclass(frozen=True)
class Country:
    """How an export writes: separators, encoding, amounts and dates."""

    sep: str
    decimal: str
    thousands: str
    encoding: str
    money: str = "{} €"
    negative: str = "-{} €"
    percent: str = "{} %"
    day: str = "%d.%m.%Y"

    def number(self, value, digits=2):
        """Write a number without a unit."""
        plain = f"{abs(value):,.{digits}f}".replace(".", "!").replace(",", self.thousands)
        return plain.replace("!", self.decimal)

    def amount(self, value):
        """Write an amount of money."""
        return (self.negative if value < 0 else self.money).format(self.number(value))


COUNTRIES = {
    "us": Country(",", ".", ",", "utf-8", "${}", "-${}", "{}%", "%m/%d/%Y"),
    "ledger": Country(",", ".", ",", "utf-8-sig", "{}", "({})", "{}%", "%Y-%m-%d"),
    "de": Country(";", ",", ".", "cp1252"),
    "sap": Country(";", ",", ".", "latin-1", "{} EUR", "{}- EUR"),
    "fr": Country(";", ",", "\u202f", "utf-8", percent="{}\u00a0%", day="%d/%m/%Y"),
    "ch": Country(";", ".", "'", "latin-1", "CHF {}", "CHF -{}"),
    "se": Country("\t", ",", "\u00a0", "utf-16", "{} kr", "-{} kr", day="%Y-%m-%d"),
}


def sales(n, seed=0):
    """Customers, one in eleven of whom leaves: numbers as numbers, dates as dates, and gaps."""
    rng = np.random.default_rng(seed)
    day = pd.Timestamp("2023-01-31") + pd.to_timedelta(rng.integers(0, 500, n), unit="D")
    revenue = np.round(rng.gamma(2, 900, n) - 150, 2)
    discount = rng.integers(0, 41, n) / 2
    calls = rng.poisson(2, n)
    risk = calls + discount / 10 - revenue / 2000 + rng.normal(0, 0.5, n)
    table = pd.DataFrame(
        {
            "customer": [f"K-{i:05d}" for i in rng.permutation(n)],
            "zip": [f"{number:05d}" for number in rng.integers(1000, 99999, n)],
            "phone": [f"+49 {a} {b}" for a, b in rng.integers(100, 999, (n, 2))],
            "host": [".".join(map(str, each)) for each in rng.integers(100, 255, (n, 4))],
            "release": [f"{a}.{b}.{c}" for a, b, c in rng.integers(0, 20, (n, 3))],
            "since": day,
            "revenue": revenue,
            "discount": pd.Series(discount).mask(rng.random(n) < 0.1),
            "weight": np.round(rng.gamma(3, 2, n) + 0.01, 1),
            "calls": calls,
            "segment": rng.choice(["retail", "trade", "public"], n, p=[0.75, 0.2, 0.05]),
            "note": pd.Series(rng.choice(NOTES, n)).mask(rng.random(n) < 0.3),
        }
    )
    table["city"] = rng.choice(["Köln", "Genève", "Málaga"], n)
    return table.assign(left=np.where(risk >= np.quantile(risk, 10 / 11), "yes", "no"))


def write_export(table, path, country):
    """Write such a table to a text file as a country's programs do."""
    as_in = COUNTRIES[country]
    texts = table.astype(object).where(table.notna(), "")

    def rewrite(column, write):
        texts[column] = table[column].map(write, na_action="ignore").fillna("")

    rewrite("since", lambda day: day.strftime(as_in.day))
    rewrite("revenue", as_in.amount)
    rewrite("discount", lambda share: as_in.percent.format(as_in.number(share, 1)))
    rewrite("weight", lambda weight: as_in.number(weight, 1))
    # what this encoding has no letter for
    text = texts.to_csv(index=False, sep=as_in.sep).encode(as_in.encoding, "replace")
    path.write_bytes(text)
    return path
