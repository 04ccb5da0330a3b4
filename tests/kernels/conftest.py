from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def torch_threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's threads; one, unless a test says otherwise, as teams stall on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch.set_num_threads
    torch.set_num_threads(before)
