"""The three forms of a prompt, and its way to token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .model import LoadedModel
from .tokenization import encode_chat
from .types import Message

Prompt = str | Sequence[int] | Sequence[Message]
"""Raw text, token ids, or messages that go through the model's chat template."""

CheckedPrompt = str | list[int] | tuple[Message, ...]


def checked(prompt: object) -> CheckedPrompt:
    """The prompt as one of its three forms. Raises TypeError for anything else."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, (bytes, bytearray)):
        if not any(isinstance(item, bool) or not isinstance(item, (int, np.integer)) for item in prompt):
            return [int(item) for item in prompt]
        messages = tuple(item for item in prompt if isinstance(item, Message))
        if len(messages) == len(prompt):
            return messages
    raise TypeError(f"a prompt is a string, a list of token ids or a list of Message, not {prompt!r:.60}")


def encode(
    model: LoadedModel, prompt: CheckedPrompt, continue_final: bool, variables: Mapping[str, Any] | None
) -> list[int]:
    """Token ids of a prompt; slow for long ones, so not for an event loop. Raises EngineError(template)."""
    if isinstance(prompt, list):
        return prompt
    if isinstance(prompt, str):
        return model.tokenizer.encode(prompt)
    return encode_chat(
        model.tokenizer, model.chat_template, prompt, continue_final=continue_final, **(variables or {})
    )
