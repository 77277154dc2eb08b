"""APEX's own policy over its own baselines, in engines as NEO's, on which it is built."""

from collections.abc import Iterator, Mapping, Sequence

from tandem.bench.papers.apex import OUTPUTS, PAPER
from tandem.bench.papers.artifact import ALONE, PREDICTOR, Job, Pace, Setting, paces
from tandem.bench.papers.asked import around
from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.hybrid_pairs import APEX_A10, APEX_T4
from tandem.bench.papers.neo_published import T4_OUTPUTS, calibrated_share
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.workload_file import load_lengths

POLICY, NEO = "apex", "neo"
SLOW_HOST = 0.1
"""Of the accelerator's attention: section 2.4 has measured "typically less than 10%" of it."""
Found = Mapping[str, Pace]
"""By policy."""


def published_apex_cells() -> Iterator[PaperCell]:
    """Figures 5 and 7, with the host that NEO's figure implies, and with one that is slower."""
    for slow in (False, True):
        yield from _cells(slow)


def a10(*, slow: bool) -> Setting:
    """NEO's A10G's sizes, and its largest host's memory.

    Args:
        slow: the host attends as slowly as section 2.4 says.
    """
    rate = _slow("a10") if slow else calibrated_share() * APEX_A10.host_bytes_per_s
    return Setting("A10G", "g5.16xlarge", "a10", "apex-a10", "LLaMA-3.1-8B", rate)


def t4(*, slow: bool) -> Setting:
    """NEO's T4's."""
    rate = _slow("t4") if slow else calibrated_share() * APEX_T4.host_bytes_per_s
    return Setting("T4", "g4dn.4xlarge", "t4", "apex-t4", "LLaMA-2-7B", rate)


def _slow(accelerator: str) -> float:
    card = pair_hardware(accelerator, f"apex-{accelerator}").accelerator
    return SLOW_HOST * card.memory_bandwidth_bytes_per_s * card.memory_efficiency


def _cells(slow: bool) -> Iterator[PaperCell]:
    claims = load_figures(PAPER)["claims"]
    prompt = around(claims["mean_input_length"])
    policies, card = (ALONE, NEO, POLICY), a10(slow=slow)
    told = _Told(slow)
    by_output = {
        name: paces(card, policies, Job(prompt, around(out))) for name, out in OUTPUTS.items()
    }
    for outputs, gain in claims["a10_over_neo_by_output_length"].items():
        middle = sorted(gain)[len(gain) // 2] if isinstance(gain, list) else gain
        cell = f"A10, outputs of {outputs}, over NEO"
        yield told.cell("figure 7", cell, middle, [by_output[outputs]], NEO)
    most, all_found = max(claims["over_vllm"]["A10"]), list(by_output.values())
    cell = "A10 over vLLM, largest"
    yield told.cell("figures 5, 7", cell, most, all_found, ALONE, Role.LISTED)
    osc, small = load_lengths("osc"), t4(slow=slow)
    job = Job(osc.prompt, osc.generate)
    found = [paces(small, policies, job.giving(out)) for out in T4_OUTPUTS]
    most = max(claims["over_vllm"]["T4"])
    yield told.cell("figure 5", "T4 over vLLM, largest", most, found, ALONE)
    most = claims["over_neo_max"]["T4"]
    yield told.cell("figure 5", "T4 over NEO, largest", most, found, NEO, Role.LISTED)
    trace = load_lengths("azure-conversation")
    found = [paces(card, policies, Job(trace.prompt, trace.generate))]
    gains = claims["a10_by_workload"]["Azure Conversation"]
    for over, name in ((ALONE, "vLLM"), (NEO, "NEO")):
        cell = f"A10, Azure Conversation, over {name}"
        yield told.cell("figure 5", cell, gains[f"over_{name.lower()}"], found, over)


class _Told:
    """Cells of one host: of the calibrated one they are scored, of the slow one they are not."""

    def __init__(self, slow: bool) -> None:
        self._slow = slow

    def cell(
        self,
        place: str,
        cell: str,
        published: float,
        found: Sequence[Found],
        over: str,
        role: Role = Role.SCORED,
    ) -> PaperCell:
        """The largest gain, measured as NEO's artifact does; noted, that of the whole job."""
        measured = max(each[POLICY].measured / each[over].measured for each in found) - 1
        whole = max(each[POLICY].whole / each[over].whole for each in found) - 1
        note = f"{whole:.1%} over the whole job"
        predictor = PREDICTOR
        if self._slow:
            role, predictor = Role.WHAT_IF, f"{PREDICTOR}, host a tenth as fast"
        return PaperCell(PAPER, place, cell, "share", measured, published, role, predictor, note)
