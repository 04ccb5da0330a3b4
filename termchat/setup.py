"""What the user asked for, turned into an engine's configuration and a request's sampling settings."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from engine import EngineConfig, EngineError, Message, SamplingParams

from .config import Config, resolve_sampling
from .paths import Paths
from .registry import Registry, ResolvedModel
from .thinking import CLOSE, OPEN, ThinkingStyle

if TYPE_CHECKING:
    from engine import Engine

SEED_BITS = 53
"""Seeds drawn here can be read from JSON by every language."""


class Setup(NamedTuple):
    """The user's folders, settings and models."""

    paths: Paths
    config: Config
    registry: Registry

    @classmethod
    def load(cls) -> Self:
        """Read them. PathError: there is no home folder."""
        paths = Paths.default()
        return cls(paths, Config.load(paths.config_file), Registry.load(paths))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each part of a file that was ignored."""
        return self.config.warnings + self.registry.warnings

    @property
    def default_model(self) -> str:
        """Name or path of the model to use when none is asked for."""
        chosen = self.config.options["model"]
        return chosen if isinstance(chosen, str) else self.registry.default


def engine_config(model: ResolvedModel, config: Config, flags: Mapping[str, Any]) -> EngineConfig:
    """The engine's configuration: flags over the user's settings over the registry's.

    ValueError names field, value and range.
    """
    quantization = model.entry.quantization if model.entry is not None else None
    registry = {"quantization": quantization} if quantization is not None else {}
    return EngineConfig(model=model.path, **{**registry, **config.engine, **flags})


def sampling_params(
    flags: Mapping[str, Any], config: Config, model: ResolvedModel, defaults: Mapping[str, Any]
) -> SamplingParams:
    """A request's settings: flags over the user's settings over the defaults of registry or model.

    defaults: what the model's own files ask for. ValueError names field, value and range.
    """
    registry = model.entry.sampling if model.entry is not None else None
    settings = resolve_sampling(flags, config.sampling, registry, defaults)
    return SamplingParams(**{key: setting.value for key, setting in settings.items()})


def seeded(params: SamplingParams) -> SamplingParams:
    """The settings with a seed, drawn if there is none."""
    return params if params.seed is not None else replace(params, seed=secrets.randbits(SEED_BITS))


def template_vars(model: ResolvedModel) -> Mapping[str, Any]:
    """Variables for the model's chat template."""
    return model.entry.template_vars if model.entry is not None else {}


async def thinking_style(engine: Engine, variables: Mapping[str, Any]) -> ThinkingStyle:
    """What the chat template says of thinking. EngineError(template): there is none, or a broken one.

    A template knows of it if it opens the thinking part, or leaves out the one of an earlier reply.
    """
    if await starts_thinking(engine, variables):
        return ThinkingStyle(inside=True)
    try:
        with_thought, without = [
            await engine.tokenize(
                [Message("user", "?"), Message("assistant", reply), Message("user", "?")],
                template_vars=variables,
            )
            for reply in (f"{OPEN}?{CLOSE}!", "!")
        ]
    except EngineError:  # a template for one question alone
        return ThinkingStyle(known=False)
    return ThinkingStyle(known=with_thought == without)


async def starts_thinking(engine: Engine, variables: Mapping[str, Any]) -> bool:
    """Whether the chat template opens the thinking part itself, so that a reply begins inside of it.

    EngineError(template): the model has no template, or a broken one.
    """
    prompt = await engine.tokenize([Message("user", "?")], template_vars=variables)
    start = len(await engine.tokenize(""))  # a start token, where the tokenizer adds one
    endings = [(await engine.tokenize(text))[start:] for text in (OPEN, OPEN + "\n")]
    return any(prompt[-len(ending) :] == ending for ending in endings)
