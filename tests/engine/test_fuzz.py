"""A part of what scripts/fuzz.py does: mutated models start, or are refused in one line."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

SEED = 11
SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("fuzz")


@pytest.mark.slow
def test_B019_mutated_models_start_or_are_refused(
    fuzz: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 30.0)  # a hang, whatever else this machine does
    judge = fuzz.fuzz_models(150, SEED, tmp_path)
    assert judge.loaded > 15
    assert len(judge.kinds) > 30


def test_a_file_that_misbehaves_is_named_by_its_seed(fuzz: ModuleType) -> None:
    judge = fuzz.Judge()
    with pytest.raises(fuzz.MisbehaviourError, match="seed 7: KeyError"):
        judge.check(7, lambda: {}["x"])
    with pytest.raises(fuzz.MisbehaviourError, match="seed 8: not one short line"):
        judge.check(8, lambda: "two\nlines")
