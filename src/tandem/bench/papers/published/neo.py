"""NEO's load-aware scheduling as it was published: section 3.2, appendix A and their code."""

from tandem.bench.papers.published.admission import Admission, admit
from tandem.bench.papers.published.machine import LayerTimes, PublishedMachine
from tandem.bench.papers.published.queues import Iteration, Queues, contexts_of
from tandem.bench.papers.published.sub_batches import FEW_TOKENS, SubBatches
from tandem.cost.neo.step_choice import StepEstimate, pipelines_as_published


class PublishedNeo:
    """Two sub-batches, or the accelerator alone, by requests per second in every iteration."""

    def __init__(self, machine: PublishedMachine, times: LayerTimes) -> None:
        self._machine, self._times = machine, times

    def step(self, queues: Queues) -> Iteration:
        """The one with the higher rate."""
        found = admit(queues, self._machine)
        alone, alone_rate = self.alone(queues, found)
        batches = self.split(queues, found)
        if not batches.rows[1]:
            return alone
        batches.drop_prompts()
        if pipelines_as_published(self._estimate(batches), alone_rate):
            return self.pipelined(queues, found, batches)
        return alone

    def alone(self, queues: Queues, found: Admission) -> tuple[Iteration, StepEstimate]:
        """Nobody on the host, and of the prompts that go there as few as keep it busy."""
        prompts, kept = [*found.to_device, *found.to_host], len(found.to_device)
        rows = tuple(queues.on_device)
        tokens = len(rows) + sum(each.prompt_tokens for each in prompts)
        while len(prompts) > kept and tokens - prompts[-1].prompt_tokens >= FEW_TOKENS:
            tokens -= prompts.pop().prompt_tokens
        layer_s = self._times.linear_s(tokens) + self._times.decode_s(contexts_of(rows))
        layer_s += sum(self._times.prompt_s(each.prompt_tokens) for each in prompts)
        requests, prompted = len(rows) + len(prompts), tokens - len(rows)
        time_s = self._times.num_layers * layer_s
        estimate = StepEstimate(time_s, requests, len(rows), prompted)
        time_s += self._times.head_s(requests)
        iteration = Iteration(
            time_s, rows, prompts[:kept], prompts[kept:], found.blocks_out, found.blocks_in
        )
        return iteration, estimate

    def split(self, queues: Queues, found: Admission) -> SubBatches:
        """Both sub-batches with all prompts, and as many rows on the host as they hide."""
        batches = SubBatches(
            self._times,
            contexts_of(queues.on_device),
            [*found.to_device, *found.to_host],
            len(found.to_device),
        )
        batches.place(queues.on_host, found.free_rows)
        return batches

    def pipelined(self, queues: Queues, found: Admission, batches: SubBatches) -> Iteration:
        """Both of them."""
        kept = len(found.to_device)
        time_s = self._times.num_layers * batches.layer.time_s
        return Iteration(
            time_s + self._times.head_s(batches.requests),
            [*queues.on_device, *batches.rows[0], *batches.rows[1]],
            batches.prompts[:kept],
            batches.prompts[kept:],
            found.blocks_out,
            found.blocks_in,
        )

    def _estimate(self, batches: SubBatches) -> StepEstimate:
        """As the code has it: the accelerator's time, since the CPU's is hidden."""
        prompted = sum(each.prompt_tokens for each in batches.prompts)
        requests = batches.requests
        time_s = self._times.num_layers * batches.accelerator_s
        return StepEstimate(time_s, requests, requests - len(batches.prompts), prompted)
