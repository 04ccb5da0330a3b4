"""The user's files as editors, file systems and other programs leave them."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from pathlib import Path

import pytest

from termchat import file_locks, files
from termchat.config import Config, ConfigError, set_value
from termchat.errors import shown
from termchat.file_locks import locked, try_lock
from termchat.files import (
    TextError,
    TomlError,
    decode,
    lost_link,
    open_private,
    parse_toml,
    read_text,
    write_private,
)
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.registry_errors import UnknownModelError
from termchat.registry_file import read_registries
from termchat.removal import remove
from termchat.themes import load_themes
from termchat.tui.conversations import attachments

SETTINGS = '[sampling]\r\ntemperature = 0.0\r\n\r\n[ui]\r\ntheme = "dusk" # ü\r\n'
MODELS = '[[models.mine.sources]]\r\npath = "own.gguf"\r\n'
THEME = """\
name = "mine"
dark = true
[colors]
primary = "#4477aa"
foreground = "#eeeeee"
background = "#111111"
"""
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_N019_files_with_a_byte_order_mark_are_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "config.toml").write_bytes(SETTINGS.encode(encoding))
    (tmp_path / "models.toml").write_bytes(MODELS.encode(encoding))
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "mine.toml").write_bytes(THEME.encode(encoding))
    config = Config.load(tmp_path / "config.toml")
    assert config.warnings == ()
    assert config.sampling == {"temperature": 0.0}
    found = read_registries(tmp_path / "models.toml", tmp_path / "absent.toml")
    assert list(found.entries) == ["mine"]
    themes, problems = load_themes([tmp_path / "themes"])
    assert (list(themes), problems) == (["mine"], [])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_N019_a_setting_is_written_in_the_form_the_file_has(tmp_path: Path, encoding: str) -> None:
    real, file = tmp_path / "real.toml", tmp_path / "config.toml"
    real.write_bytes(SETTINGS.encode(encoding))
    file.symlink_to(real)
    set_value(file, "ui.theme", "paper")
    set_value(file, "keys.quit", "ctrl+x")
    assert file.is_symlink()
    text = SETTINGS.replace("dusk", "paper") + '\r\n[keys]\r\nquit = "ctrl+x"\r\n'
    assert real.read_bytes() == text.encode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_N019_an_attached_file_has_no_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "notes.txt").write_bytes("grün\r\n".encode(encoding))
    assert attachments.read(tmp_path / "notes.txt").text.rstrip() == "grün"
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0\xff")
    with pytest.raises(attachments.AttachError, match="is no text file"):
        attachments.read(tmp_path / "binary")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a\nb\xe9", "is not UTF-8: wrong byte 0xe9 in line 2"),
        (b"\xef\xbb\xbfa\r\nb\r\n\xff", "is not UTF-8: wrong byte 0xff in line 3"),
        (b"\xff\xfea\0\n\0b", "is not UTF-16: wrong byte 0x62 in line 2"),
    ],
)
def test_what_is_no_text_is_told_by_line(tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(data)
    with pytest.raises(TextError, match=said):
        read_text(file)
    assert Config.load(file).warnings == (f"{file} {said}; defaults are used",)
    with pytest.raises(ConfigError, match=said):
        set_value(file, "model", "x")
    assert file.read_bytes() == data


def test_a_byte_order_mark_inside_a_text_is_a_character() -> None:
    assert decode(b"\xef\xbb\xbfa\xef\xbb\xbf").text == "a\ufeff"
    assert decode(b"").text == ""


def test_what_cannot_be_read_to_its_end_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    os.mkfifo(file)
    assert Config.load(file).warnings == (f"cannot read {file}: it is no regular file; defaults are used",)
    file.unlink()
    file.symlink_to("/dev/zero")
    assert "it has more than" in Config.load(file).warnings[0]
    file.unlink()
    file.symlink_to("/dev/null")
    assert Config.load(file).warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 20_000,
        "a = " + "{b=" * 20_000,
        "a = " + "[" * 20_000 + "]" * 20_000,
        "a = " + "9" * 5000,
    ],
)
def test_hostile_toml_is_a_sentence_everywhere(tmp_path: Path, text: str) -> None:
    with pytest.raises(TomlError):
        parse_toml(text)
    file = tmp_path / "x.toml"
    file.write_text(text)
    (warning,) = Config.load(file).warnings
    assert len(warning) < len(str(file)) + 200
    (warning,) = read_registries(file, tmp_path / "absent").warnings[:1]
    assert len(warning) < len(str(file)) + 200
    with pytest.raises(ConfigError, match="is not valid TOML"):
        set_value(file, "model", "x")
    assert file.read_text() == text


def test_values_are_shown_cut(tmp_path: Path) -> None:
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    assert len(shown(deep)) < 100
    assert len(shown("x" * 10_000)) < 100
    file = tmp_path / "config.toml"
    file.write_text(
        f"{'k' * 5000} = 1\nmodel = [{', '.join(['1'] * 5000)}]\n[ui]\ntheme = {'[' * 300}{']' * 300}\n"
    )
    assert all(len(warning) < len(str(file)) + 300 for warning in Config.load(file).warnings)


def test_a_home_folder_of_nobody_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[[models.mine.sources]]\npath = "~nosuchuser/x.gguf"\n')
    assert read_registries(file, tmp_path / "absent").entries["mine"].sources
    registry = Registry({}, "", tmp_path)
    with pytest.raises(files.UserError, match="no model file or folder ~nosuchuser/x"):
        registry.resolve("~nosuchuser/x")


@pytest.fixture(params=[errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)
    file_locks._tell_once.cache_clear()


def test_N022_without_locks_settings_are_written(
    no_locks: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            set_value(tmp_path / "config.toml", "sampling.seed", number)
    assert Config.load(tmp_path / "config.toml").sampling == {"seed": 2}
    assert [record.message for record in caplog.records] == [caplog.records[0].message]
    assert "two programs at once are not kept apart" in caplog.text


def test_N022_without_locks_a_model_is_removed(no_locks: None, tmp_path: Path) -> None:
    paths = Paths(*(tmp_path / name for name in ("config", "data", "cache", "state")))
    registry = Registry.load(paths)
    folder = paths.models / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "m.gguf.part").write_bytes(b"abc")
    assert remove(registry, "smollm2-135m") == 3


def test_N022_a_writer_whose_lock_cannot_be_seen_counts_as_alive(no_locks: None, tmp_path: Path) -> None:
    from termchat.store.writers import Writer, is_alive, sweep

    writer = Writer(tmp_path)
    assert is_alive(tmp_path, writer.name)
    sweep(tmp_path)
    assert is_alive(tmp_path, writer.name)
    name = writer.name
    writer.close()
    assert not is_alive(tmp_path, name)


def test_a_lock_that_somebody_has_is_not_taken(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), open(tmp_path / "lock", "rb+") as other:
        assert not try_lock(other.fileno())


def test_file_systems_without_modes_and_syncs_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    for name in ("fsync", "fchmod", "fchown"):
        monkeypatch.setattr(os, name, refuse)
    file = tmp_path / "f"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    os.close(files.open_private(file, os.O_RDWR))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_link_to_nothing_is_told_from_no_file(tmp_path: Path) -> None:
    """Settings that lie in a folder which is not mounted must not be passed over without a word."""
    link = tmp_path / "config.toml"
    assert lost_link(link) == ""
    link.symlink_to("gone/config.toml")
    assert lost_link(link) == "is a link to gone/config.toml, which is not there"
    assert Config.load(link).warnings == (f"{link} {lost_link(link)}; defaults are used",)
    models = tmp_path / "models.toml"
    models.symlink_to(tmp_path / "gone.toml")
    registry = Registry.load(Paths(tmp_path, tmp_path, tmp_path, tmp_path))
    assert f"{models} is a link to {tmp_path / 'gone.toml'}, which is not there" in registry.warnings
    model = tmp_path / "m.gguf"
    model.symlink_to("n.gguf")
    with pytest.raises(UnknownModelError, match=r"m\.gguf: it is a link to n\.gguf, which is not there"):
        registry.resolve(str(model))
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "config.toml").write_text("")
    assert lost_link(link) == ""


def test_a_pipe_in_place_of_a_file_of_ours_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Nobody reads it, so opening it to write would not come back."""
    pipe = tmp_path / "termchat.log"
    os.mkfifo(pipe)
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR):
        with pytest.raises(OSError, match=r"no regular file|No such device"):
            open_private(pipe, flags)
    with pytest.raises(OSError, match="no regular file"), locked(pipe):
        pass
    fd = open_private(tmp_path / "file", os.O_RDWR)
    assert os.get_blocking(fd)
    os.close(fd)
