"""The exporter toolkit's own samples, and what is wrong with a web config.

The samples stand for those in the toolkit's documentation (docs/web-config.yml) and in its tests
(web/testdata, https://github.com/prometheus/exporter-toolkit, Apache-2.0): the same names, the same
keys and values, and upstream's verdict on each, from its web/tls_config_test.go.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.config import ConfigError
from exporter.websecurity.policy import Policy, parse, ready
from exporter.websecurity.webconfig import CIPHERS, CIPHERS_13, read
from tests.certificates import Authority

DAVE = "$2y$10$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq"

CERT = "cert_file: server.crt, key_file: server.key"
OPTIONAL = f"{CERT}, client_auth_type: VerifyClientCertIfGiven"
USERS = """
basic_auth_users:
  alice: $2y$12$1DpfPeqF9HzHJt.EWswy1exHluGfbhnn3yXhR7Xes6m3WJqFg0Wby
  bob: $2y$14$y7HJ017Lo/wKPDdzdHahNevjaqE.WRk3iKVLLt1yKO7RtIrNbvy6.
  carol: $2y$10$qRTBuFoULoYNA7AQ/F3ck.trZBPyjV64.oA4ZsSBCIWvXuvQlQTuu
  dave: $2y$10$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq
"""
DOCUMENTED = """
tls_server_config:
  cert_file: server.crt
  key_file: server.key
basic_auth_users:
  alice: $2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze
  bob: $2y$10$hLqFl9jSjoAAy95Z/zw8Ye8wkdMBM8c5Bn1ptYqP/AXyV0.oy0S8m
rate_limit:
  interval: "1s"
  burst: 20
"""
HEADERS = """
http_server_config:
  headers:
    Content-Security-Policy: "default-src 'self'"
    X-Frame-Options: deny
    X-Content-Type-Options: nosniff
    X-XSS-Protection: 1
    Strict-Transport-Security: max-age=31536000
