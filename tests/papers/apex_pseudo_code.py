"""APEX's algorithm 1, transcribed from the paper line by line, rates and times as it names them."""

from dataclasses import dataclass
from typing import Literal

Returned = Literal["GPU-only", "Asymmetric Pipelining", "Asynchronous Overlap"]


@dataclass(frozen=True, slots=True)
class Profiled:
    """`N_G`, `N_C` in attention tokens per second; the others in seconds, of one layer."""

    n_g: float
    n_c: float
    t_glinear: float
    t_gatt: float
    t_glinear_pref: float
    t_gatt_pref: float


def algorithm_1(p_sch: int, d_gpu_sch: int, d_cpu_sch: int, of: Profiled) -> Returned:
    """What is returned for so many active requests of either queue."""
    del d_gpu_sch  # goes into the times only
    if not d_cpu_sch:
        return "GPU-only"
    gpu = of.n_g * of.t_gatt
    if not p_sch:
        cycle = 2 * of.t_glinear + of.t_gatt
        if (gpu + of.n_c * (2 * of.t_glinear + of.t_gatt)) / cycle > gpu / (
            of.t_glinear + of.t_gatt
        ):
            return "Asymmetric Pipelining"
        return "Asynchronous Overlap"
    t_overlap_with_prefill = of.t_glinear_pref + of.t_glinear + of.t_gatt_pref
    cycle = 2 * of.t_glinear + of.t_gatt
    if (gpu + of.n_c * t_overlap_with_prefill) / cycle >= gpu / (of.t_glinear + of.t_gatt):
        return "Asymmetric Pipelining"
    return "Asynchronous Overlap"
