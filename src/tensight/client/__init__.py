"""The Python client of the HTTP API, which offers notebooks and CI jobs everything that the page offers.

`tensight.connect` is the entry point.
"""

from __future__ import annotations

from tensight.client.comparison import ComparedTensor, Comparison
from tensight.client.connection import Certificate, Verify
from tensight.client.errors import AccessError, ClientError, ServerError, UnreachableError, WaitError
from tensight.client.events import Events
from tensight.client.rows import Rows
from tensight.client.server import Server
from tensight.client.session import Session
from tensight.client.tensor import Difference, Tensor

__all__ = [
    "AccessError",
    "Certificate",
    "ClientError",
    "ComparedTensor",
    "Comparison",
    "Difference",
    "Events",
    "Rows",
    "Server",
    "ServerError",
    "Session",
    "Tensor",
    "UnreachableError",
    "Verify",
    "WaitError",
]
