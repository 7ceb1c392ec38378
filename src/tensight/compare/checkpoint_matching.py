"""Matching of the tensors of two checkpoints, with the rule that produced each pair.

The rules, in this order: a mapping file; the same name; the same name without wrappers (``module.``, ``_orig_mod.``)
and a common prefix, with MindSpore's words translated to PyTorch's (``gamma`` to ``weight``); parts of a fused matrix;
equal values, by a sample of them; the same path in modules that were matched by their other parameters; the usual names
of the same thing (``wq``, ``q_proj``); the same shape in the same order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.compare.fused import FusedParts, is_fused
from tensight.compare.mapping_files import mapping_line, quoted
from tensight.compare.renaming import WORDS, paths_in_b, plain_name, usual_name
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tensight.checkpoints import Checkpoint, Entry

SAME_NAME, FILE, SCHEME, FUSED, VALUES, PATH, USUAL, ORDER = (
    "same name", "mapping file", "naming scheme", "fused", "sampled values", "module path", "usual names",
    "shape and order",
)  # fmt: skip
"""The rules, as shown to users."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor of A and the tensor of B that it is compared with.

    Attributes
    ----------
    a, b : Entry
        With the same number of elements if they can be compared. If `rule` is `FUSED`, one of them is a part of a
        fused tensor.
    rule : str
        The rule that matched them.
    is_transposed : bool
        Whether a matrix was transposed to fit: `a`, or the fused one.
    """

    a: Entry
    b: Entry
    rule: str
    is_transposed: bool = False

    @property
    def has_same_dtype(self) -> bool:
        """Whether both have the same dtype, regardless of byte order."""
        return self.a.dtype.name == self.b.dtype.name

    @property
    def is_comparable(self) -> bool:
        """Whether both have the same shape, ignoring dimensions of size 1."""
        return _squeezed(self.a.shape) == _squeezed(self.b.shape)


@dataclass(frozen=True, slots=True)
class Matching:
    """All pairs, and the tensors without a pair.

    Attributes
    ----------
    pairs : tuple of Pair
        Pairs in the order of A.
    only_a, only_b : tuple of Entry
    """

    pairs: tuple[Pair, ...]
    only_a: tuple[Entry, ...]
    only_b: tuple[Entry, ...]


def match_entries(
    a: Checkpoint,
    b: Checkpoint,
    mapping: Mapping[str, str] | None = None,
    *,
    values: Callable[[Entry], bytes] | None = None,
) -> Matching:
    """Match the tensors of two checkpoints.

    Parameters
    ----------
    a, b : Checkpoint
    mapping : mapping of str to str, optional
        Names in A, and the names of the same tensors in B, from a mapping file.
    values : callable, optional
        Returns a digest of a tensor's values, which identifies tensors whose names have nothing in common.

    Raises
    ------
    InputError
        The mapping names a tensor that a checkpoint does not have.
    """
    return _Matcher(a, b).run(mapping or {}, values)


class _Matcher:
    """The pairs so far, and the tensors that are left in `a` and `b`."""

    def __init__(self, a: Checkpoint, b: Checkpoint) -> None:
        self.a, self.b = dict(a.entries), dict(b.entries)
        self._all_a = a.entries
        self._order = {name: index for index, name in enumerate(a.entries)}
        self.pairs: list[Pair] = []

    def run(self, mapping: Mapping[str, str], values: Callable[[Entry], bytes] | None) -> Matching:
        for name, other in mapping.items():
            if name not in self.a or other not in self.b:
                which, what = ("A", name) if name not in self.a else ("B", other)
                raise InputError(f"the mapping names {what!r}, which {which} does not have, or has a pair for already")
            self._pair(name, other, FILE)
        for name in [name for name in self.a if name in self.b]:
            self._pair(name, name, SAME_NAME)
        self._by_scheme()
        self._fused()
        if values is not None:
            self._by_values(values)
            self._part_contradicted()
        self._by_paths()
        self._by_scheme(usual_name, USUAL)
        self._by_order()
        self.pairs.sort(key=lambda pair: self._order.get(pair.a.name.partition("[")[0], 0))
        return Matching(tuple(self.pairs), tuple(self.a.values()), tuple(self.b.values()))

    def _pair(self, name: str, other: str, rule: str) -> None:
        a, b = self.a.pop(name), self.b.pop(other)
        if _squeezed(a.shape) != _squeezed(b.shape) and a.shape == b.shape[::-1]:
            turned = a.transposed()
            if turned is not None:
                self.pairs.append(Pair(turned, b, rule, is_transposed=True))
                return
        self.pairs.append(Pair(a, b, rule))

    def _by_scheme(self, key_of: Callable[[str], str] = plain_name, rule: str = SCHEME) -> None:
        """Pair names that are the same in other words and without wrappers; then also without a common prefix."""
        self._by_keys({name: key_of(name) for name in self.a}, {name: key_of(name) for name in self.b}, rule)
        keys_a = {name: key_of(name) for name in self.a}
        keys_b = {name: key_of(name) for name in self.b}
        prefix_a, prefix_b = _prefixes(keys_a.values(), keys_b.values())
        if prefix_a or prefix_b:
            self._by_keys(
                {name: key.removeprefix(prefix_a) for name, key in keys_a.items() if key.startswith(prefix_a)},
                {name: key.removeprefix(prefix_b) for name, key in keys_b.items() if key.startswith(prefix_b)},
                rule,
            )

    def _by_keys(self, keys_a: dict[str, str], keys_b: dict[str, str], rule: str = SCHEME) -> None:
        """Pair names with the same key whose shapes fit; keys of several names are ignored."""
        counts_a, counts_b = Counter(keys_a.values()), Counter(keys_b.values())
        names_b = {key: name for name, key in keys_b.items() if counts_b[key] == 1}
        for name, key in keys_a.items():
            other = names_b.get(key)
            if other is not None and counts_a[key] == 1 and _fits(self.a[name].shape, self.b[other].shape):
                self._pair(name, other, rule)

    def _by_paths(self) -> None:
        """Pair names that are the same after A's module paths are renamed to B's, as learned from the pairs so far."""
        whole = [pair for pair in self.pairs if pair.rule != FUSED]
        paths = paths_in_b((_module_of(pair.a), _module_of(pair.b)) for pair in whole)
        in_b = {name: _renamed(plain_name(name), paths) for name in self.a}
        self._by_keys(in_b, {name: plain_name(name) for name in self.b}, PATH)
        if len({in_b[name] for name in self.a}) == len(self.a):
            self.a = {in_b[name]: entry for name, entry in self.a.items()}
            self._fused()
            self.a = {entry.name: entry for entry in self.a.values()}

    def _fused(self) -> None:
        """Pair matrices that are fused in one checkpoint with their parts in the other."""
        for entries, others in ((self.a, self.b), (self.b, self.a)):
            plain = {plain_name(name): name for name in others}
            shapes = {key: others[other].shape for key, other in plain.items()}
            available = FusedParts(shapes)
            for name in [name for name in entries if is_fused(name)]:
                for is_turned, whole in ((False, entries[name]), (True, entries[name].transposed())):
                    parts = available.of(name, whole.shape) if whole is not None else []
                    if whole is None or not parts:
                        continue
                    del entries[name]
                    for part, first, count in parts:
                        del shapes[part]
                        rows, other = whole.rows(first, count), others.pop(plain.pop(part))
                        turned = other.transposed() if other.shape != rows.shape else None
                        pair = (rows, turned or other) if entries is self.a else (turned or other, rows)
                        is_transposed = is_turned != (turned is not None)
                        self.pairs.append(Pair(*pair, FUSED, is_transposed=is_transposed))
                    break

    def _by_values(self, values: Callable[[Entry], bytes]) -> None:
        """Pair tensors of the same shape whose sampled values are equal to each other and to no other tensor's."""
        shapes = {entry.shape for entry in self.a.values()} & {entry.shape for entry in self.b.values()}
        digests_a = _unique({name: values(entry) for name, entry in self.a.items() if entry.shape in shapes})
        digests_b = _unique({name: values(entry) for name, entry in self.b.items() if entry.shape in shapes})
        for digest, name in digests_a.items():
            other = digests_b.get(digest)
            if other is not None and self.a[name].shape == self.b[other].shape:
                self._pair(name, other, VALUES)

    def _part_contradicted(self) -> None:
        """Take pairs of equal values apart whose names contradict those of the others: values that changed places."""
        alike = sum(_numbers(pair.a.name) == _numbers(pair.b.name) for pair in self.pairs)
        has_same_numbers = alike > len(self.pairs) / 2
        votes: dict[str, Counter[str]] = defaultdict(Counter)
        for pair in self.pairs:
            votes[_without_numbers(pair.a)][_without_numbers(pair.b)] += 1
        in_b = {_in_layer(pair.b.name) for pair in self.pairs}
        kept = []
        for pair in self.pairs:
            of_template = votes[_without_numbers(pair.a)]
            amount = of_template[_without_numbers(pair.b)]
            is_usual = 2 <= amount > of_template.total() / 2
            is_elsewhere = _in_layer(pair.a.name) in in_b and _in_layer(pair.a.name) != _in_layer(pair.b.name)
            has_other_number = has_same_numbers and _numbers(pair.a.name) != _numbers(pair.b.name)
            if pair.rule == VALUES and (has_other_number or (is_elsewhere and not is_usual)):
                # A matrix may have been transposed for the pair.
                self.a[pair.a.name], self.b[pair.b.name] = self._all_a[pair.a.name], pair.b
            else:
                kept.append(pair)
        self.pairs = kept

    def _by_order(self) -> None:
        """Pair the remaining tensors by shape and kind (weight, bias…), where A and B have equally many."""
        groups_a, groups_b = _groups(self.a), _groups(self.b)
        for key, names in groups_a.items():
            others = groups_b.get(key, [])
            if len(names) == len(others):
                for name, other in zip(names, others, strict=True):
                    self._pair(name, other, ORDER)


