"""The studies of the four papers, a folder each."""
