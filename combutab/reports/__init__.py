"""Reports: what was found, as a page that a person reads."""
