"""The version of Tensight: of the whole and of the light agent, which are built of the same sources."""

__version__ = "0.1.0.dev0"
