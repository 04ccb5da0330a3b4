"""The resumable downloader against a server on this machine that misbehaves on demand."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from termchat.download.errors import DownloadError
from termchat.download.file import Retries, download_file
from termchat.download.part import Part, Remote
from termchat.download.progress import Meter, Progress
from termchat.download.transfer import transfer
from termchat.download.transport import without_secrets
from waiting import HANG_SECONDS, wait_for

DATA = random.Random(7).randbytes(300_000)
SHA = hashlib.sha256(DATA).hexdigest()
ETAG = '"v1"'

Act = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        act = self.server.acts.pop(0) if self.server.acts else serve()
        with suppress(BrokenPipeError, ConnectionResetError):
            act(self)
        self.close_connection = True


class Server(ThreadingHTTPServer):
    """Answers the first requests by `acts`, later ones properly; `seen` holds path and headers of each."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts: list[Act] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/file"

    def handle_error(self, *args: Any) -> None:
        pass

    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for _, headers in self.seen]


def serve(
    data: bytes = DATA,
    etag: str | None = ETAG,
    cut: int | None = None,
    stall: float = 0.0,
    ranges: bool = True,
    length: int | None = None,
    headers: dict[str, str] | None = None,
    chunked: bool = False,
) -> Act:
    """A proper answer, but: cut after so many bytes of the body, or stalled there, no ranges, or lying."""

    def act(handler: Handler) -> None:
        start = 0
        asked, condition = handler.headers.get("Range"), handler.headers.get("If-Range")
        if ranges and asked and condition in (None, etag):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(data) and asked and ranges:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(data)}")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if etag:
            handler.send_header("ETag", etag)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        body = data[start:]
        if chunked:
            handler.protocol_version = "HTTP/1.1"
            handler.send_header("Transfer-Encoding", "chunked")
        elif length != -1:
            handler.send_header("Content-Length", str(length if length is not None else len(body)))
        handler.end_headers()
        sent = body if cut is None else body[:cut]
        if chunked:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(sent), sent) + (b"0\r\n\r\n" if cut is None else b""))
        else:
            handler.wfile.write(sent)
        handler.wfile.flush()
        if stall:
            handler.server.stalled.wait(stall)  # type: ignore[attr-defined]

    return act


def answer(code: int, **headers: str) -> Act:
    def act(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return act


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        running.stalled = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.stalled.set()  # type: ignore[attr-defined]
        running.shutdown()
        thread.join()


def get(
    url: str, target: Path, sha256: str | None = SHA, size: int | None = len(DATA), **options: Any
) -> list[Progress]:
    events: list[Progress] = []
    retries = Retries(**{"timeout": HANG_SECONDS, "attempts": 3, "pause": lambda _: None, **options})
    download_file(Remote(url, sha256=sha256, size=size), target, Meter(events.append), retries)
    assert target.read_bytes() == DATA
    assert [file.name for file in target.parent.iterdir()] == [target.name]
    return events


@pytest.mark.parametrize("known", [True, False])
def test_a_file_arrives_whole(server: Server, tmp_path: Path, known: bool) -> None:
    get(server.url, tmp_path / "f", *((SHA, len(DATA)) if known else (None, None)))
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    assert server.ranges() == [None]


def test_a_cut_connection_is_resumed_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(cut=100_000), serve(cut=50_000)]
    get(server.url, tmp_path / "f")
    assert server.ranges() == [None, "bytes=100000-", "bytes=150000-"]
    assert server.seen[1][1]["If-Range"] == ETAG


def test_progress_resets_the_count_of_failures(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(cut=10_000)] * 20
    get(server.url, tmp_path / "f", attempts=2)
    assert len(server.seen) == 21


def test_a_stalled_connection_is_given_up_and_resumed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(remote: Remote, part: Part, meter: Meter, timeout: float) -> Remote:
        """The first time: the next connection is not to be given up where the machine is slow."""
        return transfer(remote, part, meter, timeout if part.size() else 1.0)

    monkeypatch.setattr("termchat.download.file.transfer", impatient)
    server.acts = [serve(cut=100_000, stall=60)]
    get(server.url, tmp_path / "f")
    assert server.ranges() == [None, "bytes=100000-"]


