"""Calls across the end of a piece of memory for frames."""

import resource

from termchat.startup import with_room


def leaf() -> None:
    """Something to call."""


# As large as a call's frame can be here, so that it meets the end of a piece at some depth.
leaf.__code__ = leaf.__code__.replace(co_stacksize=100)


def call_often(depth: int) -> None:
    for _ in range(100):
        leaf()
    if depth:
        call_often(depth - 1)


OWN = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
"""Of this thread alone where the system tells: other tests leave threads behind."""


def new_pages(function) -> int:
    before = resource.getrusage(OWN).ru_minflt
    function()
    return resource.getrusage(OWN).ru_minflt - before


def test_calls_below_a_function_with_room_map_no_memory_again_and_again():
    def without() -> None:
        call_often(400)

    @with_room
    def within() -> None:
        call_often(400)

    assert new_pages(without) > 300, "this interpreter keeps its frames otherwise"
    assert new_pages(within) < 100
