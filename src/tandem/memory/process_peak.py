"""The most that this process has held since some moment, by the kernel's word (contract 12)."""

from tandem.memory.peaks import HostMemory


class ProcessPeak:
    """Highest resident set since `before` was read.

    The kernel keeps one highest mark, from the process's start on. Where it has risen since, it is
    the answer; as long as it has not, the highest resident set at any look stands for it. So what
    ran earlier in the process, or in its container, is not counted.
    """

    def __init__(self, before: HostMemory) -> None:
        self._mark_bytes = before.peak_rss_bytes
        self._seen_bytes = before.rss_bytes

    def look(self, now: HostMemory) -> int:
        """The peak so far, in bytes."""
        has_risen = now.peak_rss_bytes > self._mark_bytes
        seen = now.peak_rss_bytes if has_risen else now.rss_bytes
        self._seen_bytes = max(self._seen_bytes, seen)
        return self._seen_bytes
