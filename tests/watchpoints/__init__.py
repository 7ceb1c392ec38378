"""Conditions, watchpoints and hits."""
