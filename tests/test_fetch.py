"""Fetching from servers that behave, and from those that do not; all of them on loopback."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.fetch import HttpFetcher, Response
from exporter.fetch.bodies import unzipped
from exporter.fetch.wire import Budget
from exporter.samples import Malformed, SourceError, reason_of
from tests.fakes import FakeClock
from tests.servers import Script, Server, chunked, reply, request, serving

TLS = Path(__file__).parent / "data" / "tls"

Start = Callable[..., Server]


@pytest.fixture
def server() -> Iterator[Start]:
    """Return a function that starts servers; all are closed at the end."""
    with contextlib.ExitStack() as running:

        def start(*answers: bytes | Script, context: ssl.SSLContext | None = None) -> Server:
            return running.enter_context(serving(*answers, context=context))

        yield start


class TickingClock(FakeClock):
    """A clock that goes on by a step each time it is looked at: no test waits for a deadline."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self._step = step

    def monotonic(self) -> float:
        self.now += self._step
        return self.now


def fetcher(url: str, **options: Any) -> HttpFetcher:
    return HttpFetcher(url, **({"timeout": 10.0, "clock": SystemClock()} | options))


def fetch(url: str, **options: Any) -> Response:
    with contextlib.closing(fetcher(url, **options)) as made:
        return made.get()


# ---------------------------------------------------------------- what goes well


