"""A Hugging Face Hub on this machine: listings, files with the headers of the real one, tokens, faults."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 2000
"""Bytes from which a file is kept as a large one, with a sha256 and behind a redirect to another host."""


@dataclass
class Repository:
    """Files by path; revisions: those it has besides main, with their commits."""

    files: dict[str, bytes]
    licence: str = "apache-2.0"
    gated: str | bool = False
    private: bool = False
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})


class FakeHub(ThreadingHTTPServer):
    """asked: path, Range and Authorization of each request. faults: what the next requests do instead.

    cut: bytes of the next answers with a file. Large files come from a second host, as the real Hub has it.
    """

    daemon_threads = True

    def __init__(self, storage: FakeHub | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.canonical: dict[str, str] = {}
        self.token: str | None = None
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.faults: list[Callable[[Any], None]] = []
        self.cut: list[int] = []
        self.storage = storage
        self.blobs: dict[str, bytes] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """A client that leaves is no news."""

    def add(self, repo: str, files: dict[str, bytes], **kind: Any) -> Repository:
        """A repository."""
        self.repositories[repo] = Repository(files, **kind)
        return self.repositories[repo]

    def paths(self) -> list[str]:
        """What was asked for."""
        return [path for path, *_ in self.asked]


@contextlib.contextmanager
def running() -> Iterator[FakeHub]:
    """A hub and its storage."""
    with FakeHub() as storage, FakeHub(storage) as hub:
        for server in (storage, hub):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield hub
        hub.shutdown()
        storage.shutdown()


def status(code: int, **headers: str) -> Callable[[Any], None]:
    """A fault: this status, with these headers."""

    def act(handler: _Handler) -> None:
        handler.reply(code, b"{}", {name.replace("_", "-"): value for name, value in headers.items()})

    return act


def git_blob(data: bytes) -> str:
    """Git's id of a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response_only(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        hub = self.server
        path, token = unquote(urlsplit(self.path).path), self.headers.get("Authorization")
        hub.asked.append((path, self.headers.get("Range"), token))
        if hub.faults:
            hub.faults.pop(0)(self)
            return
        if path.startswith("/blob/"):
            self._send(hub.blobs[path.removeprefix("/blob/")], {})
            return
        api = path.startswith("/api/models/")
        words = path.removeprefix("/api/models").strip("/").split("/")
        repo, revision = "/".join(words[:2]), words[3] if len(words) > 3 else "main"
        found = hub.repositories.get(repo)
        known = hub.token is not None and token == f"Bearer {hub.token}"
        if token is not None and not known:
            said = {"X-Error-Message": "Invalid credentials in Authorization header"}
            self.reply(401, b"{}", said)
            return
        if found is None or (found.private and not known):
            self.reply(404 if known else 401, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        commit = revision if revision in found.revisions.values() else found.revisions.get(revision)
        if commit is None:
            self.reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif api:
            self.reply(200, json.dumps(_listing(hub.canonical.get(repo, repo), found, commit)).encode())
        else:
            self._file(found, "/".join(words[4:]), known)

    def _file(self, found: Repository, path: str, known: bool) -> None:
        hub = self.server
        if found.gated and not known:
            self.reply(401, b"{}", {"X-Error-Code": "GatedRepo"})
        elif path not in found.files:
            self.reply(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        elif len(data := found.files[path]) < LARGE:
            self._send(data, {"ETag": f'"{git_blob(data)}"'})
        else:
            assert hub.storage is not None
            sha256 = hashlib.sha256(data).hexdigest()
            hub.storage.blobs[sha256] = data
            place = f"{hub.storage.url}/blob/{sha256}"
            linked = {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(len(data))}
            self.reply(302, b"", {"Location": place, **linked})

    def _send(self, data: bytes, headers: dict[str, str]) -> None:
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.send_response_only(206 if start else 200)
        for name, value in {"Content-Length": str(len(data) - start), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        cut = self.server.cut
        self.wfile.write(data[start:][: cut.pop(0) if cut else None])


def _listing(repo: str, found: Repository, commit: str) -> dict[str, Any]:
    siblings = []
    for path, data in found.files.items():
        entry: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": git_blob(data)}
        if len(data) >= LARGE:
            sha256 = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 134}
        siblings.append(entry)
    card = {"license": found.licence}
    return {"id": repo, "sha": commit, "gated": found.gated, "cardData": card, "siblings": siblings}
