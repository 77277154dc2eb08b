"""NEO's own policy over its own baseline, sizes and requests as in its evaluation's code."""

from collections.abc import Iterator
from functools import cache

from tandem.bench.papers.artifact import ALONE, PREDICTOR, Job, Setting, pace
from tandem.bench.papers.asked import around
from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.hybrid_pairs import G4DN_4XLARGE, G5_4XLARGE
from tandem.bench.papers.neo import CALIBRATION, PAPER, host_share
from tandem.spec.workload_file import load_lengths

POLICY = "neo"
T4_OUTPUTS = (36, 125, 240)
"""Tokens out, which the text varies and does not give. Of longer ones some outgrow what requests
come back to from the host, 95% of 832 tokens, and the published engine stands still.
"""
_TOLERANCE = 0.01  # of the calibrated bandwidth
Gains = dict[int, float]
"""By the mean of tokens out."""


def published_neo_cells() -> Iterator[PaperCell]:
    """Figures 10a and 9; cells of two H100 lack a model of two accelerators."""
    claims = load_figures(PAPER)["claims"]
    share = calibrated_share()
    by_host = {each: a10g_gains(each, share) for each in claims["a10g_by_cpu"]}
    for instance, published in claims["a10g_by_cpu"].items():
        role = Role.CALIBRATED if instance == CALIBRATION else Role.SCORED
        cell, note = f"A10G, {instance}: peak gain", _host(a10g_beside(instance, share))
        yield _cell("figure 10a", cell, by_host[instance], published, role, note)
    largest, t4 = claims["max_gain_over_gpu_only"], t4_beside_g4dn(share)
    a10g, note = by_host[CALIBRATION], "contradicts 13.3% on the same machine"
    yield _cell("figure 9", "A10G: largest gain", a10g, largest["A10G"], Role.LISTED, note)
    note = f"prompts as OSC's; {_host(t4)}"
    yield _cell("figure 9", "T4: largest gain", _t4_gains(t4), largest["T4"], Role.LISTED, note)


@cache
def calibrated_share() -> float:
    """Share of its channels' peak that g5.4xlarge's host must read for the published gain: between
    what the bound of decoding says and all of it.
    """
    published = load_figures(PAPER)["claims"]["a10g_by_cpu"][CALIBRATION]
    low, high = host_share(), 1.0
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        if max(a10g_gains(CALIBRATION, middle).values()) < published:
            low = middle
        else:
            high = middle
    return high


def a10g_beside(instance: str, share: float) -> Setting:
    """A g5 instance, whose host reads by 1 : 1 : 2 : 4.

    Args:
        share: of its channels' peak that g5.4xlarge's host reads.
    """
    ratio = load_figures(PAPER)["bandwidth_ratio_g5"][instance.removeprefix("g5.")]
    rate = ratio * share * G5_4XLARGE.host_bytes_per_s
    return Setting("A10G", instance, "a10g", instance, "LLaMA-3.1-8B", rate)


def t4_beside_g4dn(share: float) -> Setting:
    """g4dn.4xlarge, whose host reads the same share of its channels' peak."""
    rate = share * G4DN_4XLARGE.host_bytes_per_s
    return Setting("T4", "g4dn.4xlarge", "t4", "g4dn.4xlarge", "LLaMA-2-7B", rate)


def a10g_gains(instance: str, share: float) -> Gains:
    """Figure 10a's, for its lengths of outputs."""
    requests = load_figures(PAPER)["artifact"]["figure_10a"]
    prompt, setting = around(requests["prompt_tokens"]), a10g_beside(instance, share)
    jobs = {out: Job(prompt, around(out)) for out in requests["generate_tokens"]}
    return {out: _gain(setting, job) for out, job in jobs.items()}


def _t4_gains(setting: Setting) -> Gains:
    osc = load_lengths("osc")
    job = Job(osc.prompt, osc.generate)
    return {out: _gain(setting, job.giving(out)) for out in T4_OUTPUTS}


def _gain(setting: Setting, job: Job) -> float:
    alone = pace(setting, ALONE, job).measured
    return pace(setting, POLICY, job).measured / alone - 1


def _cell(
    place: str, cell: str, gains: Gains, published: float, role: Role, note: str
) -> PaperCell:
    at = max(gains, key=lambda out: gains[out])
    note = f"at {at} out; {note}"
    return PaperCell(PAPER, place, cell, "share", gains[at], published, role, PREDICTOR, note)


def _host(setting: Setting) -> str:
    return f"host at {setting.host_bytes_per_s / 1e9:.1f} GB/s"
