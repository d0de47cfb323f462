"""A fitted pack as a file, and back: its groups are written as the plain estimators they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from combutab._fields import (
    Field,
    check_fields,
    kind,
    nullable,
    number,
    several,
    text,
    whole,
)
from combutab._model_files import Saved, decode, encode, with_prefix

if TYPE_CHECKING:
    from combutab.estimators.pack._base import BasePack

_MOST = 2**16  # networks that a file may ask for
_FITTED = {
    "validation_loss_": nullable(number()),
    "best_member_validation_loss_": nullable(number()),
}
_GROUP = {
    "n_members": whole(1, _MOST),
    "fitted": kind(dict),
    "shape": kind(dict),
    "progress": kind(list),
}
_COUNTS, _NUMBERS = several(whole()), several(number(finite=False))
_COLUMNS = {
    "member": _COUNTS,
    "activation": several(text(10_000)),
    "depth": _COUNTS,
    "fold": _COUNTS,
    "n_iter": _COUNTS,
    "validation_loss": _NUMBERS,
    "n_snapshots": _COUNTS,
    "weight": _NUMBERS,
}


def parts_to_save(pack: BasePack) -> tuple[Sequence[str], dict[str, Any]]:
    """Name the fitted attributes of a pack's file, and give what else its header has."""
    groups = []
    for group in pack._groups:
        names, parts = group._to_save()
        fitted = {name: encode(getattr(group, name), name) for name in names}
        groups.append({"n_members": len(group._states), "fitted": fitted, **parts})
    table = {
        str(name): encode(column.tolist(), str(name)) for name, column in pack.members_.items()
    }
    return tuple(_FITTED), {"groups": groups, "picks": pack._picks, "members": table}


def restore(pack: BasePack, saved: Saved) -> None:
    """Take over what a file has, once its parts are known to belong together."""
    check_fields(saved.fitted, _FITTED, "what was fitted")
    header = saved.header
    saved.arrays()  # all of them have a place
    check_fields(
        {name: header.get(name) for name in ("groups", "picks", "members")},
        {
            "groups": several(kind(dict), 1),
            "picks": several(whole(0, header["n_members"] - 1), 1),
            "members": kind(dict),
        },
        "the header",
    )
    groups, n_before = [], 0
    for found in header["groups"]:
        check_fields(found, _GROUP, "a group")
        _check_alike(pack, found["fitted"], header["groups"][0]["fitted"])
        group = pack._checked_member()
        group._restore(_part(saved, found, n_before))
        groups.append(group)
        n_before += found["n_members"]
    if n_before != header["n_members"]:
        raise ValueError(
            f"its header asks for {str(header['n_members'])[:20]} networks, its groups have "
            f"{n_before}"
        )
    for group in groups[1:]:
        group.encoder_ = groups[0].encoder_
    pack.__dict__.update(saved.fitted)
    pack.history_ = saved.history
    pack.members_ = _read_table(header["members"])
    pack._adopt(groups, list(header["picks"]))


def _part(saved: Saved, group: dict[str, Any], n_before: int) -> Saved:
    """What a file of this group alone would have."""
    tensors = {n: a for n, a in saved.tensors.items() if n.startswith("encoder.")}
    for i in range(group["n_members"]):
        own = with_prefix(saved.tensors, f"member.{n_before + i}.")
        tensors |= {f"member.{i}.{name}": array for name, array in own.items()}
    fitted = {name: decode(value) for name, value in group["fitted"].items()}
    header = {**group, "encoder": saved.header["encoder"]}
    return Saved(fitted, pd.DataFrame(), header, tensors)


def _check_alike(pack: BasePack, fitted: dict[str, Any], first: dict[str, Any]) -> None:
    """Refuse a group that learned another target or table than the first."""
    for name in (*pack._learned, *pack._member_class._fitted_fields, "out_activation_"):
        if fitted.get(name) != first.get(name):
            raise ValueError(f"its groups differ in {name}")


def _read_table(columns: dict[str, Any]) -> pd.DataFrame:
    values = {name: decode(column) for name, column in columns.items()}
    fields: dict[str, Field] = {**dict.fromkeys(values, _NUMBERS), **_COLUMNS}
    check_fields(values, fields, "the table of members")
    if len({len(column) for column in values.values()}) != 1:
        raise ValueError("the columns of its table of members are not equally long")
    return pd.DataFrame(values)