def test_a_page_is_returned_as_sent(server: Start) -> None:
    """Status, type and body come back; the request asks for text and for no compression here."""
    made = server(reply())
    response = fetch(made.url("/metrics?model=a"))
    assert response == Response(200, "text/plain; version=0.0.4", b"up 1\n")
    (head,) = made.requests
    assert head.startswith("GET /metrics?model=a HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{made.port}\r\n" in head
    assert "Accept: text/plain;version=0.0.4, application/openmetrics-text" in head
    assert "Accept-Encoding: identity\r\n" in head


def test_a_connection_is_kept(server: Start) -> None:
    """The second page comes over the first connection."""
    made = server(reply(b"a 1\n"), reply(b"a 2\n"))
    with contextlib.closing(fetcher(made.url())) as client:
        assert [client.get().body, client.get().body] == [b"a 1\n", b"a 2\n"]
    assert made.connections == 1


def test_a_kept_connection_that_was_closed_costs_no_failure(server: Start) -> None:
    """A server may close an idle connection at any time: the request is made once more."""
    made = server(reply(b"a 1\n"))
    with contextlib.closing(fetcher(made.url())) as client:
        assert client.get().body == b"a 1\n"
        assert client.get().body == b"a 1\n"
    assert made.connections == 2


def test_there_is_no_second_retry(server: Start) -> None:
    """A server that closes new connections without an answer is down."""
    made = server([reply(b"a 1\n")], lambda c: None)
    with contextlib.closing(fetcher(made.url())) as client:
        client.get()
        with pytest.raises(ConnectionError):
            client.get()
    assert made.connections == 2


def test_a_new_connection_that_breaks_is_not_tried_again(server: Start) -> None:
    """Only a kept connection may be stale."""
    made = server(lambda c: None)
    with pytest.raises(ConnectionError):
        fetch(made.url())
    assert made.connections == 1


def test_a_restarted_server_is_found_again(server: Start) -> None:
    """While it is away that is said; afterwards the same client reads on."""
    first = server(reply(b"a 1\n"))
    with contextlib.closing(fetcher(first.url())) as client:
        client.get()
        first.close()
        with pytest.raises(ConnectionError) as caught:
            client.get()
        assert str(caught.value).startswith(f"{first.url()}: ")
        assert reason_of(caught.value) == "unavailable"
        again = socket.create_server(("127.0.0.1", first.port))
        with again:
            threading.Thread(target=answer_once, args=(again, reply(b"a 0\n")), daemon=True).start()
            assert client.get().body == b"a 0\n"


def answer_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        request(connection)
        connection.sendall(answer)


def test_chunks_are_put_together(server: Start) -> None:
    """A body without a length is read to its last chunk."""
    assert fetch(server(chunked(b"a 1\n", b"b 2\n", b"")).url()).body == b"a 1\nb 2\n"


def test_a_body_that_ends_with_the_connection(server: Start) -> None:
    """HTTP/1.0 servers say neither length nor chunks."""
    old = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\na 1\n"
    made = server(old)
    with contextlib.closing(fetcher(made.url())) as client:
        assert client.get().body == b"a 1\n"
        assert client.get().body == b"a 1\n"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP"])
def test_gzip_is_unpacked_though_not_asked_for(server: Start, encoding: str) -> None:
    """Some proxies compress whatever the request says."""
    made = server(reply(gzip.compress(b"a 1\n"), Content_Encoding=encoding))
    assert fetch(made.url()).body == b"a 1\n"


def test_an_empty_page_is_a_page(server: Start) -> None:
    """What an empty body means is not decided here."""
    assert fetch(server(reply(b"")).url()).body == b""
    assert fetch(server(b"HTTP/1.1 204 No Content\r\n\r\n").url()).status == 204


# ---------------------------------------------------------------- too slow


def test_a_server_that_trickles_is_given_up(server: Start) -> None:
    """A byte now and then does not extend the deadline of the whole exchange."""

    def trickle(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n")
        pause = threading.Event()
        for _ in range(4000):
            connection.sendall(b"x")
            pause.wait(0.001)

    with pytest.raises(TimeoutError, match="no whole answer within 5 s"):
        fetch(server(trickle).url(), timeout=5.0, clock=TickingClock(0.5))


def test_a_head_that_trickles_is_given_up(server: Start) -> None:
    """The same holds for the lines before the body."""

    def trickle(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        pause = threading.Event()
        for _ in range(90):
            connection.sendall(b"X-Filler: ")
            pause.wait(0.001)
            connection.sendall(b"y\r\n")
            pause.wait(0.001)
        connection.sendall(b"Content-Length: 0\r\n\r\n")

    with pytest.raises(TimeoutError):
        fetch(server(trickle).url(), timeout=5.0, clock=TickingClock(0.5))


def test_a_server_that_never_answers_is_given_up(server: Start) -> None:
    """A hung server accepts connections (the kernel does) and stays silent."""
    release = threading.Event()
    made = server(lambda c: release.wait(30) and None)
    with pytest.raises(TimeoutError) as caught:
        fetch(made.url(), timeout=0.1)
    release.set()
    assert reason_of(caught.value) == "timeout"


def test_after_a_timeout_a_new_connection_is_used(server: Start) -> None:
    """The rest of a late answer must not be taken for the next one."""
    clock = FakeClock()
    given_up = threading.Event()

    def late(connection: socket.socket) -> None:
        request(connection)
        clock.advance(60)
        connection.sendall(reply(b"old 1\n")[:20])
        given_up.wait(30)
        connection.sendall(reply(b"old 1\n")[20:])

    made = server(late, [reply(b"new 1\n")])
    with contextlib.closing(fetcher(made.url(), clock=clock)) as client:
        with pytest.raises(TimeoutError):
            client.get()
        given_up.set()
        assert client.get().body == b"new 1\n"
    assert made.connections == 2


# ---------------------------------------------------------------- too large, too short, not sound


def test_an_announced_large_body_is_not_read(server: Start) -> None:
    """50 MB in one answer are refused by their length alone."""
    made = server(reply(b"", Content_Length=str(50 << 20)))
    with pytest.raises(Malformed, match="larger than 16777216 bytes"):
        fetch(made.url())


def test_a_body_without_end_is_cut_off(server: Start) -> None:
    """Chunks that never end are read up to the cap and not beyond."""

    def endless(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(chunked())
        chunk = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
        while True:
            connection.sendall(chunk)

    with pytest.raises(Malformed, match="larger than 200000 bytes"):
        fetch(server(endless).url(), max_bytes=200_000)


def test_a_packed_body_is_capped_when_unpacked(server: Start) -> None:
    """50 MB of zeros travel as 50 kB."""
    bomb = gzip.compress(bytes(50 << 20), 1)
    made = server(reply(bomb, Content_Encoding="gzip"))
    with pytest.raises(Malformed, match="larger than 16777216 bytes when unpacked"):
        fetch(made.url())


def test_a_body_of_the_largest_size_is_taken(server: Start) -> None:
    """The cap itself is allowed, packed or not."""
    body = b"x" * 1000
    assert fetch(server(reply(body)).url(), max_bytes=1000).body == body
    packed = gzip.compress(body)
    made = server(reply(packed, Content_Encoding="gzip"))
    assert fetch(made.url(), max_bytes=1000).body == body


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"a 1\nb", Content_Length="400"),
        chunked(b"a 1\nb"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\na 1\nb",
        b"",
    ],
)
def test_an_answer_that_breaks_off_is_no_answer(server: Start, answer: bytes) -> None:
    """A server that dies in the middle was there and is not now."""
    with pytest.raises(ConnectionError) as caught:
        fetch(server(answer).url())
    assert reason_of(caught.value) == "unavailable"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 abc\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", "not an HTTP answer"),
        (reply(b"not gzip", Content_Encoding="gzip"), "not gzip"),
        (reply(gzip.compress(b"a 1\n" * 99)[:-9], Content_Encoding="gzip"), "cut off"),
        (reply(zlib.compress(b"a 1\n"), Content_Encoding="deflate"), "not asked for"),
    ],
)
def test_nonsense_is_named(server: Start, answer: bytes, said: str) -> None:
    """What is not HTTP, or not in a coding that was asked for, is said with the URL."""
    made = server(answer)
    with pytest.raises((Malformed, ConnectionError), match=said) as caught:
        fetch(made.url())
    assert made.url() in str(caught.value)


