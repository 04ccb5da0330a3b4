"""Text to token ids and back, also as they come; the tokenizer of a model, whatever file it is in."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import tokenizers

from kernels.machine import need_addresses

from ..loading.fields import one_line
from ..loading.files import as_written
from ..loading.folder import Folder
from ..loading.generation import Generation, read_generation
from ..loading.gguf import GGUFFile, read_gguf_model
from ..types import EngineError
from .control import ControlTokens
from .vocabulary import LAST_MESSAGE_ENDS, MESSAGE_END, SENTENCE_END, TURN_ENDS, Kind, Vocabulary

MAX_RUN = 1 << 22
"""Characters of white space, or of none, in one piece."""

ENCODING_BYTES = 32 << 20
"""Of memory that must be left to encode a text; the library ends the process where it gets none."""

_RUNS = re.compile(r"\s{4096,}|\S{4096,}")


class Tokenizer:
    """The tokenizer of one model. Safe to use from several threads; encoding runs without the GIL.

    bos_id, eos_id: the start and the end token, if any. add_bos: prompts begin with the start token. end_ids:
    every token that ends a turn, also those beyond this vocabulary. chat_template: the model's own Jinja
    template, if any. control: the tokens that are structure, such as <|im_end|>: they have an id and a name,
    but decode to no text. named: texts of tokens by the names under which chat templates read them, such as
    bos_token.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: tokenizers.Tokenizer,
        generation: Generation,
        *,
        bos_id: int | None,
        eos_id: int | None,
        add_bos: bool,
        named: Mapping[str, str | list[str]],
        inner_encoder: tokenizers.Tokenizer | None = None,
        before: frozenset[int] = frozenset(),
        after: frozenset[int] = frozenset(),
    ) -> None:
        """encoder: of plain text, knows no control tokens. inner_encoder: the same for text that follows a
        control token, where that makes a difference. before, after: see `ControlTokens`. Raises ValueError
        for control tokens that can't be looked for.
        """
        self._vocabulary = vocabulary.compact()
        self._encoder = encoder
        self._inner_encoder = inner_encoder or encoder
        self.control = ControlTokens(vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN), before, after)
        self._names = {token: text for text, token in self.control.ids.items()}
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.add_bos = add_bos and bos_id is not None
        special = vocabulary.ids(Kind.CONTROL, Kind.USER_DEFINED)
        names = [*TURN_ENDS, *(set(self.control.ids) & {SENTENCE_END}), MESSAGE_END]
        known = [special[text] for text in names if text in special]
        ends = {*generation.end_ids, *known, *([] if eos_id is None else [eos_id])}
        # Some files declare the end of a message as that of a turn: the answer would never begin.
        inner = {special.get(MESSAGE_END)} if special.keys() >= LAST_MESSAGE_ENDS else set()
        self.end_ids = frozenset(ends - inner)
        self.chat_template = generation.chat_template
        ids = {"bos_token": bos_id, "eos_token": eos_id}
        texts = {name: self.token_text(token) for name, token in ids.items() if token is not None}
        self.named: Mapping[str, str | list[str]] = {**named, **texts}

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._vocabulary)

    def encode(
        self, text: str, *, special: bool = True, stand_ins: Mapping[int, str] | None = None
    ) -> list[int]:
        """Token ids of a text.

        special: the text is a prompt, written by a chat template or by hand: control tokens in it are
        recognized, and the start token is put in front if the vocabulary asks for one and it is not there
        yet. Otherwise everything is plain text. stand_ins: what some characters (by code point) stand for;
        they are replaced after control tokens have been looked for, so what they stand for is plain text.

        Lone surrogates become U+FFFD. An empty text has no tokens. Raises EngineError(invalid_request) for a
        text that the library can't take.
        """
        if not text:
            return []
        pieces = list(self.control.split(text)) if special else [(text, None)]
        texts = [_valid(piece.translate(stand_ins) if stand_ins else piece) for piece, _ in pieces]
        encodings = _encoded(self._encoder, texts[:1]) + _encoded(self._inner_encoder, texts[1:])
        ids: list[int] = []
        for encoding, (_, token) in zip(encodings, pieces, strict=True):
            ids += encoding.ids
            if token is not None:
                ids.append(token)
        if special and self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, as it stands after whatever came before: a leading space is kept.

        Bytes that are no valid UTF-8 become U+FFFD; ids the vocabulary doesn't have give no text.
        """
        return b"".join(map(self._vocabulary.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes one token adds to the text."""
        return self._vocabulary.token_bytes(token)

    def first_difference(self, other: Tokenizer) -> int | None:
        """The first of our ids that means something else, or nothing, to another tokenizer."""
        return self._vocabulary.first_difference(other._vocabulary)

    def token_text(self, token: int) -> str:
        """A token for people and templates: a control token's name, else the text it adds."""
        return self._names.get(token) or self.decode([token])


class StreamDecoder:
    """Incremental detokenizer: the pieces of a stream joined are `tokenizer.decode` of all its ids.

    Only the first bytes of an unfinished character are held back, three at most; bytes that can't become one
    are shown as U+FFFD at once.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that is certain now."""
        return self._decoder.decode(b"".join(map(self._token_bytes, ids)))

    def finish(self) -> str:
        """What is left: U+FFFD if the stream ended inside a character."""
        return self._decoder.decode(b"", final=True)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file, of a folder with a tokenizer.json, or of such a file itself.

    Raises EngineError(model_invalid) with one sentence that names the file.
    """
    path = as_written(path)
    if path.name == "tokenizer.json":
        path = path.parent
    source = Folder(path) if os.path.isdir(path) else read_gguf_model(path)
    return tokenizer_of(source, read_generation(source))


def tokenizer_of(source: Folder | GGUFFile, generation: Generation) -> Tokenizer:
    """The tokenizer of an opened model, which is not opened again."""
    if isinstance(source, GGUFFile):
        from .gguf_tokenizer import tokenizer_from_gguf

        return tokenizer_from_gguf(source, generation)
    from .folder_tokenizer import tokenizer_from_folder  # a GGUF file starts without

    return tokenizer_from_folder(source, generation)


def _encoded(encoder: tokenizers.Tokenizer, texts: list[str]) -> list[tokenizers.Encoding]:
    """The texts as the library encodes them.

    Its regular expressions give up, with a panic, after some millions of characters without a break between
    words; such texts are refused before.
    """
    for text in texts:
        if len(text) > MAX_RUN and max(map(len, _RUNS.findall(text)), default=0) > MAX_RUN:
            raise EngineError("invalid_request", f"the text has a word of more than {MAX_RUN} characters")
    need_addresses(ENCODING_BYTES + 64 * sum(map(len, texts)), "the tokenizer")
    try:
        encodings: list[tokenizers.Encoding] = encoder.encode_batch_fast(texts, add_special_tokens=False)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise EngineError(
            "invalid_request", f"the model's tokenizer fails on the text: {one_line(error)}"
        ) from None
    return encodings


def _valid(text: str) -> str:
    """Pairs of surrogates joined, lone ones replaced: only those can't be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
