"""Laws of physics: which of them are learned from rows, and which are built and fitted on."""
