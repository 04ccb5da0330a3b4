"""The lines of a batch: prompts and settings, checked one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from engine import Message, SamplingParams

from ...constraints import ConstraintError, constraint_of, named_twice
from ...errors import did_you_mean, shown
from ...files import binary_kind
from ...messages import ROLES
from ..errors import CliError
from ..stdin import LIMIT_BYTES

LONGEST_NUMBER = 1000
"""Digits; what any setting or id needs by far."""

SAMPLING_FIELDS = tuple(SamplingParams.__dataclass_fields__)
FIELDS = ("id", "prompt", "messages", *SAMPLING_FIELDS)


@dataclass(frozen=True, slots=True)
class Job:
    """A line that can be answered. id: from the line, else its index. sampling: fields of SamplingParams.

    line: its fingerprint, which tells a result from that of an earlier line with the same id.
    """

    index: int
    id: Any
    prompt: str | list[Message]
    sampling: Mapping[str, Any]
    line: str


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot, and why. id: None if it is that of an earlier line."""

    index: int
    id: Any
    error: CliError
    line: str = ""


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers from 0 on, blank ones left out; None for one that is too long."""
    index = 0
    while line := file.readline(LIMIT_BYTES):
        long = len(line) == LIMIT_BYTES and not line.endswith(b"\n")
        while long and (rest := file.readline(LIMIT_BYTES)) and not rest.endswith(b"\n"):
            pass
        if long or line.strip():
            yield index, None if long else line
        index += 1


def read_jobs(file: BinaryIO, *, system: str = "", raw: bool = False) -> Iterator[Job | BadLine]:
    """The lines as jobs. An id that an earlier line has is refused: their results could not be told apart."""
    known: set[str] = set()
    for index, line in read_lines(file):
        job = parse_line(index, line, system=system, raw=raw)
        key = key_of(job.id)
        if key in known:
            message = f"an earlier line has the id {shown(job.id)}; give each line one of its own"
            job = BadLine(index, None, CliError("invalid_request", message))
        known.add(key)
        yield job


def key_of(id: Any) -> str:
    """An id as a key: the number 1 and the text "1" are two ids."""
    return json.dumps(id)


def parse_line(index: int, line: bytes | None, *, system: str = "", raw: bool = False) -> Job | BadLine:
    """A line as a job. Nothing in it can stop the others."""
    key: Any = index
    mark = fingerprint(line or b"")
    try:
        if line is None:
            raise ValueError(f"the line has more than {LIMIT_BYTES >> 20} MiB")
        content = _parse(line)
        key = _id(content, index)
        return Job(index, key, _prompt(content, system, raw), _sampling(content), mark)
    except CliError as error:
        return BadLine(index, key, error, mark)
    except (ValueError, RecursionError) as error:
        message = "the line is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return BadLine(index, key, CliError("invalid_request", message), mark)


def fingerprint(line: bytes) -> str:
    """What tells a line from another one with the same id: the beginning of its sha256."""
    return hashlib.sha256(line.strip()).hexdigest()[:16]


def _parse(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if (kind := binary_kind(line)) is not None:
            raise ValueError(f"the line is no text but {kind}") from error
        raise ValueError(f"the line is not valid UTF-8 at byte offset {error.start}") from error
    try:
        content = json.loads(text, parse_constant=_no_constant, parse_int=_integer, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(f"the line is no JSON: {error.msg} at column {error.colno}") from error
    if isinstance(content, list):
        raise ValueError(
            "the line is a list; write each object of it on a line of its own (jq -c '.[]' does)"
        )
    if not isinstance(content, dict):
        raise ValueError("the line must be a JSON object")
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (twice := named_twice(pairs)) is not None:
        raise ValueError(f"the line has two values of {shown(twice)} in one object")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits is no number for this")
    return int(digits)


def _id(content: Mapping[str, Any], index: int) -> Any:
    value = content.get("id", index)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError("id must be a text or an integer")
    return _text(value, "id") if isinstance(value, str) else value


def _prompt(content: Mapping[str, Any], system: str, raw: bool) -> str | list[Message]:
    for name in content:
        if name not in FIELDS:
            raise ValueError(f"unknown field {name[:100]!r}; {did_you_mean(name, FIELDS)}")
    if ("prompt" in content) == ("messages" in content):
        raise ValueError("a line has either a prompt or messages")
    if "prompt" in content:
        text = _text(content["prompt"], "prompt")
        if not text.strip():
            raise CliError("empty_prompt", "the prompt is empty")
        if raw:
            return text
        messages = [Message("user", text)]
    else:
        if raw:
            raise ValueError("messages need the chat template, which --raw leaves out")
        messages = _messages(content["messages"])
    if system and messages[0].role != "system":
        messages.insert(0, Message("system", system))
    return messages


def _messages(value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise ValueError("messages must be a list of messages")
    messages = []
    for number, item in enumerate(value):
        where = f"messages[{number}]"
        if not isinstance(item, dict) or set(item) != {"role", "content"}:
            raise ValueError(f"{where} must be an object with role and content")
        if item["role"] not in ROLES:
            raise ValueError(f"{where}.role must be system, user, assistant or tool")
        messages.append(Message(item["role"], _text(item["content"], f"{where}.content")))
    return messages


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} holds half of a surrogate pair at position {error.start}") from error
    return value


def _sampling(content: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: content[name] for name in SAMPLING_FIELDS if content.get(name) is not None}
    settings |= _constraint(settings)
    bias = settings.get("logit_bias")
    if isinstance(bias, dict):
        if not all(token.isdecimal() and len(token) < 12 for token in bias):
            raise ValueError("logit_bias must have token ids as its keys")
        settings["logit_bias"] = {int(token): value for token, value in bias.items()}
    try:
        SamplingParams(**settings)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a sampling setting has the wrong form: {error}") from error
    return settings


def _constraint(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the reply keeps to: a schema as it is, or by name or in the short form. Files are not read."""
    try:
        if isinstance(settings.get("schema"), (dict, bool)):
            return {}
        return constraint_of(settings, None)
    except ConstraintError as error:
        raise CliError("grammar", str(error)) from error
