"""Bringing a registered model here: from wheels by way of pip, from a hub, by many processes at once."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import random
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from termchat.download import DownloadError, Progress, ensure
from termchat.download.part import Remote
from termchat.model_entry import HuggingFaceSource, LocalSource, ModelEntry, PyPISource, Source
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.registry_errors import NotDownloadedError

DATA = random.Random(11).randbytes(400_000)
SHA = hashlib.sha256(DATA).hexdigest()
PYPI = PyPISource("tiny-model==1.0", "tiny_model/m.gguf")
HUB = HuggingFaceSource("owner/repo", "m.gguf", "v1")


class Site(ThreadingHTTPServer):
    """A hub and a package index. `files`: path -> bytes; `cut`: bytes sent of the first answers to a path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cut: dict[str, list[int]] = {}
        self.password: str | None = None
        self.seen: list[tuple[str, str | None, str | None]] = []  # path, range, authorization
        self.port = self.server_address[1]

    def handle_error(self, *args: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: Site

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        site = self.server
        asked, authorization = self.headers.get("Range"), self.headers.get("Authorization")
        site.seen.append((self.path, asked, authorization))
        if site.password is not None and authorization != site.password:
            self.send_error(401)
            return
        content = site.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header(
            "Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream"
        )
        self.send_header("ETag", '"x"')
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cuts = site.cut.get(self.path, [])
        self.wfile.write(content[start:][: cuts.pop(0) if cuts else None])


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with Site() as running:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{running.port}/simple")
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.port}/")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "config", tmp_path / "data", tmp_path / "cache", tmp_path / "state")


def registry_of(paths: Paths, *sources: Source, **known: Any) -> Registry:
    entry = ModelEntry("tiny", sources, **{"sha256": SHA, "size": len(DATA), **known})
    return Registry({"tiny": entry}, "tiny", paths.models)


def wheel(folder: Path, member: str = "tiny_model/m.gguf", data: bytes = DATA) -> Path:
    info = "tiny_model-1.0.dist-info"
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
                         "Requires-Dist: something-nobody-wants\n")  # fmt: skip
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr(member, data)
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('code of the package was run')")
    return path


def publish(site: Site, file: Path) -> str:
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    page = f'<html><body><a href="/files/{file.name}#sha256={digest}">{file.name}</a></body></html>'
    site.files["/simple/tiny-model/"] = page.encode()
    site.files[f"/files/{file.name}"] = content
    return f"/files/{file.name}"


def left(paths: Paths) -> list[str]:
    return sorted(str(file.relative_to(paths.models)) for file in paths.models.rglob("*") if file.is_file())


