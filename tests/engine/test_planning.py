"""Plans: what a model takes and how fast it is at most, from specifications and data sheets."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from engine import EngineConfig, EngineError
from engine.data_sheets import MACHINES, Machine, machine_of
from engine.loading.checkpoint import open_checkpoint
from engine.measured import _card, this_machine
from engine.memory_plan import plan_memory, plan_model
from engine.model import load_model
from engine.models.spec import ExpertsSpec, LayerSpec, ModelSpec
from engine.planning import drafted, estimate, faster, seconds
from engine.roofline import Traffic
from engine.workload import Workload, _parameters, workload_sized
from kernels.interface import Routing
from tiny_models import make, write_tokenizer

LLAMA_2_7B = ModelSpec("llama", (LayerSpec(),) * 32, 4096, 32, 32, 128, 11008, 32000, 4096, 1e-5)


def workload(spec: ModelSpec, kv: int, weight_bytes: int, experts: int = 0, **changes: object) -> Workload:
    """A model of this specification; kv: bytes of a token in each layer."""
    traffic = Traffic.of(spec, weight_bytes - experts, (kv,) * len(spec.layers), experts)
    attention = tuple((own.window, spec.sizes(i).q_columns) for i, own in enumerate(spec.layers))
    found = Workload(
        name="a model",
        quantization="BF16",
        weight_bytes=weight_bytes,
        kv_bytes=kv * len(spec.layers),
        traffic=traffic,
        operations=2.0 * _parameters(spec),
        attention=attention,
        context_length=spec.context_length,
        block_size=32,
        packed=False,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def test_the_anchors_of_llama_2_7b() -> None:
    """2 GiB of keys and values at 4,096 tokens; near 240 and 340 tokens a second on an H100 and an H200."""
    assert _parameters(LLAMA_2_7B) == 6_738_415_616 - 32000 * 4096 - 65 * 4096  # but for embedding and norms
    model = workload(LLAMA_2_7B, 2 * 2 * 32 * 128, 14 * 10**9)
    for load in (model, workload_sized(7e9, "none", "float16")):
        assert load.conversation_bytes(4096) == 2_147_483_648 == 2 << 30
        h100, h200 = (estimate(load, machine_of(name), 1, 1).single for name in ("h100", "H200"))
        assert h100 == pytest.approx(240, rel=0.01)
        assert h200 == pytest.approx(340, rel=0.01)


def test_decode_is_the_traffic_of_the_engine_and_two_operations_a_weight() -> None:
    rng = random.Random(3)
    for _ in range(50):
        layers = tuple(LayerSpec(window=rng.choice([None, 16, 500])) for _ in range(rng.randrange(1, 5)))
        load = workload(replace(LLAMA_2_7B, layers=layers), 1000, 10**9)
        context, rows = rng.randrange(3000), rng.randrange(1, 40)
        one, many = load.decode(1, context), load.decode(rows, context)
        assert one.nbytes == load.traffic.token_bytes(context)
        assert many.nbytes - 10**9 == pytest.approx(rows * (one.nbytes - 10**9))
        assert many.operations == pytest.approx(rows * one.operations)
        seen = sum(min(context + 1, own.window or 10**9) for own in layers)
        assert one.operations == 2 * _parameters(replace(LLAMA_2_7B, layers=layers)) + 4 * 4096 * seen


def test_experts_are_read_as_rows_choose_them() -> None:
    layer = LayerSpec(experts=ExpertsSpec(8, 64, Routing(2)))
    spec = replace(LLAMA_2_7B, layers=(layer,) * 2)
    load = workload(spec, 1000, 10**9, experts=8 * 10**8)
    reads = [load.decode(rows, 0).nbytes - rows * (load.traffic.kv_bytes(0, 1)) for rows in (1, 2, 64)]
    assert reads == pytest.approx([4e8, 2e8 + 8e8 * (1 - 0.75**2), 1e9], rel=1e-3)
    assert load.prefill(2048).nbytes == pytest.approx(1e9 + load.traffic.kv_bytes(0, 2048))


def test_a_step_takes_what_its_limit_takes() -> None:
    load = workload(LLAMA_2_7B, 16384, 14 * 10**9)
    slow = Machine("slow at arithmetic", 10**12, 1e12, 1e11, None, "")
    fast = slow._replace(bf16=1e20)
    for rows in (1, 7, 300):
        step = load.decode(rows, 100)
        assert seconds(step, fast, fast.bf16) == step.nbytes / 1e12
        assert seconds(step, slow, slow.bf16) == step.operations / 1e11
        assert seconds(step, slow._replace(bandwidth=None), 1e11) is None
        assert estimate(load, slow, rows, 101).limit == "arithmetic"
        assert estimate(load, fast, rows, 101).limit == "memory"
    unknown = estimate(load, slow._replace(bandwidth=None), 3, 100)
    assert (unknown.single, unknown.batch, unknown.limit, unknown.points) == (None, None, None, ())
    assert unknown.conversations > 0


def test_cards_are_as_many_as_the_memory_needs() -> None:
    load = workload_sized(70e9, "none", "float16")
    cards = {name: estimate(load, machine_of(name), 8, 1024).cards for name in ("B200", "H100", "A40", "L4")}
    assert cards == {"B200": 1, "H100": 2, "A40": 4, "L4": 8}
    assert estimate(load, machine_of("rtx 4080"), 8, 1024).cards is None
    assert estimate(load, machine_of("9654"), 8, 1024).cards == 1
    for machine in MACHINES:
        found = estimate(load, machine, 1, 4096)
        room = found.conversations
        count = found.cards or (8 if machine.kind == "gpu" else 1)
        usable = count * machine.memory * {"gpu": 0.9, "unified": 0.75, "cpu": 1.0}[machine.kind]
        assert room == 0 or load.memory(room, 4096) <= usable
        assert load.memory(room + 1, 4096) > usable


def test_what_makes_it_faster() -> None:
    load, int4 = (workload_sized(7e9, bits, "float16") for bits in ("none", "int4"))
    found = faster(load, {"int4": int4}, machine_of("H100"), 1)
    assert found["int4"] == pytest.approx(2 / 0.625, rel=0.01)
    assert found["batch of 8"] == pytest.approx(8, rel=0.01)
    # arXiv 2211.17192, theorem 3.8, with its best number of guesses; the memory is the limit throughout.
    formula = [(1 - 0.8 ** (n + 1)) / (1 - 0.8) / (1 + 0.1 * n) for n in range(1, 9)]
    assert found["draft"] == pytest.approx(max(formula), rel=0.01)
    assert drafted(1, 0.5) == 1.5
    assert faster(load, {}, machine_of("H100")._replace(bandwidth=None), 1) == {}


def test_a_machine_is_found_by_its_name_or_a_part_of_it() -> None:
    assert machine_of("h100").name == "H100"
    assert machine_of("rtx4090").name == machine_of("RTX-4090").name == "RTX 4090"
    assert machine_of("8480").name == "Xeon Platinum 8480+"
    assert machine_of("a100-80").name == "A100 80GB"
    assert machine_of("H100 SXM").name == "H100"
    for name, words in (
        ("a100", "may be A100 80GB, A100 80GB PCIe, A100 40GB"),
        ("a100 pcie", "may be A100 80GB PCIe, A100 40GB$"),
        ("rtx 6000", "may be RTX 6000 Ada$"),
        ("3090 Ti", "not known; like it are RTX 3090$"),
        ("H20", "not known; like it are H200$"),
        ("L40", "not known; like it are L40S, L4$"),
        ("", "known are B200"),
        ("x" * 999, "known are"),
    ):
        with pytest.raises(EngineError, match=words) as caught:
            machine_of(name)
        assert len(str(caught.value)) < 600
    assert len({machine.name for machine in MACHINES}) == len(MACHINES) >= 20
    for machine in MACHINES:
        assert machine_of(machine.name) == machine
        assert machine.source
        assert machine.bandwidth is not None
        assert 8e10 <= machine.bandwidth <= 1e13
        assert machine.bf16 is None or machine.bf16 <= (machine.int8 or 0)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("NVIDIA H20", None),
        ("NVIDIA L40", None),
        ("NVIDIA A10G", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
    ],
)
def test_a_card_has_the_data_sheet_of_its_own_kind_or_none(said, name, monkeypatch) -> None:
    """As drivers name cards: one that was taken for another would get its bounds."""
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: said)
    found = _card("cuda:0", 5 * 10**9)
    assert (found.name, found.memory, found.kind) == (said, 5 * 10**9, "here")
    assert found.bandwidth == (None if name is None else machine_of(name).bandwidth)


@pytest.mark.parametrize("parameters", [0, -1, 1e5, 1e14, float("inf"), float("nan")])
def test_sizes_that_no_model_has_are_refused(parameters: float) -> None:
    with pytest.raises(EngineError, match="1M, 10T"):
        workload_sized(parameters, "none", "float16")


def test_sizes_in_between_grow_steadily() -> None:
    loads = [workload_sized(2.0**bits, "int4", "int8") for bits in range(20, 43)]
    assert all(a.weight_bytes < b.weight_bytes for a, b in pairwise(loads))
    assert all(load.kv_bytes > 0 for load in loads)


KINDS = ["default", "qwen2", "gemma2", "mixtral", "llama-one-layer"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_takes_what_was_planned(kind: str, default_model: Path, tmp_path: Path) -> None:
    """Within 5 %: weights and cache; and what a step reads, where the weights are not tiny."""
    path = default_model
    if kind != "default":
        special = {"num_hidden_layers": 1} if kind.endswith("one-layer") else {}
        sizes = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
        make(kind.partition("-")[0], tmp_path, **sizes, **special)
        write_tokenizer(tmp_path)
        path = tmp_path
    for quantization in ("auto", "int4"):
        config = EngineConfig(model=path, backend="native", kv_blocks=40, quantization=quantization)
        plan = plan_model(config)
        assert replace(plan.memory, free_bytes=0) == replace(plan_memory(config), free_bytes=0)
        model = load_model(config)
        try:
            runner = model.runner
            assert runner.weight_bytes == pytest.approx(plan.memory.weight_bytes, rel=0.05)
            assert plan.here.weight_bytes == plan.memory.weight_bytes
            assert runner._backend.cache_bytes == pytest.approx(plan.memory.kv_bytes, rel=0.05)
            assert plan.here.traffic.kv_bytes(50, 1) == runner.traffic.kv_bytes(50, 1)
            read = plan.here.decode(1, 50).nbytes
            assert runner.traffic.token_bytes(50) == pytest.approx(read, rel=0.05)
        finally:
            model.close()


def test_operations_are_two_for_each_weight_that_a_token_meets(default_model: Path, tmp_path: Path) -> None:
    model = make("mixtral", tmp_path)
    write_tokenizer(tmp_path)
    spec = open_checkpoint(tmp_path).spec
    experts = spec.layers[0].experts
    assert experts is not None
    met = sum(
        value.numel() * (experts.routing.used / experts.count if "experts" in name else 1)
        for name, value in model.named_parameters()
        if "embed" not in name and "norm" not in name
    )
    assert _parameters(spec) == met
    spec = open_checkpoint(default_model).spec
    assert _parameters(spec) == pytest.approx(134.5e6, rel=0.01)


def test_the_machine_here_is_measured() -> None:
    found = this_machine(EngineConfig(model="", backend="native"), 10**6)
    assert found.machine.kind == "here"
    assert (found.machine.bandwidth or 0) > 1e8
    assert (found.machine.int8 or 0) > 1e8
    assert found.place
    slow = this_machine(EngineConfig(model="", backend="reference", device="cpu"), 10**6)
    assert (slow.machine.bandwidth, slow.machine.int8, slow.place) == (None, None, "")
