"""Prompts that begin alike over memory and a disk, engines that follow each other, and bits that
flip between them: tokens are those of an engine that remembers nothing.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.property.test_prefix_tiers import NUM_LAYERS, regulars
from tests.support.engines import toy_engine
from tests.support.scenarios import Scenario
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup

SLOT_BYTES, BESIDE_BYTES = 4096 + 32, 16384


@dataclass(frozen=True, slots=True)
class Lives:
    """One engine after another in one folder.

    Attributes:
        slots: of the disk. damage: before each engine but the first, which bits of the files flip,
            as shares of their length.
    """

    scenarios: list[Scenario]
    slots: int
    damage: list[list[tuple[str, float]]]


@st.composite
def lives(draw: st.DrawFn) -> Lives:
    """Alone, or beside an accelerator."""
    first = draw(regulars())
    alone = draw(st.booleans())
    setup = first.setup
    if alone:
        setup = replace(setup, host_blocks=0, host_prefix_share=0.0, max_host_seqs=0)
        first = replace(first, strategies=("gpu-only",))
    elif int(setup.host_blocks * setup.host_prefix_share) < 1:
        setup = replace(setup, host_blocks=16)
    again = [replace(draw(regulars()), setup=setup, strategies=first.strategies)]
    shares = st.integers(0, 2**16 - 1).map(lambda number: number / 2**16)
    flips = st.tuples(st.sampled_from(("pages", "pages", "pages", "index")), shares)
    return Lives(
        [replace(first, setup=setup), *again],
        draw(st.sampled_from((1, 5, 40))),
        [draw(st.lists(flips, max_size=40)) for _ in again],
    )


def flip(folder: Path, bits: list[tuple[str, float]]) -> None:
    for name, share in bits:
        path = folder / f"tandem-kv.{name}"
        text = bytearray(path.read_bytes())
        if text:
            text[int(share * len(text))] ^= 4
            path.write_bytes(text)


@given(lives=lives())
@settings(max_examples=20)
def test_what_comes_from_the_disk_gives_the_same_tokens(lives: Lives) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "kv"
        size = BESIDE_BYTES + lives.slots * SLOT_BYTES
        for scenario, damage in zip(lives.scenarios, [[], *lives.damage], strict=True):
            flip(folder, damage)
            _serve(scenario, replace(scenario.setup, disk=folder, disk_bytes=size))
            taken = sum(each.stat().st_size for each in folder.iterdir())
            assert taken <= size


def _serve(scenario: Scenario, setup: Setup) -> None:
    steps = max_steps(scenario.script, NUM_LAYERS)
    plain = Script.at_once(scenario.script.requests)
    with toy_engine(scenario.reference(), NUM_LAYERS) as engine:
        expected = run(engine.core, plain, steps=steps)
    with toy_engine(replace(setup, strategy=scenario.switching()), NUM_LAYERS) as engine:
        results = run(engine.core, scenario.script, steps=steps)
        engine.settle_disk()
        engine.check_idle()
        stats = engine.stats.disk
    assert stats is not None
    event(f"read {stats.read_blocks > 0}, damaged {stats.damaged_blocks > 0}")
    for request_id, result in results.items():
        wanted = expected[request_id].token_ids
        assert result.token_ids == (wanted[: len(result.token_ids)] if result.aborted else wanted)
