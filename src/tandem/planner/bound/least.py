"""What some operations cannot take less than."""

from typing import NamedTuple


class Least(NamedTuple):
    """What cannot be less.

    Attributes:
        chain_s: of operations that wait for each other.
        dram_bytes: moved in the host's memory.
        cpu_s: of the CPU's queue.
    """

    chain_s: float = 0.0
    dram_bytes: float = 0.0
    cpu_s: float = 0.0

    def plus(self, other: "Least", times: float = 1) -> "Least":
        """Both, one after the other; `other` so often."""
        return Least(
            self.chain_s + times * other.chain_s,
            self.dram_bytes + times * other.dram_bytes,
            self.cpu_s + times * other.cpu_s,
        )

    def beside(self, other: "Least") -> "Least":
        """Both, neither waiting for the other."""
        chain_s = max(self.chain_s, other.chain_s)
        return Least(chain_s, self.dram_bytes + other.dram_bytes, self.cpu_s + other.cpu_s)
