"""Curves that others have recorded."""
