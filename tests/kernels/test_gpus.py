"""Why a GPU that is there is of no use, in words that help; and what CUDA_VISIBLE_DEVICES means."""

import os
import sys

import pytest

from fake_gpus import GB, FakeGpu
from kernels import cuda, driver
from kernels.driver import Card
from kernels.visible import visible

ONE = FakeGpu()
TWO = FakeGpu("NVIDIA A30", "GPU-aaaa2222-0000-0000-0000-000000000000", 24 * GB, 20 * GB)
SLICES = [
    FakeGpu("NVIDIA H100 MIG 1g.10gb", f"MIG-cccc{number}333-0000-0000-0000-000000000000", 10 * GB, 9 * GB)
    for number in range(2)
]
SPLIT = FakeGpu("NVIDIA H100", "GPU-cccc3333-0000-0000-0000-000000000000", split=True, slices=SLICES)
TOO_OLD = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please"

OF_NO_USE = {
    "the driver was updated": (
        {"error": 18, "says": "CUDA initialization: Unexpected error"},
        "Unexpected error",
        "restart",
    ),
    "no permission": (
        {"error": 4, "seen": []},
        "this user may not use the NVIDIA driver",
        "ls -l /dev/nvidia",
    ),
    "a container without the driver": (
        {"error": 12, "seen": []},
        r"libnvidia-ml.so.1\) is not here",
        "--gpus all",
    ),
    "the driver is not loaded": ({"error": 9, "seen": []}, "is not loaded", "restart"),
    "something unheard of": ({"error": 999, "seen": []}, "does not answer: NVML said 999", "restart"),
    "a driver too old for torch": (
        {"version": "535.1", "cuda_version": 12020},
        r"driver 535.1\) is too old: it has CUDA 12.2, and torch wants 13",
        "update the NVIDIA driver.*or install torch for CUDA 12",
    ),
    "too old, as torch says it": (
        {"says": f"{TOO_OLD} (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:119.)"},
        r"too old \(found version 11040\). Please \(driver 580",
        "update the NVIDIA driver",
    ),
}


@pytest.mark.parametrize("name", OF_NO_USE)
def test_N041_a_driver_of_no_use(name, gpus, recwarn):
    options, why, mend = OF_NO_USE[name]
    gpus(ONE, **options)
    chosen = cuda.choose()
    assert chosen.gpu is None
    check(chosen.obstacle, why, mend)
    [listed] = cuda.survey()
    assert listed.obstacle == chosen.obstacle
    assert not recwarn.list, "no warning of a library"