"""
ALL_CIPHERS = ", ".join((*CIPHERS, *CIPHERS_13))
SOME_CIPHERS = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"


def tls(options: str, more: str = "") -> str:
    return f"tls_server_config: {{{options}}}\n{more}"


TAKEN = {
    "docs/web-config.yml": DOCUMENTED,
    "web_config_empty.yml": "",
    "web_config_noAuth.good.yml": tls(OPTIONAL),
    "web_config_noAuth.good.blocking.yml": tls(
        f"{CERT}, client_auth_type: RequireAndVerifyClientCert"
    ),
    "web_config_noAuth_allCiphers.good.yml": tls(f"{OPTIONAL}, cipher_suites: [{ALL_CIPHERS}]"),
    "web_config_noAuth_someCiphers.good.yml": tls(
        f"{OPTIONAL}, cipher_suites: [{SOME_CIPHERS}], min_version: TLS12, max_version: TLS12"
    ),
    "web_config_noAuth_someCiphers_noOrder.good.yml": tls(
        f"{OPTIONAL}, cipher_suites: [{SOME_CIPHERS}], prefer_server_cipher_suites: false"
    ),
    "web_config_noAuth_allCurves.good.yml": tls(
        f"{OPTIONAL}, curve_preferences: [CurveP256, CurveP384, CurveP521, X25519]"
    ),
    "web_config_noAuth_someCurves.good.yml": tls(
        f"{OPTIONAL}, min_version: TLS13, curve_preferences: [CurveP521]"
    ),
    "web_config_noAuth_noHTTP2.good.yml": tls(
        f"{OPTIONAL}, cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384], max_version: TLS12",
        "http_server_config: {http2: false}",
    ),
    "web_config_headers.good.yml": HEADERS,
    "tls_config_noAuth.requireandverifyclientcert.good.yml": tls(
        f"{CERT}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt"
    ),
    "web_config_auth_client_san.good.yaml": tls(
        f"{CERT}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt,"
        " client_allowed_sans: [bad, test3]"
    ),
    "web_config_rate_limiter_nonblocking.yaml": "",
    "web_config_rate_limiter_one_second.yaml": "rate_limit: {interval: 1s, burst: 1}",
    "web_config_users_noTLS.good.yml": USERS,
    "web_config_users.good.yml": tls(CERT, USERS),
}
REFUSED = {
    "somefile": (None, "No such file"),
    "web_config_junk.yml": ("hahahahahahhahahha\n", "a mapping of keys is wanted"),
    "web_config_junk_key.yml": (
        tls(f"{CERT}, cert_filse: x"), "cert_filse: unknown key, did you mean 'cert_file'?",
    ),
    "web_config_noAuth_certPath_empty.bad.yml": (
        tls('cert_file: "", key_file: server.key'), "missing one of cert or cert_file",
    ),
    "web_config_noAuth_cert_empty.bad.yml": (
        tls('cert: "", key_file: server.key'), "missing one of cert or cert_file",
    ),
    "web_config_noAuth_keyPath_empty.bad.yml": (
        tls('cert_file: server.crt, key_file: ""'), "missing one of key or key_file",
    ),
    "web_config_noAuth_key_empty.bad.yml": (
        tls('cert_file: server.crt, key: ""'), "missing one of key or key_file",
    ),
    "web_config_noAuth_certPath_keyPath_empty.bad.yml": (
        tls('cert_file: "", key_file: ""'), "missing one of cert or cert_file",
    ),
    "web_config_noAuth_certPath_invalid.bad.yml": (
        tls("cert_file: somefile, key_file: server.key"), "somefile: No such file",
    ),
    "web_config_noAuth_keyPath_invalid.bad.yml": (
        tls("cert_file: server.crt, key_file: somefile"), "somefile: No such file",
    ),
    "web_config_noAuth_certPath_keyPath_invalid.bad.yml": (
        tls("cert_file: somefile, key_file: somefile"), "somefile: No such file",
    ),
    "web_config_noAuth.bad.yml": (
        tls(f"{CERT}, client_ca_file: ca.crt"), "client_auth_type asks for nobody",
    ),
    "web_config_auth_clientCAs_invalid.bad.yml": (
        tls(f"{OPTIONAL}, client_ca_file: somefile"), "somefile: No such file",
    ),
    "web_config_auth_clientCAs_nocerts.bad.yml": (
        tls(f"{OPTIONAL}, client_ca_file: server.key"), "client_ca_file: holds no certificate",
    ),
    "web_config_auth_user_list_invalid.bad.yml": (
        "basic_auth_users: {john: doe}", "the password of 'john' is not a bcrypt hash",
    ),
    "web_config_noAuth_inventedCiphers.bad.yml": (
        tls(f"{OPTIONAL}, cipher_suites: [TLS_HULLABALOO]"), "unknown cipher 'TLS_HULLABALOO'",
    ),
    "web_config_noAuth_inventedCurves.bad.yml": (
        tls(f"{OPTIONAL}, curve_preferences: [CurveP257]"), "unknown curve 'CurveP257'",
    ),
    "web_config_noAuth_wrongTLSVersion.bad.yml": (
        tls(f"{OPTIONAL}, min_version: TLS111"), "min_version: input should be 'TLS10', 'TLS11'",
    ),
    "web_config_noAuth_noHTTP2Cipher.bad.yml": (
        tls(f"{CERT}, cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]"),
        "cipher_suites is missing one that HTTP/2 requires",
    ),
    "web_config_headers_content_type_options.bad.yml": (
        "http_server_config: {headers: {X-Content-Type-Options: sniff}}",
        "invalid value for X-Content-Type-Options",
    ),
    "web_config_headers_frame_options.bad.yml": (
        "http_server_config: {headers: {X-Frame-Options: allow}}",
        "invalid value for X-Frame-Options",
    ),
    "web_config_headers_extra_header.bad.yml": (
        "http_server_config: {headers: {X-Custom: a}}", "'X-Custom' can not be configured",
    ),
    "web_config_auth_client_san_no_client_auth.bad.yaml": (
        tls(f"{CERT}, client_allowed_sans: [test3]"), "client_allowed_sans needs client_auth_type",
    ),
    "web_config_auth_client_san_optional_cert.bad.yaml": (
        tls(f"{OPTIONAL}, client_ca_file: ca.crt, client_allowed_sans: [test3]"),
        "client_allowed_sans needs client_auth_type",
    ),
}  # fmt: skip
DIFFERENT = {
    "tls_config_noAuth.requireanyclientcert.good.yml": (
        tls(f"{CERT}, client_auth_type: RequireAnyClientCert"),
        "cannot be had from Python's TLS; use RequireAndVerifyClientCert",
    ),
    "RequireClientCert": (
        tls(f"{CERT}, client_auth_type: RequireClientCert"), "use RequireAndVerifyClientCert",
    ),
    "no longer safe": (tls(f"{CERT}, max_version: TLS11"), "max_version TLS11 is broken"),
    "upside down": (
        tls(f"{CERT}, min_version: TLS13, max_version: TLS12"), "min_version TLS13 is above",
    ),
    "nobody": ("rate_limit: {interval: 1s}", "burst 0 would let no request through"),
    "days": (
        "basic_auth_users: {a: $2y$31$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq}",
        "cost 31; 4 to 18 are taken",
    ),
    "no certificate": (tls("min_version: TLS13"), "missing one of cert or cert_file"),
}  # fmt: skip
"""What is refused here and not upstream: what Python cannot do, and what could not be meant."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> Path:
    authority = Authority(tmp_path_factory.mktemp("web"), openssl=tool("openssl"))
    authority.sign("server", "DNS:localhost")
    return authority.home


