"""From tables to the arrays of a network."""

from combutab.preprocessing._encoder import EncodedTable, Span, TableEncoder
from combutab.preprocessing._task import infer_task

__all__ = ["EncodedTable", "Span", "TableEncoder", "infer_task"]
