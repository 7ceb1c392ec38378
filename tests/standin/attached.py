"""A training process of the stand-in together with the session that it has."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.standin.person import Inspection
    from tests.standin.training import Training

devices = itertools.count(100)
"""Numbers of devices that no other test uses: the server tells old processes apart by them."""


class Attached(NamedTuple):
    """A training process and its session; unpacks into the two."""

    training: Training
    session: Inspection
