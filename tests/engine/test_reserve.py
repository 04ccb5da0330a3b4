"""What memory is made ready for a model before the engine is imported."""

import pytest

from engine import EngineConfig, reserve_memory


@pytest.fixture
def reserved(monkeypatch):
    calls = []
    monkeypatch.setattr("engine.reserve.reserve", calls.append)
    monkeypatch.setattr("engine.reserve.chosen", lambda device, dtype: device != "cuda")
    monkeypatch.setattr("engine.reserve._reserved", 0)  # what is set here does not outlive the test
    return calls


def test_enough_for_the_file_and_little_more(reserved, default_model):
    reserve_memory(EngineConfig(model=default_model))
    (size,) = reserved
    assert 0 < size - default_model.stat().st_size < 32 << 20


def test_a_large_model_does_not_fill_the_memory_unseen(reserved, tmp_path):
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    reserve_memory(EngineConfig(model=path))
    assert reserved == [1 << 29]


def test_nothing_where_it_would_not_be_used(reserved, default_model, tmp_path):
    for options in (
        {"model": default_model, "backend": "reference"},
        {"model": default_model, "device": "cuda"},
        {"model": tmp_path},
        {"model": tmp_path / "absent.gguf"},
        {"model": "null\0character.gguf"},
    ):
        reserve_memory(EngineConfig(**options))
    assert reserved == []


def test_nothing_where_it_would_take_more_than_is_free(reserved, default_model, monkeypatch):
    """The system would end the program for it, before the load can say that the model does not fit."""
    monkeypatch.setattr("engine.reserve.free_memory", lambda: default_model.stat().st_size)
    reserve_memory(EngineConfig(model=default_model))
    assert reserved == []
