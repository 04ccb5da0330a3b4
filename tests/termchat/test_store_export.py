from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from termchat.messages import StoredConversation
from termchat.store import (
    NotFoundError,
    Store,
    StoreError,
    conversation_as_dict,
    export,
    export_file,
    import_parsed,
    parse_export,
)


def import_json(store, document):
    return import_parsed(store, parse_export(document))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "t.db") as opened:
        yield opened


@pytest.fixture
def name(store: Store) -> str:
    conversation = store.create_conversation("talk", system="Be kind.", params={"top_k": 3})
    store.add_message(conversation.id, "user", "Tell me 🫠\nabout *lists*\0!")
    with store.begin_reply(conversation.id, model="tiny") as reply:
        reply.append("- one\n- two\n", "first\n\nsecond")
        reply.finish("done", "stop", {"usage": {"prompt_tokens": 3}})
    store.add_message(conversation.id, "user", "More")
    with store.begin_reply(conversation.id, model="tiny") as reply:
        reply.append("It st")
    store.edit(store.path(conversation.id)[2].id, "Less")
    return conversation.id


def without_ids(store: Store, conversation: StoredConversation) -> dict[str, Any]:
    """A conversation with its messages numbered from 0, its own id left out."""
    content = conversation_as_dict(conversation, store.tree(conversation.id))
    order = {message["id"]: number for number, message in enumerate(content["messages"])}
    for message in content["messages"]:
        message["id"] = order[message["id"]]
        message["parent_id"] = order.get(message["parent_id"])
    content["leaf_id"] = order[content["leaf_id"]]
    del content["id"]
    return content


def test_json_comes_back_as_it_was(store: Store, name: str, tmp_path: Path) -> None:
    document = export(store, [name], "json")
    assert json.loads(document)["conversations"][0]["id"] == name
    before = without_ids(store, store.conversation(name))
    with Store(tmp_path / "other.db") as other:
        (copy,) = import_json(other, document)
        assert copy.id == name
        assert without_ids(other, copy) == before
        (second,) = import_json(other, document)  # the id is taken now
        assert second.id != name
        assert without_ids(other, second) == before
        assert [m.text for m in other.path(name)] == [m.text for m in store.path(name)]
        assert other.database.query("PRAGMA foreign_key_check") == []


def test_markdown_and_text_hold_the_branch_that_is_shown(store: Store, name: str) -> None:
    markdown = export(store, [name], "md")
    assert markdown.startswith("# Tell me 🫠\n\n20")
    assert "## System\n\nBe kind.\n" in markdown
    assert "## You\n\nTell me 🫠\nabout *lists*\0!\n" in markdown
    assert "## tiny\n\n> first\n>\n> second\n\n- one\n- two\n" in markdown
    assert markdown.endswith("## You\n\nLess\n")
    assert "It st" not in markdown
    text = export(store, [name], "text")
    assert "[You]\nLess\n" in text
    assert "[tiny]\n- one\n- two\n" in text
    store.select(store.siblings(store.path(name)[-1].id)[0])
    assert "## tiny (interrupted)\n\nIt st\n" in export(store, [name], "md")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("Look:\n\n````python\nx = 1\n```", "\n````"),
        ("~~~", "\n~~~"),
        ("```\nx = 1\n```\n", ""),
        ("- ```\n  x = 1", ""),  # ends with its item
        ("- ```\n  x = 1\n  ```", ""),
        ("> ```\n> x = 1", ""),
        ("    ```", ""),  # an indented block
        ("a ``` b", ""),
        ("```md\n```sh\nx\n```", ""),  # elsewhere the inner block's end is that of the outer one
        ("```md\n```sh\nx\n```\n```", "\n```"),
    ],
)
def test_in_markdown_a_code_block_left_open_ends_with_its_message(store: Store, text: str, end: str) -> None:
    conversation = store.create_conversation("talk", system=text)
    store.add_message(conversation.id, "user", text)
    shown = text.rstrip("\n") + end
    assert f"\n## You\n\n{shown}\n" in export(store, [conversation.id], "md")
    assert f"\n## System\n\n{text}{end}\n" in export(store, [conversation.id], "md")
    assert f"[You]\n{text.rstrip()}\n" in export(store, [conversation.id], "text")