def test_another_run_goes_on_where_the_first_stopped(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(cut=100_000)] + [answer(503)] * 2
    with pytest.raises(DownloadError, match=r"503 .*100\.0 kB are kept for the next try"):
        get(server.url, tmp_path / "f")
    assert (tmp_path / "f.part").stat().st_size == 100_000
    assert not (tmp_path / "f").exists()
    get(server.url, tmp_path / "f")
    assert server.ranges()[-1] == "bytes=100000-"


@pytest.mark.parametrize("known", [True, False])
def test_a_server_without_ranges_sends_all_again_and_the_part_is_not_lost(
    server: Server, tmp_path: Path, known: bool
) -> None:
    server.acts = [serve(cut=100_000), serve(ranges=False, cut=200_000), serve(ranges=False)]
    events = get(server.url, tmp_path / "f", *((SHA, len(DATA)) if known else (None, None)))
    downloads = [event.done for event in events if event.phase == "download"]
    assert downloads == sorted(downloads)


@pytest.mark.parametrize("known", [True, False])
def test_what_changed_between_two_runs_is_fetched_anew(server: Server, tmp_path: Path, known: bool) -> None:
    old = bytes(len(DATA))
    server.acts = [serve(old, '"v0"', cut=100_000)] + [answer(503)] * 3
    with pytest.raises(DownloadError):
        get(server.url, tmp_path / "f", *((SHA, len(DATA)) if known else (None, None)))
    get(server.url, tmp_path / "f", *((SHA, len(DATA)) if known else (None, None)))


def test_a_server_that_ignores_if_range_is_found_out_by_its_etag(server: Server, tmp_path: Path) -> None:
    def ignoring(handler: Handler) -> None:
        del handler.headers["If-Range"]
        serve()(handler)

    server.acts = [serve(bytes(len(DATA)), '"v0"', cut=100_000), ignoring]
    events = get(server.url, tmp_path / "f", None, None)
    assert server.ranges() == [None, "bytes=100000-", None]
    assert all(a.done <= b.done for a, b in itertools.pairwise(events) if a.phase == b.phase)


def test_a_weak_etag_is_not_sent_but_compared(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(etag='W/"x"', cut=100_000), serve(etag='W/"x"')]
    get(server.url, tmp_path / "f", None, None)
    assert "If-Range" not in server.seen[1][1]
    assert server.ranges() == [None, "bytes=100000-"]


def test_without_etag_and_sha256_a_part_of_another_run_is_not_trusted(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(etag=None, cut=100_000)] + [answer(503)] * 2
    with pytest.raises(DownloadError):
        get(server.url, tmp_path / "f", None, None)
    server.seen.clear()
    server.acts = [serve(etag=None)]
    get(server.url, tmp_path / "f", None, None)
    assert server.ranges() == [None]


def test_a_part_that_is_longer_than_the_file_is_dropped(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(DATA + bytes(9), length=len(DATA) + 9, cut=len(DATA) + 5)] + [answer(503)] * 2
    with pytest.raises(DownloadError):
        get(server.url, tmp_path / "f", SHA, None)
    get(server.url, tmp_path / "f", SHA, len(DATA))  # the size is known by now


def test_416_starts_over(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(cut=100_000), answer(416)]
    get(server.url, tmp_path / "f")
    assert server.ranges() == [None, "bytes=100000-", None]


def rest(code: int, place: str | None) -> Act:
    """The rest from the asked position on, said to be the status `code`, and to be at `place`."""

    def act(handler: Handler) -> None:
        start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        handler.send_response(code)
        handler.send_header("ETag", ETAG)
        if place is not None:
            handler.send_header("Content-Range", place.format(start=start, last=len(DATA) - 1, all=len(DATA)))
        handler.send_header("Content-Length", str(len(DATA) - start))
        handler.end_headers()
        handler.wfile.write(DATA[start:])

    return act


