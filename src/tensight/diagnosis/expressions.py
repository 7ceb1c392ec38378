"""Expressions over facts, for rules that need no function: ``losses.value > 2 * lowest(losses.value)``.

What an expression computes is a table of steps and items. Its conditions have three values: what depends on an unknown
fact is unknown, and never holds.
"""

from __future__ import annotations

import ast
import difflib
import functools
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensight.diagnosis.facts import SCHEMA
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts, Table

MOST_TEXT = 2_000
"""Maximum length of an expression."""


class Hits(NamedTuple):
    """Where an expression holds.

    Attributes
    ----------
    steps : ndarray of int64, shape (steps,)
        The steps in which all facts of the expression were read.
    names : tuple of str
        The items; empty if it is about the step.
    holds : ndarray of bool, shape (steps, items)
        One item if it is about the step.
    decided : ndarray of bool, shape (steps, items)
        Where it could be decided.
    """

    steps: NDArray[np.int64]
    names: tuple[str, ...]
    holds: NDArray[np.bool_]
    decided: NDArray[np.bool_]


class _Values(NamedTuple):
    """Numbers, texts (object) or truth (1, 0, NaN) by step and item; NaN and None are unknown.

    Attributes
    ----------
    array : ndarray, shape (steps or 1, items or 1)
    names : tuple of str
        The items; empty for one that is none, as a number or the largest of all items.
    present : ndarray of bool, shape of array
        Where the item has a row.
    """

    array: NDArray[Any]
    names: tuple[str, ...]
    present: NDArray[np.bool_]


@dataclass(frozen=True)
class Expression:
    """An expression over facts.

    Attributes
    ----------
    text : str
    facts : tuple of str
        Those that it names, as ``losses.value``, in their order.
    tree : ast.expr
    """

    text: str
    facts: tuple[str, ...]
    tree: ast.expr

    def hits(self, facts: Facts) -> Hits:
        """Return where it holds.

        Raises
        ------
        InputError
            It combines tables with different items.
        """
        tables = {name.partition(".")[0]: facts[name.partition(".")[0]] for name in self.facts}
        steps = None
        for table in tables.values():
            steps = table.steps if steps is None else np.intersect1d(steps, table.steps)
        steps = np.zeros(0, np.int64) if steps is None else np.unique(steps)
        values = _Evaluation(tables, steps).value(self.tree)
        truth = np.broadcast_to(_truth(values.array), (len(steps), max(values.array.shape[1], 1)))
        return Hits(steps, values.names, truth == 1, ~np.isnan(truth))