def test_several_conversations_in_one_document(store: Store, name: str, tmp_path: Path) -> None:
    store.get_or_create("empty")
    document = export(store, [name, "empty"], "json")
    with Store(tmp_path / "other.db") as other:
        assert [c.id for c in import_json(other, document)] == [name, "empty"]
        assert other.path("empty") == []
    assert export(store, [name, "empty"], "md").count("\n# ") == 1
    with pytest.raises(NotFoundError):
        export(store, ["gone"], "json")


def test_B099_an_exported_file_is_private(store: Store, name: str, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        target = tmp_path / "out.md"
        target.write_text("old")
        target.chmod(0o644)
        export_file(target, export(store, [name], "md"))
        assert target.stat().st_mode & 0o777 == 0o600
        assert target.read_text(encoding="utf-8") == export(store, [name], "md")
        with pytest.raises(StoreError, match=r"cannot write .*gone/out\.md: No such file"):
            export_file(tmp_path / "gone" / "out.md", "x")
    finally:
        os.umask(old)


def variant(**change: Any) -> str:
    message = {"id": 1, "parent_id": None, "role": "user", "text": "x", **change.pop("message", {})}
    conversation = {"id": "c", "messages": [message], **change.pop("conversation", {})}
    return json.dumps({"termchat_export": 1, "conversations": [conversation], **change})


def test_a_minimal_document_is_enough(store: Store) -> None:
    (conversation,) = import_json(store, variant())
    assert [m.text for m in store.path("c")] == ["x"]
    assert conversation.updated > 0


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        pytest.param("[" * 100_000, "no JSON document", id="deep"),
        ("[]", "no export of termchat"),
        (variant(termchat_export=2), "no export of termchat"),
        (variant(conversations=3), "conversations of the export must be a list"),
        (variant(conversations=[3]), r"conversations\[0\] must be an object"),
        (variant(conversation={"id": "a b"}), "a conversation's id"),
        (variant(conversation={"id": 3}), r"conversations\[0\].id must be a text"),
        (variant(conversation={"params": []}), r"conversations\[0\].params must be an object"),
        (variant(conversation={"messages": None}), "messages of .* must be a list"),
        (variant(conversation={"created": "now"}), "created must be a number of seconds"),
        (variant(conversation={"created": float("nan")}), "created must be a number of seconds"),
        (variant(message={"id": "1"}), r"messages\[0\].id must be a number"),
        (variant(message={"parent_id": 1}), "parent_id must be the id of an earlier message"),
        (variant(message={"parent_id": [1]}), "parent_id must be a number or null"),
        (variant(message={"role": "robot"}), "a role or status that termchat does not know"),
        (variant(message={"role": ["user"]}), "role must be a text"),
        (variant(message={"status": "odd"}), "a role or status that termchat does not know"),
        (variant(message={"text": 3}), "text must be a text"),
        (variant(message={"metrics": 3}), "metrics must be an object"),
        (variant(message={"created": 10**400}), "created must be a number of seconds|too large"),
        (variant(conversation={"leaf_id": "x"}), "leaf_id must be a number or null"),
        (variant(message={"id": None}), "id must be a number of its own"),
        (
            variant(conversation={"messages": [{"id": 1, "role": "user"}] * 2}),
            "id must be a number of its own",
        ),
    ],
)
def test_what_is_no_export_is_refused_whole(store: Store, document: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        import_json(store, document)
    assert "\n" not in str(caught.value)
    assert store.list_conversations() == []


def test_a_streaming_message_of_elsewhere_is_interrupted_here(store: Store) -> None:
    import_json(store, variant(message={"status": "streaming"}))
    assert store.path("c")[0].status == "interrupted"
    assert store.recover() == 0


def test_numbers_that_json_does_not_have_come_in_as_null_and_go_out_again(store: Store) -> None:
    import_json(store, variant(message={"metrics": {"a": float("nan"), "b": 7.5}}).replace("7.5", "1e999"))
    assert store.path("c")[0].metrics == {"a": None, "b": None}
    json.loads(export(store, ["c"], "json"), parse_constant=pytest.fail)


def test_odd_characters_of_a_document_are_made_storable(store: Store) -> None:
    import_json(store, variant(message={"text": "a\ud800b"}, conversation={"title": "t\ud800"}))
    assert store.path("c")[0].text == "a\ufffdb"
    assert store.conversation("c").title == "t\ufffd"
