"""Read personas from a file or a folder, whatever the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from pydantic import ValidationError

from agents.kit.files import json_input
from agents.kit.files.source import FileError, Source
from agents.personas import formats
from agents.personas.persona import UpsertResult, upsert_agent
from agents.personas.shape import NotAPersonaError, PersonaError, PersonaSpec, describe, persona_spec

MAX_FILE = 32 * 1024 * 1024
MAX_YAML = 2 * 1024 * 1024  # bytes; YAML takes hundreds of times the memory and time of JSON
MOST_NODES = 1_000_000  # values of a YAML file
MOST_LEVELS = 200
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
YAML = (".yaml", ".yml")
SUFFIXES = (*YAML, ".json", ".md", ".txt", ".png")


def read_personas(path: Path, *, stems: Mapping[Path, str] | None = None) -> list[PersonaSpec]:
    """Read all personas of a file, or of the files of a folder (not of its subfolders; README and hidden files left out).

    Args:
        path: The file or folder.
        stems: Names for files in place of their own, of which personas without a name get theirs.

    Raises:
        PersonaError: Something cannot be read; names file, persona, field, value and what is allowed.
    """
    personas: list[PersonaSpec] = []
    file_of: dict[str, Path] = {}  # by slug
    for file in _files(path):
        stem = (stems or {}).get(file, file.stem)
        for persona in _read_file(file, stem):
            if persona.slug in file_of:
                first_file = file_of[persona.slug]
                raise PersonaError(
                    str(file), 0, f"a second persona with the slug {persona.slug!r}; the first is in {first_file}"
                )
            file_of[persona.slug] = file
            personas.append(persona)
    return personas


def _files(path: Path) -> list[Path]:
    """Return a file, or the persona files of a folder.

    Raises:
        PersonaError: There is none, or it has another ending.
    """
    if not path.exists():
        raise PersonaError(str(path), 0, "no such file or folder")
    if path.is_file():
        if path.suffix.lower() not in SUFFIXES:
            raise PersonaError(str(path), 0, f"unknown kind of file {path.suffix!r}; allowed: {', '.join(SUFFIXES)}")
        return [path]
    files = [file for file in sorted(path.iterdir()) if _may_hold_persona(file)]
    if not files:
        raise PersonaError(str(path), 0, f"no persona files here; a persona is a file ending in {', '.join(SUFFIXES)}")
    return files


def _may_hold_persona(file: Path) -> bool:
    is_hidden = file.name.startswith(".")
    is_readme = file.stem.lower() == "readme"
    return file.is_file() and file.suffix.lower() in SUFFIXES and not is_hidden and not is_readme


def _read_file(path: Path, stem: str) -> Iterator[PersonaSpec]:
    """Yield the personas of a file.

    Args:
        stem: The name of a persona that has none.

    Raises:
        PersonaError: The file is too large, or cannot be read.
    """
    size = path.stat().st_size
    if size > MAX_FILE:
        raise PersonaError(str(path), 0, f"larger than {MAX_FILE:,} bytes")
    if path.suffix.lower() in YAML and size > MAX_YAML:
        raise PersonaError(
            str(path), 0, f"larger than {MAX_YAML // 1024**2} MiB, the most for YAML; divide it, or write it as JSON"
        )
    try:
        yield from _specs(path, stem, _raw_personas(path, stem))
    except FileError as error:
        raise PersonaError(error.path, error.line, error.reason) from None
    except OSError as error:
        raise PersonaError(str(path), 0, error.strerror or str(error)) from None
    except NotAPersonaError as error:
        raise PersonaError(str(path), 0, str(error)) from None


def _raw_personas(path: Path, stem: str) -> list[Any]:
    """Return what a file holds for each persona, unchecked, in the shape of its format, which its ending names.

    Raises:
        FileError: It is no valid JSON.
        NotAPersonaError: A picture without a card, or no text.
        PersonaError: It is no valid YAML.
    """
    suffix = path.suffix.lower()
    if suffix == ".png":
        return [formats.from_png(path.read_bytes())]
    if suffix in (".md", ".txt"):
        return [formats.read_prompt(stem, _text(path))]
    if suffix == ".json":
        return _listed(json_input.parse(_text(path), path=str(path), line=1))
    return _listed(_yaml(path, _text(path)))


def _text(path: Path) -> str:
    """Return a file's text.

    Raises:
        NotAPersonaError: More than a quarter of it are NUL bytes.
    """
    text = "\n".join(text for _, text in Source(path).lines())
    if text.count("\0") * 4 > len(text):  # a stray one is replaced
        raise NotAPersonaError("consists of NUL bytes, not of text; allowed: text in UTF-8")
    return text


def _listed(value: Any) -> list[Any]:
    """Return the personas of a value, one or several: a list, an object of one, or our ``{"agents": [...]}``."""
    if isinstance(value, dict) and isinstance(value.get("agents"), list) and len(value) == 1:
        return list(value["agents"])
    if isinstance(value, list):
        return value
    return [value]


def _specs(path: Path, stem: str, personas: list[Any]) -> Iterator[PersonaSpec]:
    """Yield personas in our shape, checked.

    Raises:
        PersonaError: There is none, or a field is wrong.
    """
    if not personas:
        raise PersonaError(str(path), 0, "the file holds no persona")
    for number, persona in enumerate(personas):
        which = f"persona {number + 1}: " if len(personas) > 1 else ""
        try:
            yield persona_spec(_fields(persona, stem))
        except ValidationError as error:
            raise PersonaError(str(path), 0, which + describe(error)) from None
        except NotAPersonaError as error:
            raise PersonaError(str(path), 0, which + str(error)) from None


def _fields(persona: Any, stem: str) -> dict[str, Any]:
    """Return the fields of our shape, unchecked, from whichever shape this is.

    Args:
        stem: The name of a persona that has none.

    Raises:
        NotAPersonaError: It is no object, or a card or TinyTroupe's specification without a name.
    """
    if not isinstance(persona, dict):
        raise NotAPersonaError("a persona is an object with at least 'display_name' and 'system_prompt'")
    if formats.is_tinytroupe(persona):
        return formats.read_tinytroupe(persona)
    if formats.is_card(persona):
        return formats.read_card(persona)
    if "slug" not in persona and "display_name" not in persona:
        return {"display_name": stem, **persona}
    return dict(persona)


def _yaml(path: Path, text: str) -> Any:
    """Parse YAML.

    Raises:
        PersonaError: It is not valid, or nested too deep for the parser.
        NotAPersonaError: It holds too much, is nested too deep, or has an alias.
    """
    try:
        _check_size(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise PersonaError(str(path), line, f"not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise PersonaError(str(path), 0, f"not valid YAML: {error}") from None
    except ValueError as error:  # a date or a number that there is not
        raise PersonaError(str(path), 0, f"not valid YAML: {error}") from None
    except RecursionError:
        raise PersonaError(str(path), 0, "YAML nested too deep") from None


def _check_size(text: str) -> None:
    """Count what a text holds before anything is made of it.

    Raises:
        NotAPersonaError: It holds too much, is nested too deep, or has an alias.
    """
    values = 0
    level = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):  # a few can stand for millions of values
            raise NotAPersonaError(f"YAML alias *{event.anchor}; write the value out")
        if isinstance(event, yaml.NodeEvent):
            values += 1
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if values > MOST_NODES:
            raise NotAPersonaError(f"holds more than {MOST_NODES:,} values")
        if level > MOST_LEVELS:
            raise NotAPersonaError("YAML nested too deep")


NOTE = "import"


def import_agents(*, path: Path, reset: bool = False, dry_run: bool = False) -> list[UpsertResult]:
    """Create or update an agent per persona in `path`, all or none; return what became of each. Running it again changes nothing.

    Args:
        path: A file or a folder.
        reset: Overwrite personas that a person edited since their last import; otherwise those stay.
        dry_run: Say what would happen, change nothing.

    Raises:
        PersonaError: A persona cannot be read; nothing was changed.
    """
    return import_read(personas=read_personas(path), reset=reset, dry_run=dry_run)


def import_read(
    *,
    personas: Sequence[PersonaSpec],
    reset: bool = False,
    dry_run: bool = False,
    user: AbstractBaseUser | None = None,
) -> list[UpsertResult]:
    """Create or update an agent per persona, all or none; return what became of each, in their order.

    Args:
        reset: Overwrite personas that a person edited since their last import; otherwise those stay.
        dry_run: Say what would happen, change nothing.
        user: Recorded with the versions this makes; None: no user.
    """
    with transaction.atomic():
        results = [upsert_agent(values=values, note=NOTE, reset=reset, source=NOTE, user=user) for values in personas]
        transaction.set_rollback(dry_run)
    return results
