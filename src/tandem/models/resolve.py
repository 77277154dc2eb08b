"""From a user's model argument to a directory on this machine. Nothing is ever downloaded."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tandem.spec.errors import ModelError

DEMO_MODEL = "demo"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def resolve_model(model: str, environ: Mapping[str, str] | None = None) -> Path:
    """The directory meant by `model`: `demo`, a path, or a Hugging Face id in the local cache, for
    which the name that `tandem plan` has for it may stand.

    `demo` is the packaged model; write `./demo` for a directory of that name. The cache is found
    as Hugging Face's libraries find it: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, the home directory.

    Raises:
        ModelError: there is no such directory and no such model in the cache.
    """
    if model == DEMO_MODEL:
        return Path(__file__).parents[1] / "assets" / "demo-model"
    # os.path rather than Path: any text is a question here, however long or malformed.
    path = os.path.expanduser(model)
    if os.path.exists(path):
        return Path(path)
    hub_id = model if _HUB_ID.fullmatch(model) else _known_hub_id(model)
    if hub_id is None:
        raise ModelError(
            f"there is no directory '{model}'; give a model directory, a Hugging Face id "
            f"(ORGANIZATION/NAME), or '{DEMO_MODEL}'"
        )
    cache = hub_cache(os.environ if environ is None else environ)
    snapshot = _find_snapshot(cache / f"models--{hub_id.replace('/', '--')}")
    if snapshot is None:
        meant = "" if hub_id == model else f", of which '{model}' is the name,"
        raise ModelError(
            f"'{hub_id}'{meant} is neither a directory nor in the Hugging Face cache {cache}, and "
            f"nothing is downloaded for you; fetch it with: hf download {hub_id}"
        )
    return snapshot


def _known_hub_id(name: str) -> str | None:
    """Of a model of the catalogue, which is read only where nothing else can be meant."""
    from tandem.models.catalogue import known_models
    from tandem.spec.names import known_name

    hub_ids = {entry.name: entry.hub_id for entry in known_models()}
    known = known_name(name, hub_ids)
    return None if known is None else hub_ids[known]


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where Hugging Face's libraries cache models under these environment variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return Path(environ[variable]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")) / ".cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _find_snapshot(repository: Path) -> Path | None:
    reference = repository / "refs" / "main"
    if not reference.is_file():
        return None
    snapshot = repository / "snapshots" / reference.read_text(encoding="utf-8").strip()
    return snapshot if snapshot.is_dir() else None
