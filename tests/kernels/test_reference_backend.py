"""Opening a backend: names, devices, threads, memory; and what it measures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from kernels.backends import open_backend
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings
from kernels.reference import self_check

pytestmark = pytest.mark.usefixtures("torch_threads")


def test_the_reference_opens_on_the_cpu():
    backend = open_backend("reference", BackendSettings(device="cpu"))
    assert (backend.name, backend.device) == ("reference", "cpu")
    assert backend.weight_bytes == backend.cache_bytes == 0
    backend.close()


def test_an_unknown_backend_names_the_known_ones():
    with pytest.raises(ValueError, match=r"auto, .*reference.* not 'tpu'"):
        open_backend("tpu", BackendSettings())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_told():
    for device in ("cuda", "cuda:1"):
        with pytest.raises(ValueError, match=f"device '{device}': .*--device cpu computes without it"):
            open_backend("reference", BackendSettings(device=device))


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="needs a machine without an Apple GPU")
def test_a_missing_apple_gpu_is_told():
    with pytest.raises(ValueError, match=r"mps.*no Apple GPU"):
        open_backend("reference", BackendSettings(device="mps"))


def test_missing_torch_is_told(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("kernels.reference")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match="needs torch"):
        open_backend("reference", BackendSettings())


def test_importing_the_factory_imports_no_torch():
    code = "import sys, kernels.backends; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("given", "found"), [(None, "10000"), ("7", "7")])
def test_threads_are_told_not_to_spin_unless_the_user_says_otherwise(given, found):
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    environment |= {"GOMP_SPINCOUNT": given} if given else {}
    code = (
        "import os, sys\n"
        "class Torch:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch': sys.exit(os.environ['GOMP_SPINCOUNT'] != sys.argv[1])\n"
        "sys.meta_path.insert(0, Torch())\n"
        "import kernels.reference\n"
        "sys.exit('torch was not imported')\n"
    )
    command = [sys.executable, "-c", code, found]
    assert subprocess.run(command, env=environment, check=False).returncode == 0


def test_threads_are_those_of_the_setting_also_in_another_thread(monkeypatch):
    seen = []

    def look() -> None:
        seen.append(torch.get_num_threads())

    for threads in (1, 2):
        open_backend("reference", BackendSettings(threads=threads))
        worker = threading.Thread(target=look)
        worker.start()
        worker.join()
    monkeypatch.setattr("kernels.reference.backend.usable_cpus", lambda: 3)
    for own in (1, 2, 4):  # what torch starts with: OMP_NUM_THREADS, or the machine's cores
        monkeypatch.setattr("kernels.reference.backend.OWN_THREADS", own)
        open_backend("reference", BackendSettings())
        look()
    assert seen == [1, 2, 1, 2, 3]


def test_a_cache_that_cannot_fit_is_a_memory_error_with_the_bytes():
    backend = open_backend("reference", BackendSettings())
    shape = CacheShape.alike(30, 1 << 28, 32, 8, 128, "float32")
    with pytest.raises(MemoryError, match=str(shape.nbytes)):
        backend.allocate_cache(shape)
    assert backend.cache_bytes == 0


def test_an_odd_block_size_is_refused():
    with pytest.raises(ValueError, match="block_size must divide 128"):
        open_backend("reference", BackendSettings()).allocate_cache(
            CacheShape.alike(1, 4, 48, 1, 8, "float32")
        )


def test_cache_bytes_follow_the_cache():
    backend = open_backend("reference", BackendSettings())
    shape = CacheShape.alike(2, 10, 16, 3, 8, "float16")
    backend.allocate_cache(shape)
    assert backend.cache_bytes == shape.nbytes == 2 * 2 * 10 * 16 * 3 * 8 * 2
    backend.close()
    assert backend.cache_bytes == 0


def test_read_bandwidth_is_a_figure_of_this_machine():
    backend = open_backend("reference", BackendSettings())
    assert 1e6 < backend.read_bandwidth(8 << 20) < 1e13
    assert 0 < backend.read_bandwidth(0) < 1e13


def test_the_self_check_finds_a_product_that_depends_on_the_rows(monkeypatch):
    device = torch.device("cpu")
    assert self_check.rows_are_independent(device, torch.float32)
    sound = self_check.linear
    monkeypatch.setattr(self_check, "linear", lambda x, w: sound(x, w) + (len(x) == 5) * 1e-6)
    assert not self_check.rows_are_independent(device, torch.float32)


def test_the_self_check_finds_attention_that_depends_on_its_neighbours(monkeypatch):
    sound = self_check.attend
    monkeypatch.setattr(
        self_check, "attend", lambda cache, layer, q, *rest: sound(cache, layer, q, *rest) * len(q)
    )
    assert not self_check.rows_are_independent(torch.device("cpu"), torch.float32)


def test_vectors_are_copies():
    backend = open_backend("reference", BackendSettings())
    values = np.arange(4, dtype=np.float32)
    values.flags.writeable = False
    vector = backend.place_vector(values)
    vector[0] = 9
    assert values[0] == 0
    assert backend.weight_bytes == 16


def test_gpus_compute_in_a_short_format_unless_another_is_asked_for():
    from kernels.reference.backend import _dtype

    for device, dtype in (("mps", torch.float16), ("cuda:1", torch.bfloat16), ("cpu", torch.float32)):
        assert _dtype("auto", torch.device(device)) is dtype
        assert _dtype("float32", torch.device(device)) is torch.float32
