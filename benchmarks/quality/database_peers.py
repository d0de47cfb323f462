"""What makes the synthetic databases that are compared, each with its own defaults on a CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

import combutab
from benchmarks.quality.database_tables import Database, Tables

Sample = Callable[[], Tables]


@dataclass(frozen=True)
class Model:
    """A way to make a database: what trains it, and a module that must be installed."""

    fit: Callable[[Database, int, bool], Sample]
    module: str = "combutab"


def installed(models: Iterable[str]) -> list[str]:
    """Those of the models that can be run here; prints the others, with the reason."""
    usable = []
    for model in models:
        try:
            import_module(MODELS[model].module)
        except ImportError as error:
            print(f"skipped: {model}: {error}", flush=True)
        else:
            usable.append(model)
    return usable


def _real(database: Database, seed: int, quick: bool) -> Sample:
    return lambda: database.train


def _ours(database: Database, seed: int, quick: bool) -> Sample:
    generator = (
        combutab.TabFlow(epochs=2, device="cpu") if quick else combutab.TabFlow(device="cpu")
    )
    model = combutab.TabFlowTables(generator, random_state=seed)
    order_by = {} if database.order is None else {database.child: database.order}
    return model.fit(database.train, database.keys, order_by=order_by).sample


def _metadata(tables: Tables, database: Database) -> dict[str, Any]:
    """What SDV is told about a database."""
    keys = {(child, column) for child, column, _ in database.keys}
    parents = {parent: column for _, column, parent in database.keys}
    described: dict[str, Any] = {}
    for name, table in tables.items():
        columns = {}
        for column in table:
            if (name, column) in keys or parents.get(name) == column:
                is_text = table[column].dtype.kind not in "iuf"
                columns[column] = {"sdtype": "id"} | (
                    {"regex_format": "[0-9]{8}"} if is_text else {}
                )
            elif pd.api.types.is_datetime64_any_dtype(table[column]):
                columns[column] = {"sdtype": "datetime"}
            elif table[column].dtype == bool:
                columns[column] = {"sdtype": "boolean"}
            elif pd.api.types.is_numeric_dtype(table[column]):
                columns[column] = {"sdtype": "numerical"}
            else:
                columns[column] = {"sdtype": "categorical"}
        described[name] = {"columns": columns}
        if name in parents:
            described[name]["primary_key"] = parents[name]
    relationships = [
        {
            "parent_table_name": parent,
            "child_table_name": child,
            "parent_primary_key": column,
            "child_foreign_key": column,
        }
        for child, column, parent in database.keys
    ]
    return {"tables": described, "relationships": relationships}


def _hma(database: Database, seed: int, quick: bool) -> Sample:
    from sdv.metadata import Metadata
    from sdv.multi_table import HMASynthesizer

    metadata = Metadata.load_from_dict(_metadata(database.train, database))
    model = HMASynthesizer(metadata, verbose=False)
    model.fit(database.train)
    return lambda: dict(model.sample_scale(1.0))


def _par(database: Database, seed: int, quick: bool) -> Sample:
    from sdv.metadata import Metadata
    from sdv.sequential import PARSynthesizer

    key, parents = database.key, database.train[database.parent]
    others = {column for _, column, _ in database.keys[1:]}
    children = database.train[database.child].drop(columns=list(others))
    context = [column for column in parents if column != key]
    rows = children.merge(parents, on=key)
    if database.order is not None:
        rows = rows.sort_values([key, database.order], kind="stable")
    (described,) = _metadata({"rows": rows}, database)["tables"].values()
    described["columns"][key] = {"sdtype": "id"}
    described["sequence_key"] = key
    if database.order is not None:
        described["sequence_index"] = database.order
    metadata = Metadata.load_from_dict({"tables": {"rows": described}})
    options: dict[str, Any] = {"epochs": 2} if quick else {}
    model = PARSynthesizer(metadata, context_columns=context, cuda=False, **options)
    model.fit({"rows": rows})

    def sample() -> Tables:
        drawn = model.sample_sequences(len(parents))["rows"]
        of_parents = drawn.drop_duplicates(key)[list(parents)].reset_index(drop=True)
        return {database.parent: of_parents, database.child: drawn[list(children)]}

    return sample


def _argn(database: Database, seed: int, quick: bool) -> Sample:
    from mostlyai import engine

    key, epochs = database.key, {"max_epochs": 1.0} if quick else {}
    engine.set_random_state(seed)
    folder = tempfile.TemporaryDirectory()
    parents = database.train[database.parent]
    others = [column for _, column, _ in database.keys[1:]]
    children = database.train[database.child].drop(columns=others)
    if database.order is not None:
        children = children.sort_values([key, database.order], kind="stable")
    # the others replace no rare values either
    options = {"value_protection": False}
    paths = [Path(folder.name) / name for name in (database.parent, database.child)]
    engine.split(tgt_data=parents, tgt_primary_key=key, workspace_dir=paths[0])
    engine.split(
        tgt_data=children,
        tgt_context_key=key,
        ctx_data=parents,
        ctx_primary_key=key,
        workspace_dir=paths[1],
    )
    for path in paths:
        engine.analyze(workspace_dir=path, **options)
        engine.encode(workspace_dir=path)
        engine.train(workspace_dir=path, device="cpu", **epochs)

    def sample() -> Tables:
        engine.generate(workspace_dir=paths[0], sample_size=len(parents), device="cpu")
        drawn = pd.read_parquet(paths[0] / "SyntheticData")
        engine.generate(workspace_dir=paths[1], ctx_data=drawn, device="cpu")
        rows = pd.read_parquet(paths[1] / "SyntheticData")
        folder.cleanup()
        return {database.parent: drawn, database.child: rows}

    return sample


MODELS = {
    "real rows": Model(_real),
    "combutab TabFlowTables": Model(_ours),
    "sdv HMA": Model(_hma, "sdv.multi_table"),
    "sdv PAR": Model(_par, "sdv.sequential"),
    "mostlyai TabularARGN": Model(_argn, "mostlyai.engine"),
}
