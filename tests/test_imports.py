"""What importing costs: heavy libraries only where they are needed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import engine", ("torch", "textual", "rich", "transformers", "gguf")),
        ("import termchat", ("torch", "textual", "engine")),
        ("import kernels.interface", ("torch", "engine", "termchat")),
        (
            "from engine import EngineConfig, reserve_memory; reserve_memory(EngineConfig(model='x'))",
            ("numpy",),
        ),
        (
            "import termchat.cli.main",
            ("engine", "asyncio", "tomllib", "termchat.cli.doctor", "termchat.store"),
        ),
        (
            "import termchat.cli.oneshot",
            ("numpy", "jinja2", "tokenizers", "asyncio", "sqlite3", "termchat.tui", "termchat.download"),
        ),
        ("import termchat.cli.models, termchat.cli.plan", ("engine", "http.client", "asyncio")),
        ("import engine.loading.checkpoint, engine.tokenization", ("torch", "textual", "gguf")),
        ("import engine.core", ("kernels.sampling", "engine.loading.safetensors", "jinja2")),
    ],
)
def test_an_import_loads_nothing_heavy(code: str, forbidden: tuple[str, ...]) -> None:
    check = f"{code}; import sys; print([name for name in {forbidden!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
