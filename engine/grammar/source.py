"""What a reply is to keep to, as llguidance takes it; refused with its reason where that can't be done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..sampling_params import ConstraintKind, SamplingParams
from ..tokenization.pipeline import guarded
from ..types import EngineError
from .alternatives import as_written, exclusive_to_any
from .numbers import keep_exact
from .references import References
from .schema import Nodes, Where, depth, leave_out_idle, parse, supported

if TYPE_CHECKING:
    from llguidance import LLParserLimits, LLTokenizer

MOST_TEXT = 1 << 17
"""Characters of a schema: what takes a second or two to compile. A regular expression or a grammar may have
half of that.
"""

MOST_DEPTH = 800
"""Steps from a schema down to its innermost part, through references too. The library recurses: four times as
many may end the program.
"""

MOST_RULES = 500
"""Rules of a grammar, for the same reason."""

MOST_TRIES = 200
"""Schemas compiled to find out which part of one is not supported."""

_RULE = re.compile(r"(?m)^[ \t]*[?!]*\w[\w.-]*[^:\n]*:")
_EMBEDDED = re.compile(r"%json\s*(?=\{)")
_DECODER = json.JSONDecoder()
_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")

_PLACED = re.compile(r"^line \d+, column \d+: ")

_ESCAPES = 'nrbtf\\"'
"""Letters of escapes in texts and names: without \\u a name has one form only, which its schema goes by."""

_JSON = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,  # else a weak model may write blanks without end
    "coerce_one_of": True,  # where the parts overlap it warns, and a warning is an error here
    "lenient": False,
}


def check_constraint(params: SamplingParams) -> None:
    """EngineError(grammar): what the reply is to keep to can't be honoured, whatever the model."""
    if params.constraint is not None:
        kind, text = params.constraint
        if message := complaint(compile_source(kind, text)):
            raise refused(kind, text, message)


def limits() -> LLParserLimits:
    """What compiling and following a grammar may take; the library's own, which are a second or two."""
    from llguidance import LLParserLimits

    return LLParserLimits(verbose_errors=False)


def compile_source(kind: ConstraintKind, text: str) -> str:
    """The text of a constraint as llguidance takes it. Raises EngineError(grammar)."""
    try:
        from llguidance import LLMatcher
    except ImportError as error:
        raise missing(error) from error
    most = MOST_TEXT if kind == "schema" else MOST_TEXT // 2
    if len(text) > most:
        raise EngineError("grammar", f"the {kind} has {len(text)} characters; at most {most} are allowed")
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    if kind == "grammar":
        rules = len(_RULE.findall(text))
        if rules > MOST_RULES:
            raise EngineError("grammar", f"the grammar has {rules} rules; at most {MOST_RULES} are allowed")
        for schema in _embedded(text):
            _checked(schema)
        return LLMatcher.grammar_from_lark(text)
    return _json_source(_checked(parse(text)).root)


def _embedded(grammar: str) -> Iterator[Any]:
    """The JSON Schemas in a grammar; of one that is no JSON the library says so."""
    for found in _EMBEDDED.finditer(grammar):
        try:
            _, end = _DECODER.raw_decode(grammar, found.end())
        except (ValueError, RecursionError):
            continue
        yield parse(grammar[found.end() : end])


def _checked(schema: Any) -> Nodes:
    """The parts of a schema as the library takes them. EngineError(grammar): it can't be kept to."""
    nodes = _nodes(schema)
    if (deep := depth(nodes)) > MOST_DEPTH:
        message = (
            f"the schema is {deep} levels deep, through references too; at most {MOST_DEPTH} are allowed"
        )
        raise EngineError("grammar", message)
    supported(nodes)
    keep_exact(nodes)
    exclusive_to_any(nodes)
    return nodes


