"""What did mutmut change, and which mutants are the same program all the same?

These cannot be noticed, and say nothing of the tests.

``typing.cast`` gives back its second argument whatever the first is, an annotation of a local name is not
evaluated, codecs are known by names of any case, and SQLite reads statements without quoted text in any case.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import ndiff
from pathlib import Path

_NUMBER = re.compile(r"__mutmut_\d+$")


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
        if _meaning(function) == originals[original]:
            yield name


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
            case ast.Call(ast.Attribute(_, "encode" | "decode"), [ast.Constant(str() as codec), *_]):
                node.args[0] = ast.Constant(codec.casefold())
            case ast.Call(ast.Attribute(_, "execute"), [ast.Constant(str() as statement), *_]) if (
                "'" not in statement
            ):
                node.args[0] = ast.Constant(statement.casefold())
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None or not isinstance(node.target, ast.Name):
            return node
        return ast.Assign([node.target], node.value)
