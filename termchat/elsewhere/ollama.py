"""Ollama's models: a manifest names the blobs that a model consists of; the GGUF file is one of them.

MODELS/manifests/registry.ollama.ai/library/NAME/TAG -> MODELS/blobs/sha256-HEX. The template and parameters
that Ollama adds are not used: the GGUF file has its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files import TextError, read_text
from .found import Found, files_below, from_environment, home, size_of

_HOST, _LIBRARY = "registry.ollama.ai", "library"
_KIND = "application/vnd.ollama.image."
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MANIFEST_DEPTH = 3


def ollama() -> Iterator[Found]:
    """ollama:NAME:TAG of its library; ollama:OWNER/NAME:TAG or ollama:HOST/OWNER/NAME:TAG of others."""
    seen: set[str] = set()
    for models in _folders():
        manifests = models / "manifests"
        for entry in files_below(manifests, _MANIFEST_DEPTH):
            found = _model(models, Path(entry.path))
            if found is not None and found.name not in seen:
                seen.add(found.name)
                yield found


def _folders() -> list[Path]:
    """Where Ollama keeps models: where it is told to, else in the user's home and where its service runs."""
    told, own = from_environment("OLLAMA_MODELS"), home()
    if told is not None:
        return [told]
    return [*([own / ".ollama" / "models"] if own else []), Path("/usr/share/ollama/.ollama/models")]


def _model(models: Path, manifest: Path) -> Found | None:
    """What a manifest describes; None if it is no model's."""
    parts = manifest.relative_to(models / "manifests").parts
    if len(parts) != 4 or not all(part.isprintable() for part in parts):
        return None
    host, owner, model, tag = parts
    place = f"{owner}/{model}" if host == _HOST else f"{host}/{owner}/{model}"
    name = f"ollama:{model if (host, owner) == (_HOST, _LIBRARY) else place}:{tag}"
    try:
        layers = _layers(json.loads(read_text(manifest).text))
    except OSError as error:
        return Found(name, "Ollama", manifest, None, f"its manifest cannot be read: {error.strerror}")
    except (TextError, ValueError, RecursionError):
        return Found(name, "Ollama", manifest, None, "its manifest is no JSON of Ollama's")
    weights = [digest for kind, digest in layers if kind == "model"]
    kinds = {kind for kind, _ in layers}
    if len(weights) != 1:
        what = (
            "its weights lie in many tensors, not in one GGUF file"
            if "tensor" in kinds
            else "it has no weights"
        )
        return Found(
            name, "Ollama", manifest, None, what if not weights else "it has weights in several files"
        )
    blob = models / "blobs" / f"sha256-{weights[0]}"
    if not os.path.lexists(blob):
        return Found(name, "Ollama", blob, None, "its file is gone")
    size, problem = size_of(blob)
    if not problem and "adapter" in kinds:
        problem = "it has an adapter (LoRA), which is not supported"
    licence = next(
        (_licence(models / "blobs" / f"sha256-{each}") for kind, each in layers if kind == "license"), ""
    )
    return Found(name, "Ollama", blob, size, problem, licence)


def _layers(content: Any) -> list[tuple[str, str]]:
    """Kind and digest of each layer. ValueError."""
    if not isinstance(content, dict) or not isinstance(content.get("layers"), list):
        raise ValueError("no layers")
    layers = []
    for layer in content["layers"]:
        if not isinstance(layer, dict):
            raise ValueError("a layer that is no object")
        kind, digest = layer.get("mediaType"), layer.get("digest")
        found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
        if not isinstance(kind, str) or found is None:
            raise ValueError("a layer without digest")
        layers.append((kind.removeprefix(_KIND).partition("+")[0], found[1]))
    return layers


def _licence(blob: Path) -> str:
    """The first line of a licence's text: its title."""
    try:
        text = read_text(blob, 1 << 18).text
    except (OSError, TextError):
        return ""
    return next((" ".join(line.split())[:60] for line in text.splitlines() if line.strip()), "")
