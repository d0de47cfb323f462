"""CombuTab's estimators as models of AutoGluon, by the contract of TabArena."""
