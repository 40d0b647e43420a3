"""Writing drafts into a file that belongs to people: only ever added to its end, with comments that say what to do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.utils import timezone
from pydantic import ValidationError

from agents.text.fences import neutral
from evaluation.drafting.replacing import CannotWrite, read_bytes, replace_file
from evaluation.drafting.service import DIMENSION, Drafted
from evaluation.propositions.schema import PropositionFile

ENDING = ".drafts.yaml"
WIDTH = 110


@dataclass(frozen=True, slots=True)
class Written:
    """Where drafts went, and whether the file was there before."""

    path: Path
    added: int
    appended: bool


def default_folder() -> Path | None:
    """Where drafts go if nobody says otherwise: the first of the team's folders; None when there is none."""
    return Path(settings.PROPOSITION_DIRS[0]) if settings.PROPOSITION_DIRS else None


def path_for(folder: Path, slug: str) -> Path:
    """The drafts file of an agent, in which the loader sees the agent's.

    Raises:
        CannotWrite: The slug is no file name.
    """
    if not slug or Path(slug).name != slug or slug.startswith("."):
        raise CannotWrite(f"the agent's slug {slug!r} cannot be part of a file name")
    return folder / DIMENSION / f"{slug}{ENDING}"


def write_drafts(found: Drafted, *, folder: Path) -> Written | None:
    """Add the drafts about one agent to its file in `folder`; what stands there already stays as it is, byte for byte.

    Returns:
        Where they stand now; None when there are none.

    Raises:
        CannotWrite: The file cannot be added to (it was changed into something else, or is read-only), and nothing was written.
    """
    if not found.drafts:
        return None
    path = path_for(folder, found.agent.slug)
    before = read_bytes(path)
    entries = [draft.entry for draft in found.drafts]
    comment = f"drafted on {timezone.localdate().isoformat()} by {_plain(found.judge)}"
    content = _new(found, path, entries, comment) if before is None else appended(path, before, entries, comment)
    replace_file(path, content.encode(), expected=before)
    return Written(path, len(entries), before is not None)


def _new(found: Drafted, path: Path, entries: Sequence[Mapping[str, Any]], comment: str) -> str:
    content = _header(found, path) + items(entries, comment, indent=2)
    wanted = {"dimension": DIMENSION, "agent_id": found.agent.slug, "propositions": list(map(dict, entries))}
    if parse(content)[1] != wanted:
        raise CannotWrite(f"{path}: the drafts cannot be written as YAML")
    return content


def _header(found: Drafted, path: Path) -> str:
    name, slug = _plain(found.agent.display_name), _plain(found.agent.slug)
    first = found.drafts[0].spec.id
    about = yaml.safe_dump({"dimension": DIMENSION, "agent_id": found.agent.slug}, sort_keys=False)
    return f"""\
# Drafts of propositions about {name}, proposed from the persona. Nothing here is judged before somebody accepts it.
#   accept   write `active: true` (or use the console: Measuring, Propositions)
#   reject   add `rejected: true`, so that it is not proposed again
#   try      manage.py try_proposition {_plain(str(path))}:{first} --agent {slug}
# `source` holds the words of the persona a draft was read from. The file is yours: drafting again only adds to its end.
{about}propositions:
"""


def items(entries: Sequence[Mapping[str, Any]], comment: str, *, indent: int) -> str:
    """Entries as they stand in a file, below a line of comment (left out when empty)."""
    margin = " " * indent
    text = yaml.safe_dump(
        [dict(entry) for entry in entries], allow_unicode=True, sort_keys=False, width=WIDTH, default_flow_style=False
    )
    lines = [*([f"# {comment}"] if comment else []), *text.rstrip("\n").split("\n")]
    return "".join(f"{margin}{line}\n" if line else "\n" for line in lines)


def appended(path: Path, before: bytes, entries: Sequence[Mapping[str, Any]], comment: str) -> str:
    """The file with the entries at its end.

    Raises:
        CannotWrite: It would not read as what was there and the entries.
    """
    try:
        text = before.decode()
        node, data = parse(text)
    except ValueError as error:
        raise CannotWrite(f"{path} cannot be added to: {error}") from None
    sequence = next((value for key, value in node.value if key.value == "propositions"), None)
    if not isinstance(sequence, yaml.SequenceNode) or sequence.flow_style:
        raise CannotWrite(f"{path} cannot be added to: its propositions are no list of the form “- id: …”")
    newline = "\r\n" if "\r\n" in text else "\n"
    added = items(entries, comment, indent=sequence.start_mark.column).replace("\n", newline)
    content = text + ("" if text.endswith(("\n", "\r")) else newline) + added
    wanted = {**data, "propositions": [*data["propositions"], *map(dict, entries)]}
    try:
        as_wanted = parse(content)[1] == wanted
        PropositionFile.model_validate({"dimension": path.parent.name, **wanted})
    except ValidationError as error:
        raise CannotWrite(f"{path} cannot be added to: {error.errors()[0]['msg']}") from None
    except ValueError:
        as_wanted = False
    if not as_wanted:
        raise CannotWrite(
            f"{path} cannot be added to: put “propositions” last in the file and end it with a line break"
        )
    return content


def parse(text: str) -> tuple[yaml.MappingNode, dict[Any, Any]]:
    """A file as nodes, whose marks count characters, and as data.

    Raises:
        ValueError: It is no YAML mapping.
    """
    loader = yaml.SafeLoader(text)  # the C loader's marks are not those of the text
    try:
        node = loader.get_single_node()
        data = loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"not valid YAML: {getattr(error, 'problem', None) or error}") from None
    finally:
        loader.dispose()
    if not isinstance(node, yaml.MappingNode) or not isinstance(data, dict):
        raise ValueError("it holds no mapping at its top")
    return node, data


def _plain(text: str) -> str:
    """Text that stays inside of a comment."""
    return " ".join(neutral(text, 300)[0].split())
