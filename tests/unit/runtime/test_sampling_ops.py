"""Sampling sends the rows it writes to the accelerator, and brings tokens, without waiting."""

import weakref
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from tests.support.engines import tiny_model

from tandem.engine.building.warm_up import run_largest_steps
from tandem.kernels.sampling import SampledTokens
from tandem.memory.page import KVPageSpec
from tandem.plan.program import Queue
from tandem.plan.template_builder import SAMPLED
from tandem.runtime import sampling_ops
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.sampling_ops import SamplingOps
from tandem.scheduler.config import SchedulerConfig
from tandem.spec.dtype import DType
from tandem.spec.tier import Tier


def test_row_numbers_go_through_the_machine_s_upload() -> None:
    model = tiny_model()
    page = KVPageSpec.of_model(model.spec, dtype=DType.FLOAT32, block_size=16)
    uploaded: list[torch.Tensor] = []

    def upload(tensor: torch.Tensor) -> torch.Tensor:
        uploaded.append(tensor)
        return tensor.clone()

    machine = build_machine(model, MachineSizes(page, 16, 0, max_rows=3), upload)
    limits = SchedulerConfig(
        num_layers=2, max_model_len=64, block_size=16, max_num_seqs=3, max_num_batched_tokens=12
    )
    blocks = {Tier.DEVICE: 16, Tier.HOST: 0}
    vocab_size = model.spec.vocab_size
    run_largest_steps(InlineExecutor(machine), vocab_size, limits, "gpu-only", blocks)
    # with all KV on the device nothing else is uploaded by operations
    assert all(tensor.dtype == torch.int64 for tensor in uploaded)
    assert {row for tensor in uploaded for row in tensor.tolist()} == {0, 1, 2}


class Arriving:
    """A tensor in pinned memory that a copy is on its way to."""

    def __init__(self, values: object, here: "OnDevice") -> None:
        self._values, self._here = values, weakref.ref(here)
        self.has_come = False

    def numpy(self) -> object:
        assert self.has_come, "asked for before the copy has ended"
        return self._values

    @property
    def source_lives(self) -> bool:
        return self._here() is not None


class OnDevice:
    """A tensor that knows how it is copied."""

    nbytes = 8

    def __init__(self, values: object, copies: list[Arriving]) -> None:
        self._values, self._copies = values, copies

    def to(self, device: str, *, non_blocking: bool) -> Arriving:
        assert device == "cpu"
        assert non_blocking, "the queue's thread waits for the device"
        self._copies.append(Arriving(self._values, self))
        return self._copies[-1]


def test_tokens_come_without_anybody_waiting_and_their_memory_stays_until_then() -> None:
    buffers, copies = BufferSpace(Arena(None)), list[Arriving]()
    ops = SamplingOps(buffers, torch.zeros(1), lambda tensor: tensor)
    program = SimpleNamespace(step_id=3)
    running: Any = SimpleNamespace(
        op=SimpleNamespace(lanes=(0,), queue=Queue.D2H), context=SimpleNamespace(program=program)
    )
    ids, valid = np.array([5, 7]), np.array([True, False])
    key = (SAMPLED, sampling_ops._local(running.context, 0))
    chosen = SampledTokens(
        cast("Any", OnDevice(ids, copies)), cast("Any", OnDevice(valid, copies)), None, None, None
    )
    buffers.put(key, Place.DEVICE, sampling_ops._Sampled(chosen), Queue.ACCEL)
    del chosen
    ops.fetch_tokens(running)
    assert not buffers.contains(key)
    # what is freed is given to the accelerator's next operations, which do not wait for the copy
    assert [copy.source_lives for copy in copies] == [True, True]
    for copy in copies:
        copy.has_come = True
    event = ops.take_event(3, 0)
    assert event is not None
    assert (event.token_ids.tolist(), event.valid.tolist()) == ([5, 7], [True, False])
    assert [copy.source_lives for copy in copies] == [False, False]
    assert ops.take_event(3, 0) is None