def loaded(home: Path, text: str | None, name: str = "web.yml") -> Policy:
    path = home / name
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    return ready(parse(path), path, ask=False)


@pytest.mark.parametrize("name", TAKEN)
def test_a_sample_that_upstream_takes_is_taken(home: Path, name: str) -> None:
    """Certificates are those of the test; the path is relative to the file."""
    policy = loaded(home, TAKEN[name])

    assert (policy.context is not None) == ("tls_server_config" in TAKEN[name])
    assert bool(policy.users) == ("basic_auth_users" in TAKEN[name])


@pytest.mark.parametrize("name", [*REFUSED, *DIFFERENT])
def test_what_cannot_be_served_is_refused_in_words(home: Path, name: str) -> None:
    """The message names the file and says what is wrong."""
    text, said = (REFUSED | DIFFERENT)[name]

    with pytest.raises(ConfigError) as refused:
        loaded(home, text)

    assert str(refused.value).startswith(f"{home / 'web.yml'}")
    assert said in str(refused.value)


def test_certificate_and_key_may_stand_in_the_file_itself(home: Path) -> None:
    """As web_config_noAuth_tlsInline.good.yml has it."""
    lines = ["tls_server_config:"]
    for key, name in (("cert", "server.crt"), ("key", "server.key"), ("client_ca", "ca.crt")):
        lines += [f"  {key}: |", *(f"    {line}" for line in (home / name).read_text().split("\n"))]
    lines.append("  client_auth_type: RequireAndVerifyClientCert")

    context = loaded(home, "\n".join(lines)).context

    assert context is not None and context.verify_mode == ssl.CERT_REQUIRED


def test_a_key_of_another_certificate_is_named(home: Path) -> None:
    """OpenSSL's word for it is KEY_VALUES_MISMATCH."""
    with pytest.raises(ConfigError, match="certificate and key do not belong together"):
        loaded(home, tls("cert_file: server.crt, key_file: ca.key"))


def test_what_is_not_pem_is_named(home: Path) -> None:
    (home / "nonsense.pem").write_text("nonsense")
    with pytest.raises(ConfigError, match="certificate or key is not PEM"):
        loaded(home, tls("cert_file: nonsense.pem, key_file: server.key"))


def test_an_encrypted_key_asks_nobody_at_a_terminal(home: Path, tool: Callable[[str], str]) -> None:
    import subprocess

    subprocess.run(
        [tool("openssl"), "pkey", "-in", "server.key", "-aes256", "-passout", "pass:x",
         "-out", "locked.key"], cwd=home, check=True, timeout=30,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="the key is encrypted"):
        loaded(home, tls("cert_file: server.crt, key_file: locked.key"))


@pytest.mark.parametrize(
    "text",
    [
        "basic_auth_users: {john: hunter2-hunter2}",
        "basic_auth_users: {john: [hunter2-hunter2]}",
        "basic_auth_users: [hunter2-hunter2]",
        "basic_auth_users: hunter2-hunter2",
        "basic_auth_users: {john: 2.5}",
        "tls_server_config: {key: [hunter2-hunter2]}",
        "tls_server_config: {key: hunter2-hunter2}",
        "basic_auth_users: {john: *hunter2-hunter2}",
        "basic_auth_users: {john: !hunter2-hunter2}",
        "basic_auth_users: {john: !!timestamp hunter2-hunter2}",
    ],
)
def test_no_message_repeats_a_secret(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text.encode(), "web.yml")
    assert "hunter2" not in str(refused.value)
    assert "2.5" not in str(refused.value)


@pytest.mark.parametrize("name", ["0123", "on", "1_000", "1.50", "2020-01-01", "0x10"])
def test_the_name_of_a_user_is_what_stands_there(name: str) -> None:
    """`0123` let a user `83` in and not `0123`, for YAML takes it for a number."""
    assert set(read(f"basic_auth_users: {{{name}: {DAVE}}}".encode(), "w").basic_auth_users) == {
        name
    }


def test_what_is_done_more_strictly_is_said(home: Path) -> None:
    """TLS 1.0 is not spoken; certificates that nobody would verify are not asked for."""
    config = read(tls(f"{CERT}, min_version: TLS10").encode(), "web.yml")
    assert config.notes == ("min_version TLS10: TLS12 is the least that is spoken here",)
    context = loaded(home, tls(f"{CERT}, client_auth_type: RequestClientCert")).context
    assert context is not None and context.verify_mode == ssl.CERT_NONE


def test_goes_durations_are_understood() -> None:
    for text, seconds in {"1m30s": 90.0, "500ms": 0.5, "0": 0.0, "1000000000": 1.0}.items():
        config = read(f"rate_limit: {{interval: {text}, burst: 1}}".encode(), "web.yml")
        assert config.rate_limit.interval == pytest.approx(seconds)
