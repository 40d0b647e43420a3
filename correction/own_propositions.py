"""Propositions that a request brings with it, for a persona that has no files here: the schema of the files, within bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from correction.config import GATE_DIMENSIONS
from evaluation.propositions.files import LoadedFile
from evaluation.propositions.schema import PropositionFile, PropositionSpec, resolve
from evaluation.propositions.yaml_files import dotted, in_words, location_of

OWNER = ""  # no agent's slug and no file's: what is read here holds for nobody else
MOST_PROPOSITIONS = 20  # of all dimensions; each may need a call of its own
MOST_PHRASES = 200  # of all rules and cues; each is looked for in the whole draft
NO_REGEX = "regular expressions stand in files only; allowed here: phrases"


def read_propositions(data: Sequence[Any]) -> tuple[LoadedFile, ...]:
    """Files as a request sends them, each an object with ``dimension`` and ``propositions``; ``level`` is ``action`` unless given.

    Raises:
        ValueError: They break the schema or a bound; names the place and what is allowed.
    """
    files = tuple(_read(number, one) for number, one in enumerate(data))
    specs = [spec for file in files for spec in file.propositions]
    if len(specs) > MOST_PROPOSITIONS:
        raise ValueError(f"{len(specs)} propositions: allowed: at most {MOST_PROPOSITIONS} in all")
    phrases = [phrase for spec in specs for phrase in _phrases(spec)]
    if len(phrases) > MOST_PHRASES:
        raise ValueError(f"{len(phrases)} phrases: allowed: at most {MOST_PHRASES} in all rules and cues")
    if any(phrase.startswith("/") for phrase in phrases):
        raise ValueError(NO_REGEX)
    return tuple(_loaded(number, file) for number, file in enumerate(files))


def _read(number: int, data: Any) -> PropositionFile:
    if not isinstance(data, Mapping):
        raise ValueError(f"[{number}]: allowed: an object with dimension and propositions")
    if data.get("agent_id") is not None:
        raise ValueError(f"[{number}].agent_id: leave it out; they are the persona's of this request")
    _refuse_regexes(data)
    try:
        file = PropositionFile.model_validate({"level": "action", **data})
    except ValidationError as error:
        item = dict(error.errors()[0])
        place, fields = location_of(item), ", ".join(PropositionFile.model_fields)
        fields = ", ".join(PropositionSpec.model_fields) if len(place) > 1 else fields
        raise ValueError(f"[{number}].{dotted(place)}: {in_words(item, [fields])}"[:500]) from None
    if file.dimension not in GATE_DIMENSIONS:
        raise ValueError(f"[{number}].dimension {file.dimension!r}: allowed of a draft: {', '.join(GATE_DIMENSIONS)}")
    return file


def _refuse_regexes(data: Mapping[Any, Any]) -> None:
    """Before anything is compiled: that alone takes longer than the rest of the checks."""
    rows = data.get("propositions")
    for row in rows if isinstance(rows, list) else ():
        rule = row.get("rule") if isinstance(row, Mapping) else None
        if isinstance(rule, Mapping) and not {"matches", "not_matches"}.isdisjoint(rule):
            raise ValueError(NO_REGEX)
        cues = row.get("cues") if isinstance(row, Mapping) else None
        for group in (rule, cues):
            values = group.values() if isinstance(group, Mapping) else ()
            phrases = [phrase for value in values if isinstance(value, list) for phrase in value]
            if any(isinstance(phrase, str) and phrase.startswith("/") for phrase in phrases):
                raise ValueError(NO_REGEX)


def _phrases(spec: PropositionSpec) -> Iterator[str]:
    rule, cues = spec.rule, spec.cues
    if rule is not None:
        for phrases in (rule.contains_any, rule.contains_all, rule.contains_none):
            yield from phrases or ()
    if cues is not None:
        yield from (*cues.supports, *cues.contradicts)


def _loaded(number: int, file: PropositionFile) -> LoadedFile:
    resolved = tuple(resolve(spec, file, f"propositions[{number}]") for spec in file.propositions if spec.active)
    return LoadedFile(Path("request"), file.dimension, OWNER, file.level, resolved)
