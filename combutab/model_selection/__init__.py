"""Model selection with stacks."""

from combutab.model_selection._search import StackedGridSearchCV

__all__ = ["StackedGridSearchCV"]
