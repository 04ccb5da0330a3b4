"""The tokenizer in a model's folder: tokenizer.json and the files beside it (Hugging Face)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import tokenizers

from kernels.machine import need_addresses

from ..loading.fields import Fields, invalid, shown
from ..loading.files import parse_json_object, read_bytes
from ..loading.folder import Folder
from ..loading.generation import Generation
from .control import check_total, with_marks
from .pipeline import MAX_GROWTH, check_merges, check_model, check_parts, load, settings, steps, types
from .splits import FASTER
from .tokenizer import Tokenizer
from .vocabulary import MAX_PIECE, Kind, Vocabulary, is_byte_token

NAME = "tokenizer.json"
_NAMES = ("unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
MAX_BYTES = 1 << 27
_OTHERS = ("tokenizer.model", "tekken.json", "spiece.model", "vocab.json", "vocab.txt", "tiktoken.model")
"""Other forms of tokenizers, which are not read."""

_ADVICE = (
    "take a GGUF file of the model, or make a tokenizer.json with transformers "
    "(AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER))"
)
_MAX_TOKENS = 1 << 22


class _Added(NamedTuple):
    """A token that is found in a text before anything else is done to it."""

    id: int
    text: str
    special: bool
    lstrip: bool
    rstrip: bool


class _File:
    """A parsed tokenizer.json, changed where the library could not be let run it as it is."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.file(NAME)
        data = read_bytes(self.path, MAX_BYTES)
        if data is None:
            other = next((name for name in _OTHERS if os.path.exists(folder.path / name)), None)
            advice = f", and {other} is not read: {_ADVICE}" if other else ""
            raise invalid(self.path, f"does not exist{advice}", colon=False)
        if not data:
            raise invalid(self.path, "has 0 bytes; a JSON object is expected", colon=False)
        self._data = data.removeprefix(b"\xef\xbb\xbf")
        self._changed = False
        self.values = parse_json_object(data, self.path, "this is not a valid tokenizer: it")
        self.vocabulary = check_model(self.refuse, self.values.get("model"))
        self.added = [self._added(entry) for entry in self._list("added_tokens")]
        try:
            check_total(added.text for added in self.added)
        except ValueError as error:
            self.refuse(str(error))
        if self.values["model"].get("dropout"):
            self.values["model"]["dropout"] = None
            self._changed = True
        self._replace_slow(self.values.get("pre_tokenizer"))

    def refuse(self, reason: str) -> NoReturn:
        """Refuse the file."""
        raise invalid(self.path, reason)

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key) or []
        if not isinstance(value, list):
            self.refuse(f"{key} must be a list")
        return value

    def _added(self, entry: Any) -> _Added:
        fields = Fields(self.path, entry if isinstance(entry, dict) else {})
        text = fields.string("content")
        if len(text) > MAX_PIECE:
            self.refuse(f"an added token has more than {MAX_PIECE} characters")
        added = _Added(
            fields.integer("id", 0, _MAX_TOKENS - 1),
            text,
            *(fields.boolean(name, default=False) for name in ("special", "lstrip", "rstrip")),
        )
        if added.special and fields.boolean("single_word", default=False):
            self.refuse(f"single_word of {shown(text)} is not supported")
        return added

    def _replace_slow(self, part: Any) -> None:
        for step in steps(part, "pretokenizers"):
            pattern = step.get("pattern")
            expression = pattern.get("Regex") if isinstance(pattern, dict) else None
            if isinstance(expression, str) and expression in FASTER:
                step["pattern"] = {"Regex": FASTER[expression]}
                self._changed = True

    def mark_special(self, texts: set[str]) -> None:
        """Make these added tokens special, so that they are never found in a user's text."""
        for entry in self._list("added_tokens"):
            if entry["content"] in texts and not entry.get("special"):
                entry["special"] = True
                self._changed = True

    def id_of(self, text: str) -> int | None:
        """The id of a token."""
        token = self.vocabulary.get(text)
        return token if token is not None else next((a.id for a in self.added if a.text == text), None)

    def encoder(self) -> tokenizers.Tokenizer:
        """The library's tokenizer, if it may be run."""
        parts = self.values.get("normalizer"), self.values.get("pre_tokenizer")
        if check_parts(self.refuse, *parts):
            from .trial import failure

            if (reason := failure(*parts, MAX_GROWTH)) is not None:
                self.refuse(f"its normalizer or pre-tokenizer is not harmless: {reason}")
        check_merges(self.refuse, self.values["model"].get("merges"), self.vocabulary)
        try:
            encoder = load(json.dumps(self.values).encode() if self._changed else self._data)
        except ValueError as error:
            self.refuse(f"this is not a valid tokenizer: {error}")
        # The library may have read the file otherwise, as where a key stands twice.
        check_parts(self.refuse, settings(encoder.normalizer), settings(encoder.pre_tokenizer))
        encoder.no_truncation()
        encoder.no_padding()
        return encoder


