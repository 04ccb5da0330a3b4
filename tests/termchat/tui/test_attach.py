"""What a text mentions, and what goes along with it."""

import os
from pathlib import Path
from typing import Any

import pytest

from termchat.tui.conversations.attachments import LARGEST, AttachError, block, gather, mentions, read
from termchat.tui.conversations.origin import all_from


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "notes.txt",
        "a b.txt",
        "a,b.txt",
        "日記.md",
        "src/main.py",
        "README",
        "x.tar.gz",
        "it's.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"xyzzy of {name}", encoding="utf-8")
    return tmp_path


def typed(text: str, folder: Path) -> dict[str, bool]:
    """What is mentioned, and whether it is there."""
    return {each.name: each.path is not None for each in mentions(text, all_from("typed", len(text)), folder)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Summarize @notes.txt, please", "notes.txt"),
        ("Read @notes.txt.", "notes.txt"),
        ("See (@notes.txt)", "notes.txt"),
        ("See (@notes.txt).", "notes.txt"),
        ("@notes.txt: what is it?", "notes.txt"),
        ("@notes.txt", "notes.txt"),
        ("@./notes.txt!", "./notes.txt"),
        ("**@notes.txt**", "notes.txt"),
        ("“@notes.txt”", "notes.txt"),
        ("[@notes.txt](x)", "notes.txt"),
        ("@notes.txt's end", "notes.txt"),
        ("look:\n\t@notes.txt…", "notes.txt"),
        ("@notes.txt,please", "notes.txt"),
        ("@notes.txt:12", "notes.txt"),
        ("请看@notes.txt。谢谢", "notes.txt"),
        ("@日記.mdを読んで", "日記.md"),
        ('"@a b.txt"', "a b.txt"),
        ('@"a b.txt", and', "a b.txt"),
        ("'@a b.txt'", "a b.txt"),
        ("@a\\ b.txt?", "a\\ b.txt"),
        ("@a,b.txt", "a,b.txt"),
        ("@a,b.txt,", "a,b.txt"),
        ("@it's.txt", "it's.txt"),
        ("@src/main.py:3:7 is wrong", "src/main.py"),
        ("@README", "README"),
        ("@README.", "README"),
        ("@x.tar.gz", "x.tar.gz"),
    ],
)
def test_N017_a_mention_ends_where_its_file_does(folder: Path, text: str, name: str) -> None:
    assert typed(text, folder) == {name: True}


def test_N017_several_mentions_in_one_text(folder: Path) -> None:
    text = "@notes.txt,@README; @notes.txt and @src/main.py"
    assert typed(text, folder) == {"notes.txt": True, "README": True, "src/main.py": True}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("What is in @/x/nope.txt", "/x/nope.txt"),
        ("@missing.txt, please", "missing.txt"),
        ("(@missing.md)", "missing.md"),
        ("@notes.txt.bak", "notes.txt.bak"),
        ("@src/gone", "src/gone"),
        ("@Docs/LICENSE", "Docs/LICENSE"),
        ("@~/nothing-here", "~/nothing-here"),
        ("hello @~nosuch", "~nosuch"),
        ("@~nosuch/x", "~nosuch/x"),
        ('@"no such file"', "no such file"),
        ("@data.parquet", "data.parquet"),
        ("@" + "x" * 190 + ".txt", "x" * 190 + ".txt"),
        ("@a\0b.txt", "a\0b.txt"),
    ],
)
def test_N017_what_looks_like_a_path_and_is_none_is_told(folder: Path, text: str, name: str) -> None:
    assert typed(text, folder) == {name: False}
    files = gather(text, all_from("typed", len(text)), folder)
    assert (files.going, files.problems) == ([], [f"there is no file {name}"])


@pytest.mark.parametrize(
    "text",
    [
        "write to someone@notes.txt and a.b+c@example.org",
        "ask @someone, @Someone-Else or @日本",
        "git clone git@github.com:owner/repo.git; scp user@host:/etc/x.txt .",
        "npm i @scope/pkg @types/node @babel/core@7.1.2 @a/b.",
        '@property\n@app.route("/x.txt")\n@pytest.mark.parametrize(("a"), [])\n@functools.cache',
        "@user@mastodon.social, @john.smith, @3.5, @ 5pm, @, @@, @... @. @/ @.. /@",
        "see @https://example.org/a.txt",
        "a,@",
    ],
)
def test_N017_addresses_names_packages_and_decorators_are_text(folder: Path, text: str) -> None:
    assert typed(text, folder) == {}


def test_N018_only_what_was_typed_goes_along(folder: Path) -> None:
    text = "log @notes.txt end @README"
    origins = all_from("pasted", 19) + all_from("typed", len(text) - 19)
    files = gather(text, origins, folder)
    assert [each.name for each in files.going] == ["README"]
    assert (files.problems, files.asked) == ([], [])
    assert files.notes == [
        "@notes.txt stands in pasted text, so the file does not go along; a mention that is typed attaches it"
    ]
    both = gather(f"{text} @notes.txt", origins + all_from("typed", 11), folder)
    assert [each.name for each in both.going] == ["README", "notes.txt"]
    assert both.notes == []


def test_N018_a_typed_sign_before_a_pasted_path_attaches(folder: Path) -> None:
    assert gather("@notes.txt", b"t" + all_from("pasted", 9), folder).going


