"""Which of a model's layers are not resident: how many are streamed, and what the CPU computes."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tandem.plan.sweep_layers import CpuRule, SweepChoice, SweepLayers, spread_rounds
from tandem.plan.weights import STREAM_SLOTS, Home, WeightPlacement, as_runs, streamed_layers

CpuHome = Literal["host", "cpu", "cpu-mlp"]
CPU_HOMES: tuple[CpuHome, ...] = ("host", "cpu", "cpu-mlp")


class Elsewhere(NamedTuple):
    """Layers that are not, or not whole, in the accelerator's memory.

    Attributes:
        streamed: that go through the accelerator's slots.
        on_cpu: that the CPU computes, by `how`: `host`: of the streamed ones, in sweeps without
            prompts; `cpu`: others, always; `cpu-mlp`: the MLPs of others, always.
    """

    streamed: int = 0
    on_cpu: int = 0
    how: CpuHome = "cpu"

    @property
    def whole_on_cpu(self) -> int:
        """Layers that are never on the accelerator."""
        return self.on_cpu if self.how == "cpu" else 0

    @property
    def mlps_on_cpu(self) -> int:
        """Layers of which all but the MLP is resident."""
        return self.on_cpu if self.how == "cpu-mlp" else 0

    @property
    def lent(self) -> int:
        """Streamed layers that the CPU computes where no prompt is read."""
        return self.on_cpu if self.how == "host" else 0

    def placement(self, num_layers: int) -> tuple[WeightPlacement, ...]:
        """Homes of all layers, spread evenly, so that one comes while others compute."""
        apart = self.streamed + self.whole_on_cpu + self.mlps_on_cpu
        comes: Home = "host" if self.lent else "streamed"
        chosen = iter(_evenly(apart, num_layers))
        computed = iter(_evenly(apart - self.streamed, apart))

        def home() -> Home:
            if not next(chosen):
                return "resident"
            return self.how if next(computed) else comes

        return as_runs(home() for _ in range(num_layers))

    def rules(self, num_layers: int, tokens: int) -> tuple[CpuRule, ...]:
        """Which layers steps of at most `tokens` tokens leave to the CPU."""
        if not self.lent:
            return ()
        streamed = streamed_layers(self.placement(num_layers))
        rounds = streamed.rounds[1:]
        return (CpuRule(tokens, spread_rounds(rounds, self.lent // streamed.slots)),)

    def sweep(self, num_layers: int, *, prompts: bool) -> SweepLayers:
        """What a sweep does with them.

        Args:
            prompts: whether it reads any.
        """
        placement = self.placement(num_layers)
        rules = () if prompts else self.rules(num_layers, 1)
        return SweepChoice.of_plan(placement, rules).of(1)

    def describe(self, num_layers: int) -> str:
        """For people."""
        return " and ".join(self._parts(num_layers)) or "weights resident"

    def _parts(self, num_layers: int) -> Iterator[str]:
        of_all = f"of {num_layers} layers"
        if self.streamed >= num_layers - 1:
            yield "weights streamed"
        elif self.streamed:
            yield f"{self.streamed} {of_all} streamed"
        if self.lent:
            yield f"{self.lent} of them on the CPU where no prompt is read"
        if self.whole_on_cpu:
            yield f"{self.on_cpu} {of_all} on the CPU"
        if self.mlps_on_cpu:
            yield f"the MLPs of {self.on_cpu} {of_all} on the CPU"


def lent(streamed: int, count: int) -> Elsewhere:
    """Streamed layers, as many of them lent as may be up to `count`: a round stays in the slots."""
    count = max(0, min(count, streamed - STREAM_SLOTS))
    return Elsewhere(streamed, count, "host") if count else Elsewhere(streamed)


def _evenly(count: int, places: int) -> list[bool]:
    """Which of the places are taken."""
    return [(i + 1) * count // places > i * count // places for i in range(places)]
