"""Random life of two pools and their prefix cache against a model that only writes facts down.

The model keeps, per block, the number of holders, the longest lease ever given, and the *content*:
all tokens that its keys and values depend on, or None where nothing of worth lies. What the pool
answers is compared after every rule.
"""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from tandem.memory.block_hash import BlockHasher
from tandem.memory.pool import BlockPool
from tandem.memory.pool_state import BlockState, PoolCounts, PoolExhausted
from tandem.memory.prefix_cache import PrefixCache
from tandem.spec.tier import TIERS, Tier

BLOCK = 2
Place = tuple[Tier, int]
Content = tuple[int, ...]

# Few, short, alike: so that prefixes meet and pools run full within a few rules.
token_lists = st.integers(1, 7).flatmap(
    lambda n: st.sampled_from([[0] * n, [0] * (n - 1) + [1], [1] * n])
)
tiers = st.sampled_from(TIERS)
lease_lengths = st.none() | st.integers(0, 3)


@dataclass
class Sequence:
    """A holder of blocks; those beyond `contents` are not full."""

    contents: list[Content]
    digests: list[bytes]
    places: list[Place]


@dataclass
class Transfer:
    """A copy under way of one block."""

    destination: Place
    content: Content | None
    digest: bytes | None


@dataclass
class Facts:
    """What has happened to each block."""

    holders: Counter[Place] = field(default_factory=Counter)
    lease_steps: dict[Place, int] = field(default_factory=dict)
    in_transfer: set[Place] = field(default_factory=set)
    content: dict[Place, Content | None] = field(default_factory=dict)
    published: dict[Place, bytes] = field(default_factory=dict)
    step: int = 0
    completed_step: int = -1

    def state(self, place: Place) -> BlockState:
        if place in self.in_transfer:
            return BlockState.IN_TRANSFER
        if self.holders[place]:
            return BlockState.HELD
        leased = self.lease_steps.get(place, -1) > self.completed_step
        return BlockState.LEASED if leased else BlockState.FREE

    def lease(self, place: Place, lease_step: int | None) -> None:
        if lease_step is not None:
            self.lease_steps[place] = max(lease_step, self.lease_steps.get(place, -1))


