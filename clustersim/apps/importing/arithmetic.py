"""Whole-number arithmetic of configuration files: sums and products of numbers, by Python's grammar, of which nothing is executed."""

from __future__ import annotations

import ast
from typing import Final

_LONGEST: Final = 200
_LARGEST: Final = 10**30


def arithmetic(text: str) -> int | None:
    """Return the value of a formula of whole numbers; None where it is anything else.

    Examples
    --------
    >>> arithmetic("4 * (8 + 2) / 5"), arithmetic("2 ** 9999"), arithmetic("open('x')")
    (8, None, None)
    """
    if len(text) > _LONGEST:
        return None
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
        case ast.BinOp(left=left, op=op, right=right):
            found = _combined(_value(left), op, _value(right))
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
