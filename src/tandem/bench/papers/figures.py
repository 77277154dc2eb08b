"""The papers' published figures, as they are printed there."""

import json
from importlib import resources
from typing import Any

PAPERS = ("park-egger", "kvpr", "lm-offload", "neo", "apex")


def load_figures(paper: str) -> dict[str, Any]:
    """Tables and claims of one of `PAPERS`; units are in the names or in `what`."""
    path = resources.files("tandem") / "assets" / "papers" / f"{paper}.json"
    return json.loads(path.read_text(encoding="utf-8"))
