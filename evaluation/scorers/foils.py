"""Load the foils: stock voices, for teams whose persona has no others to be compared with."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

FOILS = Path(__file__).with_name("foils.yaml")


@cache
def load_foils() -> dict[str, tuple[str, ...]]:
    """Return what each foil says, by its name: a generic assistant and three stock characters, 20 messages each."""
    foils = yaml.safe_load(FOILS.read_text(encoding="utf-8"))
    return {name: tuple(texts) for name, texts in foils.items()}
