"""The paged KV cache on the device, and how keys and values get there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..cache_format import CacheShape
from ..interface import Rotation
from ..reference.cache import PagedCache
from .arithmetic import EXACT, rounded
from .kernel import PLAIN, Draw, Function, Kernel, Trial
from .rope import Turn, turned

PROGRAMS_A_PROCESSOR = 4
"""Programs that take work by turns, for each multiprocessor."""

WORKSPACE_BYTES = 32 << 20

_ROUND = tl.constexpr(1.5 * 2**23)
"""At this size float32 steps by 1: adding it rounds smaller numbers to nearest, ties to even."""


class Cache(PagedCache):
    """The reference's cache, with one block more, which rows without a sequence may write to.

    programs: how many share the work of a kernel that is not cut by its rows. workspace: float32, for what
    attention of a layer finds of splits.
    """

    def __init__(self, shape: CacheShape, device: torch.device) -> None:
        """MemoryError: it does not fit."""
        super().__init__(replace(shape, blocks=shape.blocks + 1), device)
        self.spare_block = shape.blocks
        self.programs = 2
        if device.type == "cuda":
            processors = torch.cuda.get_device_properties(device).multi_processor_count
            self.programs = PROGRAMS_A_PROCESSOR * processors
        self.workspace = torch.empty(WORKSPACE_BYTES // 4, device=device)

    def values(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer as they are held, [blocks, kv_heads, block_size, head_dim]."""
        return self._values[layer][0], self._values[layer][1]

    def scales(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Scales of keys and of values, [blocks, kv_heads, block_size, 1], if the format has any."""
        return None if self._scales is None else (self._scales[layer][0], self._scales[layer][1])


@triton.jit
def _integers(x, held):
    """Integers up to 127 and the scale of a head; the scale of what isn't finite is NaN.

    As in `kernels.reference.quantized.integers_of`.
    """
    peak = tl.max(tl.where(held, tl.abs(x), 0.0))
    broken = tl.max(tl.where(held & ~(tl.abs(x) < float("inf")), 1, 0)) > 0
    dull = broken | (peak < 2.0**-100)
    inverse = tl.where(dull, 0.0, tl.div_rn(127.0, tl.where(dull, 1.0, peak)))
    scale = tl.where(dull, 0.0, tl.div_rn(peak, 127.0))
    scale = tl.where(broken, float("nan"), scale)
    whole = tl.where(broken, 0.0, x * inverse) + _ROUND - _ROUND
    return whole.to(tl.int8), scale


@triton.jit
def _kv_write(
    k, v, slots, k_cache, v_cache, k_scales, v_scales, positions, cos, sin, k_stride, v_stride,
    KV_HEADS: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    SCALED: tl.constexpr, ROTATED: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, WIDE)
    held = columns < DIM
    at = head * DIM + columns
    if ROTATED:
        position = tl.load(positions + row).to(tl.int64)
        key = turned(k + row * k_stride, at, columns, cos, sin, position, HALF, PAIRS, held)
    else:
        key = tl.load(k + row * k_stride + at, mask=held, other=0.0)
    value = tl.load(v + row * v_stride + at, mask=held, other=0.0)
    slot = tl.load(slots + row).to(tl.int64)
    line = (slot // BLOCK * KV_HEADS + head) * BLOCK + slot % BLOCK
    if SCALED:
        integers, scale = _integers(key, held)
        tl.store(k_cache + line * DIM + columns, integers, mask=held)
        tl.store(k_scales + line, scale)
        integers, scale = _integers(value, held)
        tl.store(v_cache + line * DIM + columns, integers, mask=held)
        tl.store(v_scales + line, scale)
    else:
        kind = k_cache.dtype.element_ty
        if kind == tl.bfloat16:  # not left to a compiler or an interpreter
            key, value = rounded(key, 16), rounded(value, 16)
        tl.store(k_cache + line * DIM + columns, key.to(kind), mask=held)
        tl.store(v_cache + line * DIM + columns, value.to(kind), mask=held)


def kv_write(cache: Cache, layer: int, k: Tensor, v: Tensor, slots: Tensor, turn: Turn | None = None) -> None:
    """`Operations.kv_write`, of keys that turn first if there is a `turn`. Columns are contiguous."""
    kv_heads, dim = cache.shape.layers[layer]
    (k_cache, v_cache), scales = cache.values(layer), cache.scales(layer)
    where = (slots, slots, slots) if turn is None else (turn.positions, turn.rotation.cos, turn.rotation.sin)
    options = {"HALF": 0, "PAIRS": False} if turn is None else turn.options()
    if len(k):
        _kv_write[len(k), kv_heads](
            k, v, slots, k_cache, v_cache, *(scales or (k_cache, v_cache)), *where, k.stride(0), v.stride(0),
            KV_HEADS=kv_heads, BLOCK=cache.shape.block_size, DIM=dim, WIDE=triton.next_power_of_2(dim),
            SCALED=scales is not None, ROTATED=turn is not None, **options, num_warps=1, **EXACT,
        )  # fmt: skip


def _plain(cache: Cache, layer: int, k: Tensor, v: Tensor, slots: Tensor, turn: Turn | None = None) -> None:
    if turn is not None:
        k = PLAIN.rope(k.contiguous(), turn.positions, turn.rotation, head_dim=turn.dim)
    cache.write(layer, k, v, cache.lines(slots, cache.shape.layers[layer].kv_heads))


def _trials(draw: Draw) -> Iterator[Trial]:
    for format, kv_heads, dim, rows, block_size in (
        ("float16", 1, 64, 1, 16),
        ("int8", 3, 80, 5, 16),
        ("float32", 2, 24, 3, 32),
        ("bfloat16", 2, 64, 9, 16),
        ("int8", 1, 128, 17, 32),
    ):
        k, v = (draw.normal(rows, kv_heads * dim) for _ in range(2))
        v[0] *= 1e30 if format == "int8" else 1.0
        if format == "int8":
            v[-1, -1] = torch.nan
        slots = torch.from_numpy(draw.generator.permutation(4 * block_size)[:rows].astype("int32"))
        angles = draw.normal(50, dim // 2)
        rotation = Rotation(angles.cos(), angles.sin(), "half")
        turn = Turn(draw.integers(0, 50, rows), rotation, dim)
        for turning in (None, turn):
            shape = CacheShape.alike(1, 4, block_size, kv_heads, dim, format)

            def trial(
                f: Function,
                shape: CacheShape = shape,
                arguments: tuple[object, ...] = (0, k, v, slots.to(draw.device), turning),
            ) -> list[Tensor]:
                cache = Cache(shape, draw.device)
                f(cache, *arguments)
                return [*cache.values(0), *(cache.scales(0) or ())]

            yield trial


KERNEL = Kernel("kv_write", kv_write, _plain, _trials, tolerance=1e-6)
