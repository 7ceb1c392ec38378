"""Searches for hyperparameters."""
