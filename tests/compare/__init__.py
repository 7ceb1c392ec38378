"""Comparisons of runs, checkpoints and set-ups."""
