"""Changes a template's syntax tree so that what it does is counted."""

from __future__ import annotations

from typing import cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.visitor import NodeTransformer

# Filters that are put in. These are no identifiers, so a template can't write them.
KEEP = "<keep>"
COLLECT = "<collect>"
COLLECT_OR_NONE = "<collect or none>"
CONCAT = "<concat>"
STEP = "<step>"

_TURN = 8  # steps of a loop's turn, or a macro's call, besides those of its body

_OF_COLLECTIONS = frozenset(
    ["batch", "groupby", "join", "list", "max", "min", "slice", "sort", "sum", "unique"]
)
_OF_COLLECTIONS_OR_NONE = frozenset(["map", "reject", "rejectattr", "select", "selectattr"])
"""To these nothing (none, or what is not defined) is an empty collection, as in Jinja."""

_FORBIDDEN = (
    nodes.Block,
    nodes.EvalContextModifier,
    nodes.Extends,
    nodes.FromImport,
    nodes.Import,
    nodes.Include,
)


def rewrite(template: nodes.Template) -> nodes.Template:
    """Send the tree past the budget, in place. Raises SecurityError for statements no chat template needs.

    Every expression that makes a list or a text, or compares, passes its result through KEEP (operators and
    calls are the sandbox's own business); filters that go through a collection get a list, by COLLECT; and
    each turn of a loop and each call of a macro begins with STEP.
    """
    for node in template.find_all(_FORBIDDEN):
        raise SecurityError(f"the statement {type(node).__name__.lower()}")
    _Rewriter().visit(template)
    return template


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, node), name, [], [], None, None, lineno=node.lineno)


class _Rewriter(NodeTransformer):
    def visit(self, node: nodes.Node, *args: object, **kwargs: object) -> nodes.Node:
        """The node that takes this one's place; its parts are rewritten first."""
        self.generic_visit(node)
        match node:
            case nodes.Filter():
                if node.name in _OF_COLLECTIONS and node.node is not None:
                    node.node = _filtered(node.node, COLLECT)
                if node.name in _OF_COLLECTIONS_OR_NONE and node.node is not None:
                    node.node = _filtered(node.node, COLLECT_OR_NONE)
                return _filtered(node, KEEP)
            case nodes.Concat():
                return _filtered(nodes.List(node.nodes, lineno=node.lineno), CONCAT)
            case (
                nodes.Compare()
                | nodes.Dict()
                | nodes.List()
                | nodes.Test()
                | nodes.Tuple(ctx="load")
                | nodes.Getitem(arg=nodes.Slice())
            ):
                return _filtered(node, KEEP)
            case nodes.For() | nodes.Macro():
                size = _TURN + sum(1 for part in node.body for _ in part.find_all(nodes.Node))
                count = _filtered(nodes.Const(size, lineno=node.lineno), STEP)
                node.body.insert(0, nodes.ExprStmt(count, lineno=node.lineno))
                if isinstance(node, nodes.For) and node.test is not None:
                    node.test = _filtered(node.test, KEEP)
        return node
