"""The studies on the CombU paper: Tables 3, 5, 6 and 7, Figure 2."""
