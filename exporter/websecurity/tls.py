"""TLS as a web config asks for it: certificates, whom to believe, ciphers, curves.

Files are read here, once and whole, so that certificate and key belong together; inline ones take
the same way. OpenSSL wants files, so what was read is lent to it in memory that has no name.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from exporter.config import ConfigError
from exporter.websecurity.webconfig import CURVES, TlsConfig, beside

MOST = 1 << 20
"""Bytes of a certificate, key or list of authorities."""

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class Material(NamedTuple):
    """What the keys of a `tls_server_config` name, in PEM."""

    cert: bytes
    key: bytes
    client_ca: bytes


def files_of(tls: TlsConfig | None, path: Path) -> tuple[Path, ...]:
    """Return the files that the web config at `path` names."""
    if tls is None:
        return ()
    names = (tls.cert_file, tls.key_file, tls.client_ca_file)
    return tuple(beside(path, name) for name in names if name)


def material(tls: TlsConfig, path: Path) -> Material:
    """Read certificate, key and authorities. Where both are given files win, as upstream.

    Raises `ConfigError`.
    """
    return Material(
        _given(tls.cert_file, tls.cert, path, "cert_file"),
        _given(tls.key_file, tls.key, path, "key_file"),
        _given(tls.client_ca_file, tls.client_ca, path, "client_ca_file"),
    )


def _given(name: str, inline: str, path: Path, key: str) -> bytes:
    if not name:
        return inline.encode()
    where = beside(path, name)
    try:
        return read_file(where)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: tls_server_config.{key}: {where}: {reason}") from None


def read_file(path: Path) -> bytes:
    """Return a file's content. Raises `OSError`, `ValueError`; a pipe does not keep us waiting."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a file")
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise ValueError(f"larger than {MOST} bytes")
    return content


def context_of(tls: TlsConfig, given: Material, path: Path, *, ask: bool = False) -> ssl.SSLContext:
    """Return the TLS that connections are served with. Raises `ConfigError`.

    `ask` lets connections without a certificate through where one is required: whoever answers
    them must look.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS.get(tls.min_version, ssl.TLSVersion.TLSv1_2)
    context.maximum_version = _VERSIONS[tls.max_version]
    context.set_alpn_protocols(["http/1.1"])
    # Whoever renegotiates makes us work for nothing (CVE-2011-1473).
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _set_ciphers(context, tls)
    _set_curves(context, tls)
    try:
        _load_chain(context, given)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{path}: tls_server_config: {_reason(error)}") from None
    _ask_clients(context, tls, given, path, ask=ask)
    return context


def _set_ciphers(context: ssl.SSLContext, tls: TlsConfig) -> None:
    if tls.ciphers_12:
        context.set_ciphers(":".join(tls.ciphers_12))
    elif tls.cipher_suites:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if tls.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE


def curves_used(tls: TlsConfig) -> tuple[str, ...]:
    """Return those of `curve_preferences` that are used, by Go's names.

    Python before 3.15 can set one curve; that is the one that most clients know, never one that
    was not listed.
    """
    if hasattr(ssl.SSLContext, "set_groups"):
        return tls.curve_preferences
    return tuple(one for one in CURVES if one in tls.curve_preferences)[:1]


def _set_curves(context: Any, tls: TlsConfig) -> None:
    names = [CURVES[one] for one in curves_used(tls)]
    if not names:
        return
    if hasattr(context, "set_groups"):
        context.set_groups(":".join(names))
    else:
        context.set_ecdh_curve(names[0])


def _load_chain(context: ssl.SSLContext, given: Material) -> None:
    with _lent(given.cert) as cert, _lent(given.key) as key:
        # Without this OpenSSL would ask at the terminal for what an encrypted key wants.
        context.load_cert_chain(cert, key, password=_no_password)


def _no_password() -> str:
    raise ValueError("the key is encrypted; a key without a password is wanted")


@contextlib.contextmanager
def _lent(content: bytes) -> Iterator[str]:
    """Lend bytes as a file that lies on no disk."""
    number = os.memfd_create("flopwatch", os.MFD_CLOEXEC)
    try:
        with open(number, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _ask_clients(
    context: ssl.SSLContext, tls: TlsConfig, given: Material, path: Path, *, ask: bool
) -> None:
    if tls.client_auth_type in {"NoClientCert", "RequestClientCert"}:
        return
    required = tls.requires_certificate and not ask
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    # As Go: whoever is listed is believed, an intermediate and a client's own certificate too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not tls.has_client_ca:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(cadata=given.client_ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        key = "client_ca_file" if tls.client_ca_file else "client_ca"
        reason = "holds no certificate" if b"BEGIN CERT" not in given.client_ca else _reason(error)
        raise ConfigError(f"{path}: tls_server_config.{key}: {reason}") from None


_REASONS = {
    "KEY_VALUES_MISMATCH": "certificate and key do not belong together",
    "NO_START_LINE": "certificate or key is not PEM",
    "EE_KEY_TOO_SMALL": "the certificate's key is too small",
    "CA_MD_TOO_WEAK": "the certificate's signature is too weak",
}


def _reason(error: Exception) -> str:
    said = getattr(error, "reason", None)
    if said is None and isinstance(error, ssl.SSLError):
        said = "NO_START_LINE"  # what Python says of a file without a certificate is "[SSL]"
    return _REASONS.get(str(said), str(said or error))


def names_in(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the subject alternative names of a verified certificate, as Go writes them."""
    if not certificate:
        return frozenset()
    return frozenset(
        _address(value) if kind == "IP Address" else value
        for kind, value in certificate.get("subjectAltName", ())
        if kind in {"DNS", "email", "IP Address", "URI"}
    )


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text
