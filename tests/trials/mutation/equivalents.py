"""What did mutmut change, and which mutants are the same program all the same?

These cannot be noticed, and say nothing of the tests.

``typing.cast`` gives back its second argument whatever the first is, an annotation of a local name is not
evaluated, codecs are known by names of any case, SQLite reads statements without quoted text in any case, and the
first part of a text is the same however often it is split.

What is said in words is not part of the contract: a text in an error or in the log may be spelled in another way,
though it may not be missing, and what is logged for debugging may be anything.

A private flag (``self._is_...``) that is None is as false as one that is False. ``strict=True`` of ``zip`` is an
assertion: what it asserts holds, so without it the program is the same; one that is added counts.

``SHORTCUTS`` only choose the quicker of two ways to the same result, or what nothing reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import deepcopy
from difflib import ndiff
from pathlib import Path

SHORTCUTS = {
    "x_split": {"usual = None": "the sections of unusual form are found in general, and so are all others"},
    "x_restore": {
        "plan = None if (shape is None) or True else shape.plans.get(shape.aliases(payload))": "as it says",
        "plan = None if shape is None else shape.plans.get(None)": "no plan is made for None: the general way",
    },
    "x_walk_entries": {
        "if section[stop] and content <= at:": "an empty content has no bytes that could differ",
    },
    "xǁShapesǁ_lesson": {
        "if body_at < 1 or lessons >= MAX_LESSONS:": "a message that is only a body is restored in general",
    },
    "xǁMemoryBudgetǁwake_later": {'self.waiting[wake] = ""': "an ordered set: only its keys are read"},
}
"""Function and line, with the reason why the line changes nothing but the time that it takes."""

_LOGGERS = frozenset({"logger", "_logger", "log", "_log", "logging"})
_LEVELS = frozenset({"info", "warning", "error", "exception", "critical"})
_NUMBER = re.compile(r"__mutmut_\d+$")
_FLAG = re.compile(r"_(\w+_)?(is|has|was)_\w+")
_STATEMENT = re.compile(r"(select|insert|update|delete|pragma) [^']*", re.IGNORECASE)


def equivalents(module: Path) -> Iterator[str]:
    """The names of the mutants in this file of mutmut's that are the same as their original."""
    functions = _functions(module.read_text())
    originals: dict[str, str] = {}
    for name, function in functions.items():
        original = _NUMBER.sub("__mutmut_orig", name)
        if original == name or original not in functions:
            continue
        if original not in originals:
            originals[original] = _meaning(functions[original])
        if (
            _meaning(function) == originals[original]
            or _is_shortcut(module, name)
            or _is_without_assertion(functions[original], function)
        ):
            yield name


def is_same(original: ast.AST, mutant: ast.AST) -> bool:
    """Whether a mutant of this function is the same program, as far as it is known."""
    if _is_without_assertion(original, mutant):
        return True
    return _meaning(deepcopy(original)) == _meaning(deepcopy(mutant))


def _is_without_assertion(original: ast.AST, mutant: ast.AST) -> bool:
    """Whether a ``strict=True`` of the original is all that the mutant lacks."""
    if not any(_strict(each) for each in ast.walk(original)):
        return False
    unasserted = _Unasserted({True}).visit(deepcopy(original))
    return _meaning(unasserted) == _meaning(_Unasserted({False, None}).visit(mutant))


def _strict(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(each.arg == "strict" for each in node.keywords)


def _is_shortcut(module: Path, name: str) -> bool:
    lines = SHORTCUTS.get(_NUMBER.sub("", name))
    return lines is not None and any(
        line.startswith("+") and line[1:].strip() in lines for line in difference(module, name)
    )


def difference(module: Path, mutant: str) -> list[str]:
    """The lines that a mutant of this file has in place of its original's, as ``- old`` and ``+ new``."""
    text = module.read_text()
    functions = _functions(text)
    lines = text.splitlines()
    old, new = (
        lines[each.body[0].lineno - 1 : each.end_lineno]
        for each in (functions[_NUMBER.sub("__mutmut_orig", mutant)], functions[mutant])
    )
    return [line for line in ndiff(old, new) if line.startswith(("-", "+"))]


def _functions(text: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        node.name: node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__mutmut_" in node.name
    }


def _meaning(function: ast.AST) -> str:
    plain = _Plain().visit(function)
    return "".join(ast.dump(each) for each in plain.body)


class _Plain(ast.NodeTransformer):
    """Leaves out of a function what does nothing."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("cast"), [_, value]):
                return value
            case ast.Call(ast.Attribute(ast.Name(logger), "debug")) if logger in _LOGGERS:
                return ast.Constant(None)
            case ast.Call(ast.Attribute(ast.Name(logger), level)) if logger in _LOGGERS and level in _LEVELS:
                return _Unworded().visit(node)
            case ast.Call(ast.Attribute(_, "encode" | "decode"), [ast.Constant(str() as codec), *_]):
                node.args[0] = ast.Constant(codec.casefold())
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _STATEMENT.fullmatch(node.value):
            return ast.Constant(node.value.casefold())
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self.generic_visit(node)
        return _Unworded().visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Call(ast.Attribute(_, "split"), [_, _]) as split, ast.Constant(0)):
                del split.args[1]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Assign([ast.Attribute(ast.Name("self"), flag)], ast.Constant(None)) if _FLAG.fullmatch(
                flag
            ):
                node.value = ast.Constant(False)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        return ast.Assign([node.target], node.value)


class _Unasserted(ast.NodeTransformer):
    """Takes ``strict`` with one of these values out of every ``zip``."""

    def __init__(self, values: set[bool | None]) -> None:
        self._values = values

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = [
                each
                for each in node.keywords
                if not (
                    each.arg == "strict"
                    and isinstance(each.value, ast.Constant)
                    and each.value.value in self._values
                )
            ]
        return node


class _Unworded(ast.NodeTransformer):
    """Takes texts of several words for the same if they differ by what mutmut does to a text."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and " " in node.value:
            node.value = node.value.removeprefix("XX").removesuffix("XX").casefold()
        return node
