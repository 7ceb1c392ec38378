"""Runs of any number of ranks: queries that an engine computes on each rank, and what follows from all of them."""
