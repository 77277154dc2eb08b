"""Garbage is not looked for while a command ends soon, and is afterwards, however it ended."""

import gc
import subprocess
import sys

import pytest

from tandem.cli.uncollected import uncollected


def test_collections_go_on_afterwards_where_there_were_some() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="a mistake"), uncollected():
        raise ValueError("a mistake")
    assert gc.isenabled()


def printed(program: str) -> list[str]:
    """Words that a process of its own prints: this one has frozen what was collected."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_collection_when_the_process_ends_goes_through_nothing_that_was_made() -> None:
    program = """
import atexit, gc
from tandem.cli.uncollected import uncollected
atexit.register(lambda: print(gc.get_freeze_count() > 1000))  # runs last
with uncollected():
    made = [[] for _ in range(1000)]
"""
    assert printed(program) == ["True"]


def test_the_next_collection_goes_through_nothing_that_was_made() -> None:
    program = """
import gc
from tandem.cli.uncollected import uncollected
with uncollected():
    made = [[] for _ in range(10_000)]
print(any(known is made[0] for known in gc.get_objects(generation=0)), gc.get_freeze_count())
"""
    assert printed(program) == ["False", "0"]


def test_what_the_process_has_frozen_stays_so() -> None:
    program = """
import gc
from tandem.cli.uncollected import uncollected
kept = [[] for _ in range(10_000)]
gc.freeze()
with uncollected():
    pass
print(any(known is kept[0] for known in gc.get_objects()), gc.isenabled())
"""
    assert printed(program) == ["False", "True"]
