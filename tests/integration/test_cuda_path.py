"""The smoke tests of a GPU, over one that the host stands in for: how the CUDA path is wired."""

import gc
import json
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fakes import kvikio
from tests.gpu import test_engine_on_cuda as on_cuda
from tests.gpu import test_offline_on_cuda as offline_on_cuda
from tests.support.fake_cuda import FakeCuda, install
from tests.support.waiting import waits_noted

from tandem.devices.cuda import gpu_direct
from tandem.engine.building.build import build_engine_core
from tandem.kernels import native
from tandem.plan.program import Queue
from tandem.runtime.running import Running
from tandem.runtime.staging import StagingShape
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError, EngineDeadError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

_WITHOUT_STREAMED_KV = (
    offline_on_cuda.test_streamed_weights_match_emulator,
    offline_on_cuda.test_layers_on_the_cpu_with_its_kv_match_emulator,
    offline_on_cuda.test_layers_from_disk_through_the_host_match_emulator,
    offline_on_cuda.test_layers_from_disk_by_gpudirect_match_emulator,
)


if TYPE_CHECKING:
    from tandem.runtime.host_tasks import HostTask, SweepTask


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

    def failing(tasks: host_tasks.HostTasks, running: Running) -> "HostTask | SweepTask":
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


def test_layers_that_stay_as_graphs_give_the_host_s_tokens(fake: FakeCuda) -> None:
    on_cuda.test_layers_that_stay_as_graphs_match_host()
    assert not fake.registered