def test_a_length_that_is_too_small_does_not_spoil_the_next_page(server: Start) -> None:
    """What is left of one body is not taken for the beginning of the next answer."""
    lying = reply(b"a 1\nleft over", Content_Length="4")
    made = server([lying, b""], [reply(b"b 2\n")])
    with contextlib.closing(fetcher(made.url())) as client:
        assert client.get().body == b"a 1\n"
        assert client.get().body == b"b 2\n"


# ---------------------------------------------------------------- statuses


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        ("400 Bad Request", "unavailable", "?model=NAME"),
        ("401 Unauthorized", "denied", "token"),
        ("403 Forbidden", "denied", "token"),
        ("404 Not Found", "unavailable", "switched off, or the path"),
        ("405 Method Not Allowed", "unavailable", "HTTP 405"),
        ("429 Too Many Requests", "unavailable", "HTTP 429"),
        ("500 Internal Server Error", "unavailable", "a fault of its own"),
        ("501 Not Implemented", "unavailable", "--metrics"),
        ("503 Service Unavailable", "unavailable", "loading"),
        ("304 Not Modified", "unavailable", "HTTP 304"),
    ],
)
def test_a_status_is_explained(server: Start, status: str, reason: str, said: str) -> None:
    """Each status that servers use becomes a reason and a hint."""
    with pytest.raises(SourceError, match=said.replace("?", r"\?")) as caught:
        fetch(server(reply(b"", status)).url())
    assert caught.value.reason == reason


def test_a_refusal_is_quoted_briefly(server: Start) -> None:
    """The beginning of the body tells what the server thinks is wrong."""
    body = b'{"error":\n "This server does not support metrics endpoint."}' + b" x" * 5000
    with pytest.raises(SourceError) as caught:
        fetch(server(reply(body, "501 Not Implemented")).url())
    text = str(caught.value)
    assert '({"error": "This server does not support metrics endpoint."}' in text
    assert len(text) < 400


