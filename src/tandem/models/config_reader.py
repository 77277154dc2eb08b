"""Typed access to a parsed `config.json`; every error names the key and the file."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.spec.errors import ModelError

_MOST_LAYERS, _MOST_EXPERTS = 1_000, 10_000
_MOST: Mapping[str, int] = {
    "num_hidden_layers": _MOST_LAYERS,
    "num_experts": _MOST_EXPERTS,
    "num_local_experts": _MOST_EXPERTS,
}
"""Of what is counted one by one, far more than any model has."""
_MOST_OF_ANY = (1 << 63) - 1
"""Whatever holds sizes in bytes can hold it."""


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """A JSON object with checked look-ups.

    An absent key and a null value mean the same, but for `with_defaults`.

    Attributes:
        path: the file it came from, for messages.
        values: the parsed object.
    """

    path: Path
    values: Mapping[str, Any]

    def error(self, message: str) -> ModelError:
        """An error about this file, to be raised by the caller."""
        return ModelError(f"{self.path}: {message}")

    def get(self, key: str) -> Any:
        """The raw value, or None."""
        return self.values.get(key)

    def with_defaults(self, defaults: Mapping[str, Any]) -> "ConfigReader":
        """The same with values for keys that are absent; those that are null stay so."""
        return ConfigReader(self.path, {**defaults, **self.values})

    def section(self, key: str) -> "ConfigReader":
        """A nested object; empty if absent."""
        value = self.values.get(key) or {}
        if not isinstance(value, Mapping):
            raise self.error(f"'{key}' must be an object, not {value!r}")
        return ConfigReader(self.path, value)

    def count(self, key: str, default: int | None = None) -> int:
        """A positive integer; `default` if absent.

        Raises:
            ModelError: absent without a default, not a positive integer, or more than any model
                has.
        """
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise self.error(f"'{key}' is missing; the file is not a complete model configuration")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(f"'{key}' must be a positive integer, not {value!r}")
        most = _MOST.get(key, _MOST_OF_ANY)
        if value > most:
            raise self.error(f"'{key}' must be at most {most}, not {_shown(value)}")
        return value

    def index(self, key: str) -> int:
        """A whole number from 0.

        Raises:
            ModelError: absent, or not such a number.
        """
        value = self.values.get(key)
        return 0 if value == 0 and isinstance(value, int) else self.count(key)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of positive numbers.

        Raises:
            ModelError: absent, or not such a list.
        """
        value = self.values.get(key)
        if not isinstance(value, list):
            raise self.error(f"'{key}' must be a list of numbers, not {value!r}")
        return tuple(ConfigReader(self.path, {key: entry}).number(key) for entry in value)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; `default` if absent.

        Raises:
            ModelError: absent without a default, or not a positive number.
        """
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise self.error(f"'{key}' is missing; the file is not a complete model configuration")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value <= sys.float_info.max
        ):
            raise self.error(f"'{key}' must be a positive number, not {value!r}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean; `default` if absent."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"'{key}' must be true or false, not {value!r}")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """Token ids given as one integer, a list of them, or not at all."""
        value = self.values.get(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
            raise self.error(f"'{key}' must be a token id or a list of them, not {value!r}")
        return tuple(ids)


def _shown(number: int) -> str:
    """In few words."""
    digits = str(number)
    return digits if len(digits) < 20 else f"a number of {len(digits)} digits"


def read_json_object(path: Path) -> ConfigReader:
    """Parse a JSON file that holds an object.

    Raises:
        ModelError: unreadable, not UTF-8, not JSON, or not an object.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise ModelError(f"{path} is not valid JSON ({error}); download the model again") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} must hold a JSON object; download the model again")
    return ConfigReader(path, values)
