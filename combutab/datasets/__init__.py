"""Tables to train on: from files, from formulas, and the AI Feynman equations."""

from ._files import TableError, read_table, split_target

__all__ = ["TableError", "read_table", "split_target"]
