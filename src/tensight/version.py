"""The version of Tensight: of the full package and of the light agent, which are built from the same sources."""

__version__ = "0.1.0"