def _numbers(name: str) -> list[str]:
    """Return the numbers of the layers in a name."""
    return [part for part in plain_name(name).split(".") if part.isdigit()]


def _without_numbers(entry: Entry) -> str:
    return ".".join("#" if part.isdigit() else part for part in plain_name(entry.name).split("."))


def _in_layer(name: str) -> str:
    """Return the usual name of a parameter from its layer on."""
    parts = usual_name(name).split(".")
    return ".".join(parts[parts.index("layers") :] if "layers" in parts else parts)


def _module_of(entry: Entry) -> list[str]:
    """Return the path of the module that contains an entry, in parts."""
    return plain_name(entry.name).split(".")[:-1]


def _renamed(name: str, paths: Mapping[str, str]) -> str:
    """Return a plain name in which the longest possible path is replaced by B's."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        path = paths.get("/".join(parts[:end]))
        if path is not None:
            return ".".join([*path.split("/"), *parts[end:]])
    return name


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return _squeezed(shape) == _squeezed(other) or shape == other[::-1]


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without dimensions of size 1, which MindSpore adds to the weights of 1D convolutions."""
    return tuple(size for size in shape if size != 1)


def _prefixes(keys_a: Iterable[str], keys_b: Iterable[str]) -> tuple[str, str]:
    """Return the prefixes of A and of B that make the most names equal when they are removed."""
    ends_b = set(keys_b)
    ends_a = set(keys_a)
    votes: Counter[tuple[str, str]] = Counter()
    for key in ends_a:
        for prefix, end in _cuts(key):
            if end in ends_b:
                votes[prefix, ""] += 1
    for key in ends_b:
        for prefix, end in _cuts(key):
            if end in ends_a:
                votes["", prefix] += 1
    tails = defaultdict(list)
    for key in ends_b:
        tails[_tail(key)].append(key)
    for key in ends_a:
        others = tails.get(_tail(key), [])
        if len(others) == 1:
            same = _common_end(key, others[0])
            votes[key.removesuffix(same), others[0].removesuffix(same)] += 1
    return max(votes, key=lambda pair: (votes[pair], pair), default=("", ""))


