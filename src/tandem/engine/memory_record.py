"""Enter in the ledger what was really taken, by those who know (contract 12)."""

from typing import TYPE_CHECKING

from tandem.memory.ledger import MemoryLedger
from tandem.memory.peaks import read_host_memory
from tandem.memory.process_peak import ProcessPeak
from tandem.runtime.measures import DeviceMeasures
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.runtime.machine import Machine


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


def record_actual(ledger: MemoryLedger, machine: "Machine") -> None:
    """Enter what was allocated for good."""
    weights = machine.runner.weights
    beside = any(entry.location == "device" for entry in ledger.entries)
    for entry in ledger.entries:
        if entry.label == "kv pool":
            tier = Tier.HOST if entry.location == "host" and beside else Tier.DEVICE
            ledger.record_actual(entry.location, entry.label, machine.kv.size_bytes(tier))
        elif entry.label == "weights":
            on_host = entry.location == "host" and weights.host_bytes > 0
            size = weights.host_bytes if on_host else weights.resident_bytes
            if entry.location == "disk":
                size = weights.disk_bytes
            ledger.record_actual(entry.location, entry.label, size)
        elif entry.label == "weight slots":
            ledger.record_actual(entry.location, entry.label, weights.disk_slots_bytes)
        elif entry.label == "slot table":
            ledger.record_actual(entry.location, entry.label, machine.slots.nbytes)
        elif entry.label == "CUDA graphs":
            graphs = machine.runner.layer_graphs or machine.runner.graphs
            if graphs is not None and graphs.recording.taken_bytes is not None:
                taken = graphs.recording.taken_bytes + machine.kv.spare_bytes(Tier.DEVICE)
                ledger.record_actual(entry.location, entry.label, taken)
        elif entry.label == "process":
            ledger.record_actual(entry.location, entry.label, entry.predicted_bytes)
