"""Questions drawn at random, of which predictions are held against the simulator."""

from collections.abc import Sequence
from random import Random

from tests.support.agreement import Cell

from tandem.cli.planning_options import MemoryOptions
from tandem.models.catalogue import plannable_spec

MODELS = (
    "opt-1.3b", "opt-6.7b", "opt-13b", "opt-30b", "llama-2-7b", "llama-3.1-8b", "qwen3-30b-a3b",
    "gemma-2-9b",
)  # fmt: skip
MACHINES: tuple[tuple[str, Sequence[str | None]], ...] = (
    ("t4", (None, "g4dn.4xlarge", "g5.4xlarge")),
    ("a10g", (None, "g5.4xlarge", "g5.16xlarge")),
    ("a4000", (None,)),
    ("l4", (None,)),
    ("rtx3090", (None, "server-genoa")),
    ("rtx4090", (None, "server-genoa")),
    ("a100-40", (None, "p4d.24xlarge")),
    ("h100", (None,)),
)
LENGTHS = (
    ("512", "128"), ("1000", "50"), ("128", "256"), ("200-600", "50-150"), ("exp:200", "exp:100"),
    ("exp:120", "exp:200"),
)  # fmt: skip
LONGER = ("exp:500", "exp:150"), ("lognormal:600,500", "lognormal:200,150")
FAST = "a100-40", "h100", "rtx4090", "rtx3090"
"""At which few requests over time have ended before its places fill."""
TRACES = "azure-code", "azure-conversation"
"""Both of models that take more than 4,096 tokens, LONGER of those that take more than 2,048."""
LOADS = 0.0, 0.0, 0.3, 0.6, 0.8
STRATEGIES = "auto", "auto", "auto", "gpu-only", "ride-along", "rendezvous", "asymmetric"
"""Of those that come over time: a job of a strategy that nobody would choose says little."""


def random_cell(seed: int) -> Cell:
    """One of them; an equal one for an equal seed."""
    draw = Random(seed)
    model = draw.choice(MODELS)
    accelerator, hosts = draw.choice(MACHINES)
    lengths = LENGTHS if model.startswith("opt") else LENGTHS + LONGER
    prompt, generate = draw.choice(lengths)
    traced = plannable_spec(model).max_positions > 4096 and draw.random() < 0.3
    load = draw.choice(LOADS)
    return Cell(
        model,
        accelerator,
        draw.choice(hosts),
        prompt,
        generate,
        requests=draw.choice((200, 300, 400)) * (4 if load and accelerator in FAST else 1),
        workload=draw.choice(TRACES) if traced else None,
        load=load,
        strategy=draw.choice(STRATEGIES) if load else "auto",
        memory=MemoryOptions(
            quantization="int4" if draw.random() < 0.15 else "auto",
            kv_cache_dtype="int8" if draw.random() < 0.15 else "auto",
        ),
    )
