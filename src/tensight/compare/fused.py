"""Fused matrices: the parameters of one model that are rows of a parameter of another, by names and shapes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tensight.compare.renaming import plain_name, spellings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_FUSED = {
    "qkv": ("q", "k", "v"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "to_qkv": ("to_q", "to_k", "to_v"),
    "Wqkv": ("q", "k", "v"),
    "query_key_value": ("query", "key", "value"),
    "c_attn": ("q_proj", "k_proj", "v_proj"),
    "in_proj_weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
    "in_proj_bias": ("q_proj.bias", "k_proj.bias", "v_proj.bias"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "kv_proj": ("k_proj", "v_proj"),
    "to_kv": ("to_k", "to_v"),
}
"""The last word of a fused matrix's module, and those of its parts, which may be spelled in other ways, too."""


def is_fused(name: str) -> bool:
    """Return whether a parameter has the name of a fused matrix."""
    return not _FUSED.keys().isdisjoint(plain_name(name).split("."))


def fused_parts(name: str, shape: tuple[int, ...], others: Mapping[str, tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """Return the parameters that are rows of a fused one (see `FusedParts.of`)."""
    return FusedParts(others).of(name, shape)


class FusedParts:
    """The parameters of a model, among which those are found that are rows of another model's fused ones.

    Parameters
    ----------
    others : mapping of str to tuple of int
        Shapes of the parameters, by `plain_name`.
    """

    def __init__(self, others: Mapping[str, tuple[int, ...]]) -> None:
        self._others = others
        self._modules: dict[tuple[str, ...], dict[tuple[str, ...], None]] = defaultdict(dict)
        for name in others:
            pieces = name.split(".")
            for length in range(len(pieces)):
                self._modules[_numbers(pieces[:length])][tuple(pieces[:length])] = None

    def of(self, name: str, shape: tuple[int, ...]) -> list[tuple[str, int, int]]:
        """Return the parameters that are rows of a fused one: those beside it, or those of the same layer number.

        Parameters
        ----------
        name : str
            Name of the fused parameter.
        shape : tuple of int
            Its shape, transposed if its transpose is to be tried.

        Returns
        -------
        list of (str, int, int)
            Plain name, first row and number of rows of each part, in order; empty if the shapes do not add up, or if
            several modules of that layer have such parts.
        """
        pieces = plain_name(name).split(".")
        if not shape:
            return []
        for fused, words in _FUSED.items():
            if fused not in pieces:
                continue
            at = pieces.index(fused)
            beside = self._parts(pieces[:at], words, pieces[at + 1 :], shape)
            if beside:
                return beside
            of_layer = [
                parts
                for module in self._modules[_numbers(pieces[:at])]
                if (parts := self._parts(list(module), words, pieces[at + 1 :], shape))
            ]
            if len(of_layer) == 1:
                return of_layer[0]
        return []

    def _parts(
        self, before: list[str], words: tuple[str, ...], after: list[str], shape: tuple[int, ...]
    ) -> list[tuple[str, int, int]]:
        names = []
        for word in words:
            exact = ".".join([*before, word, *after])
            names.append(exact if exact in self._others else _similar(self._others, before, word, after))
        part_names = [part_name for part_name in names if part_name is not None]
        if len(part_names) != len(words):
            return []
        shapes = [self._others[part_name] for part_name in part_names]
        # Another framework keeps matrices transposed.
        for sizes in (shapes, [part_shape[::-1] for part_shape in shapes]):
            fits = all(size[1:] == shape[1:] and size for size in sizes)
            if fits and sum(size[0] for size in sizes) == shape[0]:
                firsts = [sum(size[0] for size in sizes[:at]) for at in range(len(sizes))]
                counts = [size[0] for size in sizes]
                return list(zip(part_names, firsts, counts, strict=True))
        return []


def _numbers(pieces: list[str]) -> tuple[str, ...]:
    """Return the numbers of the layers in a path."""
    return tuple(piece for piece in pieces if piece.isdigit())


def _similar(others: Mapping[str, object], before: list[str], word: str, after: list[str]) -> str | None:
    """Return the only tensor beside a fused one that has another name of the part: "q", "wq", "to_q", "query"."""
    spellings = spellings_of(word.partition(".")[0])
    end = word.partition(".")[2]
    candidates = {
        key
        for spelling in spellings
        if (key := ".".join([*before, spelling, *([end] if end else []), *after])) in others
    }
    return candidates.pop() if len(candidates) == 1 else None
