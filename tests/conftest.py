"""Settings of the whole suite: one thread per worker, no network, reproducible properties."""

import gc
import os
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

# Before torch is imported by any test, and inherited by the processes that tests start.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Read where Triton is imported, which the tests of libraries may do: without a GPU, it interprets.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
from hypothesis import HealthCheck, settings

# No deadline: on shared cores a slow example says nothing about the code.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# For hunting: `HYPOTHESIS_PROFILE=explore make test` draws new examples at every run.
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# What is imported and collected stays until the end. Searches for garbage would go through it again
# and again, for up to a tenth of tests' time. Here, since folders' own conftests are imported next.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        gc.enable()  # the process that hands tests out to workers collects none


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """What a file's tests leave, such as caches, stays as well: later files' searches leave it out.

    Its fixtures have ended by then. Garbage goes before, since what is frozen is never found to be.
    """
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries count at the end what of theirs is still there


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Who starts an engine ends it: what a test leaves running would be found by another."""
    before = set(threading.enumerate())
    yield
    left = {thread for thread in threading.enumerate() if thread.name.startswith("tandem-")}
    assert not left - before, f"left running: {sorted(each.name for each in left - before)}"


@pytest.fixture(autouse=True)
def same_numbers_at_every_run() -> None:
    """What a test draws without a seed of its own is drawn again where it is run again."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
