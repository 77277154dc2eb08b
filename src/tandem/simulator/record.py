"""What happened to the requests of a run."""

from collections import Counter
from dataclasses import dataclass, field

from tandem.scheduler.outputs import StepOutputs, TokenColumns
from tandem.spec.request import RequestOutput
from tandem.spec.workload import RequestShape


@dataclass(slots=True)
class Record:
    """Moments and counts by request; the id of a request is its number in the workload.

    Attributes:
        first_s, finish_s: when the first and the last token was known to the host.
        tokens: given out so far.
        progress: (seconds, tokens of all requests so far), ascending.
    """

    requests: tuple[RequestShape, ...]
    first_s: dict[str, float] = field(default_factory=dict[str, float])
    finish_s: dict[str, float] = field(default_factory=dict[str, float])
    tokens: Counter[str] = field(default_factory=Counter[str])
    progress: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    _started: list[str] = field(init=False, repr=False, default_factory=lambda: [])

    def observe(self, now_s: float, outputs: StepOutputs) -> None:
        """Take in what one call of the scheduler's `observe` returned."""
        if not len(outputs):
            return
        for part in outputs.parts():
            if isinstance(part, TokenColumns):
                self.tokens.update(part.request_ids)
                if part.request_ids is not self._started:  # the same ones again as a list
                    self.started(now_s, part.request_ids)
                    self._started = part.request_ids
            else:
                self._single(part, now_s)
        self.progress.append((now_s, self.progress[-1][1] + outputs.num_tokens))

    def decoded(self, now_s: float, request_ids: list[str]) -> None:
        """One more token each of requests that have begun (`started`) and go on."""
        self.tokens.update(request_ids)
        self.progress.append((now_s, self.progress[-1][1] + len(request_ids)))

    def started(self, now_s: float, request_ids: list[str]) -> None:
        """A token of each is known, the first one of those that had none."""
        first_s = self.first_s
        for request_id in request_ids:
            if request_id not in first_s:
                first_s[request_id] = now_s

    def _single(self, output: RequestOutput, now_s: float) -> None:
        self.tokens[output.request_id] += len(output.token_ids)
        self.started(now_s, [output.request_id])
        if output.finish_reason is not None:
            self.finish_s[output.request_id] = now_s
