"""NVFP4 matrices of GGUF files with factors of their own, as llama.cpp's converter writes them."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.loading.checkpoint import open_checkpoint
from engine.types import EngineError
from kernels.stored import canonical
from kernels.weights import dequantize
from stored_blocks import random_blocks

WIDTH, INNER, EXPERTS, VOCABULARY = 64, 128, 4, 50
NVFP4 = gguf.GGMLQuantizationType.NVFP4
MATRICES = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH, WIDTH),
    "attn_v": (WIDTH, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate_exps": (EXPERTS, INNER, WIDTH),
    "ffn_up_exps": (EXPERTS, INNER, WIDTH),
    "ffn_down_exps": (EXPERTS, WIDTH, INNER),
}


def write(path: Path, factors: dict[str, Any]) -> dict[str, np.ndarray]:
    """A model of one layer with experts. factors: further tensors. Returns its matrices without them."""
    rng, values = np.random.default_rng(1), {}
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_expert_feed_forward_length(INNER)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, shape in (("token_embd", (VOCABULARY, WIDTH)), ("blk.0.ffn_gate_inp", (EXPERTS, WIDTH))):
        writer.add_tensor(f"{name}.weight", rng.standard_normal(shape, np.float32))
    for norm, size in (("attn", WIDTH), ("ffn", WIDTH), ("attn_q", 16), ("attn_k", 16)):
        writer.add_tensor(f"blk.0.{norm}_norm.weight", np.ones(size, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for name, shape in MATRICES.items():
        blocks = random_blocks(rng, "NVFP4", int(np.prod(shape[:-1])), shape[-1])
        values[name] = dequantize(canonical(blocks)).reshape(shape)
        writer.add_tensor(f"blk.0.{name}.weight", blocks.data.reshape(*shape[:-1], -1), raw_dtype=NVFP4)
    for name, numbers in factors.items():
        writer.add_tensor(f"blk.0.{name}", np.float32(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def test_factors_are_those_of_their_matrices_and_of_each_expert(tmp_path: Path) -> None:
    each = [0.5, 0.3, -2.0, 1.7]
    path = tmp_path / "m.gguf"
    factors = {"attn_q.scale": [0.7], "ffn_up_exps.scale": each, "ffn_up_exps.input_scale": [9.0] * EXPERTS}
    values = write(path, {**factors, "attn_q.input_scale": [3.0]})
    for quantization in ("auto", "none"):
        tensors = open_checkpoint(path, quantization).tensors

        def got(name: str, tensors: Any = tensors) -> np.ndarray:
            weight = tensors.get(name)
            assert weight is not None
            return dequantize(canonical(weight))

        assert np.array_equal(got("0.q"), values["attn_q"] * np.float32(0.7))
        assert np.array_equal(got("0.k"), values["attn_k"])
        for expert, factor in enumerate(each):
            up = values["ffn_up_exps"][expert] * np.float32(factor)
            assert np.array_equal(got(f"0.expert_up.{expert}"), up)
            assert np.array_equal(got(f"0.expert_gate.{expert}"), values["ffn_gate_exps"][expert])


@pytest.mark.parametrize("numbers", [[1.0, 2.0], [[1.0]]])
def test_factors_in_other_numbers_are_refused_by_name(tmp_path: Path, numbers: Any) -> None:
    path = tmp_path / "m.gguf"
    write(path, {"attn_q.scale": numbers})
    with pytest.raises(EngineError, match=r"tensor 'blk.0.attn_q.scale' has the shape"):
        open_checkpoint(path)


def test_factors_that_are_not_finite_and_those_of_no_matrix_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write(path, {"attn_q.scale": [np.nan]})
    with pytest.raises(EngineError, match=r"'blk.0.attn_q.scale' holds a value that is not finite"):
        open_checkpoint(path)
    write(path, {"ffn_gate_inp.scale": [2.0]})  # its matrix is no NVFP4
    with pytest.raises(EngineError, match=r"tensor 'blk.0.ffn_gate_inp.scale' is no part of"):
        open_checkpoint(path)
