"""Blocks that an engine swaps go by batches where it has them, and come back as they were."""

import pytest
import torch
from tests.parity.generation import generate
from tests.support.engines import Setup, model_engine, tiny_model
from tests.unit.devices.test_batch_copies import FakeDriver

from tandem.devices import batch_copies
from tandem.devices.batch_copies import BatchCopies
from tandem.kernels import link_copies
from tandem.kernels.link_copies import LinkCopies

PROMPTS = tuple(tuple((7 * i + p) % 60 for i in range(40 + 9 * p)) for p in range(4))
SCARCE = Setup(
    device_blocks=11,
    host_blocks=32,
    max_num_seqs=4,
    preemption_mode="swap",
    executor="exact",
    executor_seed=4,
)


def test_swapped_blocks_go_by_batches_and_tokens_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_engine(tiny_model(), SCARCE) as engine:
        expected = generate(engine.core, PROMPTS, 24)
    driver = FakeDriver(batch_copies._NEW)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    monkeypatch.setattr(link_copies, "stream_handle", lambda device: 7)
    with model_engine(tiny_model(), SCARCE) as engine:
        link = LinkCopies(engine.machine.device, BatchCopies(driver))
        engine.machine.runner.moves.link = link
        assert generate(engine.core, PROMPTS, 24) == expected
        engine.check_idle()
    assert driver.streams
    assert len({tuple(made) for made in expected}) > 1
