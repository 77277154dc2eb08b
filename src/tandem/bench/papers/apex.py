"""APEX: the inequality's thresholds, and its gains beside the bound."""

from collections.abc import Iterator, Mapping

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.hybrid_pairs import APEX_A10, APEX_T4
from tandem.bench.papers.neo import host_share
from tandem.cost.apex.inequality import pipelining_threshold
from tandem.cost.apex.overlap import request_gain, wait_saved

PAPER = "apex"
# Middles of the classes of figure 7, whose mean input is 1,000 tokens.
OUTPUTS: Mapping[str, int] = {"50-200": 125, "200-500": 350, "over 500": 600}


def apex_cells() -> list[PaperCell]:
    """Thresholds, and gains with the share of the host's bandwidth that NEO's figure implies."""
    return [*_thresholds(), *_gains()]


def _thresholds() -> Iterator[PaperCell]:
    claims = load_figures(PAPER)["claims"]
    widest = pipelining_threshold(0.5)
    yield PaperCell(PAPER, "section 3.2", "largest N_G/N_C, Ta/Tl = 0.5", "", widest, 7.5)
    yield PaperCell(
        PAPER,
        "section 3.2",
        "host speed needed, Ta/Tl from 0.5 to 1.5",
        "share",
        1 / pipelining_threshold(1.5),
        claims["cpu_speed_share_needed_for_pipelining"],
        Role.LISTED,
        note="13% suffices at 0.5 only; 17% at 1.41 and 1.5",
    )
    yield PaperCell(
        PAPER,
        "section 6",
        "wait saved by 8 devices",
        "share",
        wait_saved(8),
        0.75,
        Role.LISTED,
        note="10 of 80 layers are waited for: 87.5%",
    )


def _gains() -> Iterator[PaperCell]:
    claims = load_figures(PAPER)["claims"]
    prompt = claims["mean_input_length"]
    note = "published over NEO, predicted over the accelerator alone"
    for outputs, published in claims["a10_over_neo_by_output_length"].items():
        largest = max(published) if isinstance(published, list) else published
        yield _gain(f"A10, outputs of {outputs}", _request_gain(outputs, prompt), largest, note)
    for pair in (APEX_A10, APEX_T4):
        low, high = claims["over_vllm"][pair.name]
        note = f"published {low:.0%} to {high:.0%}; decoding only, before linear stages grow"
        yield _gain(f"{pair.name} over vLLM", pair.decode_gain(host_share()), high, note)


def _request_gain(outputs: str, prompt: int) -> float:
    output = OUTPUTS[outputs]
    return request_gain(
        APEX_A10.decode_gain(host_share()),
        APEX_A10.prefill_s(prompt),
        APEX_A10.decode_s(prompt, output),
    )


def _gain(cell: str, predicted: float, published: float, note: str) -> PaperCell:
    return PaperCell(
        PAPER,
        "figures 5, 7",
        cell,
        "share",
        predicted,
        published,
        Role.LISTED,
        predictor="bound",
        note=note,
    )
