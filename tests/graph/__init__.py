"""Graphs, their files, and origins in them."""
