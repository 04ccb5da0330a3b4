"""How a model is cut: every part once, nothing empty, and a sentence where that can't be."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import EngineConfig, EngineError, plan_memory
from engine.loading.checkpoint import open_checkpoint
from engine.loading.stored import StoredTensor
from engine.models.spec import ExpertsSpec, LayerSpec, ModelSpec
from engine.parallel.shares import Split, even, head_ranges, share_of, stages
from engine.parallel.tensors import RankTensors
from engine.selection import select_backend
from engine.testing import ScriptedModel
from fake_gpus import FakeGpu
from kernels.formats import FORMATS
from kernels.interface import Routing
from kernels.stored import canonical
from kernels.triton import RESERVED_BYTES
from kernels.weights import Plain, dequantize
from tiny_models import make

SPEC = ModelSpec(
    architecture="llama",
    layers=(LayerSpec(),) * 6,
    width=64,
    heads=8,
    kv_heads=2,
    head_dim=16,
    feed_forward=96,
    vocabulary=160,
    context_length=64,
    norm_eps=1e-5,
)


def spec_of(heads: int, *kv_heads: int) -> ModelSpec:
    return replace(SPEC, heads=heads, layers=tuple(LayerSpec(kv_heads=kv) for kv in kv_heads))


def test_columns_are_shared_about_equally_at_borders_of_units() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        parts, size = rng.randint(1, 9), rng.randint(9, 20000)
        ranges = even(size, parts)
        assert [*itertools.chain.from_iterable(ranges)] == [*range(size)]
        lengths = [len(part) for part in ranges]
        assert min(lengths) > 0
        assert max(lengths) <= 3 * min(lengths)
        if size >= 64 * parts:
            assert all(part.start % 32 == 0 for part in ranges)
    assert even(14336, 8)[3] == range(5376, 7168)
    with pytest.raises(ValueError, match="3 columns can't be shared by 4"):
        even(3, 4)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "parts", "wanted"),
    [
        (32, [8], 4, [8, 8, 8, 8]),
        (32, [8], 16, [2] * 16),
        (9, [3], 2, [3, 6]),
        (9, [3], 3, [3, 3, 3]),
        (9, [3], 9, [1] * 9),
        (28, [4], 8, None),
        (8, [4, 1], 2, [4, 4]),
        (8, [4, 2, 8], 4, [2, 2, 2, 2]),
        (12, [3, 1], 4, None),
        (71, [1], 71, [1] * 71),
        (64, [8], 3, [16, 24, 24]),
    ],
)
def test_heads_go_with_the_keys_they_read(
    heads: int, kv_heads: list[int], parts: int, wanted: list[int] | None
) -> None:
    spec = spec_of(heads, *kv_heads)
    if wanted is None:
        with pytest.raises(ValueError, match=r"tensor_parallel can be [\d, ]+"):
            head_ranges(spec, parts)
        return
    assert [len(own) for own in head_ranges(spec, parts)] == wanted
    shares = [share_of(spec, Split(parts), rank) for rank in range(parts)]
    assert [head for share in shares for head in share.heads] == [*range(heads)]
    for layer, count in enumerate(kv_heads):
        group = heads // count
        for share in shares:
            own = share.of_layers[layer].kv_heads
            # What attention goes by: local query head h reads local key head h // (heads / key heads).
            local = len(share.heads) // len(own)
            assert [head // group for head in share.heads] == [
                own[h // local] for h in range(len(share.heads))
            ]


def test_stages_are_balanced_and_keep_together_what_shares_keys() -> None:
    assert stages(replace(SPEC, vocabulary=1), 3) == [range(2), range(2, 4), range(4, 6)]
    assert stages(replace(SPEC, vocabulary=2000), 3) == [range(1), range(1, 5), range(5, 6)]
    sharing = replace(SPEC, layers=(*SPEC.layers[:3], *(LayerSpec(shares=2),) * 3))
    assert stages(sharing, 2)[1].start <= 2
    assert stages(sharing, 3)[-1] == range(2, 6)
    assert [share_of(sharing, Split(1, 3), 2).spec.layers[i].shares for i in range(4)] == [None, 0, 0, 0]
    with pytest.raises(ValueError, match="at most 3 stages as layers share their keys"):
        stages(sharing, 4)
    with pytest.raises(ValueError, match="at most 6 stages; pipeline_parallel 7 is more"):
        stages(SPEC, 7)


def test_the_best_stages_of_few_layers_are_found() -> None:
    """Against all ways to cut."""
    sizes = (3, 9, 1, 1, 7, 2, 5, 4)
    layers = tuple(LayerSpec(experts=ExpertsSpec(n, 32, Routing(1))) for n in sizes)
    spec = replace(SPEC, layers=layers, heads=1, kv_heads=1, head_dim=2)

    def largest(parts: list[range]) -> int:
        table = spec.vocabulary * spec.width
        ends = [table * ((part.start == 0) + (part.stop == len(sizes))) for part in parts]
        attention = 2 * spec.width * 4
        return max(
            end + sum(attention + 3 * spec.width * 32 * sizes[i] for i in part)
            for end, part in zip(ends, parts, strict=True)
        )

    for count in range(1, len(sizes) + 1):
        cuts = itertools.combinations(range(1, len(sizes)), count - 1)
        every = [list(map(range, (0, *cut), (*cut, len(sizes)))) for cut in cuts]
        assert largest(stages(spec, count)) == min(map(largest, every))


def joined(parts: list[np.ndarray], places: list[range], axis: int, whole: np.ndarray) -> np.ndarray:
    found = np.full_like(whole, np.nan)
    for part, place in zip(parts, places, strict=True):
        index = [slice(None)] * whole.ndim
        index[axis] = slice(place.start, place.stop)
        found[tuple(index)] = part
    return found


@pytest.mark.parametrize("quantization", ["auto", "int8", "int4", "nf4"])
@pytest.mark.parametrize("kind", ["phi3", "gptoss", "gemma4", "olmo2"])
def test_the_parts_of_every_tensor_are_the_whole(kind: str, quantization: str, tmp_path: Path) -> None:
    """Also where matrices are quantized while they load: each rank makes the numbers that one would."""
    make(kind, tmp_path)
    tensors = (checkpoint := open_checkpoint(tmp_path, quantization)).tensors  # type: ignore[arg-type]
    split = Split(2, 2)
    shares = [share_of(checkpoint.spec, split, rank) for rank in range(4)]
    read: list[int] = []
    views = [RankTensors(tensors._replace(after=read.append), share) for share in shares]
    seen = set()
    for name in tensors.bound:
        whole = tensors.get(name)
        assert whole is not None
        values = dequantize(canonical(whole))
        layer, dot, role = name.partition(".")
        stage = views[2:] if dot and int(layer) >= shares[2].layers.start else views[:2]
        own = f"{int(layer) - stage[0].share.layers.start}.{role}" if dot else name
        found = [(view, part) for view in stage if (part := view.get(own)) is not None]
        assert found, name
        axis = 0 if found[0][0].part(own).columns is None else 1
        places = [view.part(own)[axis] or range(values.shape[axis]) for view, _ in found]
        parts = [dequantize(canonical(part)) for _, part in found]
        assert np.array_equal(joined(parts, places, axis, values), values), name
        seen.add((axis, len(found), places[0] != range(values.shape[axis])))
        for view, part in found:
            if view.part(own).columns is not None and not isinstance(part, Plain):
                assert FORMATS[part.format].packed
    assert {(0, 2, True), (1, 2, True), (0, 2, False)} <= seen
    if kind == "gptoss":
        assert (0, 1, False) in seen, "biases of what is summed are the first rank's"
    stored = sum(t.nbytes for _, t in tensors.bound.values() if isinstance(t, StoredTensor))
    if kind == "phi3" and quantization != "nf4":  # whose groups of 64 are wider than a part
        assert sum(read) < 1.2 * stored, "each rank reads its part of the files, and not all"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tensor_parallel": 0}, r"tensor_parallel must be an integer in \[1, 64\] processes, not 0"),
        ({"pipeline_parallel": True}, r"pipeline_parallel must be an integer in \[1, 64\] stages, not True"),
        ({"tensor_parallel": 2, "backend": "native"}, "backend must be auto, triton or reference with"),
        ({"tensor_parallel": 2, "device": "cuda:1"}, "device must be auto, cpu or cuda with"),
        ({"pipeline_parallel": 2, "device": "mps"}, "device must be auto, cpu or cuda with"),
        ({"tensor_parallel": 2, "model": ScriptedModel([[1]], "nowhere")}, "model must be the path"),
    ],
)
def test_what_several_processes_cannot_do_is_said_at_once(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EngineConfig(**{"model": "model.gguf", **fields})


def test_a_plan_for_several_gpus_knows_each_of_them(tmp_path: Path, gpus: Any) -> None:
    """The memory of all is for the weights, the least one limits the cache, and none is made up."""
    make("mistral", tmp_path)
    config = EngineConfig(model=tmp_path, max_sequences=512, backend="reference")
    gib = 1 << 30
    gpus(FakeGpu(free=gib), FakeGpu(uuid="GPU-bbbb", free=10**7))
    one, two = plan_memory(config), plan_memory(replace(config, pipeline_parallel=2))
    assert (one.free_bytes, two.free_bytes) == (gib, gib + 10**7)
    assert two.kv_bytes < 2 * 10**7 < one.kv_bytes, "each has about as much as the one with the least"
    with pytest.raises(EngineError, match="is 3, and each needs a GPU of its own: torch finds 2"):
        plan_memory(replace(config, pipeline_parallel=3))
    need = open_checkpoint(tmp_path).tensors.nbytes()
    room = int(0.8 * need) + RESERVED_BYTES
    gpus(FakeGpu(free=room), FakeGpu(uuid="GPU-bbbb", free=room))
    packed = replace(config, backend="auto", kv_blocks=1)
    assert plan_memory(packed).weight_bytes < need
    assert plan_memory(replace(packed, tensor_parallel=2)).weight_bytes == need


def test_a_plan_counts_the_memory_of_the_ranks_and_keys_that_several_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("mistral-mqa-tied", tmp_path)
    monkeypatch.setattr("kernels.backends.free_memory", lambda: 2_000_000_000)
    config = EngineConfig(model=tmp_path, device="cpu", max_sequences=512, kv_dtype="float32")
    one, two = plan_memory(config), plan_memory(replace(config, tensor_parallel=2))
    assert (one.ranks, two.ranks) == ("", "tensor 2")
    assert two.kv_bytes_per_token == 2 * one.kv_bytes_per_token, "each has the only key head"
    staged = plan_memory(replace(config, pipeline_parallel=3, kv_memory=3_000_000))
    assert staged.kv_bytes_per_token == one.kv_bytes_per_token
    uneven = plan_memory(replace(config, pipeline_parallel=2, kv_memory=3_000_000))
    for plan in (staged, uneven):
        assert plan.kv_bytes <= 3_000_000 < plan.kv_bytes + plan.kv_bytes // plan.blocks, (
            "as much as was said"
        )
    with pytest.raises(EngineError, match="for one block, but kv_memory is 1,000 bytes"):
        plan_memory(replace(config, pipeline_parallel=2, kv_memory=1000))
    with pytest.raises(EngineError, match="at most 3 stages"):
        plan_memory(replace(config, pipeline_parallel=4))


def test_the_backend_of_several_processes_is_said() -> None:
    config = EngineConfig(model="m.gguf", device="cpu", tensor_parallel=2)
    alone, shared = (select_backend(each) for each in (replace(config, tensor_parallel=1), config))
    assert (shared.name, shared.settings.device) == ("reference", "cpu")
    if alone.name == "native":
        assert any("in a single process, computes a step faster" in note for note in shared.notes)
    assert select_backend(replace(config, backend="reference")).notes == alone.notes
