"""The store and its file: private, damaged, foreign, read-only, on a full disk."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from folders import digests, powerless
from programs import end, line, start
from termchat.store import Store, StoreError, StoreReadOnlyError, StoreUnavailableError
from termchat.store.errors import error_of
from termchat.store.schema import MIGRATIONS, migrate

pytestmark = pytest.mark.usefixtures("usual_umask")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


KILLED = """
import os, signal
store = Store(path)
store.get_or_create("c")
store.add_message("c", "user", "the question")
reply = store.begin_reply("c", flush_every=0)
for piece in range(50):
    reply.append(f"word{piece} ")
print("streamed", flush=True)
if sys.argv[2:] == ["now"]:
    os._exit(0)
sys.stdin.read()
"""


def test_B099_the_database_and_its_side_files_are_private_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t.db"
    code = """
import os
real = os.open
def watch(name, flags, mode=0o777, **rest):
    fd = real(name, flags, mode, **rest)
    if "t.db" in os.fspath(name):
        print(name, oct(os.fstat(fd).st_mode & 0o777), flush=True)
    return fd
os.open = watch
store = Store(path)
store.get_or_create("c")
store.begin_reply("c")
print("open", flush=True)
sys.stdin.read()
"""
    process = start(code, path)
    opened = []
    while (said := line(process)) != b"open":
        opened.append(said.decode().split())
    assert all(bits == "0o600" for _, bits in opened)
    assert opened[0][0] == str(path)
    assert mode(path.parent) == 0o700
    for suffix in ("", "-wal", "-shm"):
        assert mode(path.with_name(f"t.db{suffix}")) == 0o600
    writers = path.with_name("t.db-writers")
    assert mode(writers) == 0o700
    assert [mode(file) for file in writers.iterdir()] == [0o600]
    end(process)


def test_B099_an_existing_database_of_0644_is_tightened(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    end(start(KILLED, path, "now"))  # leaves -wal and -shm behind
    for suffix in ("", "-wal", "-shm"):
        path.with_name(f"t.db{suffix}").chmod(0o644)
    with Store(path) as store:
        for suffix in ("", "-wal", "-shm"):
            assert mode(path.with_name(f"t.db{suffix}")) == 0o600
        assert len(store.path("c")) == 2


def test_B099_a_database_linked_to_dev_null_keeps_the_devices_mode(tmp_path: Path) -> None:
    before = mode(Path("/dev/null"))
    (tmp_path / "t.db").symlink_to("/dev/null")
    with pytest.raises(StoreError, match="/dev/null is not a regular file, so nothing is saved"):
        Store(tmp_path / "t.db")
    assert mode(Path("/dev/null")) == before
    assert (tmp_path / "t.db").is_symlink()


def test_a_link_to_a_database_elsewhere_works(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "t.db"
    link.symlink_to("elsewhere/real.db")
    with Store(link) as store:
        store.get_or_create("c")
        assert (tmp_path / "elsewhere" / "real.db-wal").exists()
    assert link.is_symlink()
    link.unlink()
    link.symlink_to("gone/real.db")
    with pytest.raises(StoreError, match=r"cannot create .*gone/real\.db: No such file"):
        Store(link)


@pytest.mark.parametrize(
    "content", [b"this is no database, but long enough to be one" * 99, b"x", b"\0" * 4096]
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"t\.db is .*no database \(.*\); move it away"):
        Store(path)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE cookies(x)")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is the database of another program"):
        Store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_a_database_written_from_its_dump_is_known_by_its_tables(tmp_path: Path, version: int) -> None:
    """A dump has neither the application's number nor the schema's."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with closing(sqlite3.connect(old, isolation_level=None)) as db:
        migrate(db, MIGRATIONS[:version])
        db.execute(
            "INSERT INTO conversation(id, title, leaf_id, created, updated) VALUES ('c', 't', 1, 1, 1)"
        )
        db.execute(
            "INSERT INTO message(conversation_id, role, status, text, created) "
            "VALUES ('c', 'user', 'complete', 'hello world', 1)"
        )
    with closing(sqlite3.connect(old)) as source, closing(sqlite3.connect(new)) as target:
        source.backup(target)
        target.execute("PRAGMA application_id = 0")
        target.execute("PRAGMA user_version = 0")
        target.commit()
    for _ in range(2):
        with Store(new) as store:
            assert [each.title for each in store.list_conversations()] == ["t"]
            assert [each.text for each in store.path("c")] == ["hello world"]
            store.begin_reply("c").finish("stop")
            store.drop_reply(store.path("c")[-1].id)
    with closing(sqlite3.connect(new)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        db.execute("ALTER TABLE message ADD COLUMN more")
        db.execute("PRAGMA application_id = 0")
        db.commit()
    with pytest.raises(StoreError, match="is the database of another program"):
        Store(new)


@pytest.mark.parametrize("version", [0, 1, -1])
def test_a_schemas_number_that_its_tables_contradict_is_mended(tmp_path: Path, version: int) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.add_message(store.create_conversation("c").id, "user", "kept")
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()
    with Store(path) as store:
        assert store.notice is None
        assert [each.text for each in store.path("c")] == ["kept"]
        store.add_message("c", "user", "more")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        db.execute("ALTER TABLE message ADD COLUMN other")
        db.execute("PRAGMA user_version = -1")
        db.commit()
    with pytest.raises(StoreError, match="its tables are no version's, and it says version -1"):
        Store(path)


@pytest.mark.parametrize("how", ["deleted", "replaced", "folder"])
def test_a_database_whose_name_is_another_files_takes_nothing_more(tmp_path: Path, how: str) -> None:
    """What is written to a file without a name is gone with the program: as a program that synchronizes
    folders, a restored copy or a cleaning script may leave it. Put back it goes on.
    """
    path, aside = tmp_path / "d" / "t.db", tmp_path / "aside"
    with Store(path) as store:
        store.add_message(store.create_conversation("c").id, "user", "first")
        if how == "folder":
            path.parent.rename(aside)
        else:
            path.rename(aside)
        if how == "replaced":
            path.write_bytes(aside.read_bytes())
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="was deleted, moved or replaced while it was in"):
                store.add_message("c", "user", "lost otherwise")
        assert [each.text for each in store.path("c")] == ["first"], "reading goes on"
        aside.rename(path.parent if how == "folder" else path)
        store.add_message("c", "user", "second")
    with Store(path) as store:
        assert [each.text for each in store.path("c")] == ["first", "second"]


