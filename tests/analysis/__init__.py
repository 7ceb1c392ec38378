"""Checks and origins over dumps."""