@pytest.mark.parametrize("known", [True, False])
def test_the_rest_that_comes_with_the_status_of_the_whole_is_the_rest(
    server: Server, tmp_path: Path, known: bool
) -> None:
    server.acts = [serve(cut=100_000), rest(200, "bytes {start}-{last}/{all}")]
    get(server.url, tmp_path / "f", *((SHA, len(DATA)) if known else (None, None)))
    assert server.ranges() == [None, "bytes=100000-"]


@pytest.mark.parametrize("place", [None, "bytes x-y/z"])
def test_a_part_that_does_not_say_its_place_starts_over(
    server: Server, tmp_path: Path, place: str | None
) -> None:
    server.acts = [serve(cut=100_000), rest(206, place)]
    get(server.url, tmp_path / "f")
    assert server.ranges() == [None, "bytes=100000-", None]


def test_another_range_than_asked_for_starts_over(server: Server, tmp_path: Path) -> None:
    def shifted(handler: Handler) -> None:
        handler.headers.replace_header("Range", "bytes=99999-")
        serve()(handler)

    server.acts = [serve(cut=100_000), shifted]
    get(server.url, tmp_path / "f")
    assert server.ranges() == [None, "bytes=100000-", None]


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_passing_server_errors_are_retried(server: Server, tmp_path: Path, code: int) -> None:
    server.acts = [answer(code), answer(code)]
    waits: list[float] = []
    get(server.url, tmp_path / "f", pause=waits.append)
    assert waits == [1.0, 2.0]


@pytest.mark.parametrize(
    ("code", "said"), [(404, "no such file"), (401, "HF_TOKEN"), (403, "HF_TOKEN"), (410, "410")]
)
def test_lasting_server_errors_are_said_at_once(server: Server, tmp_path: Path, code: int, said: str) -> None:
    server.acts = [answer(code)]
    with pytest.raises(DownloadError, match=said):
        get(server.url, tmp_path / "f")
    assert len(server.seen) == 1
    assert list(tmp_path.iterdir()) == []


