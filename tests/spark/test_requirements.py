"""Is it said on one line what is missing?"""

from __future__ import annotations

from importlib import metadata

import pytest

from sbpair.spark.requirements import SparkMissing, require


def versions(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    def version(package: str) -> str:
        if package not in installed:
            raise metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(metadata, "version", version)


WHOLE = {"pyspark": "4.3.0", "pandas": "2.3.3", "pyarrow": "26.0.1", "matplotlib": "3.11.2"}


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.99.1"])
def test_a_spark_of_the_fourth_line_from_its_second_release_on_will_do(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    versions(monkeypatch, **WHOLE | {"pyspark": version})
    require()


@pytest.mark.parametrize("version", ["3.5.8", "4.1.2", "5.0.0", "4.0.0.dev1"])
def test_any_other_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    versions(monkeypatch, **WHOLE | {"pyspark": version})
    with pytest.raises(SparkMissing, match=rf"pyspark {version} is installed.*pip install 'sbpair\[spark\]'"):
        require()


@pytest.mark.parametrize("package", WHOLE)
def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    versions(monkeypatch, **{name: version for name, version in WHOLE.items() if name != package})
    with pytest.raises(SparkMissing, match=f"{package} is not installed"):
        require()
