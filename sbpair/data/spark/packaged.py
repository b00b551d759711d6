"""Data sources whose instances can be unpickled in processes that do not have the package on their path yet.

Spark (as of 4.3.0) plans a stream in a Python process of the driver that looks for the zips of ``--py-files`` and
``addArtifacts`` in a directory that does not exist (``streaming_job``, in the directory of these files), so it cannot
import a class from one. An instance made from a zip therefore takes the path of its zip along, in a function that is
pickled as code. Tables, sinks and tasks have the right path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql.datasource import DataSource

import sbpair

Reduced = tuple[Callable[..., object], tuple[object, ...]]


class PackagedDataSource(DataSource):
    """A data source that finds its own package."""

    def __reduce__(self) -> Reduced:
        """Return the class and its options for pickle, and the path of the zip that contains the class."""
        zipped = zip_of(sbpair.__file__)
        kind = type(self)
        if zipped is None:
            return kind, (self.options,)
        return _loader(), (zipped, kind.__module__, kind.__qualname__, self.options)


def zip_of(package_file: str) -> str | None:
    """The zip that holds a package, given the package's ``__init__.py``; None for a package in a directory."""
    holder = Path(package_file).parent.parent
    return str(holder) if holder.is_file() else None


def _loader() -> Callable[..., object]:
    """Return a function without a module, which cloudpickle therefore pickles by value.

    It may use only its own imports.
    """

    def load(zipped: str, module: str, name: str, options: Mapping[str, str]) -> object:
        import sys
        from importlib import import_module

        if zipped not in sys.path:
            sys.path.insert(1, zipped)
        return getattr(import_module(module), name)(options)

    return load


__all__ = ["PackagedDataSource", "zip_of"]