CARDS = {
    "ecc": (FakeGpu(fails="CUDA error: uncorrectable ECC error encountered\nCompile with"), "ECC", "reset"),
    "old": (FakeGpu(fails="CUDA error: no kernel image is available"), "no kernel image", "built for it"),
    "busy": (
        FakeGpu(fails="CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        "another program has it for itself",
        "nvidia-smi -c DEFAULT",
    ),
    "full": (FakeGpu(fails="CUDA error: out of memory"), "other programs have taken its memory", "end one"),
    "sick": (FakeGpu(fails="CUDA error: unknown error"), "unknown error", "restart the machine"),
    "odd": (FakeGpu(fails="CUDA error: what"), r"what \(driver 580", "update the NVIDIA driver"),
    "exclusive": (FakeGpu(mode=3, programs=(4711,)), r"process 4711\) has it for itself", "DEFAULT"),
    "prohibited": (FakeGpu(mode=2), "compute mode allows no program", "DEFAULT"),
    "fallen off the bus": (FakeGpu(lost="GPU is lost"), "can't reach it: GPU is lost", "restart"),
    "no slice": (FakeGpu(split=True), "MIG is on, and it has no slice", "nvidia-smi mig -cgi"),
}


@pytest.mark.parametrize("name", CARDS)
def test_N041_a_card_of_no_use_is_passed_over_and_its_reason_given(name, gpus):
    card, why, mend = CARDS[name]
    gpus(card, seen=[] if card.split or card.lost else None)
    chosen = cuda.choose()
    assert chosen.gpu is None
    check(chosen.obstacle, why, mend)
    gpus(card, TWO, seen=[TWO] if card.split or card.lost else None)
    assert cuda.choose().gpu.card.uuid == TWO.uuid
    used, other = sorted(cuda.survey(), key=lambda gpu: gpu.obstacle is not None)
    assert used.card.uuid == TWO.uuid
    check(other.obstacle, why, mend)


def check(obstacle, why, mend):
    import re

    assert re.search(why, obstacle.why), obstacle
    assert re.search(mend, obstacle.mend), obstacle
    assert "\n" not in obstacle.why + obstacle.mend


def test_a_card_that_is_exclusive_and_ours_or_free_is_used(gpus):
    for programs in ((), (os.getpid(),)):
        gpus(FakeGpu(mode=3, programs=programs))
        assert cuda.choose().gpu is not None


def test_without_the_package_or_the_library_of_the_driver_torch_has_the_word(gpus, monkeypatch):
    gpus(ONE, TWO, error=12)
    assert cuda.choose().gpu.number == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert cuda.choose().gpu.card.name == ONE.name
    assert driver.read().obstacle.mend == "pip install nvidia-ml-py"


def test_a_driver_that_answers_little_is_asked_no_more_than_it_knows(gpus):
    gpus(FakeGpu(split=None))
    [card] = driver.read().cards
    assert (card.name, card.memory_errors, card.obstacle) == (ONE.name, 0, None)


def test_memory_errors_are_counted(gpus):
    gpus(FakeGpu(ecc=3))
    assert driver.read().cards[0].memory_errors == 3


CARD = [Card(gpu.name, gpu.uuid, place=place) for place, gpu in enumerate((ONE, TWO))]
PARTS = [Card(part.name, part.uuid, parent=SPLIT.uuid, place=2) for part in SLICES]
VISIBLE = {
    None: [0, 1, 2],
    "0": [0],
    "1,0": [1, 0],
    " 1 , 0 ": [1, 0],
    "1gpu": [1],
    "0,nonsense,1": [0],
    "0,-1,1": [0],
    "1,7,0": [1],
    "GPU-aaaa1": [0],
    TWO.uuid: [1],
    "GPU-aaaa2222,GPU-aaaa1111": [1, 0],
    "GPU-aaaa": "names no GPU that is here",
    "GPU-ffff": "names no GPU that is here",
    "aaaa1111": "names no GPU that is here",
    "nonsense": "names no GPU that is here",
    "7": "names no GPU that is here",
    "99999999999999999999": "names no GPU that is here",
    "0,0": "names 0 twice",
    "0,GPU-aaaa1": "names GPU-aaaa1 twice",
    SLICES[1].uuid: [3],
    "MIG-cccc1": [3],
    "MIG-cccc": "names no GPU that is here",
    "GPU-cccc3333": [2],
    f"MIG-{SPLIT.uuid}/1/0": [2],
    "2": [2],
    f"{SLICES[1].uuid},{SLICES[0].uuid}": [3],
}


@pytest.mark.parametrize("value", VISIBLE)
def test_N040_what_the_variable_shows(value):
    cards = [*CARD, *PARTS]
    found = visible(cards, value)
    if isinstance(VISIBLE[value], str):
        assert not found.cards
        assert VISIBLE[value] in found.obstacle.why
        assert "there are: 0 NVIDIA H200 (GPU-aaaa1111)" in found.obstacle.mend
    else:
        assert [cards.index(card) for card in found.cards] == VISIBLE[value]


def test_N040_a_slice_is_used_and_the_other_listed(gpus, monkeypatch):
    gpus(SPLIT)
    assert cuda.choose().gpu.card.uuid == SLICES[0].uuid
    used, other = cuda.survey()
    assert (used.number, used.obstacle) == (0, None)
    assert other.obstacle.mend == f"CUDA_VISIBLE_DEVICES={SLICES[1].uuid} takes it"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", SLICES[1].uuid)
    gpus(SPLIT, seen=[SLICES[1]])
    assert cuda.choose().gpu.card.uuid == SLICES[1].uuid


@pytest.mark.parametrize("value", ["", " ", "-1", "NoDevFiles", "none"])
def test_N040_whoever_shows_no_card_wants_none_and_torch_is_not_asked(value, gpus, monkeypatch):
    gpus(ONE, seen=[])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    monkeypatch.setattr("torch.cuda.is_available", None)
    chosen = cuda.choose()
    assert chosen.gpu is None
    assert chosen.obstacle.wanted
    assert chosen.obstacle.why == f"CUDA_VISIBLE_DEVICES={value} hides it"


def test_N040_hidden_cards_are_listed_with_the_variable(gpus, monkeypatch):
    gpus(ONE, TWO, seen=[TWO])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    used, other = cuda.survey()
    assert (used.card.uuid, used.number, used.obstacle) == (TWO.uuid, 0, None)
    assert (other.card.uuid, other.number) == (ONE.uuid, None)
    assert "CUDA_VISIBLE_DEVICES=1 hides it" in other.obstacle.why
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-ffff")
    chosen = cuda.choose()
    assert (chosen.gpu, chosen.obstacle.wanted) == (None, False)
    assert {gpu.obstacle for gpu in cuda.survey()} == {chosen.obstacle}
