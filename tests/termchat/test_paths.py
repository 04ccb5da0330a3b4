from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from folders import powerless
from termchat.file_locks import locked, try_lock
from termchat.files import PathError, open_private, private_folder, write_private
from termchat.paths import Paths, data_file

pytestmark = pytest.mark.usefixtures("usual_umask")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="XDG folders")
def test_the_folders_follow_xdg_and_nothing_is_created(xdg: Path) -> None:
    paths = Paths.default()
    assert paths.config_file == xdg / "config/termchat/config.toml"
    assert paths.registry_file == xdg / "config/termchat/models.toml"
    assert paths.themes == xdg / "config/termchat/themes"
    assert paths.database == xdg / "data/termchat/termchat.db"
    assert paths.models == xdg / "cache/termchat/models"
    assert paths.log_file == xdg / "state/termchat/termchat.log"
    assert list(xdg.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="XDG folders")
def test_without_a_home_nothing_is_written_beside_where_one_happens_to_be(
    xdg: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user without HOME and without an entry
    monkeypatch.chdir(xdg)
    with pytest.raises(PathError, match="no home folder; set HOME"):
        Paths.default()
    assert list(xdg.iterdir()) == []


def test_B099_folders_are_0700_and_files_0600_from_their_first_moment(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "a" / "b" / "c")
    assert [mode(p) for p in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3
    fd = open_private(folder / "new", os.O_WRONLY)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
    os.close(fd)
    write_private(folder / "text", "x")
    assert mode(folder / "text") == 0o600
    assert [p.name for p in folder.iterdir() if p.name not in ("new", "text")] == []


def test_B099_an_older_file_of_0644_is_tightened_and_a_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file = tmp_path / "old"
    file.write_text("old")
    file.chmod(0o644)
    os.close(open_private(file, os.O_RDONLY))
    assert mode(file) == 0o600
    assert mode(private_folder(tmp_path)) == 0o755


def test_B099_a_file_linked_to_dev_null_works_and_the_device_keeps_its_mode(tmp_path: Path) -> None:
    before = mode(Path("/dev/null"))
    link = tmp_path / "history"
    link.symlink_to("/dev/null")
    os.close(open_private(link, os.O_WRONLY | os.O_APPEND))
    write_private(link, "forgotten")
    assert mode(Path("/dev/null")) == before
    assert link.is_symlink()
    assert stat.S_ISCHR(link.stat().st_mode)


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    link = tmp_path / "link"
    link.symlink_to("real")
    write_private(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_private(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(file, "lone \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_folders_that_cannot_be_made_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PathError, match=r"cannot create the folder .*file/sub"):
        private_folder(tmp_path / "file" / "sub")
    with pytest.raises(PathError, match="there is a file of that name"):
        private_folder(tmp_path / "file")
    tmp_path.chmod(0o755)
    with powerless(), pytest.raises(PathError, match="Permission denied"):
        private_folder(Path("/usr/termchat-test"))


def test_one_of_two_processes_holds_the_lock_and_it_ends_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = "import sys, pathlib; from termchat.file_locks import locked\n"
    code += "with locked(pathlib.Path(sys.argv[1])):\n"
    code += "    print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    fd = open_private(lock, os.O_RDWR)
    assert not try_lock(fd)
    os.close(fd)
    waited = []
    holder.kill()  # no clean-up runs
    with locked(lock, lambda: waited.append(1)):
        assert mode(lock) == 0o600
    holder.communicate()


def test_shipped_files_are_found() -> None:
    assert data_file("models.toml").is_file()
    assert data_file("themes").is_dir()
