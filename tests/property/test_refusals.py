"""What does not fit is refused with sums that add up, and with settings that really suffice."""

import re
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

from hypothesis import assume, given
from hypothesis import strategies as st

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import plan_memory
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ModelSpec, RopeSpec
from tandem.spec.parameters import weight_bytes
from tandem.spec.precision import Precision
from tandem.spec.units import MIB, parse_size

PRECISION = Precision.uniform(DType.FLOAT32)
T4 = load_hardware("t4")
LIMIT_BYTES = 4096 * MIB

specs = st.builds(
    ModelSpec,
    architecture=st.just("llama"),
    vocab_size=st.sampled_from([1000, 20_000]),
    hidden_size=st.sampled_from([64, 256]),
    num_layers=st.integers(1, 9),
    num_heads=st.just(4),
    num_kv_heads=st.sampled_from([2, 4]),
    head_dim=st.sampled_from([16, 64]),
    intermediate_size=st.sampled_from([128, 1024]),
    max_positions=st.just(4096),
    rope=st.just(RopeSpec()),
    tie_embeddings=st.booleans(),
)
configs = st.builds(
    EngineConfig,
    model=st.just("m"),
    max_num_seqs=st.just(4),
    max_num_batched_tokens=st.sampled_from([16, 512]),
    max_model_len=st.sampled_from([None, 300, 4096]),
    host_layers=st.sampled_from(["auto", "stream", "cpu", "mlp"]),
    kv_placement=st.sampled_from(["auto", "device", "host", "split"]),
)
Change = tuple[EngineConfig, Capacities]


@given(
    spec=specs,
    config=configs,
    device=st.floats(0, 1.3),
    host=st.floats(0, 1.3),
    on_host=st.booleans(),
    room=st.none() | st.floats(0, 3),
    elastic=st.booleans(),
    hardware=st.sampled_from([None, T4]),
)
def test_the_settings_that_a_refusal_names_suffice_and_smaller_ones_do_not(
    spec: ModelSpec,
    config: EngineConfig,
    device: float,
    host: float,
    on_host: bool,
    room: float | None,
    elastic: bool,
    hardware: object,
) -> None:
    weights = weight_bytes(spec, DType.FLOAT32)
    capacities = Capacities(
        int(device * weights),
        int(host * weights),
        real=False,
        device_limit_bytes=LIMIT_BYTES,
        host_limit_bytes=LIMIT_BYTES,
        room_bytes=None if room is None else int(room * weights) + 40 * MIB,
        elastic=elastic,
    )
    if on_host:
        config = replace(config, kv_placement="auto", host_layers="auto")
        capacities = replace(capacities, host_bytes=0, device_location="host")
        hardware = None
    assume(on_host or capacities.host_bytes or config.kv_placement in ("auto", "device"))

    def refusal(config: EngineConfig, capacities: Capacities) -> str | None:
        known = None if hardware is None else T4
        try:
            plan_memory(config, spec, PRECISION, capacities, hardware=known)
        except ConfigError as error:
            return error.message
        return None

    message = refusal(config, capacities)
    assume(message is not None)
    assert message is not None
    check_sums(message)
    remedies = changes_of(message, on_host)
    assert remedies or (room is not None and "no more memory that this machine has" in message)
    with patch("tandem.engine.sizing.nearest_settings.nearest_settings", return_value=""):
        for remedy, (enough, too_little) in remedies.items():
            assert refusal(*enough(config, capacities)) is None, (remedy, message)
            assert refusal(*too_little(config, capacities)) is not None, (remedy, message)


Apply = Callable[[EngineConfig, Capacities], Change]


def changes_of(message: str, on_host: bool) -> dict[str, tuple[Apply, Apply]]:
    """Every setting that a message names, and one that is clearly less of it."""
    found: dict[str, tuple[Apply, Apply]] = {}
    if "no more memory that this machine has" in message:
        return found
    remedy = message.rpartition("; use ")[2]
    for text in remedy.split(", or "):
        sizes = dict(re.findall(r"--(gpu|cpu)-memory (\d+MiB)(?! at most)", text))
        both = re.fullmatch(r"--gpu-memory (\d+)MiB with --cpu-memory (\d+)MiB at most", text)
        most = re.fullmatch(r"--(gpu|cpu)-memory (\d+)MiB at most", text)
        tokens = re.fullmatch(r"--(max-[a-z-]+) (\d+) or less", text)
        if most is not None:
            field, size = memory_fields(on_host)[most[1]], int(most[2]) * MIB
            found[text] = (at_most(field, size), at_most(field, size + MIB))
        elif both is not None:
            device, host = int(both[1]) * MIB, int(both[2]) * MIB
            found[text] = (pair(device, host), pair(device, host + MIB))
        elif sizes:
            found[text] = (with_memory(sizes, 0, on_host), with_memory(sizes, -2 * MIB, on_host))
        elif tokens is not None:
            option, number = tokens[1].replace("-", "_"), int(tokens[2])
            found[text] = (with_option(option, number), with_option(option, number + 1))
        else:
            assert text == "--host-layers cpu", message
            found[text] = (with_option("host_layers", "cpu"), lambda config, there: (config, there))
    return found


def with_memory(sizes: dict[str, str], change: int, on_host: bool) -> Apply:
    """With what is named, or so much less, but never less than what was refused."""
    fields = memory_fields(on_host)

    def apply(config: EngineConfig, there: Capacities) -> Change:
        named = {fields[name]: parse_size(size) + change for name, size in sizes.items()}
        larger = {name: max(size, getattr(there, name)) for name, size in named.items()}
        elastic = there.elastic and "cpu" not in sizes  # what is asked for is taken
        return config, replace(there, elastic=elastic, **larger)

    return apply


def pair(device: int, host: int) -> Apply:
    """With so much of the accelerator's, and of the host's, but no more than what was refused."""

    def apply(config: EngineConfig, there: Capacities) -> Change:
        in_host = min(host, there.host_bytes)
        return config, replace(there, device_bytes=device, host_bytes=in_host, elastic=False)

    return apply


def memory_fields(on_host: bool) -> dict[str, str]:
    return {"gpu": "device_bytes", "cpu": "device_bytes" if on_host else "host_bytes"}


def at_most(field: str, size: int) -> Apply:
    """With so much, but never more than what was refused."""

    def apply(config: EngineConfig, there: Capacities) -> Change:
        size_there = min(size, getattr(there, field))
        if field == "device_bytes" and there.device_location == "device":
            return config, there.with_emulated(size_there)
        return config, replace(there, **{field: size_there})

    return apply


def with_option(name: str, value: object) -> Apply:
    return lambda config, there: (replace(config, **{name: value}), there)


def check_sums(message: str) -> None:
    """`a 1.0 MiB + b 2.0 MiB = 3.0 MiB`: to rounding, which is a twentieth of a unit per number."""
    size = r"[\d.]+ (?:B|[KMGT]iB)"
    part = rf"[a-zA-Z ,]+ {size}"
    found = re.findall(rf"((?:{part} \+ )+{part}) = ({size})", message)
    assert len(found) == message.count(" = "), message
    for parts, total in found:
        terms = [parse_size(text) for text in re.findall(size, parts)]
        units = [text.split()[1] for text in [*re.findall(size, parts), total]]
        rounding = sum(parse_size(f"0.06 {unit}") if unit != "B" else 1 for unit in units)
        assert abs(sum(terms) - parse_size(total)) <= rounding, message
