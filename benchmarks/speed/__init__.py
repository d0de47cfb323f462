"""How fast, and how much memory: each script runs its peers in turns and prints ratios."""
