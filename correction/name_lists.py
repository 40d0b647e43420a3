"""Lists of names as people write them: separated by commas or lines; a name with a comma in it stands in double quotes."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

NOBODY = "none"  # a list with nothing in it, which is not the same as inheriting one


def read_names(value: Any) -> list[str]:
    """The names in a text or a list, trimmed, each once, in their order.

    Raises:
        ValueError: It is neither, or a quote is not closed.
    """
    if isinstance(value, str):
        if value.strip().lower() == NOBODY:
            return []
        try:
            value = [name for row in csv.reader(value.splitlines(), skipinitialspace=True, strict=True) for name in row]
        except csv.Error as error:
            raise ValueError(str(error)) from error
        value = [name for name in value if name.strip()]  # a comma at the end of a line
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError("neither a text nor a list of texts")
    return list(dict.fromkeys(" ".join(name.split()) for name in value))


def show_names(names: Sequence[str]) -> str:
    """The list as one line that `read_names` reads."""
    return ", ".join(_quoted(names)) or NOBODY


def _quoted(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        odd = "," in name or '"' in name or name.lower() in (NOBODY, "inherit")
        yield '"' + name.replace('"', '""') + '"' if odd else name