def _cuts(key: str) -> Iterable[tuple[str, str]]:
    parts = key.split(".")
    for index in range(1, min(len(parts), 8)):
        yield ".".join(parts[:index]) + ".", ".".join(parts[index:])


def _tail(key: str) -> str:
    return ".".join(key.split(".")[-2:])


def _common_end(key: str, other: str) -> str:
    parts = []
    for part, other_part in zip(reversed(key.split(".")), reversed(other.split(".")), strict=False):
        if part != other_part:
            break
        parts.append(part)
    return ".".join(reversed(parts))


def _unique(digests: Mapping[str, bytes]) -> dict[bytes, str]:
    counts = Counter(digests.values())
    return {digest: name for name, digest in digests.items() if counts[digest] == 1}


def _groups(entries: Mapping[str, Entry]) -> dict[tuple[object, ...], list[str]]:
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, entry in entries.items():
        plain = plain_name(name)
        words = {word for word in WORDS.values() if word in plain.split(".")}
        groups[entry.shape, frozenset(words)].append(name)
    return groups


def mapping_lines(matching: Matching) -> Iterator[str]:
    """Yield the lines of a mapping file.

    Pairs come with their rule; fused tensors and tensors without a pair are comments.
    """
    for pair in matching.pairs:
        note = pair.rule + (", transposed" if pair.is_transposed else "")
        line = mapping_line(pair.a.name, pair.b.name, note)
        yield f"# {line}" if pair.rule == FUSED else line
    for entries, side in ((matching.only_a, "A"), (matching.only_b, "B")):
        for entry in entries:
            yield f"# only in {side}: {quoted(entry.name)} {list(entry.shape)}"