@pytest.mark.slow
def test_a_model_in_a_wheel_comes_by_the_users_index(site: Site, paths: Paths, tmp_path: Path) -> None:
    publish(site, wheel(tmp_path))
    events: list[Progress] = []
    path = ensure(registry_of(paths, PYPI), "tiny", events.append)
    assert path == paths.models / "tiny" / "m.gguf"
    assert path.read_bytes() == DATA
    assert left(paths) == ["tiny/.lock", "tiny/m.gguf"]
    phases = list(dict.fromkeys(event.phase for event in events))
    assert phases == ["resolve", "download", "verify", "unpack"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    seen = len(site.seen)
    assert ensure(registry_of(paths, PYPI), "tiny") == path
    assert len(site.seen) == seen  # what is here is not asked for again


@pytest.mark.slow
def test_a_wheel_in_a_folder_works_too(
    site: Site, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wheels with blank"
    folder.mkdir()
    wheel(folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    assert ensure(registry_of(paths, PYPI), "tiny").read_bytes() == DATA
    assert [file.name for file in folder.iterdir()] == ["tiny_model-1.0-py3-none-any.whl"]
    assert site.seen == []


@pytest.mark.slow
def test_a_run_that_was_ended_while_it_unpacked_goes_on_with_the_wheel(
    site: Site, paths: Paths, tmp_path: Path
) -> None:
    publish(site, wheel(tmp_path))

    def stop(progress: Progress) -> None:
        if progress.phase == "unpack":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(registry_of(paths, PYPI), "tiny", stop)
    assert left(paths) == ["tiny/.lock", "tiny/tiny-model==1.0.whl"]
    seen = len(site.seen)
    assert ensure(registry_of(paths, PYPI), "tiny").read_bytes() == DATA
    assert len(site.seen) == seen
    assert left(paths) == ["tiny/.lock", "tiny/m.gguf"]


@pytest.mark.slow
def test_pip_itself_fetches_what_needs_the_indexs_password(
    site: Site, paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(site, wheel(tmp_path))
    site.password = "Basic " + base64.b64encode(b"user:word").decode()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:word@127.0.0.1:{site.port}/simple")
    assert ensure(registry_of(paths, PYPI), "tiny").read_bytes() == DATA
    assert left(paths) == ["tiny/.lock", "tiny/m.gguf"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"member": "tiny_model/other.gguf"}, "holds no file tiny_model/m.gguf"),
        ({"data": DATA[:-1] + b"?"}, f"not {SHA}; the file is deleted"),
        ({"data": DATA[:-1]}, "has 399999 bytes, not the 400000 expected"),
    ],
)
def test_a_wheel_with_something_else_in_it(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr("termchat.download.model.wheel_remote", lambda *_: _remote(wheel(tmp_path, **change)))
    with pytest.raises(DownloadError, match=said):
        ensure(registry_of(paths, PYPI), "tiny")
    assert left(paths) == ["tiny/.lock"]


def test_a_damaged_wheel_is_one_sentence(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.whl"
    monkeypatch.setattr("termchat.download.model.wheel_remote", lambda *_: _remote(broken))
    content = bytearray(wheel(tmp_path).read_bytes())
    at = content.index(DATA[:100]) + 1000 if DATA[:100] in content else len(content) // 2
    content[at] ^= 255
    for data in (bytes(content), b"no zip at all", b""):
        broken.write_bytes(data)
        with pytest.raises(DownloadError) as caught:
            ensure(registry_of(paths, PYPI), "tiny")
        assert "\n" not in str(caught.value)
        assert left(paths) == ["tiny/.lock"]


def _remote(file: Path) -> Remote:
    return Remote(file.as_uri())


def test_a_source_package_is_never_run(site: Site, paths: Paths, tmp_path: Path) -> None:
    setup = tmp_path / "setup.py"
    setup.write_text(f"open({str(tmp_path / 'RUN')!r}, 'w')")
    package = tmp_path / "tiny_model-1.0.tar.gz"
    with tarfile.open(package, "w:gz") as archive:
        archive.add(setup, "tiny_model-1.0/setup.py")
    publish(site, package)
    with pytest.raises(DownloadError, match="pip install failed: No matching distribution"):
        ensure(registry_of(paths, PYPI), "tiny")
    assert not (tmp_path / "RUN").exists()


@pytest.mark.slow
def test_the_next_source_is_tried(site: Site, paths: Paths) -> None:
    site.files["/owner/repo/resolve/v1/m.gguf"] = DATA
    assert ensure(registry_of(paths, PYPI, HUB), "tiny").read_bytes() == DATA


def test_all_problems_are_said_in_one_sentence(site: Site, paths: Paths) -> None:
    with pytest.raises(DownloadError) as caught:
        ensure(registry_of(paths, HUB, HuggingFaceSource("owner/other", "m.gguf")), "tiny")
    text = str(caught.value)
    assert text.startswith(
        "cannot download the model tiny. Hugging Face owner/repo, m.gguf: http://127.0.0.1:"
    )
    assert "Hugging Face owner/other, m.gguf: " in text
    assert text.count("answered 404") == 2
    assert "\n" not in text


@pytest.mark.slow
def test_the_hub_gets_the_users_token_and_resumes(
    site: Site, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    address = "/owner/repo/resolve/v1/m.gguf"
    site.files[address] = DATA
    site.cut[address] = [150_000]
    ensure(registry_of(paths, HUB), "tiny")
    assert site.seen == [
        (address, None, "Bearer hf_secret"),
        (address, "bytes=150000-", "Bearer hf_secret"),
    ]


def test_an_offline_hub_is_not_asked(site: Site, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE is set"):
        ensure(registry_of(paths, HUB), "tiny")
    assert site.seen == []


def test_a_file_of_another_size_is_replaced(site: Site, paths: Paths) -> None:
    site.files["/owner/repo/resolve/v1/m.gguf"] = DATA
    old = paths.models / "tiny" / "m.gguf"
    old.parent.mkdir(parents=True)
    old.write_bytes(DATA[:1000])
    assert ensure(registry_of(paths, HUB), "tiny").read_bytes() == DATA


def test_a_missing_file_of_the_users_own_is_not_downloaded(paths: Paths, tmp_path: Path) -> None:
    with pytest.raises(NotDownloadedError, match=r"is not at .*gone\.gguf"):
        ensure(registry_of(paths, LocalSource(tmp_path / "gone.gguf")), "tiny")


@pytest.mark.slow
def test_eight_processes_that_want_it_at_once_fetch_it_once(site: Site, paths: Paths) -> None:
    address = "/owner/repo/resolve/v1/m.gguf"
    site.files[address] = DATA
    site.cut[address] = [100_000, 100_000]
    code = (
        "import sys, json, pathlib; from termchat.registry import Registry\n"
        "from termchat.model_entry import HuggingFaceSource, ModelEntry\n"
        "from termchat.download import ensure\n"
        "models, sha, size = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
        "source = HuggingFaceSource('owner/repo', 'm.gguf', 'v1')\n"
        "entry = ModelEntry('tiny', (source,), sha256=sha, size=size)\n"
        "phases = []\n"
        "registry = Registry({'tiny': entry}, 'tiny', pathlib.Path(models))\n"
        "path = ensure(registry, 'tiny', lambda progress: phases.append(progress.phase))\n"
        "assert path.read_bytes() and path.stat().st_size == size\n"
        "print(json.dumps(sorted(set(phases))))"
    )
    command = [sys.executable, "-c", code, str(paths.models), SHA, str(len(DATA))]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
    results = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0] * 8, results
    assert (paths.models / "tiny" / "m.gguf").read_bytes() == DATA
    assert [asked for _, asked, _ in site.seen] == [None, "bytes=100000-", "bytes=200000-"]
    downloaded = [phases for phases in (json.loads(out) for out, _ in results) if "download" in phases]
    assert len(downloaded) == 1
    assert left(paths) == ["tiny/.lock", "tiny/m.gguf"]


def test_the_folder_cannot_be_written(paths: Paths) -> None:
    blocked = dataclasses.replace(paths, cache=Path("/dev/null/cache"))
    with pytest.raises(Exception, match="cannot create the folder /dev/null/cache/models/tiny"):
        ensure(registry_of(blocked, HUB), "tiny")
