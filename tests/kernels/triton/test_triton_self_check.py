"""Every kernel against its twin, and what becomes of one that fails: caught, replaced, remembered, said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from triton.errors import TritonError

from kernels.backends import open_backend
from kernels.interface import BackendSettings
from kernels.program import DeviceFault
from kernels.triton import backend as backends
from kernels.triton import self_check
from kernels.triton.elementwise import add
from kernels.triton.exactness import rows_are_independent
from kernels.triton.functions import Functions
from kernels.triton.self_check import Finding, Record, check, complaint, difference
from kernels.triton.table import KERNELS

CPU = torch.device("cpu")
BY_NAME = {kernel.name: kernel for kernel in KERNELS}
SETTINGS = BackendSettings(device="cpu")


@pytest.mark.parametrize("name", BY_NAME)
def test_a_kernel_does_what_its_twin_does(name):
    assert complaint(BY_NAME[name], CPU).why == ""


@pytest.fixture
def few(monkeypatch):
    """A backend with two kernels, of which one is wrong; and how often they were checked."""
    kernels = (BY_NAME["scale"], BY_NAME["add"]._replace(compute=lambda a, b: add(a, b) * (1 + 1e-3)))
    checks = []

    def counted(of, device, known, told):
        checks.append(known)
        return check(of, device, known, told)

    monkeypatch.setattr(backends, "KERNELS", kernels)
    monkeypatch.setattr(backends, "check", counted)
    monkeypatch.setattr(backends, "rows_are_independent", lambda use, device: True)
    return checks


def test_a_kernel_that_is_wrong_is_caught_and_replaced(few, tmp_path, caplog):
    said = []
    backend = open_backend("triton", replace(SETTINGS, findings_folder=str(tmp_path)), said.append)
    assert backend.replaced == ("add",)
    assert [words.partition(": ")[2] for words in said] == ["scale, 1 of 2", "add, 2 of 2"]
    assert "add on cpu: its results are off by 1.0e-03 of the largest value" in caplog.text
    ones = torch.ones(1, 4)
    assert torch.equal(backend._use["add"](ones, ones), ones + ones)
    assert backend._use["scale"] is not BY_NAME["scale"].twin
    again = open_backend("triton", replace(SETTINGS, findings_folder=str(tmp_path)), said.append)
    assert again.replaced == ("add",)
    assert len(said) == 2, "and nothing is said of it"
    assert len(few) == 1, "what was found is remembered"
    (kept,) = tmp_path.iterdir()
    for broken in (
        b"",
        b"{",
        b"[]",
        b'{"failed": 1, "exact": true, "fault": "", "complete": true}',
        b"\xff" * 100,
    ):
        kept.write_bytes(broken)
        assert open_backend("triton", replace(SETTINGS, findings_folder=str(tmp_path))).replaced == ("add",)
    assert len(few) == 6


@pytest.mark.parametrize("part", ["driver_version", "code_version"])
def test_another_driver_or_code_is_checked_anew(few, tmp_path, monkeypatch, part):
    settings = replace(SETTINGS, findings_folder=str(tmp_path))
    open_backend("triton", settings)
    monkeypatch.setattr(self_check, part, lambda: "another")
    open_backend("triton", settings)
    assert len(few) == 2


def test_without_a_folder_or_where_nothing_can_be_written_all_is_checked_each_time(few, tmp_path):
    (tmp_path / "file").touch()
    for folder in (None, str(tmp_path / "file" / "below")):
        assert open_backend("triton", replace(SETTINGS, findings_folder=folder)).replaced == ("add",)
    assert len(few) == 2


def test_a_kernel_that_made_the_gpu_fail_is_avoided_from_the_next_start_on(few, tmp_path):
    settings = replace(SETTINGS, findings_folder=str(tmp_path / "new"))
    backend = open_backend("triton", settings)
    said = backend._faulted("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might")
    assert said.startswith("GPU cpu failed: CUDA error: an illegal memory access was encountered; ")
    assert "\n" not in said
    (kept,) = (tmp_path / "new").iterdir()
    assert str(kept) in said
    later = open_backend("triton", settings)
    assert later.replaced == ("scale", "add")
    assert not later.exact
    kept.unlink()
    assert open_backend("triton", settings).replaced == ("add",)


def test_a_kernel_that_can_not_be_compiled_for_a_model_is_replaced_when_it_is_launched():
    calls = []

    def fail(*arguments):
        calls.append(arguments)
        raise TritonError("out of resource: shared memory")

    functions = Functions([BY_NAME["add"]._replace(compute=fail)], {})
    ones = torch.ones(1, 2)
    for _ in range(2):
        assert torch.equal(functions["add"](ones, ones), ones + ones)
    assert len(calls) == 1
    assert functions.replaced == ("add",)
    assert functions.failed["add"] == "TritonError: out of resource: shared memory"


def test_a_kernel_that_fails_the_gpu_when_it_is_checked_is_not_tried_again(few, tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("CUDA error: misaligned address")

    kernels = (backends.KERNELS[1], BY_NAME["scale"]._replace(compute=fail), BY_NAME["cap"])
    monkeypatch.setattr(backends, "KERNELS", kernels)
    settings = replace(SETTINGS, findings_folder=str(tmp_path))
    with pytest.raises(
        DeviceFault, match=r"kernel scale failed: .* misaligned address; from the next start on"
    ):
        open_backend("triton", settings)
    assert open_backend("triton", settings).replaced == ("add", "scale")
    assert [set(known) for known in few] == [set(), {"add", "scale"}]
    open_backend("triton", settings)
    assert len(few) == 2


def test_a_kernel_that_raises_is_complained_about():
    def fail(*arguments):
        raise RuntimeError("no kernel image\nmore")

    assert complaint(BY_NAME["add"]._replace(compute=fail), CPU) == ("RuntimeError: no kernel image", False)


def test_a_kernel_that_failed_for_want_of_a_compiler_is_tried_again(few, tmp_path, monkeypatch):
    scale, wrong = backends.KERNELS

    def fail(*arguments):
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable")

    settings = replace(SETTINGS, findings_folder=str(tmp_path))
    monkeypatch.setattr(backends, "KERNELS", (scale._replace(compute=fail), wrong))
    assert open_backend("triton", settings).replaced == ("scale", "add")
    monkeypatch.setattr(backends, "KERNELS", (scale, wrong))
    for _ in range(2):
        assert open_backend("triton", settings).replaced == ("add",)
    assert [set(known) for known in few] == [set(), {"add"}]


def test_nothing_is_left_of_findings_that_could_not_be_written(tmp_path, monkeypatch):
    record = Record(tmp_path, CPU)
    record.path.mkdir()  # in the way of the file
    record.write(Finding({}))
    assert [*tmp_path.iterdir()] == [record.path]


def test_what_was_found_of_interpreted_kernels_says_nothing_of_compiled_ones(tmp_path, monkeypatch):
    before = Record(tmp_path, CPU).path
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert Record(tmp_path, CPU).path != before


def test_differences_are_parts_of_the_largest_value_and_nan_differs_from_numbers():
    a = torch.tensor([1.0, -4.0, torch.nan, torch.inf])
    b = torch.tensor([1.0, -4.4, torch.nan, torch.inf])
    assert difference(a, a) == 0
    assert abs(difference(b, a) - 0.1) < 1e-6
    assert difference(torch.tensor([1.0]), torch.tensor([torch.nan])) == float("inf")
    assert difference(torch.tensor([1]), torch.tensor([1.0])) == float("inf")
    assert difference(torch.tensor([1, 2]), torch.tensor([1])) == float("inf")


def test_exactness_is_measured_and_found_to_hold_here():
    functions = Functions([BY_NAME["attention"], BY_NAME["linear"]], {})
    assert rows_are_independent(functions, CPU)
    real = BY_NAME["attention"].compute

    def by_company(q, *rest):
        return real(q, *rest) * (1 + len(q) * 1e-6)

    off = [BY_NAME["attention"]._replace(compute=by_company), BY_NAME["linear"]]
    assert not rows_are_independent(Functions(off, {}), CPU)


def test_findings_are_written_whole(tmp_path):
    record = Record(tmp_path, CPU)
    assert record.read() is None
    record.write(Finding({"add": "off"}, False, ""))
    assert record.read() == Finding({"add": "off"}, False, "")
    assert [json.loads(path.read_text())["failed"] for path in tmp_path.iterdir()] == [{"add": "off"}]


def test_on_a_cpu_the_backend_says_where_it_computes(monkeypatch):
    monkeypatch.setattr(backends, "interpreted", lambda: False)
    with pytest.raises(ValueError, match="triton computes on CUDA GPUs, not on device cpu; use backend"):
        open_backend("triton", SETTINGS)


def test_without_triton_the_backend_says_what_is_missing(monkeypatch):
    monkeypatch.setattr("kernels.triton.util.find_spec", lambda name: None if name == "triton" else object())
    with pytest.raises(ValueError, match="backend triton: triton can't be imported; use backend"):
        open_backend("triton", SETTINGS)
