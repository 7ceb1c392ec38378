"""Notes when a training clips its gradients; the functions are replaced before scripts can import them by name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.replacing import Replacements

if TYPE_CHECKING:
    from collections.abc import Callable

_followers: list[Callable[[bool], None]] = []
_replaced = Replacements()


def replace() -> None:
    """Replace the functions that clip gradients by ones that note their calls; idempotent."""
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _replaced.put(torch.nn.utils, name, _noted)


def put_back() -> None:
    """Put PyTorch's functions back."""
    _replaced.take_back()


def follow(follower: Callable[[bool], None]) -> Callable[[], None]:
    """Call a function with whether there are gradients, whenever they are clipped; return what ends that."""
    _followers.append(follower)

    def unfollow() -> None:
        if follower in _followers:
            _followers.remove(follower)

    return unfollow


def _noted(original: Callable[..., Any], parameters: Any, *arguments: Any, **named: Any) -> Any:
    # An iterator may be read once only.
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    has_gradients = any(getattr(each, "grad", None) is not None for each in given)
    for follower in tuple(_followers):
        follower(has_gradients)
    return original(given, *arguments, **named)


functools.update_wrapper(_noted, torch.nn.utils.clip_grad_norm_, ("__doc__",))
