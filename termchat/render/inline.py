"""The inline half of Markdown: emphasis, code, links, as lines of styled fragments.

A line break in the source is a line break on screen: models and people put one where they mean one, and
`<br>` is one, too, as tables have no other. Other raw HTML and reference links are shown as typed, so what a
piece of text looks like depends on that piece alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from .emphasis import EmphasisState
from .formula import formula
from .links import addresses, link_word
from .strips import Fragment
from .wrap import WIDE


class _Parser(MarkdownIt):
    """markdown-it's, with addresses as they are written, to be read and copied."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        """Return an address as it is shown. A host with letters that look like others is spelled in ASCII."""
        host = _HOST.match(url)
        return url if host is None or host[0].isascii() else super().normalizeLink(url)


_HOST = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE)
_PARSER = _Parser("commonmark", {"html": False, "maxNesting": 20}).enable("strikethrough")
_PARSER.inline.ruler.before("escape", "formula", formula)
_LINE_BREAK = re.compile(r"<br\s*/?>[ \t]*", re.IGNORECASE)
_OPENING = {"strong_open": "strong", "em_open": "em", "s_open": "strike", "link_open": "link"}
_CLOSING = {"strong_close", "em_close", "s_close", "link_close"}
# Left in plain text, one of these may still find its partner in text to come.
_UNMATCHED = re.compile(r"[*_~`\[]|<br\s*/?\s*\Z", re.IGNORECASE)

# A paragraph is parsed in segments of about this many characters, so that one endless paragraph costs the
# same per token as a short one. It is cut where no markup is open; only at the last limit regardless of that.
_SEGMENT_LIMITS = (1024, 1536, 2048)
_SEGMENT_END = 4096
_BREAK = re.compile(rf"\s+(?=\S)|(?<=[{WIDE}])(?=[{WIDE}])")


def _line_break(state: StateInline, silent: bool) -> bool:
    """Take in a `<br>`; a rule of markdown-it's inline parser."""
    found = _LINE_BREAK.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.push("hardbreak", "br", 0)
    state.pos = found.end()
    return True


_PARSER.inline.ruler.before("autolink", "line_break", _line_break)


def _tokens(text: str) -> list[Token]:
    state = EmphasisState(text, _PARSER, {}, [])
    _PARSER.inline.tokenize(state)
    for rule in _PARSER.inline.ruler2.getRules(""):
        rule(state)
    return state.tokens


def _growing_tokens(text: str) -> list[Token]:
    """Return the tokens of a text whose end is still to come: a formula that is open reaches to it."""
    tokens = _tokens(text)
    begins = (token.meta["at"] for token in tokens if token.type == "formula_open")
    if (start := next((at for at in begins if at is not None), None)) is None:
        return tokens
    return [*_tokens(text[:start]), Token("formula", "", 0, content=text[start:])]


def parse_inline(text: str, style: str = "", *, growing: bool = False) -> list[list[Fragment]]:
    """Return the lines of a piece of Markdown text, each a list of fragments in `style` and what it adds.

    growing: more of it is to come.
    """
    lines: list[list[Fragment]] = [[]]
    styles = [style]
    targets: list[tuple[str, list[Fragment], int]] = []

    def emit(content: str, extra: str = "", address: str = "") -> None:
        words = f"{styles[-1]} {extra} {link_word(address)}"
        if content := content.replace("\n", " ").replace("\t", " "):
            lines[-1].append((content, " ".join(words.split())))

    def emit_text(content: str) -> None:
        done = 0
        for start, end in addresses(content):
            emit(content[done:start])
            emit(content[start:end], "link", content[start:end])
            done = end
        emit(content[done:])

    for token in _growing_tokens(text) if growing else _tokens(text):
        kind = token.type
        if kind in ("softbreak", "hardbreak"):
            lines.append([])
        elif kind == "formula":
            for number, part in enumerate(token.content.split("\n")):
                if number:
                    lines.append([])
                emit(part)
        elif kind == "code_inline":
            emit(token.content, "code")
        elif kind == "image":
            address = str(token.attrGet("src") or "")
            emit(token.content or "image", "link", address)
            emit(f" ({address})", "url", address)
        elif kind in _OPENING:
            added = _OPENING[kind]
            if kind == "link_open":
                target = str(token.attrGet("href") or "")
                targets.append((target, lines[-1], len(lines[-1])))
                added = f"{added} {link_word(target)}"
            styles.append(f"{styles[-1]} {added}".strip())
        elif kind in _CLOSING:
            styles.pop()
            if kind == "link_close":
                target, line, start = targets.pop()
                shown = "".join(content for content, _ in line[start:])
                if target and shown not in (target, target.removeprefix("mailto:")):
                    emit(f" ({target})", "url", target)
        elif targets:
            emit(token.content)
        else:
            emit_text(token.content)
    return lines


def segment_end(text: str, start: int) -> int | None:
    """Return where the segment that begins at `start` ends, or None while it is still open.

    The answer depends only on text[start:], and once given never changes when text is added.
    """
    for limit in _SEGMENT_LIMITS:
        found = _BREAK.search(text, start + limit, start + limit + 256)
        if found and _complete(text[start : found.end()]):
            return found.end()
    return start + _SEGMENT_END if len(text) > start + _SEGMENT_END else None


@lru_cache(maxsize=64)
def _complete(text: str) -> bool:
    """Whether text to come can't change how this piece is shown."""
    return not any(
        token.type == "formula_open" or (token.type == "text" and _UNMATCHED.search(token.content))
        for token in _tokens(text)
    )
