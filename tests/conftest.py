from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples in every run, so that a failure belongs to the change it appears with. To look for new ones:
# pytest --hypothesis-profile=default
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Where tensors are so small that threads only wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
