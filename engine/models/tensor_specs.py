"""The tensors that a decoder takes, and where they are in a file: what follows from a family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from .family import HEAD_NORMS, MLP_BIASES, Family, Naming
from .mixture import Mixture
from .spec import ExpertsSpec, LayerSpec, ModelSpec

_DENSE_ROLES = ("gate", "up", "down", *MLP_BIASES)
_INPUT_ROLES = ("inputs_embedding", "inputs_projection", "inputs_norm")
_MODEL_ROLES = ("embedding", "norm", "head", *_INPUT_ROLES)


class TensorSpec(NamedTuple):
    """A tensor a decoder takes: its canonical name and role, its name in a file, its shape.

    stored_shape: of the stored tensor, which may hold others, too. first_row, row_step: the rows that are
    this one's, counted over all that the stored tensor has (values, of a vector; experts one below the
    other). inputs_first: the stored rows are columns, unless they are in blocks. offset: added to values.
    unused: files may have it, and nothing is computed with it.
    """

    name: str
    role: str
    stored_name: str
    shape: tuple[int, ...]
    stored_shape: tuple[int, ...]
    first_row: int = 0
    row_step: int = 1
    inputs_first: bool = False
    offset: float = 0.0
    unused: bool = False

    @property
    def is_matrix(self) -> bool:
        """Whether it is no norm or bias, which are float32 always."""
        return len(self.shape) == 2

    @property
    def of_expert(self) -> bool:
        """Whether it is a matrix that only the rows of one expert are multiplied with."""
        return self.is_matrix and self.role.startswith("expert_")

    @property
    def may_be_quantized(self) -> bool:
        """Whether it may have fewer bits than in the file. A router's error would choose other experts."""
        return self.is_matrix and self.role not in ("router", "shared_router")


Shapes = Mapping[str, tuple[int, ...]]
"""Of each role."""


def _model_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    table, columns = (spec.vocabulary, spec.width), spec.input_columns
    inputs = len(spec.layers) * columns
    matrices: dict[str, tuple[int, ...]]
    matrices = {"embedding": table, "head": table, "inputs_embedding": (spec.vocabulary, inputs)}
    matrices["inputs_projection"] = (inputs, spec.width)
    return _with_biases(matrices) | {"norm": (spec.width,), "inputs_norm": (columns,)}


def _layer_shapes(family: Family, spec: ModelSpec, layer: int) -> dict[str, tuple[int, ...]]:
    width, sizes = spec.width, spec.sizes(layer)
    q, kv, head = sizes.q_columns, sizes.kv_columns, sizes.head_dim
    matrices: dict[str, tuple[int, ...]]
    matrices = {"q": (q, width), "k": (kv, width), "v": (kv, width), "output": (width, q)}
    matrices |= _network("", width, sizes.feed_forward)
    matrices |= {"input_gate": (spec.input_columns, width), "input_projection": (width, spec.input_columns)}
    norms = dict.fromkeys(
        ("attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm", "input_norm"), (width,)
    )
    norms |= {"q_norm": (q,), "k_norm": (kv,)} if family.norm_of_rows else dict.fromkeys(HEAD_NORMS, (head,))
    return {**_with_biases(matrices), **norms, "sinks": (spec.heads,), "layer_scale": (1,)}


def _expert_shapes(spec: ModelSpec, experts: ExpertsSpec) -> dict[str, tuple[int, ...]]:
    matrices = _network("expert_", spec.width, experts.hidden)
    matrices |= _network("shared_", spec.width, experts.shared)
    norms = ("router_norm", "mixture_norm", "mixture_post_norm", "shared_post_norm")
    vectors = dict.fromkeys(norms, (spec.width,))
    vectors |= dict.fromkeys(("mixture_scales", "preference"), (experts.count,))
    routers = {"router": (experts.count, spec.width), "shared_router": (1, spec.width)}
    return {**_with_biases({**matrices, **routers}), **vectors}


