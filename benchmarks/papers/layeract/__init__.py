"""The studies on the LayerAct paper: robustness, statistics, shape."""
