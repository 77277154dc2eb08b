"""APEX's gains asked of the planner, hosts at the share of their peak that NEO's figure implies."""

from collections.abc import Iterator, Sequence

from tandem.bench.papers.apex import OUTPUTS, PAPER
from tandem.bench.papers.asked import BASELINE, Asked, Speeds, around, speeds
from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.hybrid_pairs import APEX_A10, APEX_T4
from tandem.bench.papers.neo import host_share
from tandem.bench.papers.planned import PublishedGain, unpredicted
from tandem.spec.workload_file import load_lengths

POLICY, NEO = "apex", "neo"
T4_OUTPUTS = (36, 125, 400)
"""Tokens out of OSC's requests: the text varies them, and gives none."""
_TRACE = "Azure Conversation"
_TRACE_ASSUMED = "lengths of the trace of 2023; APEX took that of 2024"
_OSC_ASSUMED = "OSC's prompts are of 150 to 512 tokens; 36 to 400 out"


def planned_apex_cells() -> Iterator[PaperCell]:
    """Figures 5 and 7."""
    claims = load_figures(PAPER)["claims"]
    by_output = _of_figure_7(claims["mean_input_length"])
    yield from _by_output(by_output)
    yield from _over_vllm_at_most(list(by_output.values()))
    yield from _t4()
    yield from _by_workload()


def a10() -> Asked:
    """With the trace's requests."""
    lengths = load_lengths("azure-conversation")
    rate = host_share() * APEX_A10.host_bytes_per_s
    return Asked("a10", "apex-a10", rate, "LLaMA-3.1-8B", lengths.prompt, lengths.generate)


def t4() -> Asked:
    """With OSC's."""
    lengths = load_lengths("osc")
    rate = host_share() * APEX_T4.host_bytes_per_s
    return Asked("t4", "apex-t4", rate, "LLaMA-2-7B", lengths.prompt, lengths.generate)


def _of_figure_7(prompt: int) -> dict[str, Speeds]:
    """By class of outputs, at the middle of each."""
    asked = a10()
    return {
        outputs: speeds(asked.of_lengths(around(prompt), around(middle)), (POLICY, NEO))
        for outputs, middle in OUTPUTS.items()
    }


def _by_output(found: dict[str, Speeds]) -> Iterator[PaperCell]:
    for outputs, gain in load_figures(PAPER)["claims"]["a10_over_neo_by_output_length"].items():
        middle = sorted(gain)[len(gain) // 2] if isinstance(gain, list) else gain
        cell = f"A10, outputs of {outputs}, over NEO"
        published = PublishedGain(PAPER, "figure 7", cell, middle, POLICY, Role.SCORED, over=NEO)
        yield from published.cells([found[outputs]])


def _over_vllm_at_most(found: Sequence[Speeds]) -> Iterator[PaperCell]:
    most = max(load_figures(PAPER)["claims"]["over_vllm"]["A10"])
    cell = "A10 over vLLM, largest"
    assumed = "figure 7's requests; figure 5's largest on the same card is 22%"
    published = PublishedGain(PAPER, "figures 5, 7", cell, most, POLICY, Role.LISTED,
                              assumed=assumed)  # fmt: skip
    yield from published.cells(found)


def _t4() -> Iterator[PaperCell]:
    claims = load_figures(PAPER)["claims"]
    asked = t4()
    found = [speeds(asked.giving(out), (POLICY, NEO)) for out in T4_OUTPUTS]
    over_vllm = PublishedGain(
        PAPER,
        "figure 5",
        "T4 over vLLM, largest",
        max(claims["over_vllm"]["T4"]),
        POLICY,
        Role.SCORED,
        assumed=_OSC_ASSUMED,
    )
    yield from over_vllm.cells(found)
    over_neo = PublishedGain(
        PAPER,
        "figure 5",
        "T4 over NEO, largest",
        claims["over_neo_max"]["T4"],
        POLICY,
        Role.LISTED,
        over=NEO,
        assumed=f"{_OSC_ASSUMED}; {claims['t4_over_neo_in_text']:.0%} in the text",
    )
    yield from over_neo.cells(found)


def _by_workload() -> Iterator[PaperCell]:
    trace = [speeds(a10(), (POLICY, NEO))]
    for workload, gains in load_figures(PAPER)["claims"]["a10_by_workload"].items():
        for over, name, gain in (
            (BASELINE, "vLLM", gains["over_vllm"]),
            (NEO, "NEO", gains["over_neo"]),
        ):
            cell = f"A10, {workload}, over {name}"
            if workload != _TRACE:
                fact = f"the lengths of {workload}'s prompts and outputs"
                yield unpredicted(PAPER, "figure 5", cell, gain, fact)
                continue
            published = PublishedGain(PAPER, "figure 5", cell, gain, POLICY, Role.SCORED,
                                      over=over, assumed=_TRACE_ASSUMED)  # fmt: skip
            yield from published.cells(trace)
