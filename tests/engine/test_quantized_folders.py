"""Folders that other programs have quantized: GPTQ, AWQ, compressed-tensors and bitsandbytes, value by value.

Each method's layout is stated here once more, number by number, from its description.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from engine.loading.checkpoint import open_checkpoint
from engine.types import EngineError
from kernels.formats import FORMATS
from kernels.stored import canonical
from kernels.weights import dequantize

WIDTH, FEED_FORWARD = 64, 128
CONFIG = {
    "model_type": "llama",
    "vocab_size": 20,
    "hidden_size": WIDTH,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
}
LINEAR = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH, WIDTH),
    "self_attn.v_proj": (WIDTH, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (FEED_FORWARD, WIDTH),
    "mlp.up_proj": (FEED_FORWARD, WIDTH),
    "mlp.down_proj": (WIDTH, FEED_FORWARD),
}
ROLES = dict(zip(LINEAR, ("q", "k", "v", "output", "gate", "up", "down"), strict=True))
RNG = np.random.default_rng(40)


def write(folder: Path, quantization: dict, encode) -> dict[str, np.ndarray]:
    """A model whose linear layers `encode(rows, columns)` makes: tensors by suffix, and the values meant."""
    tensors = {"model.embed_tokens.weight": RNG.standard_normal((20, WIDTH)).astype(np.float16)}
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        tensors[f"{name}.weight"] = np.ones(WIDTH, np.float16)
    meant = {}
    for name, shape in LINEAR.items():
        parts, meant[ROLES[name]] = encode(*shape)
        tensors |= {f"model.layers.0.{name}.{suffix}": part for suffix, part in parts.items()}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": quantization}))
    safetensors.numpy.save_file(
        {n: np.ascontiguousarray(t) for n, t in tensors.items()}, folder / "model.safetensors"
    )
    return meant


def packed(numbers: np.ndarray, bits: int, order=None) -> np.ndarray:
    """Words of 32 bits along the last axis; field i holds number order[i] of those of a word."""
    each = 32 // bits
    order = order or range(each)
    runs = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % each)])
    runs = runs.reshape(*numbers.shape[:-1], -1, each).astype(np.uint64)
    words = sum(runs[..., number] << np.uint64(bits * field) for field, number in enumerate(order))
    return words.astype(np.uint32).view(np.int32)


def check(folder: Path, meant: dict[str, np.ndarray], quantization="auto") -> list[str]:
    checkpoint = open_checkpoint(folder, quantization)
    for role, values in meant.items():
        found = canonical(checkpoint.tensors.get(f"0.{role}"))
        assert np.array_equal(dequantize(found), values), role
    return [checkpoint.tensors.label(), canonical(checkpoint.tensors.get("0.down")).format]


def refuse(folder: Path) -> str:
    with pytest.raises(EngineError) as caught:
        open_checkpoint(folder)
    assert caught.value.code == "model_invalid"
    assert "\n" not in caught.value.message
    return caught.value.message


def drawn(rows, columns, group, low, high):
    integers = RNG.integers(low, high + 1, (rows, columns))
    scales = (RNG.uniform(0.5, 2, (rows, -(-columns // group))) * 0.01).astype(np.float16)
    return integers, scales, np.repeat(scales.astype(np.float32), group, axis=1)[:, :columns]


def gptq(bits, group, symmetric, version=1):
    def encode(rows, columns):
        size = columns if group == -1 else group
        codes, scales, wide = drawn(rows, columns, size, 0, (1 << bits) - 1)
        middle = 1 << (bits - 1)
        zeros = (
            np.full(scales.shape, middle)
            if symmetric
            else RNG.integers(version == 1, (1 << bits), scales.shape)
        )
        values = (codes - np.repeat(zeros, size, axis=1)[:, :columns]).astype(np.float32) * wide
        stored = zeros - 1 if version == 1 else zeros
        return {
            "qweight": packed(codes, bits).T,
            "qzeros": packed(stored.T, bits),
            "scales": scales.T,
            "g_idx": (np.arange(columns) // size).astype(np.int32),
        }, values

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": False}
    return config | ({"checkpoint_format": "gptq_v2"} if version == 2 else {}), encode


def awq(group):
    def encode(rows, columns):
        codes, scales, wide = drawn(rows, columns, group, 0, 15)
        zeros = RNG.integers(0, 16, scales.shape)
        values = (codes - np.repeat(zeros, group, axis=1)).astype(np.float32) * wide
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        return {
            "qweight": packed(codes.T, 4, order),
            "qzeros": packed(zeros.T, 4, order),
            "scales": scales.T,
        }, values

    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "version": "gemm",
        "zero_point": True,
    }, encode


def compressed(format, bits, group, symmetric=True):
    def encode(rows, columns):
        size = columns if group == -1 else group
        middle = 1 << (bits - 1)
        integers, scales, wide = drawn(rows, columns, size, -middle, middle - 1)
        zeros = np.zeros(scales.shape, int) if symmetric else RNG.integers(-middle, middle, scales.shape)
        values = (integers - np.repeat(zeros, size, axis=1)[:, :columns]).astype(np.float32) * wide
        parts = {"weight_scale": scales}
        if format == "pack-quantized":
            parts["weight_packed"] = packed(integers + middle, bits)
            parts["weight_shape"] = np.array([rows, columns])
            if not symmetric:
                parts["weight_zero_point"] = packed((zeros + middle).T, bits).T
        else:
            parts["weight"] = integers.astype(np.int8)
        return parts, values

    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "dynamic": False}
    weights |= {"strategy": "channel"} if group == -1 else {"strategy": "group", "group_size": group}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "config_groups": groups,
        "ignore": ["lm_head"],
    }, encode


METHODS = {
    "gptq 4 bits, groups of 32": gptq(4, 32, True),
    "gptq 4 bits, groups of 64, zero points": gptq(4, 64, False),
    "gptq 4 bits, whole rows": gptq(4, -1, True),
    "gptq_v2 4 bits, zero points": gptq(4, 32, False, version=2),
    "gptq 8 bits": gptq(8, 64, True),
    "awq, groups of 64": awq(64),
    "awq, groups of 32": awq(32),
    "compressed-tensors, packed": compressed("pack-quantized", 4, 32),
    "compressed-tensors, packed, zero points": compressed("pack-quantized", 4, 64, symmetric=False),
    "compressed-tensors, packed, 8 bits": compressed("pack-quantized", 8, 64),
    "compressed-tensors, rows of int8": compressed("int-quantized", 8, -1),
    "compressed-tensors, naive": compressed("naive-quantized", 8, 32),
}


@pytest.mark.parametrize("method", METHODS)
def test_values_are_those_that_the_method_defines(method: str, tmp_path: Path) -> None:
    quantization, encode = METHODS[method]
    meant = write(tmp_path, quantization, encode)
    label, format = check(tmp_path, meant)
    bits = 8 if "8 bits" in method or "int8" in method or "naive" in method else 5 if "zero" in method else 4
    bits = 5 if "awq" in method else bits
    assert FORMATS[format].bits == bits
    assert label.startswith({"g": "GPTQ", "a": "AWQ", "c": "compressed"}[method[0]])
    check(tmp_path, meant, "none")


def test_int8_of_bitsandbytes(tmp_path: Path) -> None:
    def encode(rows, columns):
        codes = RNG.integers(-127, 128, (rows, columns)).astype(np.int8)
        peaks = RNG.uniform(0.1, 1, rows).astype(np.float32)
        return {"weight": codes, "SCB": peaks, "weight_format": np.array(0, np.uint8)}, codes * (
            peaks / np.float32(127)
        )[:, None]

    meant = write(tmp_path, {"quant_method": "bitsandbytes", "load_in_8bit": True}, encode)
    assert check(tmp_path, meant) == ["bitsandbytes int8", "q8_64"]


# Appendix E of the paper.
NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022833334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
        *(0.7229568362236023, 1.0),
    ],
    np.float32,
)
FOUR_BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def nf4(nested, kind="nf4"):
    """Codes of nf4, and the values that they and their blocks' magnitudes stand for."""

    def encode(rows, columns):
        levels = RNG.integers(0, 16, (rows, columns))
        pairs = levels.reshape(-1, 2)
        blocks = rows * columns // 64
        state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [rows, columns]}
        parts = {"weight": (pairs[:, :1] << 4 | pairs[:, 1:]).astype(np.uint8), "weight.quant_map": NF4}
        if nested:
            numbers = RNG.integers(0, 256, blocks).astype(np.uint8)
            table = np.sort(RNG.uniform(-1, 1, 256)).astype(np.float32)
            outer = RNG.uniform(0.01, 0.1, -(-blocks // 256)).astype(np.float32)
            magnitudes = table[numbers] * np.repeat(outer, 256)[:blocks] + np.float32(0.25)
            parts |= {
                "weight.absmax": numbers,
                "weight.nested_absmax": outer,
                "weight.nested_quant_map": table,
            }
            state |= {"nested_blocksize": 256, "nested_offset": 0.25, "nested_dtype": "float32"}
        else:
            magnitudes = parts["weight.absmax"] = RNG.uniform(0.1, 1, blocks).astype(np.float32)
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        parts[f"weight.quant_state.bitsandbytes__{kind}"] = text
        return parts, NF4[levels] * np.repeat(magnitudes, 64).reshape(rows, columns)

    return encode


@pytest.mark.parametrize("nested", [False, True])
def test_4_bits_of_bitsandbytes(nested: bool, tmp_path: Path) -> None:
    """Exact as floats; products take the table in steps of 1 / 127."""
    meant = write(tmp_path, FOUR_BITS, nf4(nested))
    check(tmp_path, meant, "none")
    tensors = open_checkpoint(tmp_path).tensors
    for role, values in meant.items():
        found = tensors.get(f"0.{role}")
        assert found.format == "nf4"
        peaks = np.abs(values).reshape(-1, 64).max(axis=1)
        off = np.abs(dequantize(found) - values).reshape(-1, 64).max(axis=1)
        assert (
            off <= 0.004 * peaks / np.abs(NF4).max() + 0.004 * np.abs(found.scales.reshape(-1)) * 127
        ).all()
    assert tensors.label() == "bitsandbytes nf4"


def test_other_4_bits_of_bitsandbytes_are_refused(tmp_path: Path) -> None:
    write(tmp_path, FOUR_BITS, nf4(False, "fp4"))
    assert "'fp4', which are not supported (nf4 is)" in refuse(tmp_path)
    encode = nf4(True)
    write(
        tmp_path,
        FOUR_BITS,
        lambda r, c: ({k: v for k, v in encode(r, c)[0].items() if "nested_a" not in k}, None),
    )
    assert ".nested_absmax is missing" in refuse(tmp_path)


def test_columns_in_the_order_of_activations_are_refused(tmp_path: Path) -> None:
    quantization, encode = gptq(4, 32, True)

    def shuffled(rows, columns):
        parts, values = encode(rows, columns)
        return parts | {"g_idx": parts["g_idx"][::-1]}, values

    write(tmp_path, quantization | {"desc_act": True}, shuffled)
    assert "g_idx: columns in the order of their activations (desc_act) are not supported" in refuse(tmp_path)


@pytest.mark.parametrize("method", ["fp8", "eetq", "aqlm", "quip", "hqq", "torchao", "spqr", "vptq", "higgs"])
def test_other_methods_are_refused_by_name(method: str, tmp_path: Path) -> None:
    write(tmp_path, {"quant_method": method}, gptq(4, 32, True)[1])
    message = refuse(tmp_path)
    assert f"'{method}' is not supported" in message
    assert "GGUF" in message


CHANGES = {
    "bits": ({"bits": 3}, "bits 3 is not supported for GPTQ"),
    "group": ({"group_size": 48}, "group_size 48 is not supported"),
    "other group": ({"group_size": 64}, "scales has the shape"),
    "dynamic": ({"dynamic": {"+:.*": {}}}, "dynamic settings of single layers"),
    "layout": ({"checkpoint_format": "marlin"}, "'marlin' is not supported"),
    "8 bits": ({"bits": 8, "sym": False}, "sym false is not supported"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_gptq_cannot_be_read_is_refused(change: str, tmp_path: Path) -> None:
    quantization, encode = gptq(4, 32, True)
    fields, reason = CHANGES[change]
    write(tmp_path, quantization | fields, encode)
    assert reason in refuse(tmp_path)


def test_a_missing_part_and_broken_numbers_are_named(tmp_path: Path) -> None:
    quantization, encode = gptq(4, 32, True)
    write(
        tmp_path,
        quantization,
        lambda r, c: ({k: v for k, v in encode(r, c)[0].items() if k != "scales"}, None),
    )
    assert "'.scales is missing" in refuse(tmp_path)

    def broken(rows, columns):
        parts, values = encode(rows, columns)
        parts["scales"] = parts["scales"].copy()
        parts["scales"][0, 5] = np.inf
        parts["qzeros"] = parts["qzeros"] if rows == FEED_FORWARD else np.zeros_like(parts["qzeros"])
        return parts, values

    write(tmp_path, quantization, broken)
    tensors = open_checkpoint(tmp_path).tensors
    with pytest.raises(EngineError, match=r"gate_proj\.weight': row 5 has a scale that is not finite"):
        tensors.get("0.gate")
    with pytest.raises(EngineError, match=r"q_proj\.weight': integers beyond"):
        tensors.get("0.q")


def test_quantized_tensors_are_quantized_further_when_asked_for(tmp_path: Path) -> None:
    quantization, encode = gptq(8, 64, True)
    meant = write(tmp_path, quantization, encode)
    tensors = open_checkpoint(tmp_path, "int4").tensors
    found = canonical(tensors.get("0.down"))
    assert found.format == "q4"
    steps = np.repeat(found.scales.astype(np.float32), 32, axis=1)
    assert (np.abs(dequantize(found) - meant["down"]) <= steps * 0.501 + 1e-6).all()
