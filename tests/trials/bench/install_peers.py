"""Installs the peers of the broker benchmarks.

    python -m tests.trials.bench.install_peers [NAME ...] [--peers DIR] [--mirror URL]

    rabbitmq3, rabbitmq4    a Debian release with its rabbitmq-server, made by debootstrap (as root)
    artemis, broker-j       from Maven Central, by mvn; they need Java 17 or later

Without a name, all of them: 1 GB, in two to five minutes. A peer that is installed already is left unchanged; remove
its directory to install it again. The benchmarks find the directory of ``--peers`` by the same option.
Exit code 1 if one cannot be installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.trials.bench.peers import OTHERS, directory

MIRROR = "http://deb.debian.org/debian"
ARTEMIS = "2.44.0"
BROKER_J = "10.1.0"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
# Its store on Berkeley DB needs a jar that Maven Central does not have.
BROKER_J_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
 <modelVersion>4.0.0</modelVersion>
 <groupId>sbpair</groupId><artifactId>peers</artifactId><version>1</version>
 <dependencies>
  <dependency>
   <groupId>org.apache.qpid</groupId><artifactId>qpid-broker</artifactId><version>{BROKER_J}</version>
   <exclusions><exclusion><groupId>com.sleepycat</groupId><artifactId>je</artifactId></exclusion></exclusions>
  </dependency>
 </dependencies>
</project>
"""


class InstallError(Exception):
    """A peer could not be installed; the message has the next step."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(OTHERS)}; default all")
    parser.add_argument("--peers", type=Path, default=directory(), metavar="DIR", help="default %(default)s")
    parser.add_argument("--mirror", default=MIRROR, metavar="URL", help="of Debian, default %(default)s")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(OTHERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(OTHERS)}")
    asked.peers.mkdir(parents=True, exist_ok=True)
    results = [install(name, asked.peers, asked.mirror) for name in asked.names or OTHERS]
    return 0 if all(results) else 1


def install(name: str, peers: Path, mirror: str) -> bool:
    """Install a peer in a temporary directory, and rename that when it is complete. Returns whether it is installed."""
    home, part = peers / name, peers / f"{name}.part"
    if home.exists():
        print(f"{name}: is in {home}", flush=True)
        return True
    steps: dict[str, Callable[[Path], None]] = {
        "rabbitmq3": partial(debian, "bookworm", mirror),
        "rabbitmq4": partial(debian, "trixie", mirror),
        "artemis": artemis,
        "broker-j": broker_j,
    }
    print(f"{name}: into {home}", flush=True)
    begun = time.monotonic()
    try:
        shutil.rmtree(part, ignore_errors=True)
        steps[name](part)
        part.rename(home)
    except (InstallError, OSError) as error:
        shutil.rmtree(part, ignore_errors=True)
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return False
    print(f"{name}: done in {time.monotonic() - begun:.0f} s", flush=True)
    return True


def debian(release: str, mirror: str, part: Path) -> None:
    if os.geteuid():
        raise InstallError("a Debian release is made and entered by root alone; run this as root")
    command = ["debootstrap", "--variant=minbase", "--include=rabbitmq-server", release, str(part), mirror]
    run(command, "apt-get install debootstrap")
    (part / "etc" / "hosts").write_text("127.0.0.1 localhost\n")


def artemis(part: Path) -> None:
    part.mkdir()
    artifact = f"org.apache.activemq:apache-artemis:{ARTEMIS}:zip:bin"
    maven([f"{COPY}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={part}"])
    archive = part / f"apache-artemis-{ARTEMIS}-bin.zip"
    shutil.unpack_archive(archive, part)
    archive.unlink()
    (unpacked,) = part.iterdir()
    for entry in list(unpacked.iterdir()):
        entry.rename(part / entry.name)
    unpacked.rmdir()
    (part / "bin" / "artemis").chmod(0o755)


def broker_j(part: Path) -> None:
    part.mkdir()
    pom = part / "pom.xml"
    pom.write_text(BROKER_J_POM)
    maven(["-f", str(pom), f"{COPY}:copy-dependencies", f"-DoutputDirectory={part / 'lib'}"])


def maven(arguments: Sequence[str]) -> None:
    run(["mvn", "-B", "-ntp", *arguments], "apt-get install maven default-jdk-headless")


def run(command: Sequence[str], remedy: str) -> None:
    """Run it with its output shown. Raises InstallError when it is missing or fails."""
    if shutil.which(command[0]) is None:
        raise InstallError(f"{command[0]} is not installed: {remedy}")
    code = subprocess.run(command, check=False).returncode
    if code:
        raise InstallError(f"{command[0]} ended with exit code {code}; its messages are above")


if __name__ == "__main__":
    sys.exit(main())
