"""Time of a layer that two sub-batches cross in counter-phase (NEO, section 3.2)."""

from typing import NamedTuple


class SubBatchTimes(NamedTuple):
    """One sub-batch in one layer.

    Attributes:
        linear_s: `Tl`, post- and pre-projection on the accelerator.
        accelerator_attention_s, host_attention_s: `Tga` and `Tca`.
    """

    linear_s: float
    accelerator_attention_s: float = 0.0
    host_attention_s: float = 0.0


class PipelinedLayer(NamedTuple):
    """Batch 0, mostly on the accelerator, and batch 1, whose attention is all on the host.

    Attributes:
        launch_s: overhead per sub-batch, measured; NEO's code has a constant of 0.8 ms, which alone
            disables the pipeline on fast accelerators.
    """

    first: SubBatchTimes
    second: SubBatchTimes
    launch_s: float = 0.0

    @property
    def time_s(self) -> float:
        """`max(Tl_0, Tca_1) + max(Tl_1 + Tga_0, Tca_0)`, with what launching adds."""
        return (
            max(self._linear_window_s, self.second.host_attention_s)
            + max(self._attention_window_s, self.first.host_attention_s)
            + 2 * self.launch_s
        )

    @property
    def linear_gap_s(self) -> float:
        """`Tl_0 - Tca_1`: below 0 the accelerator waits for batch 1's attention."""
        return self._linear_window_s - self.second.host_attention_s

    @property
    def attention_gap_s(self) -> float:
        """`Tl_1 + Tga_0 - Tca_0`: below 0 the accelerator waits for batch 0's attention."""
        return self._attention_window_s - self.first.host_attention_s

    @property
    def hides_host(self) -> bool:
        """Both inequalities hold: the accelerator never waits."""
        return self.linear_gap_s >= 0 and self.attention_gap_s >= 0

    @property
    def host_idle_s(self) -> float:
        """How far the host is from being busy throughout ("balancing")."""
        return max(self.linear_gap_s, 0.0) + max(self.attention_gap_s, 0.0)

    @property
    def _linear_window_s(self) -> float:
        return self.first.linear_s

    @property
    def _attention_window_s(self) -> float:
        return self.second.linear_s + self.first.accelerator_attention_s


def accelerator_only_layer_s(batch: SubBatchTimes, launch_s: float = 0.0) -> float:
    """A layer of one batch whose attention is all on the accelerator."""
    return batch.linear_s + batch.accelerator_attention_s + launch_s
