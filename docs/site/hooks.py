"""Links that leave docs/ (tests, samples, the changelog) lead to copies within the site."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\[[^\]]+\]\()((?:\.\./)+[^)\s#]+)((?:#[^)\s]*)?\))")


def _outside(page: str, target: str) -> str | None:
    """The path below the repository of a link that leaves docs/, or None."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") else path


def _published(path: str) -> str:
    """Where the copy of a file is; a folder becomes a page that lists it."""
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.txt"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a copy of every linked file that exists; a link to any other stays dead, and fails a strict build."""
    wanted = {
        path
        for file in files.documentation_pages()
        for _, target, _ in LINK.findall(file.content_string)
        if (path := _outside(file.src_uri, target)) and (ROOT / path).exists()
    }
    for folder in [path for path in wanted if (ROOT / path).is_dir()]:
        inside = [
            file for file in sorted((ROOT / folder).rglob("*")) if file.is_file() and file.suffix != ".pyc"
        ]
        names = [file.relative_to(ROOT / folder).as_posix() for file in inside]
        wanted |= {f"{folder}/{name}" for name in names}
        listing = f"# {folder}\n\n" + "".join(f"- [{name}]({name}.txt)\n" for name in names)
        files.append(File.generated(config, _published(folder), content=listing))
    for path in sorted(wanted):
        if (ROOT / path).is_file():
            files.append(File.generated(config, _published(path), abs_src_path=os.fspath(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links that leave docs/ at the copies."""

    def link(match: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, match[2])
        if path is None or not (ROOT / path).exists():
            return match[0]
        there = posixpath.relpath(_published(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{there}{')' if path else match[3]}"

    return LINK.sub(link, markdown)