def _nodes(schema: Any) -> Nodes:
    """The parts of a schema, with pointers for references and without what asks for nothing."""
    if schema is False:
        raise EngineError("grammar", "the schema is false: no JSON keeps to it")
    nodes = Nodes(schema if isinstance(schema, dict) else {})
    References(nodes).point()
    leave_out_idle(nodes)
    return nodes


def _json_source(schema: dict[str, Any]) -> str:
    from llguidance import LLMatcher

    text = json.dumps(schema, ensure_ascii=False)
    named = "\\u00" in text  # a control character, which has no other form
    options = {**_JSON, "json_allowed_escapes": _ESCAPES + "u" * named}
    try:
        # The options of the same names in the schema itself have no say.
        return LLMatcher.grammar_from_json_schema(text, overrides=options)  # type: ignore[arg-type]
    except ValueError as error:
        raise EngineError("grammar", f"the schema can't be read: {_plain(str(error))}") from None


def missing(error: ImportError) -> EngineError:
    """What to say when the library is not there."""
    return EngineError("grammar", f"schemas need the package llguidance ({error}); pip install llguidance")


def refused(kind: ConstraintKind, text: str, message: str) -> EngineError:
    """Why a constraint is refused. message: of the library, about all of it."""
    if kind != "schema":
        said = _plain(message)
        if kind == "regex":  # the place is that of the grammar which the library makes of it
            said = _PLACED.sub("", said)
        return EngineError("grammar", f"the {kind} can't be kept to: {said}")
    nodes = _nodes(parse(text))
    changed = exclusive_to_any(nodes)
    where, message = _smallest(nodes, message)
    where = as_written(where, changed)
    return EngineError("grammar", f"the schema can't be kept to, at {where or '/'}: {_plain(message)}")


def complaint(source: str, tokenizer: LLTokenizer | None = None) -> str:
    """What the library says against a source, "" if nothing. Where it would give up a rule it says so.

    tokenizer: without one nothing is said of a grammar's control tokens.
    """
    from llguidance import LLMatcher

    try:
        failed, messages = guarded(
            lambda: LLMatcher.validate_grammar_with_warnings(source, tokenizer, limits=limits())
        )
    except ValueError:
        return "the library fails on it"
    if tokenizer is None and messages and messages[0].startswith("no tokenizer"):
        return ""
    return messages[0] if messages else "it is refused" if failed else ""


def _smallest(nodes: Nodes, message: str) -> tuple[Where, str]:
    """The smallest part of a schema that is refused by itself, and what the library says of it."""
    where, tries, seen = "", MOST_TRIES, set[str]()
    unresolved = "does not exist" in message
    while where not in seen:
        seen.add(where)
        for place in nodes.parts(where):
            tries -= 1
            if tries < 0:
                return where, message
            part = nodes.alone(place)
            said = "" if part is None else _said(part)
            if said and ("does not exist" not in said or unresolved):
                where, message = place, said
                break
    return where, message


def _said(schema: dict[str, Any]) -> str:
    try:
        return complaint(_json_source(schema))
    except EngineError as error:
        return error.message


def _plain(message: str) -> str:
    """What the library says, as a sentence."""
    if message.startswith("panic"):
        return "the library fails on it"
    found = re.search(r"(?m)^error: (.*)$", message)  # of a regular expression, below a picture of it
    if "regex parse error" in message and found is not None:
        return found[1]
    lines = message.strip().splitlines()
    line = lines[0] if lines else "it is refused"
    if found := re.match(r"Unimplemented keys: (\[.*\])", line):
        return f"the library does not support {', '.join(json.loads(found[1]))}"
    if line.startswith("oneOf"):
        return "the library does not support oneOf whose parts overlap; use anyOf"
    if found := re.fullmatch(r"Pointer '(.*)' does not exist", line):
        return f"there is nothing at '#{found[1]}', which $ref names"
    line = _PLACE.sub(lambda place: f"line {place[1]}, column {place[2]}: ", line)
    return line.removeprefix("Unsatisfiable schema: ")[:300]
