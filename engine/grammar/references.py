"""Where the references of a JSON Schema lead: all of them as pointers from its root, whatever they were."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin

from ..types import EngineError
from .schema import Nodes, Where

_OLD = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Drafts where nothing holds beside a `$ref`."""

_PLAIN = "/~!$&'()*+,;=:@-._"


class References:
    """The names that parts of a schema give themselves, which are taken out of it as they are found.

    What is left are pointers from the root: so the depth of a schema can be told, and no name can lead the
    library elsewhere.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        draft = str(nodes.root.get("$schema"))
        self._old = any(name in draft for name in _OLD)
        self._id = "id" if "draft-04" in draft or "draft-03" in draft else "$id"
        self._bases: dict[Where, str] = {"": ""}
        self._names: dict[str, Where] = {"": ""}
        self._seen = set[Where]()

    def point(self) -> None:
        """Write each reference as a pointer from the root. EngineError(grammar): one leads elsewhere."""
        self._look(self._nodes.below(""))
        for where in self._nodes.everywhere():
            node = self._nodes.at(where)
            if isinstance(node, dict) and isinstance(reference := node.get("$ref"), str):
                node["$ref"] = "#" + quote(self._place(where, reference), safe=_PLAIN)

    def _look(self, places: list[Where]) -> None:
        """Take in the names of these places."""
        for where in places:
            node = self._nodes.at(where)
            if where in self._seen:
                continue
            self._seen.add(where)
            if not isinstance(node, dict):
                continue
            base, name = self._base(where), _taken(node, self._id)
            if name and not (self._old and "$ref" in node):
                uri, anchor = urldefrag(_joined(base, name))
                if uri != base:
                    self._bases[where] = base = uri
                    self._names.setdefault(uri, where)
                self._names.setdefault(f"{uri}#{anchor}", where)
            if name := _taken(node, "$anchor"):
                self._names.setdefault(f"{base}#{name}", where)

    def _base(self, where: Where) -> str:
        """What references at a place are relative to."""
        while where not in self._bases:
            where = where.rpartition("/")[0]
        return self._bases[where]

    def _place(self, where: Where, reference: str) -> Where:
        uri, fragment = urldefrag(_joined(self._base(where), reference))
        start, fragment = self._names.get(uri), unquote(fragment)
        if fragment and not fragment.startswith("/"):
            start, fragment = self._names.get(f"{uri}#{fragment}"), ""
        if start is None:
            named = reference if reference.startswith("#") else urldefrag(reference)[0]
            raise EngineError(
                "grammar",
                f"the schema can't be kept to, at {where or '/'}: $ref to {named[:200]!r}, which is not in "
                "the schema; put that below $defs: '#/$defs/NAME'",
            )
        place = start + fragment
        if self._nodes.at(place) is not None and place not in self._seen:
            above, way = place, list[Where]()
            while above not in self._seen:
                way.append(above)
                above = above.rpartition("/")[0]
            self._look([*reversed(way), *self._nodes.below(place)])
        return place


def _taken(node: dict[str, Any], key: str) -> str:
    """A name, which the schema has no more then; "" if there is none."""
    name = node.get(key)
    if not isinstance(name, str):
        return ""
    del node[key]
    return name


def _joined(base: str, reference: str) -> str:
    if reference.startswith("#"):  # also where the base is of a kind that nothing is relative to
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference
