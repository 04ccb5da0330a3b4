"""Files that a user names: ordinary ones, pipes of the shell, descriptors; and what is none."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from termchat.constraints import ConstraintError, constraint_of, schema_of
from termchat.files import TextError
from termchat.given_file import is_read_once, read_given

SCHEMA = '{"type": "integer"}'


def by_pipe(folder: Path, data: bytes) -> str:
    """As process substitution does it: <(...)."""
    source, target = os.pipe()
    os.write(target, data)
    os.close(target)
    return f"/dev/fd/{source}"


def by_socket(folder: Path, data: bytes) -> str:
    here, there = socket.socketpair()
    there.sendall(data)
    there.close()
    return f"/dev/fd/{here.detach()}"


def by_fifo(folder: Path, data: bytes) -> str:
    """A named pipe, whose writer comes late and writes in pieces."""
    os.mkfifo(path := folder / "fifo")

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for byte in data:
                file.write(bytes([byte]))

    threading.Thread(target=write, daemon=True).start()
    return str(path)


def by_file(folder: Path, data: bytes) -> str:
    (folder / "file").write_bytes(data)
    return str(folder / "file")


def test_a_dash_is_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other programs have it, whatever lies in the folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text("another")
    kept, given = os.dup(0), os.open(by_file(tmp_path, SCHEMA.encode()), os.O_RDONLY)
    os.dup2(given, 0)
    try:
        assert is_read_once("-")
        assert constraint_of({"schema": "-"}, read_given) == {"schema": SCHEMA}
        with pytest.raises(ConstraintError, match="no schema is called '-'"):
            constraint_of({"schema": "-"}, None)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(given)


@pytest.mark.parametrize("given", [by_pipe, by_socket, by_fifo, by_file])
def test_what_a_user_names_is_read_to_its_end_whatever_it_is(
    given: Callable[[Path, bytes], str], tmp_path: Path
) -> None:
    name = given(tmp_path, "\ufeff".encode() + SCHEMA.encode())
    assert constraint_of({"schema": name}, read_given) == {"schema": SCHEMA}


@pytest.mark.parametrize("given", [by_pipe, by_fifo, by_file])
def test_no_more_is_read_than_is_allowed(given: Callable[[Path, bytes], str], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it has more than 9 bytes"):
        read_given(given(tmp_path, b"x" * 10), 9)


def test_what_has_no_end_or_no_text_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for name, says in (
        ("/dev/zero", "/dev/zero cannot be read: it has more than 1048576 bytes"),
        (f"{tmp_path}/", "cannot be read: Is a directory"),
        ("/dev/fd/999999", "/dev/fd/999999 cannot be read: Bad file descriptor"),
        (by_pipe(tmp_path, b"\xff\xfe\xff"), "is not UTF-16"),
    ):
        with pytest.raises(ConstraintError, match=says):
            schema_of(name, read_given)
    with pytest.raises(TextError, match="wrong byte 0xff in line 1"):
        read_given(by_pipe(tmp_path, b"\xffab"), 9)


def test_the_next_reader_of_a_descriptor_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    with open(by_file(tmp_path, SCHEMA.encode()), "rb") as file:
        assert read_given(f"/dev/fd/{file.fileno()}", 100).text == SCHEMA
        assert os.read(file.fileno(), 10) == b""  # a prompt on the same standard input is not the schema


def test_what_is_open_already_is_read_once_even_if_it_is_a_file(tmp_path: Path) -> None:
    with open(by_file(tmp_path, b"x"), "rb") as file:
        assert is_read_once(f"/dev/fd/{file.fileno()}")
        assert not is_read_once(file.name)
    os.mkfifo(tmp_path / "fifo")
    assert is_read_once(tmp_path / "fifo")
    assert not is_read_once(tmp_path)
    assert not is_read_once(tmp_path / "no")


def test_a_pipe_that_somebody_made_non_blocking_is_waited_for(tmp_path: Path) -> None:
    source, target = os.pipe()
    os.set_blocking(source, False)
    threading.Timer(0.05, lambda: (os.write(target, b"late"), os.close(target))).start()
    assert read_given(f"/dev/fd/{source}", 10).text == "late"
    os.close(source)


def test_a_fifo_is_a_file_by_any_name_and_who_must_not_wait_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("form")
    with pytest.raises(ConstraintError, match="form cannot be read: it is no regular file"):
        schema_of("form")  # the full screen
