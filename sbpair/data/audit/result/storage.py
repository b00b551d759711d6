"""Where an audit writes its results: a directory, or a URI as in :mod:`.object_storage`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from ..read.object_storage import is_uri, resolve
from .interface import write_parquet


@dataclass(frozen=True, slots=True)
class Storage:
    """A place for files and tables, by name. Methods raise OSError when it cannot be written."""

    location: str

    def _resolve(self) -> tuple[fs.FileSystem, str]:
        if is_uri(self.location):
            return resolve(self.location)
        return fs.LocalFileSystem(), str(Path(self.location).resolve())

    def names(self) -> list[str]:
        """The names of its files and tables; empty if the place does not exist."""
        system, path = self._resolve()
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(each.base_name for each in found)

    def clear(self, names: list[str]) -> None:
        """Remove files and tables."""
        system, path = self._resolve()
        for each in system.get_file_info([f"{path}/{name}" for name in names]):
            if each.type == fs.FileType.Directory:
                system.delete_dir(each.path)
            elif each.type == fs.FileType.File:
                system.delete_file(each.path)

    def below(self, name: str) -> Storage:
        """The location ``name`` below this one."""
        return Storage(f"{self.location.rstrip('/')}/{name}")

    def replace_by(self, folder: str, names: list[str]) -> None:
        """Replace files and tables of these names by those in ``folder``, in this order, and remove ``folder``."""
        system, path = self._resolve()
        for name in names:
            self.clear([name])
            whole = system.get_file_info(f"{path}/{folder}/{name}")
            is_table = whole.type == fs.FileType.Directory
            for each in system.get_file_info(fs.FileSelector(whole.path)) if is_table else [whole]:
                target = f"{path}/{name}/{each.base_name}" if is_table else f"{path}/{name}"
                system.create_dir(target.rpartition("/")[0])
                system.move(each.path, target)
        self.clear([folder])

    def write_table(self, name: str, table: pa.Table, part: int = 0) -> None:
        """Write a part of the table ``name`` as Parquet, replacing the same part."""
        system, path = self._resolve()
        system.create_dir(f"{path}/{name}")
        file = f"{path}/{name}/part-{part:05}.parquet"
        write_parquet(name, table, file, system, _repeating(table.schema))

    def write_text(self, name: str, text: str) -> None:
        system, path = self._resolve()
        system.create_dir(path)
        with system.open_output_stream(f"{path}/{name}") as file:
            file.write(text.encode())


def _repeating(schema: pa.Schema) -> list[str]:
    """The columns with repeated values: a dictionary of times or message ids costs more than it saves."""
    return [
        field.name for field in schema if not pa.types.is_timestamp(field.type) and field.name != "message_id"
    ]
