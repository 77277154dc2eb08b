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
class Flips:
    """A bit of a file from a byte on, as a share of its length, and again after so many bytes."""

    file: str
    first: float
    every: int


@dataclass(frozen=True, slots=True)
class Lives:
    """One engine after another in one folder.

    Attributes:
        slots: of the disk. damage: before each engine but the first, which bits of which file flip.
    """

    scenarios: list[Scenario]
    slots: int
    damage: list[list[Flips]]


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
    # the same requests come again, or others that seldom begin like them
    second = first if draw(st.sampled_from((True, True, False))) else draw(regulars())
    again = [replace(second, setup=setup, strategies=first.strategies)]
    shares = st.sampled_from((0.0, 0.1, 0.5))
    pages = st.builds(Flips, st.just("pages"), shares, st.sampled_from((700, 9000)))
    index = st.builds(Flips, st.just("index"), shares, st.sampled_from((50, 9000)))
    several = st.lists(pages, min_size=1, max_size=2)
    damage = st.one_of(several, several, st.just([]), index.map(lambda one: [one]))
    return Lives(
        [replace(first, setup=setup), *again],
        draw(st.sampled_from((40, 40, 5, 1))),
        [draw(damage) for _ in again],
    )


def flip(folder: Path, damage: list[Flips]) -> None:
    for flips in damage:
        path = folder / f"tandem-kv.{flips.file}"
        text = bytearray(path.read_bytes())
        for place in range(int(flips.first * len(text)), len(text), flips.every):
            text[place] ^= 4
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
