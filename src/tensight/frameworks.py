"""The frameworks whose trainings are debugged: one entry for each adapter in `tensight.agents`.

Each Python process that may be debugged imports this when it starts, so it imports next to nothing itself.
"""

from __future__ import annotations


class KnownFramework:
    """A framework that there is an adapter for.

    It is no named tuple: to make one takes longer than all else that is imported with this.

    Parameters
    ----------
    module : str
        As which it is imported. Its adapter is the package of that name in `tensight.agents`, with the modules
        ``install`` and ``trial``; recordings name it so, too.
    name : str
        What people call it.
    seeding : str
        What sets the seed of its random numbers.
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
    """Return what people call a framework; of one that is not known what its recordings call it."""
    return next((framework.name for framework in FRAMEWORKS if framework.module == module), module)
