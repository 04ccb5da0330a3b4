"""The three forms of a prompt, and its way to token ids."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .commands import ScoreKind, Source
from .logprobs import MOST_SCORES, scores_bytes
from .model import LoadedModel
from .sampler import check_params
from .sampling_params import SamplingParams
from .tokenization import chat_text
from .types import EngineError, Message, shown

Prompt = str | Sequence[int] | Sequence[Message]
"""Raw text, token ids, or messages that go through the model's chat template."""

WHOLE = 1 << 18
"""Characters that are tokenized at once, however many tokens they are: half a second if it is one word."""

PIECE = 1 << 16
"""Characters of a longer text that are counted at a time."""

SLACK = 256
"""Tokens by which a piece on its own may be more than its part of the whole: those at its two ends."""

_SET_HERE = {"tokenizer", "template", "messages", "continue_final", "all_said"}

Steps = Generator[None, None, list[int]]
"""Work that pauses now and then, so that others get their turn, and ends with token ids."""


def source_of(prompt: object, continue_final: bool = False, variables: object = None) -> Source:
    """A prompt and what belongs to it as plain values. Raises TypeError for anything else."""
    if variables is not None and not isinstance(variables, Mapping):
        raise TypeError(f"template_vars must be a mapping, not {type(variables).__name__}")
    variables = dict(variables or {})
    for name in variables:
        if not isinstance(name, str):
            raise TypeError(f"the names of template_vars must be strings, not {shown(name)}")
    return Source(_content(prompt), continue_final, variables)


def _content(prompt: object) -> str | list[int] | tuple[Message, ...]:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, (bytes, bytearray)):
        if not any(isinstance(item, bool) or not isinstance(item, (int, np.integer)) for item in prompt):
            return [int(item) for item in prompt]
        messages = tuple(item for item in prompt if isinstance(item, Message))
        if len(messages) == len(prompt):
            return messages
    raise TypeError(f"a prompt is a string, a list of token ids or a list of Message, not {prompt!r:.60}")


def encode(model: LoadedModel, source: Source) -> Steps:
    """Token ids of a prompt, in steps. Raises EngineError (template, prompt_too_long).

    A text that is surely too long for the context is not tokenized to its end, let alone put through the
    template; its length in tokens is not known then, only a number that it exceeds.
    """
    content, continue_final, variables = source
    if isinstance(content, list):
        return content
    if isinstance(content, str):
        if len(content) > _at_once(model):
            yield from _counted(model, [content])
        return model.tokenizer.encode(content)
    for name in _SET_HERE & variables.keys():
        raise EngineError("template", f"{name!r} can't be a template variable: the engine sets it")
    # What a template may leave out of a message is white space at its ends and a reply's thinking part.
    said = [message.content for message in content if message.role != "assistant"]
    if sum(map(len, said)) > _at_once(model):
        yield from _counted(model, map(str.strip, said), special=False)
    text, stand_ins = chat_text(
        model.tokenizer, model.chat_template, content, continue_final=continue_final, **variables
    )
    yield
    if len(text) > _at_once(model):
        yield from _counted(model, [text], stand_ins=stand_ins)
    return model.tokenizer.encode(text, stand_ins=stand_ins)


def _at_once(model: LoadedModel) -> int:
    return max(WHOLE, 4 * model.context_length)


def _counted(model: LoadedModel, texts: Iterable[str], **how: Any) -> Iterator[None]:
    """Refuse long texts as soon as their beginning has more tokens than the context holds.

    The tokens themselves are counted, not estimated from bytes: a tokenizer may drop or join characters
    without limit, and what fits must not be refused. how: see `Tokenizer.encode`.
    """
    least = 0
    for text in texts:
        for start in range(0, len(text), PIECE):
            ids = model.tokenizer.encode(text[start : start + PIECE], **how)
            least += max(0, len(ids) - SLACK)
            if least > model.context_length:
                raise too_long(model, f"more than {least}")
            yield


def too_long(model: LoadedModel, count: str) -> EngineError:
    """A prompt of so many tokens leaves no room for a reply."""
    return EngineError(
        "prompt_too_long",
        f"the prompt has {count} tokens, but the context of {model.name} holds "
        f"{model.context_length} tokens, prompt and reply together",
    )


def refusal(
    model: LoadedModel, prompt: Sequence[int], params: SamplingParams, score: ScoreKind | None
) -> EngineError | None:
    """Why a prompt can't be served, with the numbers; None: it can. score: see `Request`."""
    room = 0 if score is not None else 1
    if not prompt:
        return EngineError("empty_prompt", "the prompt is empty: there is nothing to answer")
    if len(prompt) + room > model.context_length:
        return too_long(model, str(len(prompt)))
    capacity = model.blocks * model.block_size
    if len(prompt) > capacity:
        return EngineError(
            "never_fits",
            f"the prompt has {len(prompt)} tokens, but the whole KV cache holds {capacity} tokens "
            f"({model.blocks} blocks of {model.block_size}); give it more with kv_memory",
        )
    if score is not None:
        size = scores_bytes(len(prompt), model.vocabulary, score)
        if size > MOST_SCORES:
            return EngineError(
                "never_fits",
                f"scores of {len(prompt)} tokens for {model.vocabulary} ids take {size} bytes, and "
                f"{MOST_SCORES} are allowed; ask for those of the text's own tokens (chosen=True)",
            )
    bad = next((token for token in prompt if not 0 <= token < model.vocabulary), None)
    if bad is not None:
        return EngineError("invalid_request", f"token id {bad} is outside 0 to {model.vocabulary - 1}")
    try:
        check_params(params, model.vocabulary)
    except ValueError as error:
        return EngineError("invalid_request", str(error))
    return None
