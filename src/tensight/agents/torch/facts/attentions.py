"""What attentions are given besides their inputs, and what embeddings take for padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from tensight.agents.facts.padding import masked_by
from tensight.agents.facts.samples import MOST_ELEMENTS
from tensight.agents.torch.facts.reading import array_of, is_readable, part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HIDDEN = -1e4
"""Added to scores, it hides a position: infinity, or the lowest number of a type."""


class _Call(NamedTuple):
    row: dict[str, Any]
    mask: torch.Tensor | None


class Sequences:
    """The attention layers and the embeddings that were called in a step."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._padding: dict[tuple[int, ...], int] = {}
        self._functions: list[dict[str, Any]] = []
        self._weightings: list[dict[str, Any]] = []
        self._is_configured = False

    def called(self, name: str, module: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Note a call of a module, if it is one of them."""
        # Configurations of transformers have one by default, which nobody may have chosen.
        self._is_configured |= getattr(module.__dict__.get("config"), "pad_token_id", None) is not None
        if isinstance(module, nn.Embedding):
            given = arguments[0] if arguments else named.get("input")
            if module.padding_idx is not None and isinstance(given, torch.Tensor):
                self._padding.setdefault(tuple(given.shape), module.padding_idx)
            return
        if not isinstance(module, nn.MultiheadAttention):
            return
        query, key, _, mask, _, attention_mask = (
            arguments[at] if len(arguments) > at else named.get(parameter)
            for at, parameter in enumerate(("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask"))
        )
        if not isinstance(key, torch.Tensor) or key.dim() < 2:
            return
        axis = 1 if module.batch_first and key.dim() == 3 else 0
        row = {
            "name": name,
            "is_of_itself": query is key,
            "is_masked": attention_mask is not None or bool(named.get("is_causal")),
            "positions": int(key.shape[axis]),
        }
        self._calls[name] = _Call(row, mask if isinstance(mask, torch.Tensor) and is_readable(mask) else None)

    def read(self, attentions: Iterable[tuple[bool, int, int]], line: str) -> None:
        """Note fused attentions: whether each has a mask, its numbers of queries and keys; and a line."""
        for has_mask, queries, keys in attentions:
            row = {"is_of_itself": queries == keys, "is_masked": has_mask, "positions": keys}
            name = f"scaled_dot_product_attention {len(self._functions) + 1}"
            self._functions.append({"name": name, "line": line, **row})

    def weighed(self, weightings: Iterable[torch.Tensor], line: str) -> None:
        """Note the weights of attentions that are written out, shape (..., queries, keys); and a line."""
        for weights in weightings:
            greatest = float(part_of(weights).amax(-1).float().mean())
            name = f"softmax {len(self._weightings) + 1}"
            self._weightings.append({"name": name, "keys": weights.shape[-1], "greatest": greatest, "line": line})

    def take_weightings(self) -> list[dict[str, Any]]:
        """Return the rows of ``weightings``, and forget them."""
        rows, self._weightings = self._weightings, []
        return rows

    def padding_index(self, ids: torch.Tensor) -> int:
        """Return the id that an embedding of ids of this shape was made to take for padding; -1 if it takes none."""
        return -1 if self._is_configured else self._padding.get(tuple(ids.shape), -1)

    def rows(self, ids: torch.Tensor | None) -> list[dict[str, Any]]:
        """Return the rows of ``attentions``, and forget the calls.

        Parameters
        ----------
        ids : Tensor, shape (sequences, positions), optional
            The ids of words that the model read in this step.
        """
        rows = []
        for row, mask in self._calls.values():
            if mask is not None and ids is not None and mask.shape == ids.shape and ids.numel() <= MOST_ELEMENTS:
                hidden = mask if mask.dtype == torch.bool else mask < _HIDDEN
                row["masked"] = masked_by(array_of(hidden), array_of(ids))
            rows.append(row)
        # Those that layers have called are among the functions, too.
        rows = rows or self._functions
        self._calls, self._padding, self._functions, self._is_configured = {}, {}, [], False
        return rows
