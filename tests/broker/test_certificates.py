"""Only a client that is given the authority trusts the server, and the keys stay private."""

from __future__ import annotations

import os
import ssl
import stat
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from sbpair.broker import certificates
from sbpair.broker.certificates import Certificates

NOW_S = int(time.time())  # OpenSSL checks validity against the real clock


def handshake(server: Certificates, name: str, trusted: Path | None) -> str | None:
    """Perform a TLS handshake in memory; return the negotiated version."""
    client_context = ssl.create_default_context(cafile=str(trusted) if trusted else None)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.ssl_context().wrap_bio(to_server, to_client, server_side=True)
    ends = {client, other}
    for _ in range(10):
        for end in tuple(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.discard(end)
    assert not ends
    return client.version()


@pytest.fixture(scope="module")
def made() -> Certificates:
    with certificates.provide(["contoso", "contoso-dr.example"], NOW_S) as made:
        yield made


@pytest.mark.parametrize(
    "name",
    ["localhost", "127.0.0.1", "::1", "contoso.servicebus.windows.net", "contoso", "contoso-dr.example"],
)
def test_a_client_with_the_authority_trusts_every_name_of_the_broker(made: Certificates, name: str) -> None:
    assert handshake(made, name, made.ca_file) in ("TLSv1.2", "TLSv1.3")


@pytest.mark.spec("S-6")
def test_another_name_is_not_trusted(made: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(made, "fabrikam.example", made.ca_file)


@pytest.mark.spec("S-6")
def test_a_client_without_the_authority_rejects_the_certificate(made: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, "localhost", None)


def test_a_strict_client_accepts_the_chain(made: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(made.ca_file))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = made.ssl_context().wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.version() is not None


@pytest.mark.spec("S-6")
def test_tls_below_1_2_is_refused(made: Certificates) -> None:
    assert made.ssl_context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_key_files_are_owner_only_even_if_a_looser_file_existed(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    directory.mkdir()
    (directory / "server-key.pem").write_text("old")
    (directory / "server-key.pem").chmod(0o644)
    certificates.provide([], NOW_S, directory)
    for key in ("ca-key.pem", "server-key.pem"):
        assert stat.S_IMODE((directory / key).stat().st_mode) == 0o600
    fresh = certificates.provide([], NOW_S, tmp_path / "deep" / "er").directory
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700


def test_a_private_directory_is_removed_at_the_end_and_a_given_one_is_kept(tmp_path: Path) -> None:
    with certificates.provide([], NOW_S) as private:
        assert private.ca_file.exists()
    assert not private.directory.exists()
    with certificates.provide([], NOW_S, tmp_path) as kept:
        pass
    assert kept.ca_file.exists()


def test_a_valid_certificate_directory_is_reused(tmp_path: Path) -> None:
    first = certificates.provide(["contoso"], NOW_S, tmp_path).server_file.read_bytes()
    assert certificates.provide(["contoso"], NOW_S + 60, tmp_path).server_file.read_bytes() == first
    assert certificates.provide([], NOW_S + 60, tmp_path).server_file.read_bytes() == first


def lose_the_key(directory: Path) -> None:
    (directory / "server-key.pem").unlink()


def swap_the_key(directory: Path) -> None:
    (directory / "server-key.pem").write_bytes((directory / "ca-key.pem").read_bytes())


def garble_the_certificate(directory: Path) -> None:
    (directory / "server.pem").write_text("not a certificate")


def swap_the_authority(directory: Path) -> None:
    with certificates.provide([], NOW_S) as other:
        (directory / "ca.pem").write_bytes(other.ca_file.read_bytes())


@pytest.mark.parametrize("damage", [lose_the_key, swap_the_key, garble_the_certificate, swap_the_authority])
def test_a_damaged_certificate_directory_is_rewritten(tmp_path: Path, damage) -> None:
    certificates.provide([], NOW_S, tmp_path)
    damage(tmp_path)
    repaired = certificates.provide([], NOW_S, tmp_path)
    assert handshake(repaired, "localhost", repaired.ca_file)


@pytest.mark.parametrize(
    ("names", "later"),
    [
        (["fabrikam"], timedelta()),
        ([], certificates.LIFETIME),
        ([], certificates.LIFETIME - timedelta(days=6)),
    ],
)
def test_a_certificate_for_other_names_or_near_expiry_is_replaced(
    tmp_path: Path, names: list[str], later: timedelta
) -> None:
    first = certificates.provide(["contoso"], NOW_S, tmp_path).ca_file.read_bytes()
    then = NOW_S + int(later.total_seconds())
    assert certificates.provide(names, then, tmp_path).ca_file.read_bytes() != first


def test_cryptography_is_loaded_only_to_create_a_certificate() -> None:
    program = "import sys, sbpair.broker.certificates; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.spec("R-197")
def test_a_symbolic_link_in_place_of_a_certificate_is_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    directory.mkdir()
    for name in ("ca.pem", "server.pem", "ca-key.pem", "server-key.pem"):
        (tmp_path / name).write_text("of somebody else")
        (directory / name).symlink_to(tmp_path / name)
    certificates.provide([], NOW_S, directory)
    for name in ("ca.pem", "server.pem", "ca-key.pem", "server-key.pem"):
        assert (tmp_path / name).read_text() == "of somebody else"
        assert not (directory / name).is_symlink()


@pytest.mark.spec("R-197")
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_does_not_affect_certificate_permissions(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = certificates.provide([], NOW_S, tmp_path / "tls")
    finally:
        os.umask(before)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in made.directory.iterdir()}
    assert modes == {"ca.pem": 0o644, "server.pem": 0o644, "ca-key.pem": 0o600, "server-key.pem": 0o600}
