"""NEO: gains over the accelerator alone, the host's bandwidth calibrated on g5.4xlarge."""

from collections.abc import Iterator

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.hybrid_pairs import (
    G4DN_4XLARGE,
    G5_4XLARGE,
    HGX_TWO_H100,
    HybridPair,
)

PAPER = "neo"
CALIBRATION = "g5.4xlarge"


def host_share() -> float:
    """Share of its channels' peak that g5.4xlarge's host must reach for the published gain."""
    published = load_figures(PAPER)["claims"]["a10g_by_cpu"][CALIBRATION]
    return published / G5_4XLARGE.decode_gain(1.0)


def neo_cells() -> list[PaperCell]:
    """Figure 10a cell by cell; the contradictory claims beside the bound, not scored."""
    return [*_by_host(), *_claims()]


def _by_host() -> Iterator[PaperCell]:
    figures = load_figures(PAPER)
    share = host_share()
    ratios = figures["bandwidth_ratio_g5"]
    for instance, published in figures["claims"]["a10g_by_cpu"].items():
        ratio = ratios[instance.removeprefix("g5.")]
        calibrates = instance == CALIBRATION
        rate = share * ratio * G5_4XLARGE.host_bytes_per_s
        yield PaperCell(
            PAPER,
            "figure 10a",
            f"A10G, {instance}: peak gain",
            "share",
            G5_4XLARGE.decode_gain(share * ratio),
            published,
            Role.CALIBRATED if calibrates else Role.SCORED,
            note=f"host at {rate / 1e9:.1f} GB/s",
        )


def _claims() -> Iterator[PaperCell]:
    figures = load_figures(PAPER)
    claims = figures["claims"]["max_gain_over_gpu_only"]
    notes = {
        "T4": f"claimed as {', '.join(figures['contradictions']['T4'])}; inversely proportional to "
        f"the {G4DN_4XLARGE.kv_bytes / 1e9:.1f} GB that are left for KV",
        "A10G": "contradicts 13.3% on the same machine",
        "H100": "prefills of 2,000 tokens are not in the bound",
    }
    for pair in (G4DN_4XLARGE, G5_4XLARGE, HGX_TWO_H100):
        yield _bound(pair, claims[pair.name], notes[pair.name])


def _bound(pair: HybridPair, published: float, note: str) -> PaperCell:
    return PaperCell(
        PAPER,
        "figure 9",
        f"{pair.name}: largest gain",
        "share",
        pair.decode_gain(host_share()),
        published,
        Role.LISTED,
        predictor="bound of decoding",
        note=note,
    )
