"""The studies on the PLN paper: approximation, depth, normalisation."""
