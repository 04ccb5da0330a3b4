"""Where settings come from: option, user, registry, the model's own, the fallback."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from engine import SamplingParams
from termchat.cli.options import DRAFT_OPTIONS, ENGINE_OPTIONS
from termchat.config import Config
from termchat.model_entry import LocalSource, ModelEntry, PyPISource
from termchat.registry import Registry
from termchat.registry_errors import NotDownloadedError, UnknownModelError
from termchat.resolved_model import ResolvedModel
from termchat.sampling import sampling_params
from termchat.settings import SAMPLING
from termchat.setup import engine_config

VALUES = {
    "temperature": 0.5,
    "top_k": 5,
    "top_p": 0.9,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.3,
    "seed": 7,
    "max_tokens": 9,
    "stop": ("x",),
}


def model(sampling=None, quantization=None):
    entry = ModelEntry("m", (), sampling=sampling or {}, quantization=quantization)
    return ResolvedModel("m", Path("m.gguf"), entry)


def configured(found, settings, flags, entries=(), **kind):
    registry = Registry({entry.name: entry for entry in entries}, "m", Path("models"))
    return engine_config(registry, found, settings, flags, **kind)


def config(**tables):
    return Config(Path("config.toml"), {"model": None}, **tables)


def test_every_sampling_option_reaches_the_engine():
    assert set(VALUES) == set(SAMPLING)
    found = sampling_params(VALUES, config(), model(), {})
    assert {name: getattr(found, name) for name in VALUES} == VALUES
    default = SamplingParams()
    assert all(getattr(default, name) != value for name, value in VALUES.items())


def test_every_engine_option_reaches_the_engine():
    flags = {
        "quantization": "none",
        "backend": "reference",
        "device": "cpu",
        "threads": 1,
        "context_length": 99,
        "kv_dtype": "int8",
        "kv_memory": 12345,
        "draft_model": "none",
        "draft_tokens": 3,
        "exact": False,
        "tensor_parallel": 2,
        "pipeline_parallel": 3,
    }
    assert set(flags) == {*ENGINE_OPTIONS, *DRAFT_OPTIONS}
    found = configured(model(), config(), flags)
    assert {name: getattr(found, name) for name in flags} == flags
    assert found.model == Path("m.gguf")
    default = configured(model(), config(), {})
    assert all(getattr(default, name) != value for name, value in flags.items())


def test_the_template_of_the_flags_of_the_settings_and_of_the_registry():
    def template(flags, user, registry):
        entry = ModelEntry("m", (), template=registry)
        return configured(ResolvedModel("m", Path("m.gguf"), entry), config(engine=user), flags).template

    assert template({}, {}, None) is None
    assert template({}, {}, "gemma") == "gemma"
    assert template({}, {"template": "phi3"}, "gemma") == "phi3"
    assert template({"template": "chatml"}, {"template": "phi3"}, "gemma") == "chatml"


@pytest.mark.parametrize(
    ("flags", "user", "registry", "own", "expected"),
    [
        ({}, {}, {}, {}, (0.7, 0.95, 0)),
        ({}, {}, {}, {"temperature": 0.6}, (0.6, 1.0, 0)),
        ({}, {}, {"top_k": 3}, {"temperature": 0.6}, (1.0, 1.0, 3)),
        ({}, {"top_k": 4}, {"top_k": 3, "top_p": 0.8}, {}, (1.0, 0.8, 4)),
        ({"top_k": 5}, {"top_k": 4, "temperature": 0.1}, {"top_k": 3}, {"top_k": 2}, (0.1, 1.0, 5)),
        ({"temperature": 0.1}, {"temperature": 0.0}, {}, {}, (0.1, 0.95, 0)),
        ({"temperature": 0.0}, {"temperature": 0.1}, {"top_k": 3}, {}, (0.0, 1.0, 0)),
    ],
)
def test_the_order_of_sampling_settings(flags, user, registry, own, expected):
    found = sampling_params(flags, config(sampling=user), model(registry), own)
    assert (found.temperature, found.top_p, found.top_k) == expected


@pytest.mark.parametrize(
    ("flags", "user", "registry", "expected"),
    [({}, {}, None, "auto"), ({}, {}, "int8", "int8"), ({}, {"quantization": "int4"}, "int8", "int4")],
)
def test_the_order_of_engine_settings(flags, user, registry, expected):
    assert configured(model(quantization=registry), config(engine=user), flags).quantization == expected


def test_a_file_without_an_entry_has_no_registry_settings():
    found = ResolvedModel("x.gguf", Path("x.gguf"), None)
    assert sampling_params({}, config(), found, {}).temperature == 0.7
    assert configured(found, config(), {}).quantization == "auto"


def test_a_draft_model_that_is_not_known_is_named_with_where_it_was_asked_for():
    with pytest.raises(
        UnknownModelError, match=r"^the draft model, --draft: there is no model file or folder"
    ):
        configured(model(), config(), {"draft_model": "in/nope"})
    with pytest.raises(
        UnknownModelError, match=r"^the draft model, engine\.draft_model of the settings: no model"
    ):
        configured(model(), config(engine={"draft_model": "nope"}), {})


def test_a_draft_model_is_asked_for_by_name_or_found_by_the_registry(tmp_path):
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    here = ModelEntry("small", (LocalSource(tmp_path / "small.gguf"),))
    gone = ModelEntry("gone", (PyPISource("gone==1", "gone.gguf"),))
    large = [
        ResolvedModel(name, Path("m.gguf"), ModelEntry(name, (), draft=draft))
        for name, draft in (("a", "small"), ("b", "gone"), ("c", None), ("d", "unheard-of"))
    ]

    def draft(found, user, flags, **kind):
        made = configured(found, config(engine=user), flags, [here, gone], **kind)
        return made.draft_model, made.paired_draft

    file = tmp_path / "small.gguf"
    assert [draft(each, {}, {}) for each in large] == [("auto", file), *[("auto", None)] * 3]
    assert draft(large[0], {}, {"draft_model": "ngram"}) == ("ngram", None)
    assert draft(large[0], {"draft_model": "none"}, {}) == ("none", None)
    assert draft(large[1], {}, {"draft_model": "small"}) == (file, None)
    assert draft(large[1], {}, {"draft_model": str(file)}) == (file, None)
    # What is set for all models does not keep one from being used that it does not fit.
    assert draft(large[1], {"draft_model": "small"}, {}) == ("auto", file)
    assert draft(large[1], {}, {"draft_model": "small"}, one_model=False) == ("auto", file)
    with pytest.raises(NotDownloadedError, match="run: termchat models pull gone"):
        draft(large[0], {}, {"draft_model": "gone"})
    with pytest.raises(UnknownModelError, match="no model is called 'nobody'"):
        draft(large[0], {}, {"draft_model": "nobody"})


def test_no_option_is_missing_here():
    assert set(SAMPLING) <= {field.name for field in fields(SamplingParams)}
