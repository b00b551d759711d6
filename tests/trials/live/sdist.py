"""The SDK's own tests, from its source distribution, which is downloaded and never committed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.tools.archives import unpack

PACKAGE = "azure-servicebus"
FETCH_WITHIN = 180  # seconds


def tests_directory() -> Path:
    """The `tests` folder of the installed SDK's own release, in the user's cache; fetched once by pip."""
    release = version(PACKAGE)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sbpair-tests"
    kept = base / f"{PACKAGE}-{release}-sdist"
    if not (kept / "tests").is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base) as scratch:
            unpacked = _unpacked(_fetched(release, Path(scratch)), Path(scratch) / "source")
            try:
                unpacked.rename(kept)
            except OSError:
                if not (kept / "tests").is_dir():  # another process was first, or something is wrong
                    raise
    return kept / "tests"


def _fetched(release: str, into: Path) -> Path:
    wanted = ["--no-deps", "--no-binary", ":all:", f"{PACKAGE}=={release}"]
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(into), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_WITHIN)
    found = list(into.glob("*.tar.gz"))
    if done.returncode != 0 or len(found) != 1:
        why = (done.stderr or done.stdout).strip()[-300:]
        raise SystemExit(f"pip did not fetch the source of {PACKAGE} {release}: {why}")
    return found[0]


def _unpacked(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as content:
        unpack(content, into)
    (root,) = into.iterdir()
    return root
