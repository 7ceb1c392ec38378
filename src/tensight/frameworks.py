"""The supported frameworks: one entry for each adapter in `tensight.agents`.

Each Python process that may be debugged imports this at its start, so it imports next to nothing itself.
"""

from __future__ import annotations


class KnownFramework:
    """A framework with an adapter.

    It is not a named tuple, because creating one takes longer than all other imports of this module.

    Parameters
    ----------
    module : str
        Name of its module. Its adapter is the package of that name in `tensight.agents`, with the modules ``install``
        and ``trial``; recordings use this name, too.
    name : str
        Display name.
    seeding : str
        The function that seeds its random numbers.
    """

    __slots__ = ("module", "name", "seeding")

    def __init__(self, module: str, name: str, seeding: str) -> None:
        self.module = module
        self.name = name
        self.seeding = seeding


FRAMEWORKS = (
    KnownFramework("torch", "PyTorch", "torch.manual_seed"),
    KnownFramework("mindspore", "MindSpore", "mindspore.set_seed"),
)


def name_of(module: str) -> str:
    """Return the display name of a framework; for an unknown one the name in its recordings."""
    return next((framework.name for framework in FRAMEWORKS if framework.module == module), module)