def _vocabulary(file: _File) -> Vocabulary:
    size = max([*file.vocabulary.values(), *(token.id for token in file.added)], default=-1) + 1
    if not 0 < size <= _MAX_TOKENS or min(file.vocabulary.values(), default=0) < 0:
        file.refuse(f"it has token ids up to {shown(size - 1)}; at most {_MAX_TOKENS} are allowed")
    parts = types(file.values.get("decoder"))
    byte_level = "ByteLevel" in parts
    if not byte_level and not parts & {"ByteFallback", "Metaspace"}:
        file.refuse("its decoder is neither byte-level nor SentencePiece's, which is not supported")
    tokens, kinds = [""] * size, bytearray([Kind.UNUSED]) * size
    for text, token in file.vocabulary.items():
        tokens[token] = text
        kinds[token] = Kind.BYTE if not byte_level and is_byte_token(text) else Kind.NORMAL
    for added in file.added:
        # A text that is in the vocabulary has its id there, too, and the library takes that one.
        for token in {added.id, file.vocabulary.get(added.text, added.id)}:
            tokens[token] = added.text
            kinds[token] = Kind.CONTROL if added.special else Kind.USER_DEFINED
    vocabulary = Vocabulary(tokens, bytes(kinds), byte_level)
    need_addresses(vocabulary.encoder_bytes, "the tokenizer")
    return vocabulary


def _is_made(file: _File) -> Any:
    """Whether merges make a token."""
    made: set[str] = set()

    def is_made(text: str) -> bool:
        if not made:
            made.add("")
            merges = file.values["model"].get("merges")
            for merge in merges if isinstance(merges, list) else []:
                made.add("".join(map(str, merge)) if isinstance(merge, list) else str(merge).replace(" ", ""))
        return text in made

    return is_made


def _without_prefix(encoder: tokenizers.Tokenizer) -> tokenizers.Tokenizer | None:
    """The pipeline for text in mid-prompt, where it puts a space before a prompt's first word only."""
    words = json.dumps(settings(encoder.pre_tokenizer))
    inner_words = words.replace('"prepend_scheme": "first"', '"prepend_scheme": "never"')
    if inner_words == words:
        return None
    changed = json.loads(encoder.to_str()) | {"pre_tokenizer": json.loads(inner_words)}
    return load(json.dumps(changed).encode())


def _put_in_front(encoder: tokenizers.Tokenizer) -> int | None:
    """The token the library itself puts in front of a text."""

    def first(node: Any) -> Any:
        if isinstance(node, dict) and isinstance(node.get("single"), list) and node["single"]:
            return node["single"][0].get("SpecialToken", {}).get("id")
        parts = node.get("processors", []) if isinstance(node, dict) else []
        return next(filter(None, map(first, parts)), None)

    text = first(settings(encoder.post_processor))
    token: int | None = None if text is None else encoder.token_to_id(text)
    return token


def _content(value: Any) -> str | None:
    """A token's text, given as a string or an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _named_texts(settings: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Texts of tokens that tokenizer_config.json names, for chat templates."""
    named: dict[str, str | list[str]] = {}
    for name in _NAMES:
        if (text := _content(settings.get(name))) is not None:
            named[name] = text
    for name in ("extra_special_tokens", "additional_special_tokens"):
        if isinstance(settings.get(name), list):
            texts = [text for text in map(_content, settings[name]) if text is not None]
            named["additional_special_tokens"] = texts
    return named


def _named_token(fields: Fields, name: str, file: _File, default: int | None) -> int | None:
    """The id of a token that tokenizer_config.json names, as a string or an object, or says there is none."""
    if name not in fields.values:
        return default
    value = fields.get(name)
    text = value.get("content") if isinstance(value, dict) else value
    if text is not None and not isinstance(text, str):
        fields.fail(name, "must be a token's text")
    return None if text is None else file.id_of(text)


def tokenizer_from_folder(folder: Folder, generation: Generation) -> Tokenizer:
    """The tokenizer of a model's folder. Raises EngineError(model_invalid) naming the file."""
    try:
        return _tokenizer(folder, generation)
    except RecursionError:
        raise invalid(folder.path / NAME, "it is nested too deeply") from None


def _tokenizer(folder: Folder, generation: Generation) -> Tokenizer:
    file = _File(folder)
    vocabulary = _vocabulary(file)
    config = folder.fields("tokenizer_config.json")
    known = generation.within(len(vocabulary))
    bos_id = _named_token(config, "bos_token", file, next(iter(known.bos_ids), None))
    eos_id = _named_token(config, "eos_token", file, next(iter(known.eos_ids), None))
    declared = [*known.end_ids, *(token for token in (bos_id, eos_id) if token is not None)]
    vocabulary = with_marks(vocabulary, generation.chat_template, declared, _is_made(file))
    file.mark_special(set(vocabulary.ids(Kind.CONTROL)))
    encoder = file.encoder()
    in_front = bos_id is not None and bos_id == _put_in_front(encoder)
    encoder.post_processor = None
    encoders = [encoder, _without_prefix(encoder)]
    for each in encoders:
        if each is not None:
            each.encode_special_tokens = True  # as plain text: `Tokenizer` finds control tokens itself
    control = vocabulary.ids(Kind.CONTROL)
    try:
        return Tokenizer(
            vocabulary,
            encoder,
            generation,
            inner_encoder=encoders[1],
            before=frozenset(control[added.text] for added in file.added if added.special and added.lstrip),
            after=frozenset(control[added.text] for added in file.added if added.special and added.rstrip),
            bos_id=bos_id,
            eos_id=eos_id,
            add_bos=config.boolean("add_bos_token", default=in_front),
            named=_named_texts({**folder.fields("special_tokens_map.json").values, **config.values}),
        )
    except ValueError as error:
        file.refuse(str(error))
