"""Directories given as URIs of file systems that Arrow supports: s3:, gs:, abfss:, hdfs: and file:.

The supported kinds depend on the build of the installed pyarrow.
"""

from __future__ import annotations

import io
import re
from functools import lru_cache
from typing import BinaryIO, cast

from pyarrow import fs


def is_uri(directory: str) -> bool:
    return "://" in directory


def without_secret(directory: str) -> str:
    """``directory`` without secrets: a URI can contain a key, ``s3://id:key@bucket``."""
    return re.sub(r"^([a-z0-9+.-]{1,20}://[^/:@]*):[^/@]*@", r"\1:***@", directory, count=1)


@lru_cache(64)
def resolve(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system, and the path in it. Raises ValueError for an unknown kind of URI."""
    system, path = fs.FileSystem.from_uri(uri)
    return system, path.rstrip("/")


def open_file(uri: str, name: str) -> BinaryIO:
    """Open the file ``name`` below ``uri`` for reading. Raises FileNotFoundError when there is none."""
    system, path = resolve(uri)
    return cast(BinaryIO, io.BufferedReader(system.open_input_file(f"{path}/{name}")))


def files_below(uri: str) -> list[tuple[str, int, int]]:
    """The files at any depth: path relative to ``uri``, size in bytes, and time of the last change (ns, 0 if unknown).

    Raises FileNotFoundError for a missing directory.
    """
    system, path = resolve(uri)
    found = system.get_file_info(fs.FileSelector(path, recursive=True))
    return sorted(
        (each.path[len(path) + 1 :], each.size or 0, each.mtime_ns or 0)
        for each in found
        if each.type == fs.FileType.File
    )
