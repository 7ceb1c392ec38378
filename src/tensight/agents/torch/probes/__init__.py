"""Experiments with a model on one batch, in the training process."""
