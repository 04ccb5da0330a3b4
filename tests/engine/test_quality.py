"""int8 activations stay close to float arithmetic: the first part of benchmarks/quality.py."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kernels.native import available, unavailable_reason

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "quality.py"


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quality", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_native_is_as_close_to_float_as_promised(default_model: Path, quality: ModuleType) -> None:
    if not available():
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        (pytest.fail if compiler else pytest.skip)(unavailable_reason())
    positions = asyncio.run(quality.measure(default_model, tokens=160))
    assert list(positions) == ["prose", "code", "chat"]
    whole = quality.joined(list(positions.values())).summary()
    print(whole)
    assert whole.tokens == 480
    assert 0 < whole.mean < quality.MEAN_TARGET
    assert whole.p99 < quality.P99_TARGET
    assert whole.agreement > 0.93
    # Both read the text, and equally well: a model that is wrong in the same way on both sides does not pass.
    exact, native = whole.perplexity
    assert 2 < exact < 60
    assert abs(native / exact - 1) < 0.03


def test_divergence_of_known_distributions(quality: ModuleType) -> None:
    """KL((0.5, 0.5) || (0.25, 0.75)) = 0.5 ln 2 + 0.5 ln (2 / 3); no loss where a window ends."""
    p = np.log(np.array([[0.5, 0.5], [0.1, 0.9]], np.float32))
    q = np.log(np.array([[0.25, 0.75], [0.1, 0.9]], np.float32))
    found = quality.compare([0, 1], p, q)
    np.testing.assert_allclose(found.kl, [0.5 * np.log(2) + 0.5 * np.log(2 / 3), 0], atol=1e-7)
    assert found.same_best.tolist() == [False, True]
    np.testing.assert_allclose(found.losses[0], [np.log(2), -np.log(0.75)], rtol=1e-6)
    assert np.isnan(found.losses[1]).all()
    summary = quality.joined([found, found]).summary()
    assert (summary.tokens, summary.agreement) == (4, 0.5)
    np.testing.assert_allclose(summary.perplexity, [2, 4 / 3], rtol=1e-6)
