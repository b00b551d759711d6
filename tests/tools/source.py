"""What the docs take from the source: fields, members and classes with their comments, as tables."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def parse(source: str) -> ast.Module:
    """Parse a file. The tree has no circles, and the garbage collector would go through it again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def class_of(path: str, name: str) -> ast.ClassDef:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def private_bases(node: ast.ClassDef) -> list[str]:
    """The names of the private classes, of its own module, that a class is based on."""
    return [base.id for base in node.bases if isinstance(base, ast.Name) and base.id.startswith("_")]


def documented_fields(path: str, name: str) -> list[tuple[str, str, str, str]]:
    """(name, type, default, doc) of each field of a dataclass; the doc is the string below the field."""
    node = class_of(path, name)
    body = node.body
    found = [field for base in private_bases(node) for field in documented_fields(path, base)]
    for node, after in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.AnnAssign(target=ast.Name(id=field), annotation=kind) if "ClassVar" not in ast.unparse(
                kind
            ):
                default = _default(node.value)
                found.append((field, ast.unparse(kind), default, _string(after)))
    return found


def _default(value: ast.expr | None) -> str:
    match value:
        case None:
            return "required"
        case ast.Call(func=ast.Name(id="field"), keywords=given):
            return next(
                ast.unparse(each.value) for each in given if each.arg in ("default", "default_factory")
            )
    return ast.unparse(value)


def _string(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def commented_members(path: str, name: str) -> list[tuple[str, str, str]]:
    """(name, value, comment) of each member of an enum or field of a dataclass; the comment ends its line."""
    lines = (ROOT / path).read_text("utf-8").splitlines()
    found = []
    for node in class_of(path, name).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=member)]) | ast.AnnAssign(target=ast.Name(id=member)) if (
                node.value
            ):
                comment = lines[node.end_lineno - 1].partition("  # ")[2]
                found.append((member, str(ast.literal_eval(node.value)), comment))
    return found


def documented_classes(path: str) -> list[tuple[str, str, str]]:
    """(name, first public base, first paragraph of the docstring) of each public class of a module."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return [(node.name, _public_base(path, node), opening(ast.get_docstring(node) or "")) for node in classes]


def _public_base(path: str, node: ast.ClassDef) -> str:
    private = private_bases(node)
    if private:
        return _public_base(path, class_of(path, private[0]))
    return ast.unparse(node.bases[0]) if node.bases else ""


def opening(docstring: str) -> str:
    return docstring.partition("\n\n")[0]


def event_table(path: str, base: str, common: str) -> str:
    rows = [
        (f"`{name}`", doc, ", ".join(f"`{field}`" for field, *_ in documented_fields(path, name)))
        for name, parent, doc in documented_classes(path)
        if parent == base
    ]
    return table(("event", "what happened", f"fields, beside {common}"), rows)


def option_row(name: str, kind: str, default: str, doc: str) -> tuple[str, ...]:
    return f"`{name}`", f"`{kind}`", f"`{default}`", doc


def error_table(*paths: str) -> str:
    found = [each for path in paths for each in documented_classes(path)]
    rows = [(f"`{name}`", f"`{base}`", doc) for name, base, doc in found]
    return table(("error", "is a", "what happened"), rows)