class MemoryMachine(RuleBasedStateMachine):
    """Sequences that start, share, publish, move and end in any order."""

    sequences: Bundle[Sequence] = Bundle("sequences")
    transfers: Bundle[Transfer] = Bundle("transfers")

    @initialize(device=st.integers(0, 5), host=st.integers(0, 5))
    def start(self, device: int, host: int) -> None:
        sizes = {Tier.DEVICE: device, Tier.HOST: host}
        self.pools = {tier: BlockPool(tier, sizes[tier]) for tier in TIERS}
        self.cache = PrefixCache(self.pools, BLOCK)
        self.hasher = BlockHasher(BLOCK)
        self.facts = Facts()
        self.places = [(tier, block) for tier in TIERS for block in range(sizes[tier])]

    # Rules ---------------------------------------------------------------------------------------

    @rule(target=sequences, tokens=token_lists, tier=tiers, publish=st.booleans())
    def admit(
        self, tokens: list[int], tier: Tier, publish: bool
    ) -> Sequence | MultipleResults[Sequence]:
        """Match, share, allocate the rest, compute; all undone if the pool is exhausted."""
        digests = self.hasher.digests(tokens)
        contents = [tuple(tokens[: (i + 1) * BLOCK]) for i in range(len(digests))]
        match = self.cache.match(tokens)
        assert len(match) * BLOCK < len(tokens)
        for (found, block, _), wanted in zip(match, contents, strict=False):
            assert self.facts.content[found, block] == wanted
        shared = [(m.tier, m.block) for m in match]
        self._share(shared)
        missing = -(-len(tokens) // BLOCK) - len(match)
        pool = self.pools[tier]
        if pool.available < missing:
            with pytest.raises(PoolExhausted):
                pool.allocate(missing)
            self._release(shared, None)
            return multiple()
        places = shared + self._taken(tier, pool.allocate(missing).tolist(), missing)
        for i, place in enumerate(places):
            if i >= len(match):
                self.facts.holders[place] = 1
                self.facts.content[place] = contents[i] if i < len(contents) else None
        sequence = Sequence(contents, digests, places)
        if publish:
            self.publish(sequence)
        return sequence

    @rule(tokens=token_lists, tier=tiers)
    def admit_publish_end(self, tokens: list[int], tier: Tier) -> None:
        """A whole life at once: leaves cached free blocks behind."""
        sequence = self.admit(tokens, tier, publish=True)
        if isinstance(sequence, Sequence):
            self.end(sequence, lease=None, publish_late=False)

    @rule(target=sequences, sequence=sequences, keep=st.integers(0, 5))
    def fork(self, sequence: Sequence, keep: int) -> Sequence:
        """Another holder of the first blocks."""
        places = sequence.places[:keep]
        self._share(places)
        return Sequence(sequence.contents[:keep], sequence.digests[:keep], places)

    @rule(sequence=sequences)
    def publish(self, sequence: Sequence) -> None:
        for (tier, block), digest in zip(sequence.places, sequence.digests, strict=False):
            taken = any(t is tier and d == digest for (t, _), d in self.facts.published.items())
            assert self.cache.publish(tier, block, digest) == (not taken)
            if not taken:
                self.facts.published[tier, block] = digest

    @rule(sequence=consumes(sequences), lease=lease_lengths, publish_late=st.booleans())
    def end(self, sequence: Sequence, lease: int | None, publish_late: bool) -> None:
        """Finish or abort; a lease of 0 or more steps beyond the last submitted one."""
        lease_step = None if lease is None else self.facts.step + lease
        self._release(sequence.places, lease_step)
        in_flight = lease_step is not None and lease_step > self.facts.completed_step
        if publish_late and in_flight:
            self.publish(sequence)

    @rule(tier=tiers, count=st.integers(1, 3), steps=st.integers(0, 3))
    def lease_endangered(self, tier: Tier, count: int, steps: int) -> None:
        """A copy of what would be evicted next begins."""
        pool = self.pools[tier]
        blocks = pool.next_evicted(count)
        assert len(blocks) == max(0, min(count, pool.available) - pool.num_blank)
        assert all((tier, block) in self.facts.published for block in blocks)
        pool.lease(blocks, self.facts.step + steps)
        for block in blocks:
            self.facts.lease((tier, block), self.facts.step + steps)

    @rule(lag=st.integers(0, 3))
    def complete_step(self, lag: int) -> None:
        self.facts.step += 1
        step = max(self.facts.completed_step, self.facts.step - lag)
        self.facts.completed_step = step
        for pool in self.pools.values():
            pool.complete_step(step)

    @rule(target=transfers, sequence=sequences, data=st.data())
    def begin_transfer(
        self, sequence: Sequence, data: st.DataObject
    ) -> Transfer | MultipleResults[Transfer]:
        if not sequence.places:
            return multiple()
        index = data.draw(st.integers(0, len(sequence.places) - 1))
        tier = Tier.HOST if sequence.places[index][0] is Tier.DEVICE else Tier.DEVICE
        pool = self.pools[tier]
        if pool.available == 0:
            with pytest.raises(PoolExhausted):
                pool.begin_transfer(1)
            return multiple()
        (destination,) = self._taken(tier, pool.begin_transfer(1).tolist(), 1)
        self.facts.in_transfer.add(destination)
        if index >= len(sequence.contents):
            return Transfer(destination, None, None)
        return Transfer(destination, sequence.contents[index], sequence.digests[index])

    @rule(target=sequences, transfer=consumes(transfers), publish=st.booleans())
    def complete_transfer(self, transfer: Transfer, publish: bool) -> Sequence:
        tier, block = transfer.destination
        self.pools[tier].complete_transfer([block])
        self.facts.in_transfer.remove(transfer.destination)
        self.facts.holders[transfer.destination] = 1
        self.facts.content[transfer.destination] = transfer.content
        contents = [] if transfer.content is None else [transfer.content]
        digests = [] if transfer.digest is None else [transfer.digest]
        moved = Sequence(contents, digests, [transfer.destination])
        if publish:
            self.publish(moved)
        return moved

    @rule(transfer=consumes(transfers), lease=lease_lengths)
    def cancel_transfer(self, transfer: Transfer, lease: int | None) -> None:
        tier, block = transfer.destination
        lease_step = None if lease is None else self.facts.step + lease
        self.pools[tier].cancel_transfer([block], lease_step)
        self.facts.in_transfer.remove(transfer.destination)
        self.facts.lease(transfer.destination, lease_step)

    @rule(really=st.integers(0, 3))
    def clear_cache(self, really: int) -> None:
        if really:  # rarely, or nothing would ever be found
            return
        self.cache.clear()
        self.facts.published.clear()

    # What rules share ----------------------------------------------------------------------------

    def _share(self, places: list[Place]) -> None:
        for tier, block in places:
            pool = self.pools[tier]
            before, was_free = pool.available, pool.num_free_among([block])
            pool.share([block])
            assert pool.available == before - was_free
            self.facts.holders[tier, block] += 1

    def _release(self, places: list[Place], lease_step: int | None) -> None:
        for tier in TIERS:
            self.pools[tier].release([b for t, b in places if t is tier], lease_step)
        for place in places:
            self.facts.holders[place] -= 1
            self.facts.lease(place, lease_step)

    def _taken(self, tier: Tier, blocks: list[int], asked: int) -> list[Place]:
        """Blocks handed out: distinct, FREE before, blank ones first; their content is gone."""
        places = [(tier, block) for block in blocks]
        assert len(set(places)) == asked
        assert all(self.facts.state(place) is BlockState.FREE for place in places)
        evicted = [place for place in places if place in self.facts.published]
        for place in places:
            self.facts.content[place] = None
            self.facts.published.pop(place, None)
        if evicted:
            left = [p for p in self.places if p[0] is tier and p not in places]
            assert all(
                self.facts.state(p) is not BlockState.FREE or p in self.facts.published
                for p in left
            )
        return places

    # Invariants ----------------------------------------------------------------------------------

    @invariant()
    def pools_agree_with_the_facts(self) -> None:
        for tier, pool in self.pools.items():
            pool.check()
            expected: Counter[BlockState] = Counter()
            for place in (p for p in self.places if p[0] is tier):
                state = self.facts.state(place)
                expected[state] += 1
                assert pool.state(place[1]) is state
                assert pool.refcount(place[1]) == self.facts.holders[place]
            counts = pool.counts()
            cached_free = sum(
                t is tier and self.facts.state((t, b)) is BlockState.FREE
                for t, b in self.facts.published
            )
            assert counts == PoolCounts(
                total=pool.num_blocks,
                free=expected[BlockState.FREE],
                held=expected[BlockState.HELD],
                leased=expected[BlockState.LEASED],
                in_transfer=expected[BlockState.IN_TRANSFER],
                cached_free=cached_free,
            )
            assert counts.total == (counts.free + counts.held + counts.leased + counts.in_transfer)
            assert pool.available == counts.free

    @invariant()
    def every_digest_maps_to_its_content(self) -> None:
        self.cache.check()
        assert len(self.cache) == len(self.facts.published)
        for place, digest in self.facts.published.items():
            found = self.cache.find(digest)
            assert found is not None
            assert found in {(*p, d) for p, d in self.facts.published.items()}
            content = self.facts.content[place]
            assert content is not None
            assert self.facts.content[found.tier, found.block] == content
            assert self.hasher.digests(content)[-1] == digest

    def teardown(self) -> None:
        """Whatever happened: when all let go and all steps complete, both pools are idle."""
        if not hasattr(self, "facts"):
            return
        for tier, block in self.facts.in_transfer:
            self.pools[tier].cancel_transfer([block], None)
        for (tier, block), holders in self.facts.holders.items():
            self.pools[tier].release([block] * holders, None)
        for pool in self.pools.values():
            pool.complete_step(self.facts.step + 10)
            pool.check_idle()


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