def test_after_a_refusal_the_connection_is_used_again(server: Start) -> None:
    """A server that is loading is asked on the same connection until it is ready."""
    made = server(reply(b"loading", "503 Service Unavailable"), reply(b"a 1\n"))
    with contextlib.closing(fetcher(made.url())) as client:
        with pytest.raises(SourceError):
            client.get()
        assert client.get().body == b"a 1\n"
    assert made.connections == 1


# ---------------------------------------------------------------- redirects


def redirect(to: str, status: str = "307 Temporary Redirect") -> bytes:
    return reply(b"", status, Location=to)


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
def test_a_redirect_on_the_same_server_is_followed(server: Start, status: str) -> None:
    """LiteLLM sends /metrics to /metrics/."""
    made = server(redirect("/metrics/", status), reply(b"a 1\n"))
    assert fetch(made.url("/metrics?x=1")).body == b"a 1\n"
    assert made.requests[1].startswith("GET /metrics/ HTTP/1.1")
    assert made.connections == 1


@pytest.mark.parametrize(
    "to",
    [
        "http://169.254.169.254/latest/meta-data",
        "//127.0.0.2/metrics",
        "https://127.0.0.1/metrics",
        "http://127.0.0.1:1/metrics",
    ],
)
def test_a_redirect_to_another_server_is_refused(server: Start, to: str) -> None:
    """Another host, port or scheme is another server: nobody configured it."""
    made = server(redirect(to))
    with pytest.raises(SourceError, match="which is not followed; configure that address"):
        fetch(made.url())


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "", "http://user:secret@127.0.0.1/", "http://["]
)
def test_a_redirect_to_what_is_no_page_is_refused(server: Start, to: str) -> None:
    """Only HTTP, and no endless chase of an empty address."""
    with pytest.raises(SourceError) as caught:
        fetch(server(*[redirect(to)] * 9).url(), follow_redirects="any")
    assert "secret" not in str(caught.value)


def test_redirects_can_be_forbidden(server: Start) -> None:
    """Then even the own server may not send elsewhere."""
    with pytest.raises(SourceError, match="is not followed"):
        fetch(server(redirect("/metrics/")).url(), follow_redirects="none")


def test_redirects_in_a_circle_end(server: Start) -> None:
    """After a few the matter is closed."""
    made = server(*[redirect("/metrics")] * 9)
    with pytest.raises(SourceError, match="too many redirects"):
        fetch(made.url())
    assert len(made.requests) == 4


def test_another_server_is_followed_to_if_allowed_but_told_no_secrets(
    server: Start, tmp_path: Path
) -> None:
    """With `any` the page comes from elsewhere; the token stays at home."""
    (tmp_path / "token").write_text("s3cret")
    other = server(reply(b"a 1\n"))
    made = server(redirect(other.url("/m")))
    response = fetch(made.url(), follow_redirects="any", token_file=tmp_path / "token")
    assert response.body == b"a 1\n"
    assert "Bearer s3cret" in made.requests[0]
    assert "s3cret" not in other.requests[0]


# ---------------------------------------------------------------- secrets


def test_a_token_is_read_each_time(server: Start, tmp_path: Path) -> None:
    """Tokens rotate; the end of the line does not belong to them."""
    token = tmp_path / "token"
    made = server(reply(), reply())
    with contextlib.closing(fetcher(made.url(), token_file=token)) as client:
        for word in ("first", "second"):
            token.write_text(f"{word}\n")
            client.get()
    assert "Authorization: Bearer first\r\n" in made.requests[0]
    assert "Authorization: Bearer second\r\n" in made.requests[1]


@pytest.mark.parametrize("content", [None, b"", b"two words", b"a\r\nX-Evil: 1", b"\xff\xfe"])
def test_a_token_file_that_cannot_be_used(tmp_path: Path, content: bytes | None) -> None:
    """The file is named, its content is not."""
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    with pytest.raises(SourceError, match=r"^token_file .*token: ") as caught:
        fetch("http://127.0.0.1:9/metrics", token_file=token)
    assert caught.value.reason == "denied"
    assert "Evil" not in str(caught.value)


