"""The three forms of a prompt, and its way to token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .model import LoadedModel
from .tokenization import encode_chat
from .types import EngineError, Message

Prompt = str | Sequence[int] | Sequence[Message]
"""Raw text, token ids, or messages that go through the model's chat template."""

CheckedPrompt = str | list[int] | tuple[Message, ...]

_SET_HERE = {"tokenizer", "template", "messages", "continue_final"}


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


def checked_variables(variables: object) -> dict[str, Any]:
    """A copy of what a caller gives to the template. Raises TypeError for anything but a mapping or None."""
    if variables is None or isinstance(variables, Mapping):
        return dict(variables or {})
    raise TypeError(f"template_vars must be a mapping, not {type(variables).__name__}")


def encode(
    model: LoadedModel, prompt: CheckedPrompt, continue_final: bool, variables: Mapping[str, Any]
) -> list[int]:
    """Token ids of a prompt; slow for long ones, so not for an event loop. Raises EngineError(template)."""
    if isinstance(prompt, list):
        return prompt
    if isinstance(prompt, str):
        return model.tokenizer.encode(prompt)
    for name in _SET_HERE & variables.keys():
        raise EngineError("template", f"{name!r} can't be a template variable: the engine sets it")
    return encode_chat(
        model.tokenizer, model.chat_template, prompt, continue_final=continue_final, **variables
    )
