"""The demo from beginning to end."""

import time

from rich.console import Console
from rich.live import Live

from tandem.demo.picture import result_table, streams, summary, tiers_panel
from tandem.demo.session import Outcome, Watched, run_session
from tandem.demo.workload import demo_requests
from tandem.engine.building.build import build_engine_core
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.models.resolve import resolve_model
from tandem.spec.config import EngineConfig

_REFRESH_PER_S = 12.0


def demo_configs() -> tuple[EngineConfig, EngineConfig]:
    """(an accelerator with too little memory, the plain run with neither accelerator nor tiers)."""
    hybrid = EngineConfig(
        model="demo",
        accelerator="emulated:exact",
        gpu_memory="25MiB",
        cpu_memory="64MiB",
        dtype="float32",
        max_num_seqs=8,
        max_num_batched_tokens=128,
    )
    plain = EngineConfig(
        model="demo", accelerator="none", cpu_memory="512MiB", dtype="float32", max_num_seqs=8
    )
    return hybrid, plain


def run_demo(console: Console) -> bool:
    """Show the demo; False if any token differed from the plain run's."""
    hybrid_config, plain_config = demo_configs()
    tokenizer = load_tokenizer(resolve_model("demo"))
    assert tokenizer is not None, "the packaged model has a tokenizer"
    requests = demo_requests(tokenizer)
    console.print(
        f"[bold]Tandem demo[/bold]: {len(requests)} requests at once on an emulated accelerator of "
        f"{hybrid_config.gpu_memory}, backed by host memory."
    )
    begin = time.perf_counter()
    core = build_engine_core(hybrid_config)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=_REFRESH_PER_S) as live:
            outcome = run_session(core, requests, lambda w: live.update(streams(w, tokenizer)))
    else:
        outcome = run_session(core, requests, _quiet)
        console.print(streams(outcome.watched, tokenizer))
    core.close()
    took_s = time.perf_counter() - begin
    plain = _plain_run(plain_config, outcome)
    console.print(tiers_panel(outcome.stats, outcome))
    console.print(result_table(outcome, plain))
    console.print(summary(outcome, hybrid_config.block_size))
    console.print(f"{took_s:.1f} s, model loading included. Next: tandem chat, or tandem serve")
    return all(
        a.token_ids == b.token_ids for a, b in zip(outcome.watched, plain.watched, strict=True)
    )


def _plain_run(config: EngineConfig, outcome: Outcome) -> Outcome:
    """The same requests on the host alone: one tier, no lanes."""
    core = build_engine_core(config)
    plain = run_session(core, [entry.request for entry in outcome.watched], _quiet)
    core.close()
    return plain


def _quiet(watched: list[Watched]) -> None:
    del watched
