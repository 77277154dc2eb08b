"""What parity tests share."""

from collections.abc import Iterator

import pytest
from tests.parity.checkpoints import Checkpoints
from tests.parity.greedy import TieCount


@pytest.fixture(scope="module")
def ties() -> Iterator[TieCount]:
    """Counted over a module; too many fail it."""
    count = TieCount()
    yield count
    count.check()


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """A module's models on disk."""
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"))
