"""Enter in the ledger what was really taken, by those who know (contract 12)."""

from tandem.memory.ledger import MemoryLedger
from tandem.memory.peaks import read_host_memory
from tandem.memory.process_peak import ProcessPeak
from tandem.runtime.measures import DeviceMeasures


class MemoryRecorder:
    """Brings a ledger up to date with the device's word and the operating system's.

    Args:
        peak: of this process, from before the engine took anything.
    """

    def __init__(self, ledger: MemoryLedger, measures: DeviceMeasures, peak: ProcessPeak) -> None:
        self.ledger = ledger
        self._measures = measures
        self._peak = peak

    def record(self) -> None:
        """Note the peaks so far of every memory, and of the activations in it."""
        self.ledger.record_peak("host", self._peak.look(read_host_memory()))
        if "device" in self.ledger.locations:
            self.ledger.record_peak("device", self._measures.peak_bytes())
        measured = {
            "workspace": self._measures.workspace_bytes(),
            "staging": self._measures.staging_bytes(),
        }
        for entry in self.ledger.entries:
            size = measured.get(entry.label)
            if size is not None:
                self.ledger.record_actual(entry.location, entry.label, size)

    def mark_warm(self) -> None:
        """The largest step has run: what peaks rise by from here on is growth."""
        self.record()
        self.ledger.mark_warm()
