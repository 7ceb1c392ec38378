"""Debugging runs at rest: a dump, or what a session recorded of a training that has ended."""
