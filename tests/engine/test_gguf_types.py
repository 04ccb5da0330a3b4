"""Stored tensor types -> canonical weights, against the gguf package's own dequantization."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.loading.gguf import read_gguf
from engine.loading.stored import StoredTensor, to_vector
from engine.quantization import dequantize
from kernels import stored
from kernels.formats import BLOCKS
from kernels.stored import canonical
from kernels.weights import Canonical, Packed, Plain, Stored
from stored_blocks import FLOATS, random_blocks

ROWS, COLUMNS = 6, 512


def to_weight(tensor: StoredTensor) -> Canonical:
    """In its own format, as a backend without a way of its own makes it."""
    return canonical(tensor.to_weight(BLOCKS[tensor.type].format))


def to_float32(tensor: StoredTensor) -> Plain:
    weight = tensor.to_weight("f32")
    assert isinstance(weight, Plain)
    return weight


def canonical_format(type: str) -> str:
    return BLOCKS[type].format


def read_rows(tensor: StoredTensor, rows: slice) -> np.ndarray:
    data = tensor.data.reshape(tensor.shape[0], -1)
    return stored.read_rows(Stored(tensor.type, (ROWS, COLUMNS), data, tensor.name), rows)


def blocks_of(type: str) -> StoredTensor:
    blocks = random_blocks(np.random.default_rng(0), type, ROWS, COLUMNS)
    return StoredTensor("w", blocks.shape, type, blocks.data.reshape(-1))


EXACT = {
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
}


def library_values(tensor: StoredTensor) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[tensor.type]
    return gguf.quants.dequantize(tensor.data.reshape(tensor.shape[0], -1), kind)


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    for name, block in BLOCKS.items():
        kind = gguf.GGMLQuantizationType(block.number)
        assert kind.name == name
        assert gguf.GGML_QUANT_SIZES[kind] == block[:2]


@pytest.mark.parametrize("type", sorted(EXACT))
def test_exact_types_keep_every_value(type: str) -> None:
    tensor = blocks_of(type)
    weight = to_weight(tensor)
    assert isinstance(weight, Packed)
    assert weight.format == canonical_format(type)
    expected = library_values(tensor)
    assert np.abs(expected).max() > 0
    assert dequantize(weight).tobytes() == expected.tobytes()
    assert np.array_equal(to_float32(tensor).values, expected)
    assert np.array_equal(read_rows(tensor, slice(2, 4)), expected[2:4])
    # No more than the file has, but for the end of a last tile; five digits to the base 3 in a byte take
    # longer to tell apart than four of two bits take to read.
    file = tensor.data.nbytes * (66 if type == "TQ1_0" else 54) // 54
    assert weight.nbytes == file


@pytest.mark.parametrize("type", ["Q4_1", "Q8_0"])
def test_exact_types_are_views_of_the_file(type: str) -> None:
    tensor = blocks_of(type)
    weight = to_weight(tensor)
    assert isinstance(weight, Packed)
    assert np.shares_memory(weight.codes, tensor.data)
    assert np.shares_memory(weight.scales, tensor.data)
    if type == "Q4_1":
        assert weight.minima is not None
        assert np.shares_memory(weight.minima, tensor.data)


@pytest.mark.parametrize("type", ["F32", "F16", "BF16"])
def test_float_types_are_views_of_the_file(type: str) -> None:
    values = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    kind = gguf.GGMLQuantizationType[type]
    data = gguf.quants.quantize(values, kind).reshape(-1).view(np.uint8)
    tensor = StoredTensor("w", (3, 5), type, data)
    weight = to_weight(tensor)
    assert isinstance(weight, Plain)
    assert weight.format == type.lower()
    assert np.shares_memory(weight.values, data)
    exact = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    assert np.array_equal(dequantize(weight), exact)
    assert np.array_equal(to_float32(tensor).values, exact)
    vector = to_vector(StoredTensor("v", (15,), type, data))
    assert vector.format == "f32"
    assert np.array_equal(vector.values, exact.reshape(-1))


@pytest.mark.parametrize("type", sorted(set(FLOATS) - set(EXACT)))
def test_other_types_come_within_half_a_step_of_q8(type: str) -> None:
    tensor = blocks_of(type)
    weight = to_weight(tensor)
    assert isinstance(weight, Packed)
    assert weight.format == canonical_format(type) == "q8"
    expected = library_values(tensor).reshape(ROWS, -1, 32)
    error = np.abs(dequantize(weight).reshape(ROWS, -1, 32) - expected).max(axis=2)
    assert (error <= weight.scales.astype(np.float32) * 0.5001).all()
    assert np.abs(expected).max() > 0
    assert np.array_equal(to_float32(tensor).values, library_values(tensor))
    assert np.array_equal(read_rows(tensor, slice(2, 4)), library_values(tensor)[2:4])


@pytest.mark.parametrize("type", sorted(set(EXACT) & set(FLOATS)))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scales_that_are_not_finite_are_refused(type: str, bad: float) -> None:
    tensor = blocks_of(type)
    at, width = FLOATS[type][0], BLOCKS[type][1]
    tensor.data.reshape(ROWS, -1, width)[3, 1, at : at + 2] = np.float16([bad]).view(np.uint8)
    with pytest.raises(ValueError, match="row 3 holds a value that is not finite"):
        to_weight(tensor)


@pytest.mark.parametrize("type", ["F32", "BF16", "Q4_1", "Q8_0"])
def test_data_at_odd_addresses_gives_the_same_values(type: str) -> None:
    if type in FLOATS:
        tensor = blocks_of(type)
    else:
        data = np.random.default_rng(2).integers(0, 60, ROWS * COLUMNS * BLOCKS[type][1], np.uint8)
        tensor = StoredTensor("w", (ROWS, COLUMNS), type, data)
    shifted = np.empty(tensor.data.size + 1, np.uint8)[1:]
    shifted[:] = tensor.data
    weight = to_weight(StoredTensor("w", tensor.shape, type, shifted))
    assert np.array_equal(dequantize(weight), dequantize(to_weight(tensor)))
    arrays = (weight.values,) if isinstance(weight, Plain) else (weight.scales, weight.minima)
    assert all(array is None or array.flags.aligned for array in arrays)


def test_wide_matrices_are_converted_in_pieces_like_whole_ones() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((40, 8192)).astype(np.float32)
    tensor = StoredTensor("w", values.shape, "F32", values.reshape(-1).view(np.uint8))
    for format in ("q8", "q4"):
        whole = tensor.to_weight(format)
        for row in (0, 15, 16, 39):
            one = StoredTensor("w", (1, 8192), "F32", values[row].view(np.uint8))
            piece = one.to_weight(format)
            assert np.array_equal(piece.codes[0], whole.codes[row])
            assert np.array_equal(piece.scales[0], whole.scales[row])


def test_mxfp4_as_it_is_quantized_keeps_every_value() -> None:
    values = np.random.default_rng(4).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    data = gguf.quants.quantize(values, gguf.GGMLQuantizationType.MXFP4)
    tensor = StoredTensor("w", (ROWS, COLUMNS), "MXFP4", data.reshape(-1))
    assert np.array_equal(dequantize(to_weight(tensor)), library_values(tensor))


def test_every_scale_of_nvfp4_is_that_of_the_package() -> None:
    """With a sign, without meaning, subnormal: as ggml reads them."""
    data = np.random.default_rng(5).integers(0, 256, (4, 16, 36), np.uint8)
    data[..., :4] = np.arange(256, dtype=np.uint8).reshape(4, 16, 4)
    tensor = StoredTensor("w", (4, 1024), "NVFP4", data.reshape(-1))
    values = dequantize(to_weight(tensor))
    assert np.array_equal(values, library_values(tensor))
    assert np.isfinite(values).all()


def test_every_byte_of_tq1_0_is_read_as_by_the_package() -> None:
    data = np.random.default_rng(6).integers(0, 256, (2, 3, 54), np.uint8)
    data.reshape(2, -1)[:, :] = np.arange(2 * 162, dtype=np.uint8).reshape(2, -1)
    data[..., 52:] = np.float16([0.5]).view(np.uint8)
    tensor = StoredTensor("w", (2, 768), "TQ1_0", data.reshape(-1))
    assert np.array_equal(dequantize(to_weight(tensor)), library_values(tensor))


def test_B047_q4_1_block() -> None:
    data = np.frombuffer(bytes.fromhex("003c0049f0e1d2c3b4a5968778695a4b3c2d1e0f"), np.uint8)
    weight = to_weight(StoredTensor("w", (1, 32), "Q4_1", data))
    assert dequantize(weight)[0].tolist() == [*range(10, 26), *range(25, 9, -1)]


def test_B047_q4_1_tensor_of_the_default_model(default_model: Path) -> None:
    tensor = read_gguf(default_model).tensors["blk.0.attn_q.weight"]
    row = dequantize(to_weight(tensor))[0]
    assert row[:4].tolist() == [-0.0963134765625, 0.1573486328125, -0.0963134765625, -0.73046875]
    assert row[16:20].tolist() == [-0.22314453125, 0.2841796875, 0.030517578125, -0.22314453125]
    assert np.array_equal(dequantize(to_weight(tensor)), library_values(tensor))
