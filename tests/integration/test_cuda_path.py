"""The smoke tests of a GPU, over one that the host stands in for: how the CUDA path is wired."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.gpu import test_engine_on_cuda as on_cuda
from tests.gpu import test_offline_on_cuda as offline_on_cuda
from tests.support.fake_cuda import FakeCuda, install
from tests.support.waiting import waits_noted

from tandem.engine.building.build import build_engine_core
from tandem.kernels import native
from tandem.runtime.running import Running
from tandem.runtime.staging import StagingShape
from tandem.spec.errors import EngineDeadError

_WITHOUT_STREAMED_KV = (
    offline_on_cuda.test_streamed_weights_match_emulator,
    offline_on_cuda.test_layers_on_the_cpu_with_its_kv_match_emulator,
)


if TYPE_CHECKING:
    from tandem.runtime.host_tasks import HostTask


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch)


@pytest.mark.slow
def test_keys_in_both_tiers_give_the_host_s_tokens(fake: FakeCuda) -> None:
    on_cuda.test_split_kv_matches_host()
    assert fake.uploads > 0  # of rows that are sampled, and of what the CPU attended to
    if native.available():  # copies down tell native threads themselves
        assert len(fake.written) > 1
    assert not fake.registered  # nothing stays locked when an engine has been closed


@pytest.mark.slow
@pytest.mark.skipif(not native.available(), reason="only native work is waited for by streams")
def test_streams_that_wait_give_the_host_s_tokens(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin_staging(fake, monkeypatch)
    on_cuda.test_streams_that_wait_match_host()
    assert fake.stood > 100  # in every layer of every step


@pytest.mark.skipif(not native.available(), reason="only native work is waited for by streams")
def test_no_stream_waits_for_work_that_has_been_taken_back(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The CPU's part fails after some steps; the engine ends."""
    pin_staging(fake, monkeypatch)

    from tandem.runtime import host_tasks

    prepare, made = host_tasks.HostTasks.prepare, list[Running]()

    def failing(tasks: host_tasks.HostTasks, running: Running) -> "HostTask":
        made.append(running)
        if len(made) > 20:
            raise ValueError("no such block")
        return prepare(tasks, running)

    config = replace(
        on_cuda._config(str(tmp_path)), accelerator="cuda", kv_placement="split",
        gpu_memory="256MiB", link_waits="stream",
    )  # fmt: skip
    core = build_engine_core(config)
    monkeypatch.setattr(host_tasks.HostTasks, "prepare", failing)
    with pytest.raises(EngineDeadError, match="no such block"):
        on_cuda._run(core)
    with suppress(EngineDeadError):  # what was under way failed, too
        core.close()
    assert fake.stood


def pin_staging(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, whose device is no CPU."""
    shape_of, pinned = StagingShape.of, partial(fake.pinned_bytes, node=None)
    monkeypatch.setattr(
        StagingShape, "of", staticmethod(lambda model, dtype, _: shape_of(model, dtype, pinned))
    )


@pytest.mark.slow
def test_cohorts_give_the_host_s_tokens(fake: FakeCuda) -> None:
    on_cuda.test_cohorts_match_host()
    assert not fake.registered


@pytest.mark.slow
def test_steps_run_while_waiting_is_refused(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a GPU refuses; here, what the steps do is looked at instead. A mixture's experts, which
    a GPU's kernels go over in one launch, are asked for in turn.
    """
    with waits_noted(monkeypatch) as waits:
        on_cuda.test_steps_do_not_wait_for_the_device()
    assert fake.sync_modes == ["error", "default"] * 4
    assert waits
    assert all("models/expert_steps.py" in each for each in waits), set(waits)


@pytest.mark.slow
def test_graphs_give_the_host_s_tokens(fake: FakeCuda) -> None:
    on_cuda.test_layers_of_hybrid_steps_as_graphs_match_host()
    assert not fake.registered


@pytest.mark.parametrize(
    "case",
    [case for name, case in vars(offline_on_cuda).items() if name.startswith("test_")],
    ids=lambda case: case.__name__,
)
def test_offline_plans_give_the_emulator_s_tokens(fake: FakeCuda, case: Callable[[], None]) -> None:
    """Weights and KV on every way, and the CPU's part of both."""
    case()
    assert fake.uploads > 0
    # a pool of which nothing is streamed stays as it is; weights are locked for a GPU alone
    assert (fake.most_registered > 0) == (case not in _WITHOUT_STREAMED_KV)
    if case is offline_on_cuda.test_streamed_kv_matches_emulator:
        blocks, block_bytes = 2 * 2 * 10, 6 * 2 * 16 * 2 * 32 * 4
        assert fake.most_registered == blocks * block_bytes  # the pool, to the byte
    assert not fake.registered
