"""The file of `--web.config.file`: what Prometheus' exporters take, and what is wrong with it.

The keys, their values and their defaults are those of the exporter toolkit, so that a file that
node_exporter takes works here. What Python's TLS cannot do is refused in words; nothing is ever
done less strictly than the file says. Where it is done more strictly, `WebConfig.notes` tells.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from exporter.config import ConfigError, load_yaml, validated
from exporter.config.values import Section, as_list, shown

LARGEST = 1 << 20
"""Bytes of the file itself."""
HIGHEST_COST = 18
"""The highest cost of a bcrypt hash: each step doubles the time, and 18 takes half a minute."""

CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
"""Go's names of the suites that it calls secure, and OpenSSL's. TLS 1.3 has a list of its own."""
CIPHERS_13 = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
_FOR_HTTP2 = frozenset(
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
)
CURVES = {
    "CurveP256": "prime256v1",
    "X25519": "X25519",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}
"""Go's names and OpenSSL's; those that more clients know come first."""
VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""Headers that may be set, and the values that they may have; none: any."""

Version = Literal["TLS10", "TLS11", "TLS12", "TLS13"]
ClientAuth = Literal[
    "NoClientCert",
    "RequestClientCert",
    "RequireAnyClientCert",
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
]

_QUOTED = re.compile(r"(?<=alias )'.*'|(?<=tag )'.*'|'.*'(?= is not an? )")
_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_GO_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_GO_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def _go_duration(value: object) -> object:
    """Return seconds of a duration as Go writes it; a bare number is nanoseconds there."""
    if isinstance(value, str) and _GO_DURATION.fullmatch(value):
        return sum(float(n) * _GO_UNITS[unit] for n, unit in _GO_PIECE.findall(value))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value * 1e-9
    if value == "0":
        return 0.0
    raise ValueError(f"{shown(value)} is not a duration such as 500ms, 1s, 1m30s")


def _texts(value: object) -> object:
    """Return a mapping of words to words; YAML takes some words for numbers, Go does not."""
    if not isinstance(value, dict):
        raise ValueError("a mapping of words is wanted")  # noqa: TRY004 - for pydantic
    return {_text(key): _text(one) for key, one in value.items()}


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Words = Annotated[tuple[str, ...], BeforeValidator(as_list)]


