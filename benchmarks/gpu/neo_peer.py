"""NEO's own code, its authors' fork of SwiftLLM, with weights of its own making on the measured
device: Llama alone, its queue of requests, KV on the GPU and in host memory.

It is on no package index and has to be built: `PEERS=FOLDER NEO_LIBRARIES=FOLDER
benchmarks/gpu/run_all.sh`, with the folder that holds `swiftllm`, and the one of its CPU library
`libpacpu`. Calls are those of the fork's sources (github.com/SwiftSeal03/swiftLLM, 08326fc and
d6a34e2); settings that a later commit has not, or has under another name, are left out or both
given.
"""

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.jobs import Asked, JobRate

NEO = "NEO, its own code"
NOT_THERE = f"{NEO}, was not run: there is no swiftllm (PEERS=FOLDER)"
LIBRARIES = "NEO_LIBRARIES"
MODELS: Mapping[str, str] = {"llama-2-7b": "llama2_7b", "llama-3.1-8b": "llama3_8b"}
"""That it can run, by what its builds call them."""
_BLOCK = 16
_GIB = 1 << 30


def find_neo(import_module: Callable[[str], Any] = importlib.import_module) -> Any | None:
    """Its module; None: it is not there.

    Raises:
        CaseError: it is there, but cannot be imported.
    """
    try:
        return import_module("swiftllm")
    except Exception as error:  # the peer's own errors are of any type
        if isinstance(error, ModuleNotFoundError) and error.name == "swiftllm":
            return None
        raise CaseError(f"swiftllm cannot be imported: {error}") from error


def find_library(model: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Its CPU library, of one model or of all.

    Raises:
        CaseError: there is none.
    """
    folder = Path(environment.get(LIBRARIES, "."))
    names = f"libpacpu-{MODELS[model]}-tp1.so", "libpacpu.so"
    for path in (folder / name for name in names):
        if path.exists():
            return path.resolve()
    raise CaseError(f"{folder} has neither {' nor '.join(names)}; name its folder by {LIBRARIES}")


@dataclass(frozen=True, slots=True)
class NeoSizes:
    """What it may use.

    Attributes:
        kv_tokens: on the GPU. host_bytes, host_tokens: for KV in host memory, and what they hold.
        rows: that run at once. longest: tokens of a request. step_tokens: of a step.
    """

    kv_tokens: int
    host_bytes: int
    host_tokens: int
    rows: int
    longest: int
    step_tokens: int

    def settings(self, model: Path, library: Path, folder: Path) -> dict[str, Any]:
        """By the names of all commits."""
        return {
            "model_path": str(model),
            "use_dummy": True,
            "block_size": _BLOCK,
            "gpu_mem_utilization": 0.99,
            "num_gpu_blocks": self.kv_tokens // _BLOCK,
            "num_gpu_blocks_override": self.kv_tokens // _BLOCK,
            "num_cpu_blocks": self.host_tokens // _BLOCK,
            "swap_space": max(1, self.host_bytes // _GIB),
            "max_seqs_in_block_table": self.rows,
            "max_blocks_per_seq": -(-self.longest // _BLOCK),
            "max_batch_size": self.rows,
            "max_prefill_tokens": self.step_tokens,
            "max_tokens_in_batch": self.step_tokens,
            "library_path": str(library),
            "profile_result_path": f"{folder}/",
        }


class Neo:
    """Its engine, as long as it is open.

    Args:
        neo: its module. model: a folder with a `config.json`.

    Raises:
        CaseError: it cannot be, of any reason of its own.
    """

    def __init__(self, neo: Any, model: Path, library: Path, sizes: NeoSizes) -> None:
        self._stack = ExitStack()
        try:
            self._structs = importlib.import_module("swiftllm.structs")
            folder = Path(self._stack.enter_context(TemporaryDirectory()))
            known = {each.name for each in fields(neo.EngineConfig)}
            wanted = sizes.settings(model, library, folder)
            config = neo.EngineConfig(**{k: v for k, v in wanted.items() if k in known})
            self._loop = asyncio.new_event_loop()
            self._stack.callback(self._loop.close)
            self._engine: Any = getattr(neo, "AsyncEngine", neo.Engine)(config)
            self._loop.run_until_complete(self._engine.initialize())
            self._working = self._loop.create_task(self._engine.start_all_event_loops())
        except Exception as error:  # noqa: BLE001 - the peer's own errors are of any type
            self._stack.close()
            raise CaseError(f"{type(error).__name__}: {error}") from None

    def __enter__(self) -> "Neo":
        return self

    def __exit__(self, *error: object) -> None:
        self._working.cancel()
        with suppress(asyncio.CancelledError, Exception):
            self._loop.run_until_complete(self._working)
        self._engine = None
        self._stack.close()

    def run(self, asked: Sequence[Asked], limit: Deadline) -> JobRate:
        """All requests at once, as token ids: past its tokenizer.

        Raises:
            CaseError: it failed, or time is out.
        """
        try:
            return self._loop.run_until_complete(self._job(asked, limit))
        except Exception as error:  # noqa: BLE001 - the peer's own errors are of any type
            raise CaseError(f"{type(error).__name__}: {error}") from None

    async def _job(self, asked: Sequence[Asked], limit: Deadline) -> JobRate:
        begin = limit.clock()
        requests = [
            self._structs.create_request(list(each.prompt), -1, each.new_tokens) for each in asked
        ]
        self._engine.scheduler.on_requests_arrival(requests)
        ended = asyncio.gather(*(each.finished_event.wait() for each in requests))
        done, _ = await asyncio.wait(
            (ended, self._working), timeout=limit.left_s, return_when=asyncio.FIRST_COMPLETED
        )
        if ended not in done:
            ended.cancel()
            with suppress(asyncio.CancelledError):
                await ended
            if self._working in done:
                self._working.result()
                raise RuntimeError("its event loops ended")
            raise TimeoutError(f"a job took more than {limit.clock() - begin:.0f} s")
        tokens = sum(len(each.output_token_ids) for each in requests)
        return JobRate(tokens, limit.clock() - begin, complete=True)
