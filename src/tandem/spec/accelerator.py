"""Which accelerator the user asked for."""

from dataclasses import dataclass
from typing import Literal

from tandem.spec.errors import ConfigError
from tandem.spec.names import folded
from tandem.spec.units import is_count

_HELP = "use auto, none, cuda, cuda:N, or emulated[:exact|paced][,seed=N][,SPEC]"


@dataclass(frozen=True, slots=True)
class AcceleratorChoice:
    """A parsed `--accelerator`.

    Attributes:
        index: of the CUDA device.
        mode: how the emulated accelerator runs: all maths in adversarial order, or paced by a
            clock.
        seed: of the emulator's order.
        spec: name or path of the emulated hardware's description; not looked up here.
    """

    kind: Literal["auto", "none", "cuda", "emulated"]
    index: int = 0
    mode: Literal["exact", "paced"] = "exact"
    seed: int = 0
    spec: str = "a10g-scaled"


def parse_accelerator(text: str) -> AcceleratorChoice:
    """Read `auto`, `none`, `cuda:1`, `emulated:exact,seed=3`, `emulated:t4`, `emulated:spec=F`.

    Raises:
        ConfigError: none of these.
    """
    name, _, rest = text.partition(":")
    kind = folded(name)
    if kind in ("auto", "none") and not rest:
        return AcceleratorChoice(kind)
    if kind == "cuda":
        if rest and not is_count(rest):
            raise ConfigError(f"'{text}' is no accelerator; {_HELP}", param="accelerator")
        return AcceleratorChoice("cuda", index=int(rest or 0))
    if kind == "emulated":
        return _parse_emulated(text, rest)
    raise ConfigError(f"'{text}' is no accelerator; {_HELP}", param="accelerator")


def _parse_emulated(text: str, rest: str) -> AcceleratorChoice:
    mode: Literal["exact", "paced"] = "exact"
    seed, spec = 0, "a10g-scaled"
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if part in ("exact", "paced"):
            mode = "paced" if part == "paced" else "exact"
        elif key == "seed" and is_count(value):
            seed = int(value)
        elif (key == "spec" and value) or "=" not in part:
            spec = value or part
        else:
            raise ConfigError(
                f"'{part}' in '{text}' is not understood; {_HELP}", param="accelerator"
            )
    return AcceleratorChoice("emulated", mode=mode, seed=seed, spec=spec)
