"""Pickled data, interpreted by our own machine, which can build data and nothing else.

Python's unpickler imports and calls what a pickle names. This machine imports nothing: names are looked up in a table
of our own functions, each of which makes plain data from plain data; a name that is not in the table stops the
reading with an error. The opcodes are those of protocols 0 to 5 (`pickletools`), without those that call methods by
name (INST, OBJ), use a registry of the process (EXT) or external memory (NEXT_BUFFER).

Everything is bounded by the length of the pickle, except shared objects: a list that contains one list twice, which
contains one list twice, and so on, is short as a pickle but endless when printed. So this module never traverses what
it has built, and code that flattens it counts (`flatten` in `checkpoints.flattening`).
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_PICKLE_BYTES = 256 * 2**20
"""A checkpoint of 100,000 tensors has 20 MB of pickled data."""

_MAX_OPCODES = 20_000_000
_MAX_NUMBER_BYTES = 1024
_MAX_DIMENSIONS = 32
_NUMBER_CODE = re.compile(r"[<|=]?(?:b1|[iu][1248]|f[248]|c8|c16)")
_PLAIN_KEYS = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Named:
    """A name in a pickle that represents itself, such as ``torch.float32`` or a storage class."""

    module: str
    name: str


# Without a generated repr, whose length would be unbounded.
@dataclass(slots=True, eq=False, repr=False)
class Record:
    """An object of a class that only holds data.

    Attributes
    ----------
    kind : str
        Name of the class, without its module.
    arguments : tuple
        Arguments of its constructor.
    state : object
        Its attributes, usually a dict; None if it has none.
    """

    kind: str
    arguments: tuple[Any, ...] = ()
    state: Any = None

    def attribute(self, name: str) -> Any:
        """Return an attribute, None if there is none."""
        return self.state.get(name) if isinstance(self.state, dict) else None


@dataclass(slots=True, eq=False)
class PickledArray:
    """A NumPy array, whose header and bytes come one after the other in a pickle.

    Attributes
    ----------
    dtype : str
        For example "float32"; empty until the state is set.
    shape : tuple of int
    data : bytes
        The elements in C order, little-endian.
    """

    dtype: str = ""
    shape: tuple[int, ...] = ()
    data: bytes = b""

    def set_state(self, state: Any) -> None:
        """Set the arguments of ``ndarray.__setstate__``: version, shape, dtype, whether in Fortran order, bytes."""
        _, shape, dtype, is_fortran, data = state
        if not isinstance(data, bytes) or is_fortran or not isinstance(dtype, Record):
            raise ValueError("an array of objects, or in another order")
        self.set(dtype, shape, data)

    def set(self, dtype: Record, shape: Any, data: bytes) -> None:
        """Set dtype, shape and bytes."""
        code = str(dtype.arguments[0]) if dtype.arguments else ""
        is_big = isinstance(dtype.state, tuple) and len(dtype.state) > 1 and dtype.state[1] == ">"
        element = np.dtype(code) if _NUMBER_CODE.fullmatch(code) else None
        sizes = plain_shape(shape)
        if element is None or is_big or math.prod(sizes) * element.itemsize != len(data):
            raise ValueError("no array of numbers")
        self.dtype, self.shape, self.data = element.name, sizes, data


def plain_shape(shape: Any) -> tuple[int, ...]:
    """Validate and return a shape from a pickle: a tuple of at most 32 sizes that are not negative."""
    if not isinstance(shape, (tuple, list)) or len(shape) > _MAX_DIMENSIONS:
        raise TypeError("no shape")
    if not all(type(size) is int and 0 <= size < 2**62 for size in shape):
        raise TypeError("no shape")
    return tuple(shape)


class _Mark:
    pass


_MARK = _Mark()


def read_pickle(
    data: bytes,
    makers: Mapping[tuple[str, str], Callable[..., Any] | Named],
    *,
    where: str,
    persistent: Callable[[Any], Any] | None = None,
) -> tuple[Any, int]:
    """Return the object that a pickle describes, and the end position of the pickle.

    Parameters
    ----------
    data : bytes
        The pickle, possibly followed by more data.
    makers : mapping of (module, name) to callable or Named
        The names allowed in the pickle.
    where : str
        The file name, for messages.
    persistent : callable, optional
        Creates an object for a persistent id, which PyTorch writes for storages.

    Raises
    ------
    CheckpointError
        The pickle names something that is not data, is damaged, or is unreasonably large.
    """
    if len(data) > MAX_PICKLE_BYTES:
        raise CheckpointError(f"{where}: {len(data):,} bytes of pickled data; at most {MAX_PICKLE_BYTES:,} are read.")
    machine = _Machine(data, makers, where, persistent)
    try:
        return machine.run(), machine.position
    except CheckpointError:
        raise
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error, OverflowError) as error:
        raise CheckpointError(
            f"{where}: the pickled data is damaged at byte {machine.position:,} ({type(error).__name__})."
        ) from None


class _Machine:
    """The state of an interpretation: the stack, the memo, the position."""

    def __init__(
        self,
        data: bytes,
        makers: Mapping[tuple[str, str], Callable[..., Any] | Named],
        where: str,
        persistent: Callable[[Any], Any] | None,
    ) -> None:
        self.data, self.makers, self.where, self.persistent = data, makers, where, persistent
        self.position = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, actions, stop = self.data, _ACTIONS, ord(".")
        for _ in range(_MAX_OPCODES):
            code = data[self.position]
            self.position += 1
            if code == stop:
                return self.pop()
            action = actions[code]
            if action is None:
                raise CheckpointError(
                    f"{self.where}: the pickled data has opcode {code:#04x} at byte {self.position - 1:,}, which is no "
                    "data; it is refused.",
                    code="checkpoint-refused",
                )
            action(self)
        raise CheckpointError(
            f"{self.where}: more than {_MAX_OPCODES:,} operations in the pickled data; it is refused."
        )

    # reading -----------------------------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise ValueError("too short")
        part = self.data[self.position : end]
        self.position = end
        return part

    def number(self, form: str) -> int:
        """Return the next number in a form of `struct`."""
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def line(self) -> bytes:
        """Return the rest of the line."""
        end = self.data.index(b"\n", self.position)
        return self.take(end + 1 - self.position)[:-1]

    # the stack ---------------------------------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        """Push a value."""
        self.stack.append(value)

    def pop(self) -> Any:
        """Pop the topmost value, which must not be a mark."""
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark in place of a value")
        return value

    def top(self) -> Any:
        """Return the topmost value."""
        value = self.stack[-1]
        if value is _MARK:
            raise ValueError("a mark in place of a value")
        return value

    def since_mark(self) -> list[Any]:
        """Pop all values above the last mark, and the mark."""
        stack = self.stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                values = stack[at + 1 :]
                del stack[at:]
                return values
        raise ValueError("no mark")

    # objects -----------------------------------------------------------------------------------------------------

    def name(self, module: Any, name: Any) -> None:
        """Push what a pickle names, if it is data."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise TypeError("no text")
        maker = self.makers.get((module, name))
        if maker is None:
            raise CheckpointError(
                f"{self.where}: loading it would use {f'{module}.{name}'[:200]!r}, which is not plain data; "
                "nothing was run, and the file is refused.",
                code="checkpoint-refused",
            )
        self.push(maker)

    def make(self, maker: Any, arguments: Any) -> None:
        """Push the result of one of our functions for some arguments."""
        if not callable(maker) or not isinstance(arguments, tuple):
            raise TypeError("no function")
        self.push(maker(*arguments))

    def build(self) -> None:
        """Set the state of an object."""
        state, target = self.pop(), self.top()
        if isinstance(target, Record):
            target.state = state
        elif isinstance(target, PickledArray):
            target.set_state(state)
        elif not isinstance(target, (dict, list, set)):
            raise TypeError("no state")

    def set_items(self, pairs: list[Any]) -> None:
        """Add keys and values to the topmost dict."""
        target = self.top()
        if not isinstance(target, dict) or len(pairs) % 2:
            raise TypeError("no dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            target[plain_key(key)] = value

    def extend(self, values: list[Any]) -> None:
        """Append values to the topmost list."""
        target = self.top()
        if not isinstance(target, list):
            raise TypeError("no list")
        target.extend(values)

    def add(self, values: list[Any]) -> None:
        """Add values to the topmost set."""
        target = self.top()
        if not isinstance(target, set):
            raise TypeError("no set")
        target.update(map(plain_key, values))

    def load_persistent(self, identity: Any) -> None:
        """Push the storage of a persistent id."""
        if self.persistent is None:
            raise ValueError("no persistent ids here")
        self.push(self.persistent(identity))


def plain_key(key: Any) -> Any:
    """Return a key that is safe to hash: hashing deeply nested tuples is not bounded."""
    if isinstance(key, (*_PLAIN_KEYS, Record, Named)):
        return key
    if isinstance(key, tuple) and all(isinstance(part, _PLAIN_KEYS) for part in key):
        return key
    raise TypeError("no key")


def _text_number(text: bytes) -> int:
    if len(text) > _MAX_NUMBER_BYTES:
        raise ValueError("long number")
    return int(text.rstrip(b"L"))


def _int_line(machine: _Machine) -> None:
    line = machine.line()
    machine.push({b"00": False, b"01": True}[line] if line in (b"00", b"01") else _text_number(line))


def _long(form: str) -> Callable[[_Machine], None]:
    def action(machine: _Machine) -> None:
        size = machine.number(form)
        if size > _MAX_NUMBER_BYTES:
            raise ValueError("long number")
        machine.push(int.from_bytes(machine.take(size), "little", signed=True))

    return action


def _fixed(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.number(form))


def _text(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.take(machine.number(form)).decode("utf-8", "surrogatepass"))


def _bytes(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.take(machine.number(form)))


def _old_text(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.take(machine.number(form)).decode("latin-1"))


def _double(machine: _Machine) -> None:
    (value,) = struct.unpack(">d", machine.take(8))
    machine.push(value)


def _string_line(machine: _Machine) -> None:
    line = machine.line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"') or b"\\" in line:
        raise ValueError("text with escapes")
    machine.push(line[1:-1].decode("latin-1"))


def _tuple_of(count: int) -> Callable[[_Machine], None]:
    def action(machine: _Machine) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.push(tuple(reversed(values)))

    return action


def _dict(machine: _Machine) -> None:
    pairs = machine.since_mark()
    machine.push({})
    machine.set_items(pairs)


def _set_item(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


def _append(machine: _Machine) -> None:
    value = machine.pop()
    machine.extend([value])


def _global(machine: _Machine) -> None:
    module, name = machine.line().decode(), machine.line().decode()
    machine.name(module, name)


def _stack_global(machine: _Machine) -> None:
    name, module = machine.pop(), machine.pop()
    machine.name(module, name)


def _reduce(machine: _Machine) -> None:
    arguments, maker = machine.pop(), machine.pop()
    machine.make(maker, arguments)


def _new_with_keywords(machine: _Machine) -> None:
    keywords = machine.pop()
    if keywords:
        raise ValueError("keywords")
    _reduce(machine)


def _put(form: str) -> Callable[[_Machine], None]:
    def action(machine: _Machine) -> None:
        machine.memo[machine.number(form)] = machine.top()

    return action


def _get(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.memo[machine.number(form)])


def _put_line(machine: _Machine) -> None:
    machine.memo[_text_number(machine.line())] = machine.top()


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.top()


def _pop(machine: _Machine) -> None:
    machine.stack.pop()


def _pop_mark(machine: _Machine) -> None:
    machine.since_mark()


def _protocol(machine: _Machine) -> None:
    machine.take(1)  # opcodes imply their protocol


def _frame(machine: _Machine) -> None:
    machine.number("<Q")  # the frame length is redundant


_OPCODES: dict[str, Callable[[_Machine], None]] = {
    "\x80": _protocol,
    "\x95": _frame,
    "(": lambda machine: machine.push(_MARK),
    "0": _pop,
    "1": _pop_mark,
    "2": lambda machine: machine.push(machine.top()),
    "N": lambda machine: machine.push(None),
    "\x88": lambda machine: machine.push(True),
    "\x89": lambda machine: machine.push(False),
    "I": _int_line,
    "L": lambda machine: machine.push(_text_number(machine.line())),
    "J": _fixed("<i"),
    "K": _fixed("<B"),
    "M": _fixed("<H"),
    "\x8a": _long("<B"),
    "\x8b": _long("<i"),
    "F": lambda machine: machine.push(float(machine.line())),
    "G": _double,
    "S": _string_line,
    "T": _old_text("<i"),
    "U": _old_text("<B"),
    "V": lambda machine: machine.push(machine.line().decode("raw-unicode-escape")),
    "X": _text("<I"),
    "\x8c": _text("<B"),
    "\x8d": _text("<Q"),
    "B": _bytes("<I"),
    "C": _bytes("<B"),
    "\x8e": _bytes("<Q"),
    "\x96": _bytes("<Q"),
    ")": lambda machine: machine.push(()),
    "t": lambda machine: machine.push(tuple(machine.since_mark())),
    "\x85": _tuple_of(1),
    "\x86": _tuple_of(2),
    "\x87": _tuple_of(3),
    "]": lambda machine: machine.push([]),
    "l": lambda machine: machine.push(machine.since_mark()),
    "a": _append,
    "e": lambda machine: machine.extend(machine.since_mark()),
    "}": lambda machine: machine.push({}),
    "d": _dict,
    "s": _set_item,
    "u": lambda machine: machine.set_items(machine.since_mark()),
    "\x8f": lambda machine: machine.push(set()),
    "\x90": lambda machine: machine.add(machine.since_mark()),
    "\x91": lambda machine: machine.push(frozenset(map(plain_key, machine.since_mark()))),
    "c": _global,
    "\x93": _stack_global,
    "R": _reduce,
    "\x81": _reduce,
    "\x92": _new_with_keywords,
    "b": lambda machine: machine.build(),
    "p": _put_line,
    "q": _put("<B"),
    "r": _put("<I"),
    "g": lambda machine: machine.push(machine.memo[_text_number(machine.line())]),
    "h": _get("<B"),
    "j": _get("<I"),
    "\x94": _memoize,
    "P": lambda machine: machine.load_persistent(machine.line().decode()),
    "Q": lambda machine: machine.load_persistent(machine.pop()),
}

_ACTIONS: list[Callable[[_Machine], None] | None] = [_OPCODES.get(chr(code)) for code in range(256)]
