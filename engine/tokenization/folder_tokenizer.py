"""The tokenizer in a model's folder: tokenizer.json and the files beside it (Hugging Face)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from ..loading.fields import Fields
from ..loading.files import file_inside, map_file, read_json
from ..loading.generation import read_folder_generation
from ..types import EngineError
from .tokenizer import Tokenizer, control_tokens
from .vocabulary import Kind, Vocabulary, is_byte_token

_MAX_BYTES = 1 << 28
_MAX_TOKENS = 1 << 22


def _open(path: Path) -> tokenizers.Tokenizer:
    buffer = map_file(path)
    if buffer is None or len(buffer) > _MAX_BYTES:
        size = 0 if buffer is None else len(buffer)
        raise EngineError("model_invalid", f"{path} has {size} bytes; 1 to {_MAX_BYTES} are allowed")
    try:
        encoder = tokenizers.Tokenizer.from_buffer(buffer[:])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library is no Exception
        raise EngineError("model_invalid", f"{path} is not a valid tokenizer: {error}") from None
    if not isinstance(encoder.model, tokenizers.models.BPE):
        kind = type(encoder.model).__name__
        raise EngineError("model_invalid", f"{path}: tokenizers of type {kind} are not supported (BPE are)")
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _settings(part: Any) -> Any:
    """A part of a pipeline as plain values."""
    return None if part is None else json.loads(part.__getstate__())


def _types(settings: Any) -> set[str]:
    """The types of a part and of the parts it is made of."""
    if isinstance(settings, list):
        return set().union(*map(_types, settings))
    if not isinstance(settings, dict):
        return set()
    return {str(settings.get("type"))}.union(*map(_types, settings.values()))


def _vocabulary(encoder: tokenizers.Tokenizer, path: Path) -> Vocabulary:
    ids = encoder.get_vocab(with_added_tokens=True)
    size = max(ids.values(), default=-1) + 1
    if not 0 < size <= _MAX_TOKENS:
        raise EngineError(
            "model_invalid", f"{path} has token ids up to {size}; at most {_MAX_TOKENS} are allowed"
        )
    parts = _types(_settings(encoder.decoder))
    byte_level = "ByteLevel" in parts
    if not byte_level and not parts & {"ByteFallback", "Metaspace"}:
        raise EngineError(
            "model_invalid",
            f"{path}: its decoder is neither byte-level nor SentencePiece's, which is not supported",
        )
    tokens, kinds = [""] * size, bytearray([Kind.UNUSED]) * size
    for text, token in ids.items():
        tokens[token] = text
        kinds[token] = Kind.BYTE if not byte_level and is_byte_token(text) else Kind.NORMAL
    for token, added in encoder.get_added_tokens_decoder().items():
        kinds[token] = Kind.CONTROL if added.special else Kind.USER_DEFINED
        if added.special and added.single_word:
            raise EngineError("model_invalid", f"{path}: single_word of {added.content!r} is not supported")
    return Vocabulary(tokens, bytes(kinds), byte_level)


def _without_prefix(encoder: tokenizers.Tokenizer) -> tokenizers.Tokenizer | None:
    """The pipeline for text in mid-prompt, where it puts a space before a prompt's first word only."""
    words = json.dumps(_settings(encoder.pre_tokenizer))
    inner_words = words.replace('"prepend_scheme": "first"', '"prepend_scheme": "never"')
    if inner_words == words:
        return None
    settings = json.loads(encoder.to_str()) | {"pre_tokenizer": json.loads(inner_words)}
    return tokenizers.Tokenizer.from_str(json.dumps(settings))


def _put_in_front(encoder: tokenizers.Tokenizer) -> int | None:
    """The token the library itself puts in front of a text."""

    def first(node: Any) -> Any:
        if isinstance(node, dict) and isinstance(node.get("single"), list) and node["single"]:
            return node["single"][0].get("SpecialToken", {}).get("id")
        parts = node.get("processors", []) if isinstance(node, dict) else []
        return next(filter(None, map(first, parts)), None)

    text = first(_settings(encoder.post_processor))
    token: int | None = None if text is None else encoder.token_to_id(text)
    return token


def _named_token(fields: Fields, name: str, encoder: tokenizers.Tokenizer, default: int | None) -> int | None:
    """The id of a token that tokenizer_config.json names, as a string or an object, or says there is none."""
    if name not in fields.values:
        return default
    value = fields.get(name)
    text = value.get("content") if isinstance(value, dict) else value
    if text is not None and not isinstance(text, str):
        fields.fail(name, "must be a token's text")
    token: int | None = None if text is None else encoder.token_to_id(text)
    return token


def tokenizer_from_folder(folder: str | Path) -> Tokenizer:
    """The tokenizer of a model's folder. Raises EngineError(model_invalid) naming the file."""
    folder = Path(folder)
    path = file_inside(folder, "tokenizer.json", "the model")
    encoder = _open(path)
    vocabulary = _vocabulary(encoder, path)
    config = Fields(folder / "tokenizer_config.json", read_json(folder, "tokenizer_config.json") or {})
    model = Fields(folder / "config.json", read_json(folder, "config.json") or {})
    generation = read_folder_generation(folder, model, len(vocabulary))
    bos_id = _named_token(config, "bos_token", encoder, generation.bos_id)
    eos_id = _named_token(config, "eos_token", encoder, next(iter(generation.end_ids), None))
    in_front = bos_id is not None and bos_id == _put_in_front(encoder)
    encoder.post_processor = None
    added = encoder.get_added_tokens_decoder()
    before = frozenset(i for i, token in added.items() if token.special and token.lstrip)
    after = frozenset(i for i, token in added.items() if token.special and token.rstrip)
    encoders = [encoder, _without_prefix(encoder)]
    for each in encoders:
        if each is not None:
            each.encode_special_tokens = True  # as plain text: `Tokenizer` finds control tokens itself
    try:
        return Tokenizer(
            vocabulary,
            encoder,
            inner_encoder=encoders[1],
            control=control_tokens(vocabulary, before, after),
            bos_id=bos_id,
            eos_id=eos_id,
            add_bos=config.boolean("add_bos_token", default=in_front),
            end_ids=generation.end_ids,
            chat_template=generation.chat_template,
        )
    except ValueError as error:
        raise EngineError("model_invalid", f"{path}: {error}") from None
