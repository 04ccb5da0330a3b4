"""A checkpoint's tensors by canonical name: matched with what the decoder takes, converted when asked for."""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernels.formats import BLOCKS, FORMATS
from kernels.stored import QUANTIZED_ANEW
from kernels.weights import Plain, Weight

from ..config import Quantization
from ..models.family import Naming
from ..models.tensor_specs import TensorSpec, layer_prefix, tensor_specs
from .declared import Declared
from .factors import beside, factor_of
from .fields import invalid, refusing, shown
from .gguf_rope import FACTOR_TENSORS
from .grouped import JoinedTensor
from .saved import SavedTensor
from .stored import StoredTensor, to_vector

Tensor = StoredTensor | JoinedTensor
Bound = Mapping[str, tuple[TensorSpec, Tensor]]

ASKED = {"int8": "q8", "int4": "q4", "nf4": "nf4"}
"""Formats by the words that ask for them."""

_NOT_ALL_CAME = (
    "the file has its full size, but not all of it has come, as in a download that was cut; download it again"
)
_SENSITIVE = ("embedding", "head")
_TABLES = (*_SENSITIVE, "inputs_embedding")
# Tables of frequencies that old files carry besides the numbers they follow from.
_DERIVED = (".rotary_emb.inv_freq", ".attn_rot_embd.weight")


def planned_format(spec: TensorSpec, tensor: Tensor, quantization: Quantization) -> str:
    """The canonical format a tensor is loaded in; vectors (norms, biases) are always float32.

    auto: as stored, or the nearest format to it. none: quantized matrices as the float32 values they stand
    for. int8, int4, nf4: matrices of more bits are quantized to so many; embedding and head never below 8,
    because they touch every token and lose most.
    """
    if not spec.is_matrix:
        return "f32"
    stored = tensor.format
    if quantization == "none":
        return "f32" if FORMATS[stored].packed else stored
    if quantization == "auto" or not spec.may_be_quantized:
        return stored
    asked = ASKED["int8" if spec.role in _SENSITIVE else quantization]
    return stored if FORMATS[stored].bits <= FORMATS[asked].bits else asked


class CheckpointTensors(NamedTuple):
    """Weights by canonical name, converted anew on each call and not kept: safe from several threads.

    What is wanted as it is stored is a view of the mapped file; the rest is converted in pieces, so a call
    holds its result and little more. threads: take part in quantizing; None: all that this process may use.
    after: told the bytes of the files that a call has used, also while it goes on; it may raise.
    """

    path: Path
    quantization: Quantization
    bound: Bound
    threads: int | None = None
    after: Callable[[int], None] | None = None

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""
        return name in self.bound

    def mappings(self) -> list[mmap.mmap]:
        """The mapped files."""
        mappings = [mapping for _, tensor in self.bound.values() for mapping in tensor.mappings()]
        return list({id(mapping): mapping for mapping in mappings}.values())

    def get(self, name: str) -> Weight | None:
        """The tensor, or None if the file has none. Raises EngineError(model_invalid) naming it."""
        if name not in self.bound:
            return None
        spec, tensor = self.bound[name]
        format = planned_format(spec, tensor, self.quantization)
        with refusing(self.path):
            if spec.is_matrix:
                return tensor.to_weight(format, self.threads, self.after)
            assert isinstance(tensor, StoredTensor), "only matrices are grouped"
            vector = to_vector(tensor)
            if spec.offset:
                vector = Plain(vector.values + np.float32(spec.offset), "f32")
            if spec.role.endswith("norm") and not vector.values.any():
                raise ValueError(f"tensor {shown(tensor.name)} is all zeros: {_NOT_ALL_CAME}")
            return vector

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors in the files."""
        return sum(tensor.nbytes for _, tensor in self.bound.values())

    def nbytes(self, *, experts: bool = False, unpacked: int | None = None) -> int:
        """Bytes of all tensors in the formats they are loaded in, or of the matrices of experts alone.

        unpacked: bytes of a value of a matrix where all become plain.
        """
        return sum(
            FORMATS[planned_format(spec, tensor, self.quantization)].nbytes(spec.shape)
            if unpacked is None or not spec.is_matrix
            else math.prod(spec.shape) * unpacked
            for spec, tensor in self.bound.values()
            if spec.of_expert or not experts
        )

    def streamed_bytes(self) -> int:
        """Bytes of those that every step reads: not of experts, nor of tables that only rows are taken of."""
        tables = {"inputs_embedding", *(["embedding"] if self.has("head") else [])}
        return self.nbytes() - sum(
            FORMATS[planned_format(spec, tensor, self.quantization)].nbytes(spec.shape)
            for spec, tensor in self.bound.values()
            if spec.of_expert or spec.role in tables
        )

    def parameters(self) -> int:
        """How many weights there are."""
        return sum(math.prod(spec.shape) for spec, _ in self.bound.values())

    def changed(self) -> bool:
        """Whether any matrix is loaded in another format than its own."""
        return any(
            spec.is_matrix and planned_format(spec, tensor, self.quantization) != tensor.format
            for spec, tensor in self.bound.values()
        )

    def label(self) -> str:
        """The format of most layer weights, for people: the file's own word, or the one asked for."""
        sizes: Counter[str] = Counter()
        for spec, tensor in self.bound.values():
            if spec.is_matrix and spec.role not in _TABLES:
                format = planned_format(spec, tensor, self.quantization)
                asked = {format: word for word, format in ASKED.items()}
                word = tensor.label if format == tensor.format else asked.get(format, format)
                sizes[word] += math.prod(spec.shape)
        return sizes.most_common(1)[0][0]

    def notes(self) -> tuple[str, ...]:
        """A sentence about types that have no format of their own, and take more memory than the file."""
        larger = [
            (tensor, FORMATS[tensor.format])
            for spec, tensor in self.bound.values()
            if isinstance(tensor, StoredTensor)
            and tensor.type in QUANTIZED_ANEW
            and planned_format(spec, tensor, self.quantization) == tensor.format
        ]
        if not larger:
            return ()
        types = ", ".join(sorted({tensor.type for tensor, _ in larger}))
        file = sum(tensor.nbytes for tensor, _ in larger)
        here = sum(form.nbytes(tensor.shape) for tensor, form in larger)
        return (
            f"what the file holds as {types} is computed with 8 bits a weight, "
            f"{here / 1e6:.0f} MB instead of {file / 1e6:.0f}",
        )


