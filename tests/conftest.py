import functools
import importlib
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


# Pictures take most of the time of short runs and of small reports.


@pytest.fixture(scope="session", autouse=True)
def _one_picture_for_all_runs() -> Iterator[None]:
    """Draw curves.png once, and give the same to all runs of this process; see `own_curves`."""
    from sbtrpo.runs import curves, folder

    picture = functools.cache(lambda: curves.curves_png({}, "a run"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folder, "curves_png", lambda *_: picture())
        yield


@pytest.fixture
def own_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the picture: let every run draw its own."""
    from sbtrpo.runs import curves, folder

    monkeypatch.setattr(folder, "curves_png", curves.curves_png)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports have none, for tests of what else is in them."""
    monkeypatch.setattr(importlib.import_module("sbtrpo.report.build"), "_drawings", lambda runs: ())
