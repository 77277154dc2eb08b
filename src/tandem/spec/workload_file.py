"""Lengths of requests by name: those of the papers' workloads, packaged as TOML files."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.spec.errors import ConfigError
from tandem.spec.names import known_name
from tandem.spec.workload import LengthDistribution, parse_lengths

WORKLOADS = Path(__file__).resolve().parents[1] / "assets" / "workloads"
_FIELDS = ("name", "prompt", "generate", "assumed")


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """How long a workload's requests are.

    Attributes:
        assumed: what its source does not say, one line each.
    """

    name: str
    prompt: LengthDistribution
    generate: LengthDistribution
    assumed: tuple[str, ...]


def known_workloads() -> tuple[str, ...]:
    """Names of the packaged ones."""
    return tuple(sorted(path.name.removesuffix(".toml") for path in WORKLOADS.glob("*.toml")))


def load_lengths(name: str) -> RequestLengths:
    """A packaged workload's, by its name in any case.

    Raises:
        ConfigError: no such name.
    """
    known = known_name(name, known_workloads())
    if known is None:
        raise ConfigError(
            f"unknown workload '{name}'; use one of {', '.join(known_workloads())}, or --prompt "
            "and --generate, or --trace",
            param="workload",
        )
    table: dict[str, Any] = tomllib.loads((WORKLOADS / f"{known}.toml").read_text("utf-8"))
    assert set(table) == set(_FIELDS), name
    return RequestLengths(
        table["name"],
        parse_lengths(table["prompt"], "prompt"),
        parse_lengths(table["generate"], "generate"),
        tuple(table["assumed"]),
    )