def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Parameters
    ----------
    text : str
        Python's notation of numbers, texts, comparisons, ``and``, ``or``, ``not`` and arithmetic, of facts as
        ``losses.value`` or, of one item, ``parameters["fc.weight"].norm``, of ``step``, and of the functions in
        `FUNCTIONS`.

    Raises
    ------
    InputError
        It cannot be parsed, or names an unknown fact or function.
    """
    if len(text) > MOST_TEXT:
        raise InputError(f"an expression has at most {MOST_TEXT:,} characters; this one has {len(text):,}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{text[:80]!r} is no expression: {getattr(error, 'msg', error)}") from None
    facts: dict[str, None] = {}
    _check(tree, facts)
    if not facts:
        raise InputError(f"{text[:80]!r} names no fact, such as losses.value")
    return Expression(text, tuple(facts), tree)


def _check(node: ast.AST, facts: dict[str, None]) -> None:
    """Refuse what an expression cannot have, and note the facts that it names."""
    if isinstance(node, ast.Attribute):
        facts[".".join(_fact_of(node)[:2])] = None
        return
    if isinstance(node, ast.Call):
        _function_of(node)
        for argument in node.args:
            _check(argument, facts)
        return
    if isinstance(node, ast.Name):
        if node.id != "step":
            raise InputError(f"unknown name {node.id[:80]!r}; facts are written as losses.value")
        return
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (int, float, str)):
            raise InputError(f"{node.value!r} cannot be used in an expression")
        return
    if isinstance(node, ast.BoolOp):
        parts: Sequence[ast.AST] = node.values
    elif isinstance(node, ast.UnaryOp) and type(node.op) in (ast.Not, ast.USub):
        parts = [node.operand]
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        parts = [node.left, node.right]
    elif isinstance(node, ast.Compare) and all(type(each) in _COMPARISONS for each in node.ops):
        parts = [node.left, *node.comparators]
    else:
        raise InputError(f"{ast.unparse(node)[:80]!r} cannot be used in an expression")
    for part in parts:
        _check(part, facts)


def _fact_of(node: ast.Attribute) -> tuple[str, str, str | None]:
    """Return the subject, the fact and the item (None for all) of ``losses.value`` or ``losses["loss 2"].value``."""
    item = None
    base: ast.expr = node.value
    if isinstance(base, ast.Subscript):
        named = base.slice.value if isinstance(base.slice, ast.Constant) else None
        if not isinstance(named, str):
            raise InputError(f'an item is named as losses["loss 2"], not as {ast.unparse(base)[:80]}')
        base, item = base.value, named
    if not isinstance(base, ast.Name):
        raise InputError(f"{ast.unparse(node)[:80]!r} cannot be used in an expression")
    require_fact(base.id, node.attr)
    return base.id, node.attr, item


def require_fact(subject: str, fact: str = "") -> None:
    """Raise InputError if there are no such facts."""
    if subject not in SCHEMA:
        raise InputError(f"there are no facts of {subject[:80]!r}{_hint(subject, list(SCHEMA))}")
    names = [each.name for each in SCHEMA[subject]]
    if fact and fact not in names:
        raise InputError(f"{subject} have no fact {fact[:80]!r}{_hint(fact, names)}")


def _hint(word: str, words: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, words, 1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(words[:8])} …"


def _function_of(node: ast.Call) -> Callable[..., _Values]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in FUNCTIONS or node.keywords:
        raise InputError(f"there is no function {ast.unparse(node.func)[:80]}; there are {', '.join(FUNCTIONS)}")
    if len(node.args) not in ((1, 2) if name in _OF_STEPS else (1,)):
        raise InputError(f"{name} takes a fact{', and a number of steps' if name in _OF_STEPS else ''}")
    if len(node.args) == 2:
        count = node.args[1]
        if not (isinstance(count, ast.Constant) and type(count.value) is int and count.value >= 1):
            raise InputError(f"{name} takes a whole number of steps from 1")
    return FUNCTIONS[name]


class _Evaluation:
    """The evaluation of an expression over the steps in which all of its facts were read."""

    def __init__(self, tables: Mapping[str, Table], steps: NDArray[np.int64]) -> None:
        self._tables = tables
        self._steps = steps

    def value(self, node: ast.AST) -> _Values:
        """Return the values of a part of the expression."""
        if isinstance(node, ast.Attribute):
            return self._fact(*_fact_of(node))
        if isinstance(node, ast.Name):
            return _plain(self._steps[:, None].astype(float))
        if isinstance(node, ast.Constant):
            kind = object if isinstance(node.value, str) else float
            return _plain(np.array([[node.value]], kind))
        if isinstance(node, ast.Call):
            first, *rest = node.args
            return _function_of(node)(self.value(first), *(int(ast.literal_eval(each)) for each in rest))
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand)
            is_not = isinstance(node.op, ast.Not)
            return inner._replace(array=1 - _truth(inner.array) if is_not else -_numbers(inner.array))
        if isinstance(node, ast.BinOp):
            return _combined(_ARITHMETIC[type(node.op)], self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Compare):
            return self._compared(node)
        assert isinstance(node, ast.BoolOp)  # noqa: S101 - all others were refused
        combine = _both if isinstance(node.op, ast.And) else _either
        result, *rest_of = [self.value(each) for each in node.values]
        for other in rest_of:
            result = _combined(combine, result, other)
        return result

    def _compared(self, node: ast.Compare) -> _Values:
        sides = [self.value(each) for each in (node.left, *node.comparators)]
        result = None
        for sign, left, right in zip(node.ops, sides, sides[1:], strict=False):
            holds = _combined(functools.partial(_comparison, _COMPARISONS[type(sign)]), left, right)
            result = holds if result is None else _combined(_both, result, holds)
        assert result is not None  # noqa: S101 - a comparison has two sides
        return result

    def _fact(self, subject: str, fact: str, item: str | None) -> _Values:
        table = self._tables[subject]
        rows = np.searchsorted(table.steps, self._steps)
        kind = next(each.kind for each in table.schema if each.name == fact)
        array, present = table.panel(fact)[rows], table.present()[rows]
        names = tuple(table.names)
        if item is not None:
            columns = [names.index(item)] if item in names else []
            array, present, names = array[:, columns], present[:, columns], ()
            if not columns:
                array, present = np.full((len(rows), 1), np.nan), np.zeros((len(rows), 1), np.bool_)
        if kind == "text":
            array[~present] = None
            return _Values(array, names, present)
        numbers = array.astype(float)
        is_unknown = ~present | ((numbers < 0) if kind == "count" else False)
        return _Values(np.where(is_unknown, np.nan, numbers), names, present)


def _plain(array: NDArray[Any]) -> _Values:
    return _Values(array, (), np.ones(array.shape, np.bool_))


def _numbers(array: NDArray[Any]) -> NDArray[np.float64]:
    if array.dtype == object:
        raise InputError("a text is used as a number")
    return array.astype(float)


def _truth(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return 1 for what is not 0, or not empty; NaN for what is unknown."""
    if array.dtype == object:
        return np.array([[math.nan if text is None else float(bool(text)) for text in row] for row in array], float)
    return np.where(np.isnan(array), np.nan, (array != 0).astype(float))


