"""The databases that generators of several tables are compared on: two simulated, one real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Database:
    """Tables that are learned, and as many further rows of the same distribution.

    Attributes
    ----------
    train, test : dict
        Table -> DataFrame; the parents of the key come before their children.
    keys : list
        ``(child, column, parent)``, with the same column in both; the first one is that of the
        children that are compared.
    order : str, optional
        The column by which the children are ordered.
    """

    train: Tables
    test: Tables
    keys: list[tuple[str, str, str]]
    order: str | None = None

    @property
    def parent(self) -> str:
        return self.keys[0][2]

    @property
    def child(self) -> str:
        return self.keys[0][0]

    @property
    def key(self) -> str:
        return self.keys[0][1]


def make_visits(n: int, rng: np.random.Generator) -> Tables:
    """Patients and their visits: dates, pressures (AR(1) about a level, with a drift), wards."""
    smoker = rng.random(n) < 0.3
    age = rng.integers(18, 90, n)
    patients = pd.DataFrame({"patient": np.arange(n), "age": age, "smoker": smoker})
    patients["sex"] = rng.choice(["female", "male", None], n, p=[0.48, 0.47, 0.05])
    n_visits = rng.poisson(rng.gamma(1.5, np.where(smoker, 4.0, 2.0)))
    row = np.repeat(np.arange(n), n_visits)
    position = np.arange(len(row)) - np.repeat(np.cumsum(n_visits) - n_visits, n_visits)
    interval = rng.gamma(2.0, 30.0, n)[row]
    days = rng.exponential(interval).round() + 1
    first = rng.integers(0, 2000, n)[row]
    days[position == 0] = first[position == 0]
    level = 105 + age / 3 + rng.normal(0, 6, n)
    noise, is_new = rng.normal(0, 4, len(row)), rng.random(len(row))
    fresh = rng.choice(["north", "south", "west", "intensive"], len(row), p=[0.4, 0.3, 0.25, 0.05])
    deviation, ward, day = np.zeros(len(row)), np.empty(len(row), dtype=object), days.copy()
    for i in range(len(row)):
        is_first = position[i] == 0
        deviation[i] = noise[i] * 1.5 if is_first else 0.7 * deviation[i - 1] + noise[i]
        ward[i] = fresh[i] if is_first or is_new[i] < 0.2 else ward[i - 1]
        day[i] = days[i] if is_first else day[i - 1] + days[i]
    pressure = level[row] + deviation + 0.8 * position + 12 * (ward == "intensive")
    dose = np.where(pressure > 140, 10 * np.ceil((pressure - 140) / 10), 0)
    cost = rng.lognormal(4 + 1.5 * (ward == "intensive") + 0.01 * dose, 0.5)
    visits = pd.DataFrame({"patient": row})
    visits["date"] = pd.Timestamp("2015-01-01") + pd.to_timedelta(day, unit="D")
    visits["ward"], visits["pressure"], visits["dose"] = ward, pressure.round(), dose.astype(int)
    visits["cost"] = np.where(rng.random(len(row)) < 0.1, np.nan, cost.round(2))
    return {"patients": patients, "visits": visits}


def make_orders(n: int, rng: np.random.Generator) -> Tables:
    """Shops, staff and orders: a mixture of departments for each shop, and staff by department."""
    departments = np.array(["food", "clothes", "tools", "toys", "books", "garden"])
    area = rng.lognormal(5, 0.6, n).round()
    shops = pd.DataFrame({"shop": [f"S{i}" for i in range(n)], "area": area})
    shops["region"] = rng.choice(["coast", "city", "land"], n)
    n_staff = 2 * n
    speciality = rng.integers(0, 6, n_staff)
    staff = pd.DataFrame(
        {"member": np.arange(n_staff) + 1000, "speciality": departments[speciality]}
    )
    staff["salary"] = (2000 + 150 * speciality + rng.normal(0, 200, n_staff)).round(-1)
    row = np.repeat(np.arange(n), rng.poisson(area / 20) * (rng.random(n) > 0.05))
    share = rng.dirichlet(np.full(6, 0.5), n)
    share[shops["region"] == "coast"] *= [1, 1, 1, 1, 1, 4]
    limits = (share / share.sum(1, keepdims=True)).cumsum(1)[row]
    department = (limits < rng.random((len(row), 1))).sum(1).clip(max=5)
    by_speciality = [np.flatnonzero(speciality == k) for k in range(6)]
    member = np.array([rng.choice(by_speciality[k]) for k in department], dtype=int)
    premium = rng.normal(0, 0.3, n)[row]
    price = np.exp(np.array([1.5, 3.5, 3.0, 2.5, 2.2, 2.8])[department] + premium)
    price *= rng.lognormal(0, 0.2, len(row))
    quantity = 1 + rng.poisson(np.where(department == 0, 4, 0.5))
    orders = pd.DataFrame({"shop": shops["shop"].to_numpy()[row], "member": member + 1000})
    orders["department"] = departments[department]
    orders["quantity"], orders["price"] = quantity, price.round(2)
    orders["total"] = (quantity * orders["price"]).round(2)
    orders["paid"] = rng.choice(["card", "cash", "invoice"], len(row), p=[0.6, 0.3, 0.1])
    return {"shops": shops, "staff": staff, "orders": orders}


def load_visits(n: int, home: str | None) -> Database:
    """Simulate visits to be learned, and others."""
    train, test = (make_visits(n, np.random.default_rng(seed)) for seed in (0, 1))
    return Database(train, test, [("visits", "patient", "patients")], "date")


def load_orders(n: int, home: str | None) -> Database:
    """Simulate orders to be learned, and others."""
    train, test = (make_orders(n, np.random.default_rng(seed)) for seed in (0, 1))
    return Database(train, test, [("orders", "shop", "shops"), ("orders", "member", "staff")])


def load_baseball(n: int, home: str | None) -> Database:
    """Players and their seasons in the field, by position and team."""
    folder = Path(home or "") / "relational"
    tables = []
    for suffix in ("", "_test"):
        players, fielding = (
            pd.read_csv(folder / f"{name}{suffix}.csv.gz", low_memory=False)
            for name in ("players", "fielding")
        )
        players = players.head(n)
        for name in ("birthDate", "deathDate"):
            players[name] = pd.to_datetime(players[name])
        fielding = fielding[fielding["playerID"].isin(players["playerID"])]
        tables.append({"players": players, "fielding": fielding.reset_index(drop=True)})
    return Database(*tables, [("fielding", "playerID", "players")], "yearID")


DATABASES: dict[str, Callable[[int, str | None], Database]] = {
    "visits": load_visits,
    "orders": load_orders,
    "baseball": load_baseball,
}