def test_secrets_are_in_no_error_and_no_repr(server: Start, tmp_path: Path) -> None:
    """Neither what was sent nor what a server repeats of it is shown."""
    (tmp_path / "token").write_text("s3cret")
    body = b"token Bearer s3cret is not good"
    made = server(
        reply(body, "500 Oops"),
        reply(body, "401 No"),
        redirect("http://127.0.0.2/?key=qu3ry"),
        b"s3cret\r\n",
    )
    with contextlib.closing(
        fetcher(made.url("/metrics?key=qu3ry"), token_file=tmp_path / "token")
    ) as client:
        texts = [repr(client)]
        for _ in range(4):
            with pytest.raises((SourceError, Malformed, ConnectionError)) as caught:
                client.get()
            texts.append(str(caught.value))
    assert "is not good" in texts[1]
    for text in texts:
        assert made.url() in text
        for secret in ("s3cret", "qu3ry"):
            assert secret not in text


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/metrics",
        "127.0.0.1:8000/metrics",
        "http:///metrics",
        "http://127.0.0.1:port/",
        "http://127.0.0.1:99999/",
        "http://[::1/",
        "http://user:s3cret@127.0.0.1/",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\r\nX: s3cret",
        "",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    """Only HTTP and HTTPS, without user names, and nothing that would split a request."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the texts differ
        fetcher(url)
    assert "s3cret" not in str(caught.value)


def test_proxies_of_the_environment_are_not_used(
    server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's own servers are meant, whatever the shell says."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert fetch(server(reply()).url()).body == b"up 1\n"


def test_compression_is_asked_for_beyond_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine it only costs; over a network it pays."""
    asked: list[str] = []

    def answer(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", made.address)]

    class Recording(Server):
        @property
        def address(self) -> tuple[str, int]:
            return ("127.0.0.1", self.port)

    made = Recording([reply()])
    monkeypatch.setattr(socket, "getaddrinfo", answer)
    try:
        fetch("http://gpu-7.example/metrics")
    finally:
        made.close()
    assert asked == ["gpu-7.example"]
    assert "Accept-Encoding: gzip\r\n" in made.requests[0]
    assert "Host: gpu-7.example\r\n" in made.requests[0]


@pytest.mark.parametrize(("url", "where"), [("http://127.0.0.1:{0}/", "refused")])
def test_a_server_that_is_not_there(url: str, where: str) -> None:
    """A refused connection says so, with the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionError, match=where) as caught:
        fetch(url.format(port))
    assert reason_of(caught.value) == "unavailable"


def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that cannot be resolved is unavailable, not a fault of ours."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConnectionError, match="the host's name is not known"):
        fetch("http://gpu-7.example/metrics")


# ---------------------------------------------------------------- TLS


@pytest.fixture
def secure() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "key.pem")
    return context


def test_tls_with_a_configured_authority(server: Start, secure: ssl.SSLContext) -> None:
    """A page over TLS, twice on one connection."""
    made = server(reply(b"a 1\n"), reply(b"a 2\n"), context=secure)
    url = made.url(scheme="https")
    with contextlib.closing(fetcher(url, ca_file=TLS / "localhost.pem")) as client:
        assert [client.get().body, client.get().body] == [b"a 1\n", b"a 2\n"]
    assert made.connections == 1


def test_an_unknown_certificate_is_not_accepted(server: Start, secure: ssl.SSLContext) -> None:
    """Without its authority a server is not trusted, and the key that helps is named."""
    made = server(reply(), context=secure)
    with pytest.raises(ConnectionError, match=r"certificate not accepted: .*ca_file"):
        fetch(made.url(scheme="https"))
    assert made.requests == []


def test_verification_can_be_switched_off(server: Start, secure: ssl.SSLContext) -> None:
    """On request any certificate does."""
    made = server(reply(b"a 1\n"), context=secure)
    url = made.url(scheme="https")
    assert fetch(url, insecure_skip_verify=True).body == b"a 1\n"


def test_a_server_without_tls(server: Start) -> None:
    """https at a plain port is a broken connection, not a bug."""
    made = server(lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(ConnectionError) as caught:
        fetch(made.url(scheme="https"), insecure_skip_verify=True)
    assert reason_of(caught.value) == "unavailable"


def test_a_missing_authority_is_named(server: Start, secure: ssl.SSLContext) -> None:
    """The path of the file is what the operator needs."""
    made = server(reply(), context=secure)
    with pytest.raises(SourceError, match=r"ca_file .*none\.pem: No such file"):
        fetch(made.url(scheme="https"), ca_file=TLS / "none.pem")


def test_a_handshake_has_the_same_deadline(server: Start) -> None:
    """A server that accepts and then says nothing is given up during the handshake too."""
    release = threading.Event()
    made = server(lambda c: release.wait(30) and None)
    with pytest.raises(TimeoutError):
        fetch(made.url(scheme="https"), timeout=0.1)
    release.set()


# ---------------------------------------------------------------- nonsense in place of a body

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [b"-1", b"-5", b"zz", b"+5", b"0x5", b"1_0", b"", b"\xb2", b";a"])
def test_a_chunk_whose_size_is_no_number_is_malformed(server: Start, size: bytes) -> None:
    """Python reads some of these as numbers, and -1 as "everything there is"."""
    made = server(CHUNKED + size + b"\r\nhello\r\n0\r\n\r\n")
    with pytest.raises(Malformed, match="size of a chunk") as caught:
        fetch(made.url())
    assert reason_of(caught.value) == "malformed"


def test_a_chunks_size_may_have_an_extension_and_blanks(server: Start) -> None:
    """Both are allowed or seen (RFC 9112, 7.1)."""
    made = server(CHUNKED + b"4 ;x=1\r\na 1\n\r\n4  \r\nb 2\n\r\n0\r\n\r\n")
    assert fetch(made.url()).body == b"a 1\nb 2\n"


def counted(sent: list[int], head: bytes, piece: bytes) -> Script:
    """Return a server that sends pieces without end and notes how many bytes it got rid of."""

    def flood(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            sent.append(len(piece))

    return flood


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (CHUNKED + b"-1\r\n", b"x" * 65536),
        (CHUNKED, b"1;%b\r\na\r\n" % (b"x" * 60000)),
        (CHUNKED + b"0\r\n", b"X: %b\r\n" % (b"x" * 60000)),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    ],
    ids=["chunk of -1", "extensions", "trailers", "continue", "no length"],
)
def test_a_server_that_floods_is_left_after_a_few_bytes(
    server: Start, head: bytes, piece: bytes
) -> None:
    """Whatever the bytes pretend to be, only so many are received, whatever the deadline."""
    sent: list[int] = []
    made = server(counted(sent, head, piece))
    with pytest.raises(Malformed):
        fetch(made.url(), max_bytes=1000, timeout=60.0)
    # The rest was on its way, in the buffers of the two sockets.
    assert sum(sent) < 16 << 20


def test_a_page_of_very_many_packed_parts_is_refused(server: Start) -> None:
    """Thousands of empty gzip members cost minutes once; a few are normal."""
    few, many = gzip.compress(b"a 1\n") * 8, gzip.compress(b"") * 60_000
    made = server(reply(few, Content_Encoding="gzip"), reply(many, Content_Encoding="gzip"))
    with contextlib.closing(fetcher(made.url())) as client:
        assert client.get().body == b"a 1\n" * 8
        with pytest.raises(Malformed, match="more than 8 parts"):
            client.get()


def test_unpacking_keeps_the_deadline() -> None:
    """The clock is looked at for each piece while a body is unpacked."""
    body = gzip.compress(bytes(range(256)) * 8000, compresslevel=0)
    assert len(unzipped(body, 4 << 20, Budget(TickingClock(0.1), 10.0, 0))) == 256 * 8000
    with pytest.raises(TimeoutError):
        unzipped(body, 4 << 20, Budget(TickingClock(1.0), 10.0, 0))
