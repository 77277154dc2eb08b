"""Models that are known by name: their facts come with the package, nothing is downloaded.

`assets/models/` holds one file per family with the published `config.json` values that decide sizes
and speed. The files are read by the same code as a model directory's.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

from tandem.models.config import read_model_spec, spec_of_config
from tandem.models.config_reader import ConfigReader, read_json_object
from tandem.models.resolve import resolve_model
from tandem.spec.errors import ModelError
from tandem.spec.model import ModelSpec
from tandem.spec.names import folded

CATALOGUE = Path(__file__).resolve().parents[1] / "assets" / "models"
_INSTRUCTED = ("-instruct", "-chat", "-it", "-base", "-pt", "-hf")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """An entry of the catalogue.

    Attributes:
        hub_id: of the model on the Hugging Face hub whose `config.json` the values are.
        parameters: as published.
        source: where the values come from.
    """

    name: str
    hub_id: str
    parameters: int
    source: str
    config: ConfigReader

    def spec(self) -> ModelSpec:
        """The model's facts."""
        return spec_of_config(self.config)


def known_models() -> tuple[KnownModel, ...]:
    """Every entry, families in alphabetical order."""
    return tuple(entry for path in sorted(CATALOGUE.glob("*.json")) for entry in _read_family(path))


def plannable_spec(model: str) -> ModelSpec:
    """Facts of a model of the catalogue, by name or hub id, or of one in a directory.

    A directory of that name comes first; upper case and endings such as `-Instruct` do not matter.

    Raises:
        ModelError: neither; names the nearest entries. Or its layers differ in what they compute.
    """
    entries = known_models()
    if not Path(model).expanduser().exists():
        wanted = _plain(model)
        for entry in entries:
            if wanted in (_plain(entry.name), _plain(entry.hub_id)):
                return entry.spec()
    try:
        return read_model_spec(resolve_model(model))
    except ModelError as error:
        if Path(model).expanduser().exists():
            raise
        raise _unknown(model, entries, error) from None


def _read_family(path: Path) -> list[KnownModel]:
    family = read_json_object(path)
    shared = family.section("shared").values
    models = family.section("models")
    entries: list[KnownModel] = []
    for name in models.values:
        entry = models.section(name)
        values = {**shared, **entry.section("config").values}
        entries.append(
            KnownModel(
                name=name,
                hub_id=str(entry.get("hub_id")),
                parameters=entry.count("parameters"),
                source=str(family.get("source")),
                config=ConfigReader(path, values),
            )
        )
    return entries


def _plain(name: str) -> str:
    """Without what does not change a model's shape: case, and which tuning it had."""
    plain = folded(name)
    for ending in _INSTRUCTED:
        plain = plain.removesuffix(ending)
    return plain


def _unknown(model: str, entries: tuple[KnownModel, ...], error: ModelError) -> ModelError:
    names = [entry.name for entry in entries]
    near = difflib.get_close_matches(_plain(model).rpartition("/")[2], names, n=3, cutoff=0.5)
    hint = f"known by name and near it: {', '.join(near)}"
    if not near:
        hint = f"known by name are {', '.join(sorted(names))}"
    return ModelError(f"{error.message.partition('; ')[0]}, and no known model; {hint}")