def test_an_error_of_reading_or_writing_says_what_may_be_its_cause() -> None:
    """SQLite has one sentence for quotas, limits of file sizes and failing disks."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    sentence = str(error_of(error, Path("t.db")))
    assert sentence.startswith("t.db cannot be read or written (disk I/O error): a quota, a limit on the")


def test_a_conversation_whose_last_message_is_gone_goes_on_from_the_newest(tmp_path: Path) -> None:
    """As a repair of a damaged database may leave it."""
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.create_conversation("c")
        store.add_message("c", "user", "one")
        store.add_message("c", "assistant", "two")
        store.create_conversation("empty")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE conversation SET leaf_id = 999")
        db.commit()
    with Store(path) as store:
        assert [each.text for each in store.path("c")] == ["one", "two"]
        store.add_message("c", "user", "three")
        assert [each.text for each in store.path("c")] == ["one", "two", "three"]
        assert store.path("empty") == []


def test_a_database_damaged_in_the_middle_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        for number in range(300):
            store.create_conversation(f"c{number}", system="s" * 500)
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xa5" * (len(content) - 8192 - 4096)
    path.write_bytes(content)

    def use() -> None:
        with Store(path) as store:
            store.list_conversations()
            store.create_conversation("new")

    with pytest.raises(StoreError, match="damaged or no database"):
        use()
    assert path.exists()


def test_rows_of_a_tampered_database_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.get_or_create("c")
        ids = [store.add_message("c", "user", str(n)).id for n in range(4)]
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE message SET parent_id = ? WHERE id = ?", (ids[3], ids[0]))  # a circle
        db.execute(
            "UPDATE message SET role = x'ff', status = 7, metrics = '[[[', created = 'x' WHERE id = ?",
            ids[1:2],
        )
        db.execute("UPDATE message SET status = 'streaming', writer = '../../t.db' WHERE id = ?", ids[2:3])
        db.execute("UPDATE message SET thinking = x'fffe00', finish_reason = CAST(x'c328' AS TEXT)")
        db.execute("UPDATE conversation SET params = '7', title = CAST(x'ff41' AS TEXT), created = 'x'")
        db.commit()
    with Store(path) as store:
        messages = store.path("c")
        assert [m.text for m in messages] == ["0", "1", "2", "3"]
        assert (messages[1].role, messages[1].status, messages[1].metrics) == ("user", "error", {})
        assert messages[2].status == "interrupted"
        assert store.conversation("c").title == "\ufffdA"
        assert store.select(ids[0]) in ids
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE conversation SET leaf_id = 'x'")
            db.commit()
        assert [m.text for m in store.path("c")] == ["0", "1", "2", "3"]
    assert path.exists()


def test_a_full_disk_is_one_sentence_and_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as store:
        store.get_or_create("c")
        store.add_message("c", "user", "saved")
        pages = store.database.query("PRAGMA page_count")[0][0]
        store.database.query(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="the disk is full"):
            store.add_message("c", "user", "x" * 100_000)
        assert [m.text for m in store.path("c")] == ["saved"]
        store.database.query("PRAGMA max_page_count = 1000000")
        store.add_message("c", "user", "again")
        assert len(store.path("c")) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    path = tmp_path / "t.db"
    if os.geteuid() != 0:
        tmp_path.chmod(0o555)
    missing = {path: r"cannot create .*t\.db", tmp_path / "sub" / "t.db": "cannot create the folder .*sub"}
    for place, said in missing.items():
        with powerless(), Store(place) as store:
            assert store.list_conversations() == []
            assert re.fullmatch(f"{said}: Permission denied, so nothing is saved", store.notice or "")
            with pytest.raises(StoreReadOnlyError, match=said):
                store.create_conversation("c")
        assert not place.exists()
    tmp_path.chmod(0o755)
    with Store(path) as store:
        store.get_or_create("c")
        store.add_message("c", "user", "to be read")
    path.chmod(0o444)
    if os.geteuid() == 0:
        tmp_path.chmod(0o755)
    else:
        tmp_path.chmod(0o555)
    before = digests(tmp_path)
    with powerless(), Store(path) as store:
        assert store.notice is not None
        assert "cannot be written, so nothing is saved" in store.notice
        assert [m.text for m in store.path("c")] == ["to be read"]
        with pytest.raises(StoreReadOnlyError, match="cannot be written"):
            store.add_message("c", "user", "x")
    tmp_path.chmod(0o755)
    assert digests(tmp_path) == before


def test_the_store_is_light_to_import() -> None:
    code = "import sys, termchat.store, termchat.registry, termchat.config, termchat.logs, termchat.paths\n"
    code += (
        "heavy = {'torch', 'textual', 'numpy', 'huggingface_hub', 'pip', 'http.client', 'click', 'tomlkit'}\n"
    )
    code += "print(sorted(heavy & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"[]\n"
