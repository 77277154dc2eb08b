"""What Park and Egger's own search would do with a block's layers, beside what blocks execute."""

from dataclasses import dataclass

from tandem.cost.from_model import operation_times
from tandem.cost.park_egger.operation_times import OperationTimes, split_operations
from tandem.cost.park_egger.search import LayerSplit, best_split
from tandem.cost.rates import DeviceRates, accelerator_rates, h2d_rates
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.question import Question
from tandem.spec.units import format_duration

PIECES = 8
"""Of `Scores` and of `WV`: section 3.2."""


@dataclass(frozen=True, slots=True)
class OwnSplit:
    """The best split of a layer by its equations, in which resources share nothing.

    Attributes:
        operations: of a layer, for one batch.
        lent: layers whose linear maps the block leaves to the CPU.
    """

    operations: tuple[OperationTimes, ...]
    split: LayerSplit
    lent: int

    def __str__(self) -> str:
        """One line for people."""
        gpu, last = self.split.gpu, len(self.operations)
        where = "nothing"
        if gpu.start < gpu.end:
            first, final = self.operations[gpu.start].name, self.operations[gpu.end - 1].name
            where = f"{first} to {final}"
        time = format_duration(self.split.cost.latency_s)
        told = f"by its own equations the accelerator would compute {where} of each layer, {time}"
        if (gpu.start, gpu.end) == (0, last):
            return f"{told}, and the CPU nothing"
        return (
            f"{told}; in blocks, the CPU computes Scores and WV of whole eighths of the sequences, "
            f"and linear maps of whole layers, here of {self.lent or 'none'}"
        )


def own_split(question: Question, candidate: BlockCandidate) -> OwnSplit:
    """Of the candidate's batches, all weights and all KV in host memory; bytes are not quantized.

    The list's order is the paper's: a layer's, from its first norm to the end of its MLP.
    """
    hardware, dtype = question.hardware, question.precision.activations
    host = hardware.host
    times = operation_times(
        question.model,
        candidate.rows,
        round(question.lengths.context_tokens),
        dtype,
        host=DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, 0.0),
        accelerator=accelerator_rates(hardware, dtype),
        link=h2d_rates(hardware),
    )
    operations = split_operations(times, ("Scores", "WV"), PIECES)
    split = best_split(operations, batches=candidate.batches)
    return OwnSplit(operations, split, candidate.lent)