@pytest.mark.parametrize(
    "case",
    [
        case
        for name, case in vars(offline_on_cuda).items()
        if name.startswith("test_") and (native.available() or "disk" not in name)
    ],
    ids=lambda case: case.__name__,
)
def test_offline_plans_give_the_emulator_s_tokens(
    fake: FakeCuda, case: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and KV on every way, and the CPU's part of both."""
    if case is offline_on_cuda.test_layers_from_disk_by_gpudirect_match_emulator:
        kvikio.install(monkeypatch)
    case()
    assert fake.uploads > 0
    # a pool of which nothing is streamed stays as it is; weights are locked for a GPU alone
    assert (fake.most_registered > 0) == (case not in _WITHOUT_STREAMED_KV)
    if case is offline_on_cuda.test_streamed_kv_matches_emulator:
        blocks, block_bytes = 2 * 2 * 10, 6 * 2 * 16 * 2 * 32 * 4
        assert fake.most_registered == blocks * block_bytes  # the pool, to the byte
    assert not fake.registered


_REFUSALS: dict[str, tuple[Callable[[kvikio.FakeKvikio], object], str]] = {
    "kvikio-s-own-fallback": (
        lambda found: setattr(found, "compat_mode", True),
        "kvikio would read through host memory",
    ),
    "no-driver": (
        lambda found: found.driver.update(is_gds_available=False),
        "cuFile finds no driver nvidia-fs; load it, or use --disk-io direct",
    ),
    "cufile-s-own-fallback": (
        lambda found: found.driver.update(allow_compat_mode=True),
        "set CUFILE_ALLOW_COMPAT_MODE=false",
    ),
    "no-kvikio": (lambda found: None, "kvikio is not installed (pip install kvikio-cu13"),
}


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("refusal", _REFUSALS)
def test_gpudirect_is_refused_where_it_would_be_something_else(
    refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, message = _REFUSALS[refusal]
    if refusal != "no-kvikio":
        spoil(kvikio.install(monkeypatch))
    elif gpu_direct.version() is not None:
        pytest.skip("kvikio is installed")
    with pytest.raises(ConfigError) as error:
        build_engine_core(EngineConfig("demo", accelerator="cuda", disk_io="gpudirect"))
    assert message in str(error.value)
    assert error.value.param == "disk_io"


@pytest.mark.parametrize("accelerator", ["none", "emulated:exact"])
def test_gpudirect_is_refused_without_a_gpu(accelerator: str) -> None:
    config = EngineConfig("demo", accelerator=accelerator, disk_io="gpudirect")
    with pytest.raises(ConfigError, match="--disk-io gpudirect has no meaning without a GPU"):
        build_engine_core(config)


@pytest.fixture
def from_disk(tmp_path: Path) -> Callable[[str], EngineConfig]:
    """Of four layers on a GPU, two have that home."""

    def made(home: str) -> EngineConfig:
        homes = enumerate(("resident", home, home, "resident"))
        runs = [{"first_layer": n, "last_layer": n, "home": each} for n, each in homes]
        placement = tmp_path / "placement.json"
        placement.write_text(json.dumps({"layers": runs}))
        return replace(
            on_cuda._config(str(tmp_path)), accelerator="cuda", gpu_memory="256MiB",
            placement=str(placement), spool_dir=str(tmp_path), strategy="gpu-only",
        )  # fmt: skip

    return made


@pytest.mark.usefixtures("fake")
@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_online_steps_take_layers_by_gpudirect_past_host_memory(
    monkeypatch: pytest.MonkeyPatch, from_disk: Callable[[str], EngineConfig]
) -> None:
    found, config = kvikio.install(monkeypatch), from_disk("disk")
    tokens, _ = on_cuda._run(build_engine_core(config))
    assert not found.reads
    core = build_engine_core(replace(config, disk_io="gpudirect"))
    again, stats = on_cuda._run(core)
    assert again == tokens
    assert found.reads
    assert found.open_files == 0
    rows = {(row.location, row.label): row for row in stats.memory}
    assert ("host", "weight slots") not in rows
    device = rows["device", "weights"]
    assert device.actual_bytes == device.predicted_bytes
    assert any("past host memory" in note for note in stats.notes)


@pytest.mark.usefixtures("fake")
@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_gpudirect_is_refused_for_a_file_that_kvikio_would_read_through_host_memory(
    monkeypatch: pytest.MonkeyPatch, from_disk: Callable[[str], EngineConfig]
) -> None:
    """It decides for each file by itself, and would say nothing."""
    found = kvikio.install(monkeypatch)
    found.foreign = lambda path: True
    with pytest.raises(ConfigError, match=r"cannot read .* straight .* or use --disk-io") as error:
        build_engine_core(replace(from_disk("disk"), disk_io="gpudirect"))
    assert error.value.param == "disk_io"
    assert not found.through_host
    assert found.open_files == 0


@pytest.mark.usefixtures("fake")
@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_gpudirect_that_cannot_begin_to_read_is_refused(
    monkeypatch: pytest.MonkeyPatch, from_disk: Callable[[str], EngineConfig]
) -> None:
    found = kvikio.install(monkeypatch)
    found.refused_reads = {1}
    with pytest.raises(ConfigError, match=r"out of memory.*; use --disk-io direct") as error:
        build_engine_core(replace(from_disk("disk"), disk_io="gpudirect"))
    assert error.value.param == "disk_io"
    assert found.open_files == 0


@pytest.mark.usefixtures("fake")
@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_layers_that_the_cpu_computes_are_not_read_past_it(
    monkeypatch: pytest.MonkeyPatch, from_disk: Callable[[str], EngineConfig]
) -> None:
    kvikio.install(monkeypatch)
    with pytest.raises(ConfigError, match="the CPU computes 2 of those on disk"):
        build_engine_core(replace(from_disk("disk-cpu"), disk_io="gpudirect"))


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "gpu-only", "cuda_graphs": "on"},
        {"strategy": "rendezvous", "kv_placement": "split", "cuda_graphs": "on"},
    ],
    ids=["graphs", "hybrid"],
)
def test_nothing_of_an_engine_lives_on_when_it_is_closed(
    fake: FakeCuda, tmp_path: Path, changes: dict[str, str]
) -> None:
    """Though its core is still held: the memory of two engines may not fit beside each other."""
    config = replace(
        on_cuda._config(str(tmp_path)), accelerator="cuda", gpu_memory="512MiB", **changes
    )
    core = build_engine_core(config)
    core.add_request(EngineRequest("0", (1, 2, 3), SamplingParams(max_tokens=4, ignore_eos=True)))
    while core.has_work():
        core.step()
    machine = core._executor._machine  # type: ignore[attr-defined]
    living = {
        "machine": weakref.ref(machine),
        "weights": weakref.ref(machine.runner.weights.layers[0]["down"].weight),
        "pages": weakref.ref(machine.kv.all_layers(Tier.DEVICE, Queue.ACCEL)),
        "graphs": weakref.ref(machine.runner.graphs),
    }
    del machine
    fake.emptied.clear()
    gc.disable()  # what the next collection would find by itself has not been freed
    try:
        core.close()
        assert [name for name, each in living.items() if each() is not None] == []
    finally:
        gc.enable()
    assert fake.emptied, "what the allocator keeps is nobody else's"
    assert core.stats().num_steps
