"""GPUs that are not there: NVIDIA's driver library and torch as they would answer on such a machine."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import torch

from kernels import cuda, triton

GB = 10**9


@dataclass
class FakeGpu:
    """fails: what torch says when something is computed there. lost: what the driver says instead of it."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-aaaa1111-0000-0000-0000-000000000000"
    total: int = 80 * GB
    free: int = 70 * GB
    mode: int = 0
    programs: tuple[int, ...] = ()
    ecc: int = 0
    fails: str = ""
    lost: str = ""
    split: bool = False
    slices: list[FakeGpu] = field(default_factory=list)


class NVMLError(Exception):
    def __init__(self, value, said=""):
        super().__init__(said or f"error {value}")
        self.value = value


def fake_nvml(gpus, version="580.65.06", cuda_version=13000, error=None):
    """A module like pynvml, for a machine with these GPUs. error: what nvmlInit fails with."""
    nvml = ModuleType("pynvml")
    nvml.NVMLError = NVMLError
    codes = {
        "NO_PERMISSION": 4,
        "DRIVER_NOT_LOADED": 9,
        "LIBRARY_NOT_FOUND": 12,
        "LIB_RM_VERSION_MISMATCH": 18,
    }
    for name, value in codes.items():
        setattr(nvml, f"NVML_ERROR_{name}", value)
    modes = ("DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS")
    for value, name in enumerate(modes):
        setattr(nvml, f"NVML_COMPUTEMODE_{name}", value)
    nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC = 1, 0

    def init():
        if error is not None:
            raise NVMLError(error, f"NVML said {error}")

    def handle(place):
        if gpus[place].lost:
            raise NVMLError(15, gpus[place].lost)
        return gpus[place]

    def slice_of(gpu, number):
        if number >= len(gpu.slices):
            raise NVMLError(6)
        return gpu.slices[number]

    def mig(gpu):
        if gpu.split is None:
            raise NVMLError(3)
        return int(gpu.split), int(gpu.split)

    nvml.nvmlInit, nvml.nvmlShutdown = init, lambda: None
    nvml.nvmlSystemGetDriverVersion = lambda: version.encode()
    nvml.nvmlSystemGetCudaDriverVersion_v2 = lambda: cuda_version
    nvml.nvmlDeviceGetCount = lambda: len(gpus)
    nvml.nvmlDeviceGetHandleByIndex = handle
    nvml.nvmlDeviceGetName = lambda gpu: gpu.name
    nvml.nvmlDeviceGetUUID = lambda gpu: gpu.uuid
    nvml.nvmlDeviceGetMemoryInfo = lambda gpu: SimpleNamespace(total=gpu.total, free=gpu.free)
    nvml.nvmlDeviceGetComputeMode = lambda gpu: gpu.mode
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda gpu: [SimpleNamespace(pid=pid) for pid in gpu.programs]
    nvml.nvmlDeviceGetTotalEccErrors = lambda gpu, *kinds: gpu.ecc
    nvml.nvmlDeviceGetMigMode = mig
    nvml.nvmlDeviceGetMaxMigDeviceCount = lambda gpu: 7
    nvml.nvmlDeviceGetMigDeviceHandleByIndex = slice_of
    return nvml


def machines(tmp_path, monkeypatch):
    """The fixture `gpus`. gpus(GPU, ..., build=, says=, seen=): a machine with these GPUs, and a torch that
     sees some of them. Returns the identifiers of those that something is computed on, as that happens.

    build: the CUDA version of torch, "None" for none. says: a warning of torch, which then sees none. seen:
    what CUDA numbers 0, 1, ...; by default all, slices instead of split ones.
    """
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # Nothing is compiled here, and Triton, which other tests interpret, is not to be imported without that.
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triton, "_import_problem", lambda: "")
    monkeypatch.setattr(cuda, "_DEVICES", tmp_path)
    monkeypatch.setattr(cuda, "_VERSION", tmp_path / "version")
    tried = []

    def make(*there, build="'13.0'", says="", seen=None, first=0, **driver):
        for number in range(len(there)):
            (tmp_path / f"nvidia{first + number}").touch()
        (tmp_path / "nvidiactl").touch()
        (tmp_path / "version.py").write_text(
            f"__version__ = '2'\ncuda: Optional[str] = {build}\nhip = None\n"
        )
        spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
        monkeypatch.setattr(cuda.util, "find_spec", lambda name: spec)
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(there, **driver))
        if seen is None:
            seen = [card for gpu in there for card in (gpu.slices[:1] if gpu.split else [gpu])]

        def is_available():
            if says:
                warnings.warn(says, stacklevel=1)
            return bool(seen) and not says

        def zeros(*_, device=None, **__):
            gpu = seen[torch.device(device).index or 0]
            tried.append(gpu.uuid)
            if gpu.fails:
                raise RuntimeError(gpu.fails)
            return torch.ones(1, device="cpu")

        def properties(number):
            gpu = seen[number]
            return SimpleNamespace(name=gpu.name, uuid=gpu.uuid.partition("-")[2], total_memory=gpu.total)

        monkeypatch.setattr(torch.cuda, "is_available", is_available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(seen))
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
        monkeypatch.setattr(
            torch.cuda, "mem_get_info", lambda device: (seen[device.index].free, seen[device.index].total)
        )
        monkeypatch.setattr(torch, "zeros", zeros)
        forget()
        return tried

    yield make
    forget()


def forget():
    """What was found out about a machine holds for the whole process; this is another one."""
    cuda._torch_is_silent.cache_clear()
    cuda._computes.cache_clear()
