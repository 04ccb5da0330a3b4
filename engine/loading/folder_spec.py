"""config.json of a safetensors folder -> model specification (keys as in Hugging Face transformers)."""

from __future__ import annotations

from dataclasses import replace

from kernels.interface import Gate

from ..models.family import Family, Windows
from ..models.spec import LayerSpec, ModelSpec, Sizes
from . import declared
from .declared import Declared
from .fields import Fields, shown
from .folder_rope import read_ropes
from .mixture import folder_experts
from .multimodal import text_config
from .varied import folder_layers


def _head_dim(config: Fields, width: int, heads: int) -> int:
    explicit: int | None = config.integer("head_dim", *declared.HEAD_DIM, default=None)
    if explicit is not None:
        return explicit
    if width % heads:
        config.fail("num_attention_heads", f"is {heads}, which does not divide hidden_size ({width})")
    return width // heads


def _windows(config: Fields, windows: Windows | None, layers: int) -> list[int | None]:
    """The sliding window of each layer: all layers of Mistral have it, some of Qwen's, none of Llama's."""
    _refuse_other_layers(config)
    if windows is None or (windows.switch and not config.boolean(windows.switch, default=False)):
        return [None] * layers
    window: int | None = config.integer("sliding_window", *declared.WINDOW, default=None)
    if not config.has("sliding_window"):
        window = windows.default  # the library's; models without a window say null
    types = config.get("layer_types")
    if windows.same:
        if types not in (None, ["full_attention" if window is None else "sliding_attention"] * layers):
            config.fail("layer_types", "that differ from layer to layer are not supported here")
        return [window] * layers
    if types is None:
        first = 0 if windows.first is None else config.integer(windows.first[0], 0, 1 << 31, windows.first[1])
        every = declared.last_of(config, *windows.every, layers) if windows.every else [False] * layers
        every[-1] = every[-1] or windows.last
        return [None if i < first or every[i] else window for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        config.fail("layer_types", f"must list one entry for each of the {layers} layers")
    seen = [window if entry == "sliding_attention" else None for entry in types]
    return [*seen[:-1], None] if windows.last else seen


def _refuse_other_layers(config: Fields) -> None:
    """Refuse layers that do not attend."""
    types = config.get("layer_types")
    for entry in types if isinstance(types, list) else ():
        if entry not in ("full_attention", "attention", "sliding_attention"):
            config.fail("layer_types", f"holds {shown(entry)}, which is not supported")


def _rotating(config: Fields, family: Family, windows: list[int | None]) -> list[bool]:
    """Which layers rotate."""
    layers = len(windows)
    if family.windows_rotate and config.get("sliding_window") is not None:
        return [window is not None for window in windows]
    if family.rotates is not None and config.get(family.rotates[0]) != family.rotates[1]:
        return [False] * layers
    still = family.still
    if still is None:
        return [True] * layers
    listed = config.get(still[0])
    if listed is None:
        return [not last for last in declared.last_of(config, *still[1:], layers)]
    if not isinstance(listed, list) or len(listed) != layers or any(entry not in (0, 1) for entry in listed):
        config.fail(still[0], f"must list 0 or 1 for each of the {layers} layers")
    return [entry == 1 for entry in listed]


def _gate(config: Fields, family: Family) -> Gate:
    known = family.gates
    activation = config.string(family.gate_key, default=next(iter(known)))
    if activation not in known:
        config.fail(family.gate_key, f"{shown(activation)} is not supported ({next(iter(known))} is)")
    return known[activation]


def _input_columns(config: Fields, family: Family) -> int:
    if family.inputs is None:
        return 0
    columns: int = config.integer(family.inputs[0], 0, declared.WIDTH[1], default=0)
    vocabulary = config.integer("vocab_size", *declared.VOCABULARY)
    if columns and config.get("vocab_size_per_layer_input", vocabulary) != vocabulary:
        config.fail("vocab_size_per_layer_input", f"other than vocab_size ({vocabulary}) is not supported")
    return columns


def _refuse_unsupported(config: Fields, family: Family) -> None:
    for option in (*family.refused, *{"mlp_bias"}.difference(family.bias_options)):
        if config.boolean(option, default=False):
            config.fail(option, "true is not supported")
    for option, value in family.fixed.items():
        if config.get(option) not in (None, value):
            config.fail(option, f"{shown(config.get(option))} is not supported")


def read_config(config: Fields) -> Declared:
    """The specification in a parsed config.json. Raises EngineError(model_invalid) naming the field."""
    whole = config
    family, config = text_config(config)
    gate = _gate(config, family)
    _refuse_unsupported(config, family)
    width = config.integer("hidden_size", *declared.WIDTH)
    layers = config.integer("num_hidden_layers", *declared.LAYERS)
    heads = config.integer("num_attention_heads", *declared.HEADS)
    context = config.integer("max_position_embeddings", *declared.CONTEXT)
    head_dim = _head_dim(config, width, heads)
    windows = _windows(config, family.windows, layers)
    rotating = _rotating(config, family, windows)
    experts = folder_experts(config, family.mixture, layers)
    sizes = Sizes(
        heads,
        config.integer("num_key_value_heads", *declared.HEADS, default=heads),
        head_dim,
        config.integer(family.feed_forward, *declared.FEED_FORWARD),
    )
    plain = [LayerSpec(window, None, own) for window, own in zip(windows, experts, strict=True)]
    kinds = folder_layers(config, family.varied, plain, sizes)
    full, local = read_ropes(config, family, declared.head_dims(config, kinds, head_dim), context)
    spec = ModelSpec(
        architecture=config.string("model_type", default=family.model_types[0]),
        layers=tuple(
            replace(layer, rope=None if not turns else full if layer.window is None else local)
            for layer, turns in zip(kinds, rotating, strict=True)
        ),
        width=width,
        heads=heads,
        kv_heads=sizes.kv_heads,
        head_dim=head_dim,
        feed_forward=sizes.feed_forward,
        vocabulary=config.integer("vocab_size", *declared.VOCABULARY),
        context_length=declared.usable_context(context, full),
        norm_eps=config.number("rms_norm_eps", *declared.NORM_EPS, default=1e-6),
        gate=gate,
        rotated_norm=family.rotated_norm,
        centered=family.centered,
        parallel=family.parallel,
        value_norm=family.value_norm,
        input_columns=_input_columns(config, family),
    )
    spec = declared.with_options(spec, config, family, "huggingface")
    declared.check_relations(spec, config)
    biases = set(family.biases)
    for option, roles in family.bias_options.items():
        if config.boolean(option, default=False):
            biases.update(roles)
    # What a multimodal model's file says of it is often left over from elsewhere: its tensors say it.
    tied: bool | None = None
    if whole.string("model_type") not in family.multimodal:
        tied = config.boolean("tie_word_embeddings", default=None)
    return Declared(family, spec, frozenset(biases), tied, declared.guessing(config, family, "huggingface"))
