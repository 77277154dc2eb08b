"""One thing that the engine could do: a placement, a strategy, and how many rows lie where."""

from dataclasses import dataclass
from typing import Literal

from tandem.plan.weights import Home, WeightPlacement, as_runs

Strategy = Literal["gpu-only", "ride-along", "rendezvous"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point of the search.

    Attributes:
        streamed: layers that come to the accelerator in every sweep.
        device_rows, host_rows: requests that run at once with their KV in that tier.
    """

    strategy: Strategy
    streamed: int
    device_rows: int
    host_rows: int

    @property
    def rows(self) -> int:
        """Requests that run at once."""
        return self.device_rows + self.host_rows

    def placement(self, num_layers: int) -> tuple[WeightPlacement, ...]:
        """Homes of all layers: streamed ones spread evenly, so that one comes while resident ones
        compute.
        """
        count = self.streamed
        homes: list[Home] = [
            "streamed" if (i + 1) * count // num_layers > i * count // num_layers else "resident"
            for i in range(num_layers)
        ]
        return as_runs(homes)

    def describe(self, num_layers: int) -> str:
        """One line for people."""
        weights = f"{self.streamed} of {num_layers} layers streamed"
        if self.streamed == 0:
            weights = "weights resident"
        elif self.streamed >= num_layers - 1:
            weights = "weights streamed"
        parts = [f"{self.device_rows} requests on the accelerator"] if self.device_rows else []
        if self.host_rows:
            how = "in cohorts" if self.strategy == "rendezvous" else "beside it"
            parts.append(f"{self.host_rows} on the host, attended there {how}")
        return f"{self.strategy}: {weights}, {' + '.join(parts)}"
