"""Sizes that differ from layer to layer, as the files of a model declare them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..models.family import Varied
from ..models.spec import LayerSpec, Sizes
from . import declared
from .fields import Fields, shown
from .gguf import GGUFFile


def folder_layers(
    config: Fields, varied: Varied | None, layers: Sequence[LayerSpec], model: Sizes
) -> tuple[LayerSpec, ...]:
    """The layers with their sizes, as a config.json says; model: those of layers with a window."""
    if varied is None:
        return tuple(layers)
    alike = config.boolean(varied.keys_are_values, default=False)
    told = _told(config, varied.layers, len(layers))
    found = []
    for i, layer in enumerate(layers):
        sees_all = layer.window is None
        if told is not None:
            own = told.get(i, Fields(config.path, {}))
            kv_heads = own.integer("num_key_value_heads", *declared.HEADS, default=model.kv_heads)
            head_dim = own.integer("head_dim", *declared.HEAD_DIM, default=model.head_dim)
        else:
            kv_heads, head_dim = model.kv_heads, model.head_dim
            if sees_all:
                head_dim = config.integer(varied.head_dim, *declared.HEAD_DIM)
                given = config.integer(varied.kv_heads, *declared.HEADS, default=kv_heads)
                kv_heads = given if alike else kv_heads
        found.append(_sized(layer, model, kv_heads, head_dim, model.feed_forward, alike and sees_all))
    count = config.integer(varied.shared, 0, len(layers) - 1, default=0)
    wide = config.boolean(varied.wide, default=False)
    return _sharing(config, varied.shared, found, count, 2 * model.feed_forward if wide else None)


def gguf_layers(
    file: GGUFFile, model: Fields, varied: Varied | None, layers: Sequence[LayerSpec], sizes: Sizes
) -> tuple[LayerSpec, ...]:
    """Likewise, as the metadata of a GGUF file says; keys that are values are known by what is not there."""
    if varied is None:
        return tuple(layers)
    head_dim = model.integer("attention.key_length", *declared.HEAD_DIM)
    kv_heads = by_layer(model, "attention.head_count_kv", declared.HEADS, len(layers))
    inside = by_layer(model, "feed_forward_length", declared.FEED_FORWARD, len(layers))
    found = [
        _sized(
            layer,
            sizes,
            kv_heads[i],
            head_dim if layer.window is None else sizes.head_dim,
            inside[i],
            layer.window is None and f"blk.{i}.attn_v.weight" not in file.tensors,
        )
        for i, layer in enumerate(layers)
    ]
    key = "attention.shared_kv_layers"
    return _sharing(model, key, found, model.integer(key, 0, len(layers) - 1, default=0), None)


def by_layer(model: Fields, key: str, bounds: tuple[int, int], layers: int) -> list[int]:
    """A number for each layer, where a file may give one for all."""
    value: Any = model.get(key)
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, list):
        return [model.integer(key, *bounds)] * layers
    if len(listed) != layers:
        model.fail(key, f"must list a number for each of the {layers} layers")
    return [Fields(model.path, {key: entry}).integer(key, *bounds) for entry in listed]


def _told(config: Fields, key: str, layers: int) -> dict[int, Fields] | None:
    """What an object says by the numbers of layers, which may be filled up with zeros; None without it."""
    whole = config.mapping(key)
    if whole is None:
        return None
    found = {}
    for name in (each.removeprefix(whole.prefix) for each in whole.values):
        if not (name.isascii() and name.isdigit() and len(name) < 9 and int(name) < layers):
            config.fail(key, f"names {shown(name)}, which is none of the {layers} layers")
        own = whole.mapping(name) or Fields(config.path, {})
        for option in (each.removeprefix(own.prefix) for each in own.values):
            if option not in ("head_dim", "num_key_value_heads"):
                own.fail(option, "is not supported")
        if int(name) in found:
            config.fail(key, f"names layer {int(name)} twice")
        found[int(name)] = own
    return found


def _sized(
    layer: LayerSpec, model: Sizes, kv_heads: int, head_dim: int, feed_forward: int, keys_are_values: bool
) -> LayerSpec:
    return replace(
        layer,
        kv_heads=None if kv_heads == model.kv_heads else kv_heads,
        head_dim=None if head_dim == model.head_dim else head_dim,
        feed_forward=None if feed_forward == model.feed_forward else feed_forward,
        keys_are_values=keys_are_values,
    )


def _sharing(
    fields: Fields, key: str, layers: Sequence[LayerSpec], count: int, feed_forward: int | None
) -> tuple[LayerSpec, ...]:
    """The last `count` layers read the keys and values of the last one of their kind before them."""
    first = len(layers) - count
    last = {layer.window is None: i for i, layer in enumerate(layers[:first])}
    shared = []
    for layer in layers[first:]:
        source = last.get(layer.window is None)
        if source is None:
            fields.fail(key, f"is {count}, which leaves no layer whose keys and values some of them can read")
        same = layers[source].kv_heads, layers[source].head_dim
        if same != (layer.kv_heads, layer.head_dim):
            fields.fail(key, f"is {count}, but layers that share keys differ in their heads")
        inside = layer.feed_forward if feed_forward is None else feed_forward
        shared.append(replace(layer, shares=source, keys_are_values=False, feed_forward=inside))
    return (*layers[:first], *shared)
