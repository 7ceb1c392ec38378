"""Tensight: a debugger for neural-network training."""

__version__ = "0.1.0.dev0"
