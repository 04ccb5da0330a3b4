"""Which backend `auto` is, and how much memory it has: GPUs that are there, or of no use."""

import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

import kernels.triton
from fake_gpus import GB, FakeGpu
from kernels import backends
from kernels.backends import automatic, free_bytes, open_backend
from kernels.interface import BackendSettings
from kernels.native import chosen, unavailable_reason

AUTO = BackendSettings()
pytestmark = pytest.mark.skipif(bool(unavailable_reason()), reason="there is no native library")

H200 = FakeGpu()
A30 = FakeGpu("NVIDIA A30", "GPU-bbbb2222-0000-0000-0000-000000000000", 24 * GB, 20 * GB)


def test_N015_without_a_device_native_computes_and_nothing_is_said(gpus, tmp_path, monkeypatch):
    gpus()
    monkeypatch.setitem(sys.modules, "torch", None)  # neither is asked
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert automatic(AUTO) == ("native", "cpu", "", "", False)
    assert chosen("auto", "auto")


@pytest.mark.parametrize("number", [0, 3])
def test_N015_a_device_file_with_a_torch_without_cuda_computes_natively(gpus, number, monkeypatch):
    gpus(H200, build="None", first=number)
    monkeypatch.setitem(sys.modules, "torch", None)  # this is known without its import
    choice = automatic(AUTO)
    assert (choice.name, choice.device, choice.news) == ("native", "cpu", True)
    assert f"nvidia{number} is not used: the torch that is installed is built without CUDA" in choice.why
    assert "install torch with CUDA" in choice.mend
    assert chosen("auto", "auto"), "its memory can be made ready"


@pytest.mark.parametrize("value", ["", "-1", " ", "-1,0"])
def test_N015_a_hidden_gpu_is_no_news(gpus, value, monkeypatch):
    gpus(H200)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    choice = automatic(AUTO)
    assert (choice.name, choice.news) == ("native", False)
    assert "CUDA_VISIBLE_DEVICES" in choice.why


def test_N015_a_gpu_that_computes_is_used(gpus):
    gpus(H200)
    choice = automatic(AUTO)
    assert (choice.name, choice.device, choice.why) == ("triton", "cuda:0", "")
    assert not chosen("auto", "auto"), "no memory is made ready for a backend that will not be used"
    assert automatic(BackendSettings(device="cpu")).name == "native"


def test_without_triton_plain_torch_computes_on_a_gpu_and_the_reason_is_given(gpus, monkeypatch):
    gpus(H200)
    monkeypatch.setattr("kernels.triton.unavailable_reason", lambda: "triton can't be imported")
    for device in ("auto", "cuda", "cuda:0"):
        choice = automatic(BackendSettings(device=device))
        assert (choice.name, choice.device, choice.news) == ("reference", "cuda:0", True)
        assert choice.why == "triton can't be imported"
        assert "install triton" in choice.mend
    assert automatic(BackendSettings(device="mps")) == ("reference", "mps", "", "", False)


def test_a_triton_that_is_broken_or_too_old_is_a_reason(monkeypatch):
    broken = ModuleType("old")  # without knobs; those of the real one are not to be found by its name
    broken.__spec__ = ModuleSpec("triton", None)
    monkeypatch.setitem(sys.modules, "triton", broken)
    said = r"triton can't be imported \(ImportError: cannot import name 'knobs'"
    assert re.match(said, kernels.triton.unavailable_reason())
    with pytest.raises(ValueError, match=f"backend triton: {said}.*; use backend auto, native or reference"):
        open_backend("triton", BackendSettings(device="cpu"))


def test_where_kernels_would_be_interpreted_plain_torch_computes(gpus, monkeypatch):
    gpus(H200)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    choice = automatic(AUTO)
    assert (choice.name, choice.device, choice.news) == ("reference", "cuda:0", True)
    assert "TRITON_INTERPRET is set" in choice.why


def test_N044_auto_and_cuda_take_the_card_with_the_most_free_memory_and_no_other_is_touched(gpus):
    tried = gpus(A30, H200, seen=[H200, A30])  # CUDA counts the fastest first, the driver along the bus
    for device in ("auto", "cuda"):
        assert automatic(BackendSettings(device=device)).device == "cuda:0"
    assert set(tried) == {H200.uuid}
    full = FakeGpu(free=GB)
    gpus(A30, full, seen=[full, A30])
    assert automatic(AUTO).device == "cuda:1"
    assert automatic(BackendSettings(device="cuda:0")).device == "cuda:0"


def test_a_card_that_does_not_compute_is_passed_over(gpus):
    tried = gpus(FakeGpu(fails="CUDA error: uncorrectable ECC error encountered"), A30)
    assert automatic(AUTO).device == "cuda:1"
    assert tried == [H200.uuid, A30.uuid]


def test_a_dtype_or_a_missing_library_is_the_reason_that_is_given(monkeypatch):
    choice = automatic(BackendSettings(dtype="bfloat16", device="cpu"))
    assert (choice.name, choice.news) == ("reference", False)
    assert "bfloat16" in choice.why
    monkeypatch.setattr("kernels.native.unavailable_reason", lambda: "it was not built")
    choice = automatic(BackendSettings(device="cpu"))
    assert (choice.name, choice.why, choice.news) == ("reference", "it was not built", True)
    assert "compiler" in choice.mend


def test_C3_the_memory_that_counts_is_the_device_s(gpus, monkeypatch):
    gpus(H200, A30)
    monkeypatch.setattr(backends, "free_memory", lambda: 64 * GB)
    assert free_bytes("reference", BackendSettings(device="cuda:1")) == A30.free
    assert free_bytes("auto", AUTO) == H200.free - 2**30, "triton's own part"
    assert free_bytes("triton", BackendSettings(device="cuda:1")) == A30.free - 2**30
    assert free_bytes("native", AUTO) == free_bytes("reference", BackendSettings(device="cpu")) == 64 * GB
    with pytest.raises(ValueError, match="only 2 GPUs are here, numbered from 0"):
        free_bytes("reference", BackendSettings(device="cuda:7"))


@pytest.mark.parametrize("device", ["cuda", "cuda:7"])
def test_N041_a_device_that_is_not_there_is_one_line(device, gpus):
    gpus(says="nothing")
    with pytest.raises(
        ValueError, match=rf"device '{device}': .*; --device cpu computes without it$"
    ) as error:
        open_backend("reference", BackendSettings(device=device))
    assert "\n" not in str(error.value)


def test_a_full_gpu_is_a_sentence_with_who_holds_its_memory(gpus, monkeypatch):
    gpus(FakeGpu(free=GB))
    from kernels.reference.device import room

    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 9 * GB)
    for error in (torch.OutOfMemoryError("CUDA out of memory. Tried"), RuntimeError("cuBLAS: out of memory")):
        with (
            pytest.raises(
                MemoryError, match=r"no room for it: 1.0 of 80.0 GB are free, .* 9.0, others 70.0$"
            ),
            room(torch.device("cuda:0"), "it"),
        ):
            raise error
    with pytest.raises(RuntimeError, match="illegal"), room(torch.device("cuda:0"), "it"):
        raise RuntimeError("illegal memory access")
