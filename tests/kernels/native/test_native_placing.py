"""Weights on their way into tiles: when they are read, and what becomes of the pages of a mapped file."""

import ctypes
import mmap
import sys
import weakref
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from kernels.formats import BLOCKS
from kernels.native import reserve
from kernels.stored import release
from kernels.weights import Packed, Plain, Stored
from stored_blocks import random_blocks

ROWS, COLUMNS = 2048, 1024
BYTES = ROWS * COLUMNS // 32 * 20


def in_blocks(buffer, offset=0):
    """A q4 matrix as GGUF stores it: scale, minimum and codes of each group side by side."""
    data = np.frombuffer(buffer, np.uint8, BYTES, offset).reshape(ROWS, COLUMNS // 32, 20)
    halves = data[..., :4].view(np.float16)
    return Packed("q4", (ROWS, COLUMNS), data[..., 4:], halves[..., 0], halves[..., 1])


@pytest.fixture
def path(tmp_path, helpers):
    weight = helpers.packed(np.random.default_rng(1), "q4", ROWS, COLUMNS)
    blocks = np.empty((ROWS, COLUMNS // 32, 20), np.uint8)
    blocks[..., :2] = weight.scales[..., None].view(np.uint8)
    blocks[..., 2:4] = weight.minima[..., None].view(np.uint8)
    blocks[..., 4:] = weight.codes
    path = tmp_path / "weights"
    path.write_bytes(bytes(64) + blocks.tobytes())
    return path


def product(native, helpers, weight):
    x = np.random.default_rng(2).standard_normal((3, COLUMNS)).astype(np.float32)
    backend = native()
    matrix = backend.place_matrix(weight)
    return helpers.compute(backend, x, lambda ops, value, _: ops.linear(value, matrix))


def resident(path):
    """Bytes of a mapped file that count as this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(entry.split()[1]) for entry in lines if entry.startswith("Rss:")) * 1024
    raise AssertionError(f"{path} is not mapped")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")
def test_pages_of_a_mapped_file_are_given_back_and_can_be_read_again(native, helpers, path):
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content = mapped[:]
    # A system that is short of memory may take some back while they are looked at.
    assert any(mapped[:] == content and resident(path) > 0.9 * BYTES for _ in range(50))
    from_file = product(native, helpers, in_blocks(mapped, 64))
    assert resident(path) < 0.1 * BYTES
    assert helpers.same_bits(from_file, product(native, helpers, in_blocks(content, 64)))
    assert mapped[:] == content


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")
@pytest.mark.parametrize("type", BLOCKS)
def test_pages_of_stored_blocks_are_given_back(native, helpers, tmp_path, type):
    rows, columns = 256, 4096
    stored = random_blocks(np.random.default_rng(29), type, rows, columns)
    path = tmp_path / "weights"
    path.write_bytes(stored.data.tobytes())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, np.uint8).reshape(stored.data.shape)
    assert any(data.any() and resident(path) > 0.9 * stored.data.nbytes for _ in range(50))
    backend = native()
    backend.place_matrix(Stored(type, (rows, columns), data, "tensor 'w'"))
    backend.fill()
    assert resident(path) < 0.1 * stored.data.nbytes
    assert np.array_equal(data, stored.data)


def test_a_system_that_takes_no_advice_keeps_the_pages(tmp_path):
    """Sandboxes, emulators and some file systems refuse madvise."""

    class Refusing(mmap.mmap):
        def madvise(self, *_):
            raise OSError(22, "Invalid argument")

    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as file:
        mapped = Refusing(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, np.uint8)
    release(data)
    assert data.tobytes() == path.read_bytes()


def in_groups(buffer, form, rows, offset):
    """A matrix of 32 columns in the layouts of GGUF."""
    if form == "bf16":
        return Plain(np.frombuffer(buffer, np.uint16, rows * 32, offset).reshape(rows, 32), "bf16")
    head, width = (4, 20) if form == "q4" else (2, 34)
    data = np.frombuffer(buffer, np.uint8, rows * width, offset).reshape(rows, 1, width)
    scales = data[..., :2].view(np.float16)[..., 0]
    if form == "q4":
        return Packed("q4", (rows, 32), data[..., head:], scales, data[..., 2:4].view(np.float16)[..., 0])
    return Packed("q8", (rows, 32), data[..., head:].view(np.int8), scales)


@pytest.mark.skipif(sys.platform != "linux", reason="maps at chosen addresses")
@pytest.mark.parametrize(("form", "width"), [("q4", 20), ("q8", 34), ("bf16", 64)])
@pytest.mark.parametrize("before", [0, 2, 64])
def test_C1_memory_behind_a_tensor_that_ends_its_file_stays(native, form, width, before, tmp_path):
    """The tensor ends on a page border, and what follows the mapping belongs to somebody else."""
    page, pages = mmap.PAGESIZE, width  # whole groups and whole pages
    size = pages * page
    rows, before = (size - before) // width, before + (size - before) % width
    path = tmp_path / "weights"
    path.write_bytes(np.random.default_rng(5).integers(0, 60, size, np.uint8).tobytes())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    private, fixed, anonymous = 2, 16, 32
    base = libc.mmap(None, size + 2 * page, 3, private | anonymous, ctypes.c_size_t(-1).value, 0)
    try:
        assert base not in (None, ctypes.c_void_p(-1).value)
        ctypes.memset(base, 0xA5, size + 2 * page)
        with path.open("rb") as file:
            assert libc.mmap(base + page, size, 1, private | fixed, file.fileno(), 0) == base + page
        weight = in_groups((ctypes.c_uint8 * size).from_address(base + page), form, rows, before)
        backend = native()
        with mock.patch("kernels.native.backend._in_file", return_value=True):  # else only mmap objects are
            backend.place_matrix(weight)
        backend.fill()
        assert set(ctypes.string_at(base + page + size, page)) == {0xA5}, "the page behind became zeros"
        assert set(ctypes.string_at(base, page)) == {0xA5}
        assert ctypes.string_at(base + page, size) == path.read_bytes()
        del weight
    finally:
        libc.munmap(base, size + 2 * page)


@pytest.mark.parametrize("access", [mmap.ACCESS_COPY, mmap.ACCESS_WRITE])
def test_pages_that_may_have_been_changed_stay(native, helpers, path, access):
    """A private page given back would come back as the file has it."""
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=access)
    zero = np.frombuffer(mapped, np.uint8, BYTES, 64)
    zero[:] = 0
    assert not product(native, helpers, in_blocks(mapped, 64)).any()
    assert not zero.any()


def test_weights_in_memory_are_kept_until_they_are_repacked_and_no_longer(native, helpers):
    backend = native()
    weight = helpers.packed(np.random.default_rng(3), "q8", 64, 64)
    codes = weakref.ref(weight.codes)
    matrix = backend.place_matrix(weight)
    del weight
    assert codes() is not None
    x = np.ones((1, 64), np.float32)
    first = helpers.compute(backend, x, lambda ops, value, _: ops.linear(value, matrix))
    assert codes() is None
    again = helpers.packed(np.random.default_rng(3), "q8", 64, 64)
    expected = helpers.compute(
        backend, x, lambda ops, value, _: ops.linear(value, backend.place_matrix(again))
    )
    assert helpers.same_bits(first, expected)


def test_weights_in_memory_do_not_pile_up(native):
    """16 MiB wait at most: a model that is quantized while it loads is never there twice."""
    backend = native()
    seen = []
    for _ in range(6):
        codes = np.zeros((4096, 32, 32), np.int8)  # 4 MiB
        weight = Packed("q8", (4096, 1024), codes, np.ones((4096, 32), np.float16))
        seen.append(weakref.ref(codes))
        backend.place_matrix(weight)
        del codes, weight
        assert sum(codes() is not None for codes in seen) <= 4


@pytest.mark.parametrize("megabytes", [2, 6, 64])
def test_reserved_memory_is_memory_like_any_other(native, helpers, megabytes):
    """Too little, about enough and too much for a model of some MB; what is left over is freed."""
    weight = helpers.packed(np.random.default_rng(4), "q4", ROWS, COLUMNS)
    expected = product(native, helpers, weight)
    before = mapped_bytes()
    reserve(megabytes << 20)
    reserve(megabytes << 20)  # there is one at a time
    backend = native()
    backend.allocate_cache(helpers.cache(blocks=4))
    matrices = [backend.place_matrix(weight) for _ in range(4)]
    x = np.random.default_rng(2).standard_normal((3, COLUMNS)).astype(np.float32)
    for matrix in matrices:
        result = helpers.compute(backend, x, lambda ops, value, _, matrix=matrix: ops.linear(value, matrix))
        assert helpers.same_bits(result, expected)
    backend.close()
    reserve(megabytes << 20)
    native().close()
    if megabytes == 64:  # the stacks of threads are mapped too, and kept for the next ones
        assert mapped_bytes() - before < 48 << 20, "reserved memory is left after the models are closed"


def mapped_bytes():
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