def _network(prefix: str, width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    inward, outward = (hidden, width), (width, hidden)
    return {f"{prefix}gate": inward, f"{prefix}up": inward, f"{prefix}down": outward}


def _with_biases(matrices: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {**matrices, **{f"{role}_bias": shape[:1] for role, shape in matrices.items()}}


class _Tensors(NamedTuple):
    """The tensors of a part of a model. name, place: what comes before canonical and stored names. unused:
    roles that nothing is computed with.
    """

    name: str
    place: str
    shapes: Shapes
    column: int
    norm_offset: float
    unused: tuple[str, ...] = ()

    def named(self, names: Mapping[str, tuple[str, str]]) -> Iterator[TensorSpec]:
        """By their roles; neighbours with one name are parts of one tensor."""
        for stored, same in groupby(names, lambda role: names[role][self.column]):
            roles = list(same)
            rows = sum(self.shapes[role][0] for role in roles)
            first = 0
            for role in roles:
                shape = self.shapes[role]
                whole, offset = (rows, *shape[1:]), self.norm_offset if role.endswith("norm") else 0.0
                yield TensorSpec(
                    self.name + role,
                    role,
                    self.place + stored,
                    shape,
                    whole,
                    first,
                    offset=offset,
                    unused=role in self.unused,
                )
                first += shape[0]

    def of_experts(self, mixture: Mixture, experts: ExpertsSpec) -> Iterator[TensorSpec]:
        """Of each expert, by role and number."""
        folder = self.column == 1
        own = {role: names for role, names in mixture.names.items() if role.startswith("expert_")}
        other = {role: names for role, names in mixture.names.items() if role not in own}
        if not experts.shared:
            other = {role: names for role, names in other.items() if not role.startswith("shared_")}
        yield from self.named(other)
        for spec in self.named(own):
            alternating = folder and mixture.alternating and spec.shape != spec.stored_shape
            step = spec.stored_shape[0] // spec.shape[0] if alternating else 1
            first = spec.first_row // spec.shape[0] if alternating else spec.first_row
            for number in range(experts.count):
                one = spec._replace(name=f"{spec.name}.{number}", first_row=first, row_step=step)
                if "{}" in spec.stored_name:
                    yield one._replace(stored_name=spec.stored_name.format(number))
                    continue
                yield one._replace(
                    first_row=first + number * spec.stored_shape[0],
                    stored_shape=(experts.count, *spec.stored_shape),
                    inputs_first=folder and mixture.inputs_first and spec.is_matrix,
                )


def _left_out(spec: ModelSpec, layer: LayerSpec) -> tuple[str, ...]:
    """Roles that a layer of its kind has no tensors for."""
    values = ("v", "v_bias") if layer.keys_are_values else ()
    inputs = () if spec.input_columns else ("input_gate", "input_projection", "input_norm")
    return (*values, *inputs, *(() if layer.experts is None else _DENSE_ROLES))


def _unused(layer: LayerSpec) -> tuple[str, ...]:
    """Roles that files may have all the same."""
    return ("k", "v", "k_bias", "v_bias", "k_norm") if layer.shares is not None else ()


def layer_prefix(family: Family, naming: Naming) -> str:
    """What the names of the tensors of layers begin with."""
    return family.layer_prefix if naming == "huggingface" else "blk"


def tensor_specs(family: Family, spec: ModelSpec, naming: Naming) -> Iterator[TensorSpec]:
    """Every tensor a checkpoint of this model may have; biases and head are not in all of them."""
    column = ("gguf", "huggingface").index(naming)
    offset = family.norm_offset if naming == "huggingface" else 0.0
    without = () if spec.input_columns else _INPUT_ROLES
    of_model = {
        role: names for role, names in family.names.items() if role in _MODEL_ROLES and role not in without
    }
    of_layer = {role: names for role, names in family.names.items() if role not in _MODEL_ROLES}
    prefix = layer_prefix(family, naming)
    yield from _Tensors("", "", _model_shapes(spec), column, offset).named(of_model)
    for index, layer in enumerate(spec.layers):
        shapes = _layer_shapes(family, spec, index)
        place = f"{prefix}.{index}."
        tensors = _Tensors(f"{index}.", place, shapes, column, offset, _unused(layer))
        left_out = _left_out(spec, layer)
        yield from tensors.named({role: names for role, names in of_layer.items() if role not in left_out})
        if layer.experts is not None:
            assert family.mixture is not None, "experts are of a family that has them"
            tensors = tensors._replace(shapes=_expert_shapes(spec, layer.experts))
            yield from tensors.of_experts(family.mixture, layer.experts)
