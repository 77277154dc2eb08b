"""What the simulator says, from this machine's profile, of the very plan that an engine made for
weights that do not fit: its decode of requests that are all there at once.

It needs what plans need (`highspy`): this is imported alone.
"""

from dataclasses import replace

from benchmarks.gpu.stored import stored_profile

from tandem.bench.host_case import HostCase
from tandem.bench.online.plans import ask
from tandem.engine.building.parts import EngineParts
from tandem.simulator.build import Planned
from tandem.simulator.simulate import simulate
from tandem.spec.dtype import DType
from tandem.spec.workload import RequestShape, Workload


def simulated_per_s(
    parts: EngineParts, case: HostCase, kv: DType, memory_bytes: int, host_bytes: int
) -> float:
    """Tokens per second after each request's first, as they are executed.

    Args:
        kv: of the cache, as profiled: a device that the host stands in for keeps float32, of which
            profiles know nothing.
        memory_bytes: of the accelerator that may be used. host_bytes: of the host.

    Raises:
        TandemError: there is no profile, it does not know what the plan needs, or a request would
            not be served.
    """
    plan = parts.memory.plan
    shape = RequestShape(case.prompt_tokens, case.new_tokens)
    workload = Workload(f"{case.batch} at once", (shape,) * case.batch)
    question = ask(stored_profile(), parts.spec, workload, host_bytes, plan.max_num_batched_tokens)
    question = replace(
        question, device_bytes=memory_bytes, precision=replace(parts.precision, kv=kv)
    )
    tpot = simulate(Planned(question, None, plan), workload).tpot
    assert tpot is not None, "requests of several tokens"
    return case.batch / tpot.p50_s
