"""The ensemble of a pack: which snapshots are chosen, and the networks that are kept of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from combutab.estimators._base import BaseMLP
from combutab.estimators.fitted import learned
from combutab.estimators.fitting import Job, activation_key
from combutab.estimators.pack._members import Recipe
from combutab.estimators.pack._selection import Pool, pick_from_folds
from combutab.estimators.pack._training import Track
from combutab.nn import ActivationSpec

_Place = tuple[int, int]  # a member, and which of its snapshots


@dataclass(frozen=True)
class Chosen:
    """How often each snapshot is in the ensemble; the losses of it and of the best alone."""

    counts: Mapping[_Place, int]
    loss: float | None
    best_single: float | None


def choose(jobs: Sequence[Job], tracks: Sequence[Track], size: int) -> Chosen:
    """Choose up to ``size`` snapshots, as many of each fold; without such rows, all members."""
    by_fold: dict[int, list[_Place]] = {}
    for member, track in enumerate(tracks):
        places = [(member, k) for k in range(len(track.snapshots()))]
        by_fold.setdefault(track.fold, []).extend(places)
    places_of = [places for places in by_fold.values() if places]
    if jobs[0].plans[0].val_rows is None:
        return Chosen(Counter(places_of[0][:size]), None, None)
    pools = [_pool(jobs, tracks, places) for places in places_of]
    picks, losses, alone = pick_from_folds(pools, size // len(by_fold))
    counts = Counter(places[k] for places, own in zip(places_of, picks, strict=True) for k in own)
    return Chosen(counts, float(np.mean(losses)), float(np.mean(alone)))


def _pool(jobs: Sequence[Job], tracks: Sequence[Track], places: Sequence[_Place]) -> Pool:
    """The predictions of these snapshots, which are of one fold."""
    member = places[0][0]
    rows, held_out = jobs[member].rows, jobs[member].plans[0].val_rows
    predictions = [tracks[member].snapshots()[k].predictions for member, k in places]
    y = rows.y[held_out]
    return Pool(
        tracks[member].loss,
        torch.stack([p for p in predictions if p is not None]),
        y.double() if y.is_floating_point() else y,
        None if rows.weight is None else rows.weight[held_out].double(),
    )


def make_groups(
    members: Sequence[BaseMLP],
    jobs: Sequence[Job],
    tracks: Sequence[Track],
    counts: Mapping[_Place, int],
) -> tuple[list[BaseMLP], list[int]]:
    """Make fitted estimators of the chosen networks, one a shape; and each network's position.

    Positions are in all groups' networks one after the other, each as often as it is chosen.
    """
    by_shape: dict[object, list[_Place]] = {}
    for place in sorted(counts):
        by_shape.setdefault(jobs[place[0]].spec, []).append(place)
    groups: list[BaseMLP] = []
    picks: list[int] = []
    n_before = 0
    for places in by_shape.values():
        places = _sorted_by_activation(jobs, places)
        first = places[0][0]
        job = replace(jobs[first], members=tuple(jobs[member].members[0] for member, _ in places))
        results = [
            tracks[member].result(tracks[member].snapshots()[k], len(jobs[member].plans[0].rows))
            for member, k in places
        ]
        group = members[first]
        group.n_members = len(places)
        group._spec, group._made_with = job.spec, group._settled_parameters()
        group.__dict__.update(learned(job, results, [], []))
        groups.append(group)
        picks += [n_before + i for i, place in enumerate(places) for _ in range(counts[place])]
        n_before += len(places)
    return groups, picks


def _sorted_by_activation(jobs: Sequence[Job], places: Sequence[_Place]) -> list[_Place]:
    """Make those of one activation neighbours, as a stack has them."""
    kinds: dict[object, list[_Place]] = {}
    for place in places:
        kinds.setdefault(activation_key(jobs[place[0]].members[0].activation), []).append(place)
    return [place for kind in kinds.values() for place in kind]


def member_table(
    members: Sequence[BaseMLP],
    jobs: Sequence[Job],
    tracks: Sequence[Track],
    chosen: Chosen,
    recipe: Recipe,
) -> pd.DataFrame:
    """One row a member, those without a part in the ensemble included."""
    n_picks = sum(chosen.counts.values())
    names = dict.fromkeys(name for shape in recipe.shapes for name in shape)
    names.pop("hidden_layer_sizes", None)
    rows = []
    for i, (member, job, track) in enumerate(zip(members, jobs, tracks, strict=True)):
        counts = [n for (own, _), n in chosen.counts.items() if own == i]
        losses = [loss for _, loss, _ in track.epochs if np.isfinite(loss)]
        rows.append(
            {
                "member": i,
                "activation": _label(job.members[0].activation),
                "depth": len(job.spec.widths) - 2,
                **{name: getattr(member, name) for name in (*recipe.varied, *names)},
                "fold": track.fold,
                "n_iter": len(track.epochs),
                "validation_loss": min(losses, default=np.nan),
                "n_snapshots": len(counts),
                "weight": sum(counts) / n_picks,
            }
        )
    return pd.DataFrame(rows)


def _label(activation: ActivationSpec) -> str:
    if isinstance(activation, str):
        return activation
    return str(getattr(activation, "__name__", None) or repr(activation))


def history(tracks: Sequence[Track]) -> pd.DataFrame:
    """One row a member and epoch."""
    columns = ["member", "epoch", "train_loss", "validation_loss", "learning_rate"]
    rows = [
        (i, epoch, *values)
        for i, track in enumerate(tracks)
        for epoch, values in enumerate(track.epochs, 1)
    ]
    return pd.DataFrame(rows, columns=columns)
