"""A data source goes to processes that do not know its package, when that is in a zip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sbpair.data.spark.message_source import MessageDataSource
from sbpair.data.spark.packaged import zip_of
from tests.data.spark.packed import packed

WRITE = """
from pyspark.sql.datasource import CaseInsensitiveDict
from sbpair.data.spark.{module} import {name}
open(sys.argv[2], "wb").write(cloudpickle.dumps({name}(CaseInsensitiveDict({{"queueName": "orders"}}))))
"""
READ = """
import importlib.abc
class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "sbpair" and sys.argv[1] not in sys.path:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
source = cloudpickle.loads(open(sys.argv[2], "rb").read())
print(type(source).__name__, source.options["queuename"], type(source).name())
"""


def run(program: str, zipped: Path, pickled: Path) -> str:
    command = [
        sys.executable,
        "-c",
        f"import sys\nfrom pyspark import cloudpickle\n{program}",
        str(zipped),
        str(pickled),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, cwd=pickled.parent
    ).stdout


@pytest.mark.spec("R-143")
@pytest.mark.parametrize(
    ("module", "name", "form"),
    [
        ("message_source", "MessageDataSource", "sbpair"),
        ("journal_source", "JournalDataSource", "sbpair-journal"),
        ("syphon_source", "SyphonDataSource", "sbpair-syphon"),
    ],
)
def test_an_instance_pickled_from_a_zip_carries_the_path_of_the_zip(
    tmp_path: Path, module: str, name: str, form: str
) -> None:
    zipped, pickled = packed(tmp_path), tmp_path / "source.pickle"
    run("sys.path.insert(0, sys.argv[1])\n" + WRITE.format(module=module, name=name), zipped, pickled)

    assert run(READ, zipped, pickled).split() == [name, "orders", form]


def test_a_package_in_a_directory_needs_no_path() -> None:
    assert zip_of(__file__) is None
    made, arguments = MessageDataSource({"queueName": "orders"}).__reduce__()
    assert made is MessageDataSource
    assert arguments == ({"queueName": "orders"},)