def bind(path: Path, declared: Declared, stored: Mapping[str, Tensor], naming: Naming) -> Bound:
    """Match a file's tensors with those the decoder takes: none may be missing, misshapen or left over.

    A head beside tied embeddings is left out, as the libraries that write such files do.
    """
    bound: dict[str, tuple[TensorSpec, Tensor]] = {}
    leftover = set(stored) - FACTOR_TENSORS
    specs = [*tensor_specs(declared.family, declared.spec, naming)]
    own = {spec.stored_name for spec in specs}
    for spec in specs:
        leftover.discard(spec.stored_name)
        name = shown(spec.stored_name)
        tensor = stored.get(spec.stored_name)
        if spec.unused or (spec.role == "head" and declared.tied is True):
            continue
        if tensor is None:
            if not _may_lack(spec, declared):
                raise invalid(path, f"tensor {name} is missing")
            continue
        if isinstance(tensor, StoredTensor) and tensor.type not in BLOCKS:
            raise invalid(path, f"tensor {name} has the type {tensor.type}, which is not supported")
        whole = spec.stored_shape
        if turned := spec.inputs_first and not FORMATS[tensor.format].packed:
            whole = (*whole[:-2], whole[-1], whole[-2])
            # Some that have been saved anew have them the other way round, which shows if they aren't square.
            turned = tensor.shape != spec.stored_shape or whole == spec.stored_shape
            whole = whole if turned else spec.stored_shape
        # What `models quantize` saves of all experts is one matrix.
        flat = (math.prod(whole[:-1]), whole[-1])
        if tensor.shape != whole and 1 in (*tensor.shape, *whole) and isinstance(tensor, StoredTensor):
            tensor = _as_declared(tensor, whole)
        if tensor.shape != whole and not (isinstance(tensor, SavedTensor) and tensor.shape == flat):
            raise invalid(path, f"tensor {name} has the shape {tensor.shape}; {whole} is declared")
        if not (spec.is_matrix or isinstance(tensor, StoredTensor)):
            raise invalid(path, f"tensor {name} is stored as {tensor.type}, which only matrices can be")
        part = tensor.part(spec, turned)
        if (names := beside(spec, tensor, own)) is not None:
            leftover.difference_update(names)
            if names.factor in stored:
                assert isinstance(part, StoredTensor), "of NVFP4"
                with refusing(path):
                    part = part._replace(factor=factor_of(spec, stored[names.factor]))
        bound[spec.name] = (spec, part)
    layers, prefix = len(declared.spec.layers), layer_prefix(declared.family, naming)
    guessing = tuple(f"{prefix}.{layers + i}." for i in range(declared.guessing))
    unknown = sorted(n for n in leftover if not n.endswith(_DERIVED) and not n.startswith(guessing))
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        kind = f"a {declared.spec.architecture} model of {len(declared.spec.layers)} layers"
        raise invalid(path, f"tensor {shown(unknown[0])}{more} is no part of {kind}")
    return bound


def _as_declared(tensor: StoredTensor, shape: tuple[int, ...]) -> StoredTensor:
    """A tensor of one row, which files hold as a vector, too, and the other way round."""
    alike = tuple(n for n in tensor.shape if n != 1) == tuple(n for n in shape if n != 1)
    return tensor._replace(shape=shape) if alike else tensor


def _may_lack(spec: TensorSpec, declared: Declared) -> bool:
    if spec.role.endswith("_bias") or spec.role in declared.family.optional:
        return spec.role not in declared.biases
    return spec.role == "layer_scale" or (spec.role == "head" and declared.tied is None)