def test_wrong_bytes_are_deleted_and_said(server: Server, tmp_path: Path) -> None:
    wrong = DATA[:-1] + bytes([DATA[-1] ^ 1])
    server.acts = [serve(wrong)]
    with pytest.raises(
        DownloadError, match=f"has sha256 {hashlib.sha256(wrong).hexdigest()}, not {SHA}; the file"
    ):
        get(server.url, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []
    assert len(server.seen) == 1


def test_a_resumed_file_that_came_out_wrong_is_fetched_once_more(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(cut=100_000)] + [answer(503)] * 2
    with pytest.raises(DownloadError):
        get(server.url, tmp_path / "f")
    (tmp_path / "f.part").write_bytes(bytes(100_000))  # the disk, or a user, spoiled it
    get(server.url, tmp_path / "f")
    assert server.ranges()[-2:] == ["bytes=100000-", None]


def test_another_length_than_expected_is_refused_before_the_first_byte(
    server: Server, tmp_path: Path
) -> None:
    server.acts = [serve(b"<html>not found</html>")]
    with pytest.raises(DownloadError, match="has 22 bytes, not the 300000 expected"):
        get(server.url, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_always_promises_more_than_it_sends_is_given_up(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(length=len(DATA) + 1)] + [answer(503)] * 2
    with pytest.raises(DownloadError):
        get(server.url, tmp_path / "f", None, None)
    assert not (tmp_path / "f").exists()


def test_a_chunked_answer_that_is_cut_is_noticed(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(chunked=True, cut=100_000), serve(chunked=True)]
    get(server.url, tmp_path / "f", None, None)
    assert server.ranges() == [None, "bytes=100000-"]


def test_a_chunked_answer_that_does_not_end_is_stopped_at_the_size(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(DATA + bytes(500_000), chunked=True)]
    with pytest.raises(DownloadError, match="sends more than 300000 bytes"):
        get(server.url, tmp_path / "f")


def test_without_length_and_sha256_a_cut_could_not_be_seen(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(length=-1)]
    with pytest.raises(DownloadError, match="gives no length"):
        get(server.url, tmp_path / "f", None, None)
    server.acts = [serve(length=-1)]
    get(server.url, tmp_path / "f", SHA, None)


def test_a_coding_that_is_not_undone_is_refused(server: Server, tmp_path: Path) -> None:
    server.acts = [serve(headers={"Content-Encoding": "br"})]
    with pytest.raises(DownloadError, match="compresses"):
        get(server.url, tmp_path / "f")


@pytest.mark.parametrize("coding", ["", "binary", "UTF-8", "aws-chunked", "identity"])
def test_a_content_coding_that_changes_nothing_is_none(server: Server, tmp_path: Path, coding: str) -> None:
    server.acts = [serve(headers={"Content-Encoding": coding})]
    get(server.url, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA


def test_the_hubs_own_sha256_and_size_are_checked_when_ours_are_not_known(
    server: Server, tmp_path: Path
) -> None:
    linked = {"X_Linked_Etag": f'"{SHA}"', "X_Linked_Size": str(len(DATA)), "Location": "/cdn?secret=1"}
    server.acts = [answer(302, **linked), serve(DATA[:-1] + b"?")]
    with pytest.raises(DownloadError, match=f"not {SHA}"):
        get(server.url, tmp_path / "f", None, None)
    server.acts = [answer(302, **linked), serve(DATA[:-1])]
    with pytest.raises(DownloadError, match="has 299999 bytes, not the 300000 expected"):
        get(server.url, tmp_path / "f", None, None)
    server.acts = [answer(302, **linked)]
    get(server.url, tmp_path / "f", None, None)


def test_a_token_goes_to_its_own_server_only(server: Server, tmp_path: Path) -> None:
    with Server() as other:
        threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        server.acts = [answer(307, Location="/moved"), answer(302, Location=other.url)]
        remote = Remote(server.url, {"Authorization": "Bearer secret"}, SHA, len(DATA))
        download_file(remote, tmp_path / "f", Meter(None))
        other.shutdown()
    assert [headers.get("Authorization") for _, headers in server.seen] == ["Bearer secret"] * 2
    assert [path for path, _ in server.seen] == ["/file", "/moved"]
    assert [headers.get("Authorization") for _, headers in other.seen] == [None]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x"])
def test_a_redirect_leaves_http_for_nothing_else(server: Server, tmp_path: Path, location: str) -> None:
    server.acts = [answer(302, Location=location)]
    with pytest.raises(DownloadError, match="302"):
        get(server.url, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_redirects_in_a_circle_end(server: Server, tmp_path: Path) -> None:
    server.acts = [answer(302, Location="/file")] * 50
    with pytest.raises(DownloadError, match="302"):
        get(server.url, tmp_path / "f")
    assert len(server.seen) < 20


def test_a_file_address_works_and_resumes(tmp_path: Path) -> None:
    source, folder = tmp_path / "a b%.bin", tmp_path / "to"
    source.write_bytes(DATA)
    folder.mkdir()

    def stop(progress: Progress) -> None:
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_file(
            Remote(source.as_uri(), sha256=SHA), folder / "f", Meter(stop, itertools.count().__next__)
        )
    kept = (folder / "f.part").stat().st_size
    assert 0 < kept < len(DATA)
    events = get(source.as_uri(), folder / "f")
    assert events[0].done == kept
    with pytest.raises(DownloadError, match=r"cannot open file:///no/such: No such file"):
        get("file:///no/such", folder / "g")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/f", "gopher:x", "nothing", "http://["])
def test_odd_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(DownloadError):
        get(url, tmp_path / "f")


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    waits: list[float] = []
    with pytest.raises(DownloadError, match=f"cannot reach http://127.0.0.1:{port}/f: Connection refused"):
        get(f"http://127.0.0.1:{port}/f?token=1", tmp_path / "f", pause=waits.append)
    assert len(waits) == 2


def test_a_server_that_is_not_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            for _ in range(3):
                connection, _ = listening.accept()
                connection.sendall(b"220 smtp ready\r\n\r\n")
                connection.close()

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(DownloadError, match="cannot reach"):
            get(f"http://127.0.0.1:{listening.getsockname()[1]}/f", tmp_path / "f")


def test_too_little_space_is_said_before_the_first_byte(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("usage", (), {"free": 16_000_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        DownloadError, match=r"not enough space in .*: 300\.0 kB are needed, 16\.0 MB are free"
    ):
        get(server.url, tmp_path / "f")
    assert not (tmp_path / "f.part").exists()


def test_a_disk_that_fills_up_keeps_the_part(server: Server, tmp_path: Path) -> None:
    import resource

    pid = os.fork()
    if pid == 0:  # a child of its own, since the limit cannot be raised again
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            get(server.url, tmp_path / "f")
        except DownloadError as error:
            code = 0 if "cannot write" in str(error) and "kept" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / "f.part").stat().st_size == 200_000
    get(server.url, tmp_path / "f")
    assert server.ranges()[-1] == "bytes=200000-"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_process_leaves_what_the_next_one_resumes(
    server: Server, tmp_path: Path, stop: signal.Signals
) -> None:
    code = (
        "import sys, pathlib; from termchat.download.file import *\n"
        "from termchat.download.progress import Meter\n"
        "download_file(Remote(sys.argv[1], sha256=sys.argv[2]), pathlib.Path(sys.argv[3]), Meter(None))"
    )
    server.acts = [serve(cut=100_000, stall=60)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, server.url, SHA, str(tmp_path / "f")], stderr=subprocess.DEVNULL
    )
    part = tmp_path / "f.part"
    wait_for(lambda: part.exists() and part.stat().st_size == 100_000)
    process.send_signal(stop)
    assert process.wait(300) != 0
    assert not (tmp_path / "f").exists()
    get(server.url, tmp_path / "f")
    assert server.ranges() == [None, "bytes=100000-"]


def test_broken_notes_beside_a_part_are_not_believed(server: Server, tmp_path: Path) -> None:
    for note in ("", "[]", '{"sha256": 3}', '{"etag": []}', "\0"):
        (tmp_path / "f.part").write_bytes(b"other")
        (tmp_path / "f.part.json").write_text(note)
        get(server.url, tmp_path / "f")
        assert server.ranges()[-1] is None
        (tmp_path / "f").unlink()


def test_addresses_are_shown_without_secrets() -> None:
    assert without_secrets("https://user:pw@host:8080/a/b?token=x#y") == "https://host:8080/a/b"


OTHERS = {
    "empty": (b"", "empty (0 bytes)"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n",
        "a Git LFS pointer",
    ),
    "message": (b'{"error": "Repository not found"}', "a JSON text"),
    "archive": (b"PK\x03\x04" + bytes(100), "a ZIP archive"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_came_is_no_model_where_nothing_else_tells(server: Server, tmp_path: Path, name: str) -> None:
    """A server that says 200 and sends something else, and no sha256 or size to see it by."""
    data, said = OTHERS[name]
    for file, format in (("m.gguf", "GGUF"), ("model.safetensors", "safetensors")):
        server.acts = [serve(data=data)]
        with pytest.raises(DownloadError, match=f"gives no {format} file but what is {re.escape(said)}"):
            download_file(Remote(server.url), tmp_path / file, Meter(None))
        assert list(tmp_path.iterdir()) == []
    for file, head in (("m.gguf", b"GGUF\3\0\0\0"), ("m.bin", data), ("n.gguf", b"\xf0\xf1")):
        server.acts = [serve(data=head)]
        download_file(Remote(server.url), tmp_path / file, Meter(None))
        assert (tmp_path / file).read_bytes() == head


def test_who_cannot_be_reached_is_named_where_a_redirect_leads_to_it(server: Server, tmp_path: Path) -> None:
    """A firewall that lets the Hub through and not the host that keeps its files."""
    server.acts = [answer(302, Location="http://storage.invalid/f?secret=1")]
    with pytest.raises(DownloadError, match=f"cannot reach storage.invalid, to which {server.url} leads: "):
        download_file(Remote(server.url), tmp_path / "f", Meter(None), Retries(attempts=1))