def _comparison(compare: Callable[[Any, Any], Any], a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    if object not in (a.dtype, b.dtype):
        return np.where(np.isnan(a) | np.isnan(b), np.nan, compare(a, b).astype(float))
    if compare not in (operator.eq, operator.ne):
        raise InputError("texts can only be equal (==) or differ (!=)")
    left, right = np.broadcast_arrays(a.astype(object), b.astype(object))
    pairs = zip(left.flat, right.flat, strict=True)
    holds = [math.nan if a is None or b is None else float(compare(a, b)) for a, b in pairs]
    return np.array(holds, float).reshape(left.shape)


def _both(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    left, right = _truth(a), _truth(b)
    return np.where((left == 0) | (right == 0), 0.0, left * right)


def _either(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    left, right = _truth(a), _truth(b)
    return np.where((left == 1) | (right == 1), 1.0, left * right)


def _combined(combine: Callable[[Any, Any], Any], left: _Values, right: _Values) -> _Values:
    """Return what two tables of values are together: of the same items, or one of them of one item."""
    if len(left.names) > 1 and len(right.names) > 1 and left.names != right.names:
        raise InputError(
            f"facts of different items are combined ({_some(left.names)}; {_some(right.names)}): name one item, as in"
            ' losses["loss 2"].value, or take the largest(…)'
        )
    array = combine(left.array, right.array)
    present = np.broadcast_to(left.present & right.present, array.shape)
    return _Values(array, max(left.names, right.names, key=len), present)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (" …" if len(names) > 2 else "")


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: operation(_numbers(a), _numbers(b))


_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(np.divide),
    ast.Mod: _arithmetic(np.mod),
    ast.Pow: _arithmetic(np.power),
}
_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _over_known(function: Callable[..., Any], numbers: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return a function of the numbers along an axis that are known; NaN where none is."""
    masked: Any = np.ma.masked_array(numbers, np.isnan(numbers))
    result: NDArray[np.float64] = np.ma.filled(np.ma.asarray(function(masked, axis=axis)).astype(float), np.nan)
    return result


def _of_each(function: Callable[[Any], Any]) -> Callable[[_Values], _Values]:
    return lambda values: values._replace(array=function(_numbers(values.array)))


def _of_items(function: Callable[..., Any]) -> Callable[[_Values], _Values]:
    """Return a function of all items of a step that are known."""

    def reduced(values: _Values) -> _Values:
        result = _over_known(function, _numbers(values.array), axis=1)
        return _Values(result[:, None], (), np.array(values.present.any(axis=1))[:, None])

    return reduced


def _previous(values: _Values, count: int = 1) -> _Values:
    """Return the values of an earlier step."""
    array = np.full(values.array.shape, np.nan if values.array.dtype != object else None, values.array.dtype)
    array[count:] = values.array[: len(array) - count] if count < len(array) else array[count:]
    return values._replace(array=array)


def _of_past(function: Callable[..., Any]) -> Callable[..., _Values]:
    """Return a function of the values in the steps before, or of the last ones of them."""

    def reduced(values: _Values, count: int | None = None) -> _Values:
        numbers = _numbers(values.array)
        result = np.full(numbers.shape, np.nan)
        for at in range(1 if count is None else count, len(numbers)):
            result[at] = _over_known(function, numbers[(0 if count is None else at - count) : at], axis=0)
        return values._replace(array=result)

    return reduced


def _first(values: _Values) -> _Values:
    """Return the first known value of each item, in all steps after it."""
    numbers = _numbers(values.array)
    result = np.full(numbers.shape, np.nan)
    for item in range(numbers.shape[1]):
        measured = np.flatnonzero(~np.isnan(numbers[:, item]))
        if len(measured):
            result[measured[0] + 1 :, item] = numbers[measured[0], item]
    return values._replace(array=result)


def _is_nan(values: _Values) -> _Values:
    numbers = _numbers(values.array)
    return values._replace(array=np.where(values.present, np.isnan(numbers).astype(float), np.nan))


def _is_finite(values: _Values) -> _Values:
    numbers = _numbers(values.array)
    return values._replace(array=np.where(values.present, np.isfinite(numbers).astype(float), np.nan))


FUNCTIONS: Mapping[str, Callable[..., _Values]] = {
    "previous": _previous,
    "first": _first,
    "lowest": _of_past(np.ma.min),
    "highest": _of_past(np.ma.max),
    "mean": _of_past(np.ma.mean),
    "median": _of_past(np.ma.median),
    "smallest": _of_items(np.ma.min),
    "largest": _of_items(np.ma.max),
    "total": _of_items(np.ma.sum),
    "abs": _of_each(np.abs),
    "log10": _of_each(np.log10),
    "sqrt": _of_each(np.sqrt),
    "is_nan": _is_nan,
    "is_finite": _is_finite,
}
"""By name: of an item and its past (`previous`, `first`, `lowest`, `highest`, `mean` and `median` of the steps before),
of all items of the step (`smallest`, `largest`, `total`), and of each value."""

_OF_STEPS = ("previous", "lowest", "highest", "mean", "median")
"""Functions that take a number of steps, too."""
