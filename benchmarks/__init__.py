"""Speed, quality, and the four papers' studies; each script is run as a module from the root."""
