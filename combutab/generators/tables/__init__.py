"""TabFlowTables, a generator of databases: parents, children and sequences.

Keys and plans say how tables are connected, families which rows have a common parent; generators
and ``combutab synth --key`` use it.
"""

from combutab.generators.tables._tables import TabFlowTables

__all__ = ["TabFlowTables"]
