"""The original's Python API."""
