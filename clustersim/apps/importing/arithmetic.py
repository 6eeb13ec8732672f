"""Whole-number arithmetic of configuration files: sums and products of numbers, by Python's grammar, of which nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Final

_LONGEST: Final = 200
_LARGEST: Final = 10**30
_COMPARED: Final[Mapping[type[ast.cmpop], Callable[[int, int], bool]]] = {
    ast.Eq: eq,
    ast.NotEq: ne,
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: gt,
    ast.GtE: ge,
}
_CHOICE: Final = re.compile(r"([^?:]+)\?([^?:]+):([^?:]+)")
_AS_IN_C: Final = (("&&", " and "), ("||", " or "))


def arithmetic(text: str) -> int | None:
    """Return the value of a formula of whole numbers, also as C writes it; None where it is anything else.

    Examples
    --------
    >>> arithmetic("4 * (8 + 2) / 5"), arithmetic("3 > 2 ? 5 : 6"), arithmetic("2 ** 9999"), arithmetic("open('x')")
    (8, 5, None, None)
    """
    if len(text) > _LONGEST:
        return None
    text = re.sub(r"!(?!=)", " not ", text)
    for theirs, ours in _AS_IN_C:
        text = text.replace(theirs, ours)
    if (choice := _CHOICE.fullmatch(text)) is not None:
        text = f"({choice[2]}) if ({choice[1]}) else ({choice[3]})"
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError
        case ast.Constant(value=int(number)):
            found = number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_value(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = int(not _value(operand))
        case ast.BinOp(left=left, op=op, right=right):
            found = _combined(_value(left), op, _value(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            found = int(_COMPARED[type(op)](_value(left), _value(right)))
        case ast.BoolOp(op=op, values=values):
            found = int((all if isinstance(op, ast.And) else any)(_value(each) for each in values))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            found = _value(body) if _value(test) else _value(orelse)
        case _:
            raise ValueError
    if abs(found) > _LARGEST:
        raise ValueError
    return found


def _combined(left: int, op: ast.operator, right: int) -> int:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() | ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case _:
            raise ValueError
