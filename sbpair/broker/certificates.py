"""A certificate authority and server certificate for a broker on this machine.

The administration client of every SDK insists on https. The broker therefore creates its own certificate
authority and a server certificate for the names it answers to; clients trust it through ``ca_file``.

    directory/          mode 0700
    ├── ca.pem          the authority: given to clients
    ├── ca-key.pem      0600
    ├── server.pem      the server's certificate, then the authority's
    └── server-key.pem  0600

A directory whose certificate is still valid for these names is reused, so that clients continue to trust it. No clock
is read: the instant is an argument.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1", "*.servicebus.windows.net")
LIFETIME = timedelta(days=365)
BACKDATED = timedelta(days=1)  # for clients whose clock is behind
RENEW_BEFORE = timedelta(days=7)
PRIVATE, PUBLIC = 0o600, 0o644  # modes


@dataclass(frozen=True, slots=True)
class Certificates:
    """An authority and a server certificate on disk; leaving the context removes a temporary directory."""

    directory: Path
    _temporary: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    @property
    def ca_file(self) -> Path:
        """PEM of the authority, which clients must trust."""
        return self.directory / "ca.pem"

    @property
    def server_file(self) -> Path:
        """PEM of the server's certificate and its authority's."""
        return self.directory / "server.pem"

    @property
    def server_key_file(self) -> Path:
        """PEM of the server's private key."""
        return self.directory / "server-key.pem"

    def ssl_context(self) -> ssl.SSLContext:
        """Return the server-side TLS context, TLS 1.2 or later."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.server_file, self.server_key_file)
        return context

    def clean_up(self) -> None:
        """Remove the directory if it is a temporary one; a directory given by the caller stays."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Certificates:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clean_up()


def provide(names: Iterable[str], now_s: int, directory: Path | None = None) -> Certificates:
    """Return certificates for this machine and ``names`` (hosts or addresses), valid at ``now_s`` (epoch seconds).

    Without ``directory`` they are stored in a temporary directory. Raises OSError when the directory cannot be
    written, ValueError for a name that no certificate can hold.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    wanted = tuple(dict.fromkeys([*LOCAL_NAMES, *(name.lower() for name in names)]))
    if directory is None:
        temporary = tempfile.TemporaryDirectory(prefix="sbpair-tls-")
        made = Certificates(Path(temporary.name), temporary)
        _write_all(made, wanted, now)
        return made
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = Certificates(directory)
    if not _is_still_good(found, wanted, now):
        _write_all(found, wanted, now)
    return found


def _is_still_good(found: Certificates, wanted: tuple[str, ...], now: datetime) -> bool:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        authority, server = (
            x509.load_pem_x509_certificate(path.read_bytes()) for path in (found.ca_file, found.server_file)
        )
        server.verify_directly_issued_by(authority)
        found.ssl_context()  # the key exists, is readable, and belongs to this certificate
        held = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    in_time = all(
        one.not_valid_before_utc <= now < one.not_valid_after_utc - RENEW_BEFORE
        for one in (authority, server)
    )
    return in_time and set(_general_names(wanted)) <= set(held)


def _write_all(made: Certificates, names: tuple[str, ...], now: datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("sbpair broker authority")
    authority = (
        _builder(issuer, issuer, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    server = (
        _builder(_name("sbpair broker"), issuer, server_key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False
        )
    )
    authority_pem = _sign(authority, authority_key)
    _write(made.directory / "ca-key.pem", _key_pem(authority_key), PRIVATE)
    _write(made.server_key_file, _key_pem(server_key), PRIVATE)
    _write(made.server_file, _sign(server, authority_key) + authority_pem, PUBLIC)
    _write(made.ca_file, authority_pem, PUBLIC)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    # Removed first: an existing file would keep its mode, and a link would be followed.
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        if hasattr(os, "fchmod"):  # elsewhere a file has no mode
            os.fchmod(file.fileno(), mode)  # a umask removes permissions that its readers need
        file.write(content)
