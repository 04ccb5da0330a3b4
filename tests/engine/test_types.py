import math
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.sampling_params import SamplingParams
from engine.types import EngineError, Message, as_dict


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("temperature", math.inf),
        ("temperature", 10**400),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("min_p", -1),
        ("min_p", 2),
        ("top_k", -1),
        ("top_k", 1.5),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-300),
        ("presence_penalty", math.inf),
        ("frequency_penalty", math.nan),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("min_tokens", -1),
        ("seed", 2**64),
        ("seed", 1.0),
        ("logprobs", -1),
        ("logprobs", 21),
    ],
)
def test_a_value_out_of_range_is_refused_with_field_value_and_range(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field) as caught:
        SamplingParams(**{field: value})
    assert repr(value)[:37] in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0},
        {"temperature": 1e-38},
        {"temperature": 1e9},
        {"top_p": 0},
        {"top_p": 1},
        {"top_k": 10**9},
        {"min_p": 1},
        {"seed": -1},
        {"seed": 2**64 - 1},
        {"logit_bias": {5: -math.inf}},
        {"max_tokens": 1},
    ],
)
def test_edges_of_the_ranges_are_allowed(values: dict[str, Any]) -> None:
    params = SamplingParams(**values)
    assert {name: getattr(params, name) for name in values} == values


@pytest.mark.parametrize("value", [10**5000, "x" * 10**6, [0] * 10**5], ids=["number", "text", "list"])
def test_a_refused_value_is_named_shortly_however_long_it_is(value: Any) -> None:
    fields = ("temperature", "top_k", "seed", "stop_token_ids", "logit_bias", "ignore_eos")
    refusals = [(SamplingParams, field, {field: value}) for field in fields if type(value) is not list]
    refusals += [
        (SamplingParams, "top_p", {"top_p": value}),
        (Message, "role", {"role": value, "content": ""}),
    ]
    refusals += [(EngineConfig, f, {"model": "m", f: value}) for f in ("kv_memory", "device", "backend")]
    for kind, field, values in refusals:
        with pytest.raises(ValueError, match=field) as caught:
            kind(**values)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("field", ["schema", "regex", "grammar"])
def test_half_a_surrogate_pair_is_no_text_to_keep_to(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} holds half of a surrogate pair at position 2"):
        SamplingParams(**{field: '{"\ud800": {}}'})


def test_params_are_off_by_default() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (1.0, 0, 1.0, 0.0)
    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.0, 0.0, 0.0)


def test_one_stop_string_may_stand_alone_and_an_empty_one_is_refused() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="non-empty"):
        SamplingParams(stop=("",))


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    with pytest.raises(ValueError, match="min_tokens"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_message_checks_its_role_and_content() -> None:
    with pytest.raises(ValueError, match="robot"):
        Message("robot", "hi")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Message("user", 3)  # type: ignore[arg-type]


def test_as_dict_gives_plain_values() -> None:
    assert as_dict(Message("user", "hi")) == {"role": "user", "content": "hi"}
    assert as_dict(EngineError("queue_full", "later")) == {"code": "queue_full", "message": "later"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block_size", 8),
        ("device", "gpu"),
        ("device", "cuda:x"),
        ("device", "cuda:\u0663"),
        ("backend", "magic"),
        ("kv_dtype", "int3"),
        ("max_sequences", 0),
        ("max_batch_tokens", -5),
        ("prefill_chunk", 0),
        ("context_length", 1),
        ("kv_blocks", 2**26 + 1),  # slots are numbered by integers of 32 bits
        ("prefix_cache", 1),
    ],
)
def test_config_refuses_values_out_of_range_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        EngineConfig(model="m.gguf", **{field: value})


def test_an_unknown_option_names_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match="kv_memory"):
        EngineConfig.from_mapping({"model": "m.gguf", "kv_memry": 5})


def test_more_sequences_than_rows_of_a_step_are_refused() -> None:
    with pytest.raises(ValueError, match="max_batch_tokens"):
        EngineConfig(model="m.gguf", max_sequences=64, max_batch_tokens=32)