def test_N018_what_was_put_back_is_asked_for_and_not_doubled(folder: Path) -> None:
    text = "see @notes.txt"
    files = gather(text, all_from("back", len(text)), folder)
    assert files.asked == ["notes.txt"]
    sent = files.added(text)
    assert sent == "see @notes.txt\n\n```notes.txt\nxyzzy of notes.txt\n```"
    again = gather(sent, all_from("back", len(sent)), folder)
    assert (again.going, again.problems, again.asked) == ([], [], [])
    (folder / "notes.txt").unlink()  # it is in the message all the same
    assert gather(sent, all_from("back", len(sent)), folder).problems == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("é\r\nx".encode("utf-8-sig"), "é\r\nx"),
        ("é x".encode("utf-16"), "é x"),
        (b"\xfe\xff" + "é x".encode("utf-16-be"), "é x"),
        (b"\xff\xfe\0\0" + "é x".encode("utf-32-le"), "é x"),
        (b"\xef\xbb\xbf", ""),
        (b"", ""),
    ],
)
def test_N019_an_attached_file_holds_no_byte_order_mark(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "f.txt").write_bytes(data)
    assert read(tmp_path / "f.txt").text == text


def test_bytes_that_are_no_utf8_are_told(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    files = gather("@latin.txt", all_from("typed", 10), tmp_path)
    assert files.going[0].text == "caf\ufffd"
    assert files.notes == ["latin.txt is no UTF-8: some of its characters went as \ufffd"]


def test_what_cannot_go_along_is_one_sentence_each(tmp_path: Path, monkeypatch: Any) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "docs").mkdir()
    (tmp_path / "bin.txt").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "half.txt").write_bytes(b"\xff\xfea")  # UTF-16 that ends in the middle
    (tmp_path / "huge.txt").write_bytes(b"x" * (LARGEST + 1))
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.4\n1 0 obj\n" + b"x" * LARGEST)
    (tmp_path / "tar.gz").write_bytes(b"\x1f\x8b\x08" + bytes(9))
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "lost.txt").symlink_to("gone/notes.txt")
    (tmp_path / "wide.txt").write_bytes("notes".encode("utf-16-le"))
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    said = {
        "pipe.txt": "is no file with text but a pipe",
        "docs": "is a folder; name a file in it",
        "bin.txt": "is no text file but a program",
        "paper.pdf": "is no text file but a PDF document; make a text of it first (pdftotext does)",
        "tar.gz": "is no text file but a gzip archive; unpack it first",
        "huge.txt": f"has more than {LARGEST} bytes; attach a part of it",
        "zero.txt": "is no file with text but a device",
        "loop.txt": "loop.txt is a link to loop.txt, which is not there",
        "lost.txt": "lost.txt is a link to gone/notes.txt, which is not there",
        "wide.txt": "is no text file, or UTF-16 without a byte order mark",
        "none.txt": "there is no file none.txt",
    }
    for name, sentence in said.items():
        files = gather(f"@{name}", all_from("typed", len(name) + 1), tmp_path)
        assert files.going == []
        assert len(files.problems) == 1
        assert sentence in files.problems[0]
    assert read(tmp_path / "half.txt").odd

    def refuse(*args: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AttachError, match=r"cannot read .*bin.txt: Permission denied"):
        read(tmp_path / "bin.txt")


def test_many_files_have_a_limit_together(tmp_path: Path) -> None:
    names = [f"{number}.txt" for number in range(5)]
    for name in names:
        (tmp_path / name).write_bytes(b"x" * LARGEST)
    text = " ".join(f"@{name}" for name in names)
    assert "together; attach fewer" in gather(text, all_from("typed", len(text)), tmp_path).problems[0]


def test_a_hostile_text_costs_little(tmp_path: Path, monkeypatch: Any) -> None:
    looks = 0
    stat = Path.stat

    def count(self: Path, **kwargs: Any) -> os.stat_result:
        nonlocal looks
        looks += 1
        return stat(self, **kwargs)

    monkeypatch.setattr(Path, "stat", count)
    text = "@" + "a,." * 50_000
    files = gather(text, all_from("typed", len(text)), tmp_path)
    assert len(files.problems) == 1
    assert len(files.problems[0]) < 300
    assert looks < 1000


def test_a_name_cannot_break_out_of_its_fence(tmp_path: Path) -> None:
    path = tmp_path / "a```b\n```.txt"
    path.write_text("```\nx", encoding="utf-8")
    assert block(read(path)) == "````a'''b '''.txt\n```\nx\n````"


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("old/a.py", "new/a.py", "b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}")
    text = "Compare @old/a.py with @new/a.py and @b.py"
    files = gather(text, all_from("typed", len(text)), tmp_path)
    assert [(each.name, each.text) for each in files.going] == [
        *(("old/a.py", "# old/a.py"), ("new/a.py", "# new/a.py"), ("b.py", "# b.py"))
    ]
    sent = files.added(text)
    assert gather(sent, all_from("back", len(sent)), tmp_path).going == []
    text = "@old/a.py and @./old/a.py and @old/../old/a.py"
    assert [each.name for each in gather(text, all_from("typed", len(text)), tmp_path).going] == ["a.py"]
