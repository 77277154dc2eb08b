"""NEO's gains asked of the planner, the host's bandwidth calibrated on g5.4xlarge alone."""

from collections.abc import Iterator, Mapping, Sequence

from tandem.bench.papers.asked import Asked, Speeds, around, speeds
from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.hybrid_pairs import G4DN_4XLARGE, G5_4XLARGE
from tandem.bench.papers.neo import CALIBRATION, PAPER, host_share
from tandem.bench.papers.planned import PublishedGain, unpredicted
from tandem.spec.workload_file import load_lengths

POLICY = "neo"
OUTPUTS = (100, 400, 1000)
"""Tokens out of the A10G's synthetic requests: the text varies them, and gives none."""
SHORT_OUTPUTS = (36, 125, 400)
"""Likewise of the T4's, beside prompts as OSC's."""
_INPUT = 1000
_ASSUMED = "1,000 tokens in (APEX's figure 7; NEO's text gives none), 100 to 1,000 out"
_OSC = "OSC's prompts are of 150 to 512 tokens, its summaries of 24 to 48"
_NO_BOUND = "all places taken and no bound on latency, where the paper's gain is in load at one"
_TWO_CARDS = "a plan for two accelerators in tensor parallel"


def planned_neo_cells() -> Iterator[PaperCell]:
    """Figures 6, 9 and 10a."""
    instances = load_figures(PAPER)["claims"]["a10g_by_cpu"]
    by_host = {instance: _of_outputs(a10g_beside(instance), OUTPUTS) for instance in instances}
    yield from _by_host(by_host)
    yield from _largest(by_host[CALIBRATION])
    yield from _at_load()


def a10g_beside(instance: str) -> Asked:
    """A g5 instance: its host reads as calibrated on g5.4xlarge, by 1 : 1 : 2 : 4."""
    ratio = load_figures(PAPER)["bandwidth_ratio_g5"][instance.removeprefix("g5.")]
    rate = host_share() * ratio * G5_4XLARGE.host_bytes_per_s
    return Asked("a10g", instance, rate, "LLaMA-3.1-8B", around(_INPUT), around(_INPUT))


def t4_beside_g4dn() -> Asked:
    """g4dn.4xlarge with OSC's requests: its host reads the same share of its channels' peak."""
    lengths = load_lengths("osc")
    rate = host_share() * G4DN_4XLARGE.host_bytes_per_s
    return Asked("t4", "g4dn.4xlarge", rate, "LLaMA-2-7B", lengths.prompt, lengths.generate)


def _of_outputs(asked: Asked, outputs: Sequence[int]) -> list[Speeds]:
    return [speeds(asked.giving(out), (POLICY,)) for out in outputs]


def _by_host(found: Mapping[str, Sequence[Speeds]]) -> Iterator[PaperCell]:
    for instance, gain in load_figures(PAPER)["claims"]["a10g_by_cpu"].items():
        role = Role.CALIBRATED if instance == CALIBRATION else Role.SCORED
        cell = f"A10G, {instance}: peak gain"
        published = PublishedGain(PAPER, "figure 10a", cell, gain, POLICY, role, assumed=_ASSUMED)
        yield from published.cells(found[instance])


def _largest(a10g: Sequence[Speeds]) -> Iterator[PaperCell]:
    claims = load_figures(PAPER)["claims"]["max_gain_over_gpu_only"]
    short = "prompts as OSC's (the text gives no lengths), 36 to 400 out"
    asked = {
        "T4": (_of_outputs(t4_beside_g4dn(), SHORT_OUTPUTS), short),
        "A10G": (a10g, _ASSUMED),
    }
    for card, gain in claims.items():
        cell = f"{card}: largest gain"
        if card not in asked:
            yield unpredicted(PAPER, "figure 9", cell, gain, _TWO_CARDS)
            continue
        found, assumed = asked[card]
        published = PublishedGain(
            PAPER, "figure 9", cell, gain, POLICY, Role.LISTED, assumed=assumed
        )
        yield from published.cells(found)


def _at_load() -> Iterator[PaperCell]:
    """Gains in load at a bound on latency, listed: predicted is throughput without one."""
    claims = load_figures(PAPER)["claims"]["load_gain_at_latency"]
    code = load_lengths("azure-code")
    asked = {
        "A10G at 2 s": (
            a10g_beside(CALIBRATION).of_lengths(code.prompt, code.generate),
            "Azure's code trace by mean and deviation",
        ),
        "T4 at 1 s": (t4_beside_g4dn(), _OSC),
    }
    for cell, gain in claims.items():
        if cell not in asked:
            yield unpredicted(PAPER, "figure 6", cell, gain, _TWO_CARDS)
            continue
        machine, assumed = asked[cell]
        published = PublishedGain(
            PAPER, "figure 6", cell, gain, POLICY, Role.LISTED, assumed=f"{assumed}; {_NO_BOUND}"
        )
        yield from published.cells([speeds(machine, (POLICY,))])
