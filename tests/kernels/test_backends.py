"""Which backend `auto` is, and how much memory it has: GPUs that are there, or of no use."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from kernels import backends, cuda
from kernels.backends import automatic, free_bytes
from kernels.interface import BackendSettings
from kernels.native import chosen, unavailable_reason

AUTO = BackendSettings()
pytestmark = pytest.mark.skipif(bool(unavailable_reason()), reason="there is no native library")


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """gpu(build=..., available=..., computes=...): a device file, and a torch like that."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(cuda, "_DEVICES", tmp_path)
    monkeypatch.setattr(cuda, "_DRIVER", tmp_path / "version")

    def make(build="'13.0'", available=False, computes=True, says="", number=0):
        (tmp_path / f"nvidia{number}").touch()
        (tmp_path / "nvidiactl").touch()
        (tmp_path / "version.py").write_text(
            f"__version__ = '2'\ncuda: Optional[str] = {build}\nhip = None\n"
        )
        spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
        monkeypatch.setattr(cuda.util, "find_spec", lambda name: spec)

        def is_available():
            if says:
                warnings.warn(says, stacklevel=1)
            return available

        def zeros(*_, device=None, **__):
            if not computes:
                raise RuntimeError("CUDA error: no kernel image is available\nCompile with ...")
            return torch.ones(1, device="cpu")

        monkeypatch.setattr(torch.cuda, "is_available", is_available)
        monkeypatch.setattr(torch, "zeros", zeros)
        cuda.obstacle.cache_clear()

    yield make
    cuda.obstacle.cache_clear()


def test_N015_without_a_device_native_computes_and_nothing_is_said(gpu, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # it is not asked
    (tmp_path / "nvidiactl").touch()
    assert automatic(AUTO) == ("native", "", "", False)
    assert chosen("auto", "auto")


@pytest.mark.parametrize("number", [0, 3])
def test_N015_a_device_file_with_a_torch_without_cuda_computes_natively(gpu, number, monkeypatch):
    gpu(build="None", number=number)
    monkeypatch.setitem(sys.modules, "torch", None)  # this is known without its import
    choice = automatic(AUTO)
    assert (choice.name, choice.news) == ("native", True)
    assert f"nvidia{number} is not used: the torch that is installed is built without CUDA" in choice.why
    assert "install torch with CUDA" in choice.mend
    assert chosen("auto", "auto"), "its memory can be made ready"


@pytest.mark.parametrize("value", ["", "-1", " ", "-1,0"])
def test_N015_a_hidden_gpu_is_no_news(gpu, value, monkeypatch):
    gpu(available=True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    choice = automatic(AUTO)
    assert (choice.name, choice.news) == ("native", False)
    assert "CUDA_VISIBLE_DEVICES" in choice.why


def test_N015_a_gpu_that_is_listed_but_does_not_compute_is_not_used(gpu):
    gpu(available=True, computes=False)
    choice = automatic(AUTO)
    assert choice.name == "native"
    assert choice.why.endswith("CUDA error: no kernel image is available")
    assert "\n" not in choice.why + choice.mend


def test_N041_a_driver_that_is_too_old_is_said_in_plain_words(gpu, tmp_path, recwarn):
    said = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please"
    gpu(says=f"{said} (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:119.)")
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.1.2  Mon\n")
    choice = automatic(AUTO)
    assert choice.name == "native"
    assert "too old (found version 11040)" in choice.why
    assert "Triggered" not in choice.why
    assert "driver 470.1.2" in choice.why
    assert "restart" in choice.mend
    assert not recwarn.list, "no warning of a library"


def test_N015_a_gpu_that_computes_is_used(gpu):
    gpu(available=True)
    assert automatic(AUTO) == ("reference", "", "", False)
    assert not chosen("auto", "auto"), "no memory is made ready for a backend that will not be used"
    assert automatic(BackendSettings(device="cpu")).name == "native"


def test_a_dtype_or_a_missing_library_is_the_reason_that_is_given(gpu, monkeypatch):
    choice = automatic(BackendSettings(dtype="bfloat16"))
    assert (choice.name, choice.news) == ("reference", False)
    assert "bfloat16" in choice.why
    monkeypatch.setattr("kernels.native.unavailable_reason", lambda: "it was not built")
    choice = automatic(AUTO)
    assert (choice.name, choice.why, choice.news) == ("reference", "it was not built", True)
    assert "compiler" in choice.mend


def test_C3_the_memory_that_counts_is_the_device_s(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6 << 30, 8 << 30))
    monkeypatch.setattr(backends, "free_memory", lambda: 64 << 30)
    assert free_bytes("reference", BackendSettings(device="cuda:1")) == 6 << 30
    assert free_bytes("native", AUTO) == free_bytes("reference", BackendSettings(device="cpu")) == 64 << 30
    with pytest.raises(ValueError, match="only 2 CUDA GPUs"):
        free_bytes("reference", BackendSettings(device="cuda:7"))


def test_N041_a_device_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"device 'cuda:7': torch .* finds no CUDA GPU; use device cpu"):
        free_bytes("reference", BackendSettings(device="cuda:7"))
