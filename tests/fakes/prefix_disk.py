"""An engine with a disk, in a process that may be killed or whose disk may be full: CASE FOLDER."""

import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.support.engines import TestEngine, toy_engine
from tests.support.script import run_all
from tests.support.setups import Setup
from tests.support.toy_reference import greedy

from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

BLOCK, PROMPT, LAYERS, VOCAB = 4, 25, 2, 50
SETUP = Setup(device_blocks=16, block_size=BLOCK, max_num_seqs=4)


def request(number: int) -> EngineRequest:
    """A prompt of seven blocks that begins like no other's."""
    first = (number % 40 + 2, number // 40 % 40 + 2, number // 1600 + 2)
    prompt = (*first, *((5 * i) % 43 + 2 for i in range(PROMPT - 3)))
    params = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True)
    return EngineRequest(f"r{number}", prompt, params)


def serve(engine: TestEngine, number: int) -> int:
    """One request, whose tokens must be right; returns what it had from the cache."""
    each = request(number)
    result = run_all(engine.core, [each], num_layers=LAYERS)[each.request_id]
    assert result.token_ids == greedy(each, num_layers=LAYERS, vocab_size=VOCAB)[0]
    return result.cached_tokens


def for_ever(engine: TestEngine) -> None:
    """Until somebody kills this process; says how many requests were served."""
    for number in itertools.count():
        serve(engine, number)
        print(number, flush=True)


def until_full(engine: TestEngine) -> None:
    """And then the first request again; says what became of the disk."""
    disk = engine.scheduler.disk
    assert disk is not None
    for number in itertools.count():
        serve(engine, number)
        engine.settle_disk()
        if not disk.stats.writing:
            break
    print(json.dumps({"cached": serve(engine, 0), "number": number, **asdict(disk.stats)}))


if __name__ == "__main__":
    from dataclasses import replace

    with toy_engine(replace(SETUP, disk=Path(sys.argv[2]) / "kv"), LAYERS) as made:
        {"for-ever": for_ever, "until-full": until_full}[sys.argv[1]](made)
