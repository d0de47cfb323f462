"""The studies on the Proxy Normalization paper: random networks, training."""