class TlsConfig(Section):
    """`tls_server_config`."""

    cert: str = ""
    key: str = Field(default="", repr=False)
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: ClientAuth = "NoClientCert"
    client_allowed_sans: Words | None = None
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: Words = ()
    curve_preferences: Words = ()
    prefer_server_cipher_suites: bool = True

    @field_validator("client_auth_type", mode="before")
    @classmethod
    def _by_its_former_name(cls, value: object) -> object:
        if value == "":
            return "NoClientCert"
        return "RequireAnyClientCert" if value == "RequireClientCert" else value

    @field_validator("cipher_suites")
    @classmethod
    def _are_ciphers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if one not in CIPHERS and one not in CIPHERS_13:
                raise ValueError(f"unknown cipher {one!r}; there are {', '.join(CIPHERS)}")
        return value

    @field_validator("curve_preferences")
    @classmethod
    def _are_curves(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if one not in CURVES:
                raise ValueError(f"unknown curve {one!r}; there are {', '.join(CURVES)}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> TlsConfig:
        if not (self.cert_file or self.cert):
            raise ValueError("missing one of cert or cert_file")
        if not (self.key_file or self.key):
            raise ValueError("missing one of key or key_file")
        if self.has_client_ca and self.client_auth_type == "NoClientCert":
            raise ValueError("client_ca(_file) is given, and client_auth_type asks for nobody")
        if self.client_auth_type == "RequireAnyClientCert":
            raise ValueError(
                "client_auth_type RequireAnyClientCert (a certificate that nobody verifies) cannot"
                " be had from Python's TLS; use RequireAndVerifyClientCert with client_ca_file"
            )
        if self.client_allowed_sans is not None and not self.requires_certificate:
            raise ValueError(
                "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert:"
                " else a client need not show a certificate"
            )
        self._expect_versions()
        return self

    def _expect_versions(self) -> None:
        if self.max_version in {"TLS10", "TLS11"}:
            raise ValueError(f"max_version {self.max_version} is broken; TLS12 is the least here")
        if VERSIONS.index(self.min_version) > VERSIONS.index(self.max_version):
            raise ValueError(f"min_version {self.min_version} is above max_version")
        if self.cipher_suites and not self.ciphers_12 and self.max_version == "TLS12":
            raise ValueError("cipher_suites holds none for TLS 1.2, and max_version is TLS12")

    @property
    def has_client_ca(self) -> bool:
        """Whether the file says whom to believe about clients."""
        return bool(self.client_ca_file or self.client_ca)

    @property
    def requires_certificate(self) -> bool:
        """Whether nobody gets in without a certificate."""
        return self.client_auth_type == "RequireAndVerifyClientCert"

    @property
    def ciphers_12(self) -> tuple[str, ...]:
        """The suites for TLS 1.2, by OpenSSL's names."""
        return tuple(CIPHERS[one] for one in self.cipher_suites if one in CIPHERS)


class HttpConfig(Section):
    """`http_server_config`."""

    http2: bool = True
    headers: Annotated[dict[str, str], BeforeValidator(_texts)] = Field(default_factory=dict)

    @field_validator("headers")
    @classmethod
    def _are_allowed(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if name not in HEADERS:
                raise ValueError(f"HTTP header {name!r} can not be configured")
            if HEADERS[name] and text not in HEADERS[name]:
                known = ", ".join(HEADERS[name])
                raise ValueError(f"invalid value for {name}: {text!r}; there are {known}")
            if not text.isprintable() or not text.isascii():
                raise ValueError(f"{name}: printable ASCII characters are wanted")
        return value


class RateLimit(Section):
    """`rate_limit`: one bucket for all callers together."""

    interval: Annotated[float, BeforeValidator(_go_duration)] = 0.0
    burst: int = Field(default=0, ge=0)

    @field_validator("interval", mode="before")
    @classmethod
    def _default(cls, value: object) -> object:
        return 0 if value == 0.0 else value

    @model_validator(mode="after")
    def _lets_somebody_in(self) -> RateLimit:
        if self.interval > 0 and self.burst == 0:
            raise ValueError("burst 0 would let no request through")
        return self


class WebConfig(Section):
    """The whole file. An empty one asks for nothing: plain HTTP, no users."""

    tls_server_config: TlsConfig | None = None
    http_server_config: HttpConfig = HttpConfig()
    basic_auth_users: Annotated[dict[str, str], BeforeValidator(_texts)] = Field(
        default_factory=dict, repr=False
    )
    rate_limit: RateLimit = RateLimit()

    @model_validator(mode="before")
    @classmethod
    def _without_empty_tls(cls, document: object) -> object:
        if isinstance(document, dict) and document.get("tls_server_config") == {}:
            return {key: one for key, one in document.items() if key != "tls_server_config"}
        return document

    @field_validator("basic_auth_users")
    @classmethod
    def _are_hashed(cls, value: dict[str, str]) -> dict[str, str]:
        for user, text in value.items():
            match = _HASH.fullmatch(text)
            if match is None:
                # Not the text itself: it may be the password.
                raise ValueError(f"the password of {user!r} is not a bcrypt hash ($2y$10$...)")
            if ":" in user:
                raise ValueError(f"the name {user!r} holds a colon: nobody can log in with it")
            if not 4 <= int(match[1]) <= HIGHEST_COST:
                raise ValueError(
                    f"the hash of {user!r} has cost {int(match[1])}; 4 to {HIGHEST_COST} are taken"
                )
        return value

    @model_validator(mode="after")
    def _has_ciphers_for_http2(self) -> WebConfig:
        tls = self.tls_server_config
        if (
            tls is not None
            and self.http_server_config.http2
            and tls.cipher_suites
            and tls.min_version != "TLS13"
            and not _FOR_HTTP2.intersection(tls.cipher_suites)
        ):
            raise ValueError(
                "cipher_suites is missing one that HTTP/2 requires"
                f" ({' or '.join(sorted(_FOR_HTTP2))}), and http2 is not false"
            )
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What is done more strictly than the file says, and what it does not do, for the log."""
        tls = self.tls_server_config
        return () if tls is None else tuple(_notes(tls))


def _notes(tls: TlsConfig) -> list[str]:
    notes = []
    if tls.min_version in {"TLS10", "TLS11"}:
        notes.append(f"min_version {tls.min_version}: TLS12 is the least that is spoken here")
    if tls.client_auth_type == "RequestClientCert":
        notes.append(
            "client_auth_type RequestClientCert: certificates that nobody verifies are not asked"
            " for"
        )
    elif tls.client_auth_type != "NoClientCert" and not tls.has_client_ca:
        notes.append(
            f"client_auth_type {tls.client_auth_type} without client_ca_file believes every"
            " authority that this system trusts"
        )
    return notes


def read(content: bytes, name: str) -> WebConfig:
    """Return what a file says; `name` is what problems call it.

    Raises `ConfigError` naming file, line or key, and reason. No message holds a secret.
    """
    if len(content) > LARGEST:
        raise ConfigError(f"{name}: larger than {LARGEST} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text (byte {error.start})") from None
    try:
        document = load_yaml(text, name, literal_keys=True)
    except ConfigError as error:
        # A password that begins with * or ! and is not quoted is an alias or a tag.
        raise ConfigError(*(_QUOTED.sub("***", one) for one in error.problems)) from None
    return validated(WebConfig, {} if document is None else document, name)


def beside(path: Path, name: str) -> Path:
    """Return a path of the file at `path`: relative ones start in its directory."""
    return path.parent / name
