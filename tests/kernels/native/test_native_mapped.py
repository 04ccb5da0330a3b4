"""Files that are cut short while they are mapped."""

from __future__ import annotations

import mmap
from pathlib import Path

from kernels.native.mapped import MappedFiles


def mapped(path: Path) -> mmap.mmap:
    path.write_bytes(b"x" * 2 * mmap.PAGESIZE)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def test_what_a_file_no_longer_has_reads_as_zeros_and_is_told(tmp_path: Path) -> None:
    mapping = mapped(tmp_path / "file")
    files = MappedFiles([mapping])
    (tmp_path / "file").write_bytes(b"y")
    assert not files.lost
    assert (mapping[0], mapping[mmap.PAGESIZE]) == (ord("y"), 0)
    assert files.lost


def test_what_another_file_has_lost_is_not_told_of_one_that_was_mapped_before(tmp_path: Path) -> None:
    before = mapped(tmp_path / "before")
    files = MappedFiles([before])
    del before
    after = mapped(tmp_path / "after")
    others = MappedFiles([after])
    (tmp_path / "after").write_bytes(b"")
    assert after[0] == 0
    assert (files.lost, others.lost) == (False, True)
