"""What a job has done so far, over all its runs."""

from dataclasses import dataclass

from tandem.jobs.result_line import Outcome


@dataclass(frozen=True, slots=True)
class Counts:
    """Lines and tokens; `elapsed_s` is the time that the job has run."""

    num_ok: int = 0
    num_failed: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    elapsed_s: float = 0.0

    @property
    def num_done(self) -> int:
        """Lines that have their result."""
        return self.num_ok + self.num_failed

    def plus(self, outcome: Outcome) -> "Counts":
        """With one more line."""
        return Counts(
            self.num_ok + outcome.is_ok,
            self.num_failed + (not outcome.is_ok),
            self.num_prompt_tokens + outcome.num_prompt_tokens,
            self.num_output_tokens + outcome.num_output_tokens,
            self.elapsed_s,
        )
