"""Turning a switch of one proposition in a file somebody wrote: the line changes, every other byte stays."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import yaml

from evaluation.drafting.writing import parse


class CannotEdit(ValueError):
    """Why the file is to be edited by hand instead."""


def with_switches(text: str, proposition_id: str, switches: Mapping[str, bool]) -> str:
    """The file's text with ``active`` and ``rejected`` of one proposition set.

    A switch that is not there yet is written on a line of its own below ``active``; one that is switched off again is taken out
    when it stands as it was written so. Setting a switch and taking it back gives the same text.

    Args:
        text: The file.
        proposition_id: Which proposition.
        switches: Value by name, of ``active`` and ``rejected``. Switching off what is not there changes nothing.

    Raises:
        CannotEdit: The place cannot be found, or the change would reach further than it should.
    """
    try:
        _, data = parse(text)
    except ValueError as error:
        raise CannotEdit(str(error)) from None
    wanted = copy.deepcopy(data)
    entry = next((p for p in wanted.get("propositions") or [] if _id(p) == proposition_id), None)
    if entry is None:
        raise CannotEdit(f"there is no proposition {proposition_id!r} in the file any more")
    for name, value in switches.items():
        if value is False and name != "active":
            entry.pop(name, None)
        else:
            entry[name] = value
    changed, found = text, {}
    try:
        for name, value in sorted(switches.items(), key=lambda item: item[0] != "active"):
            changed = _switched(changed, proposition_id, name, value)
        found = parse(changed)[1]
    except CannotEdit:
        raise
    except ValueError:
        pass  # it does not read any more: told below
    if _without_false(found) != _without_false(wanted):
        raise CannotEdit(f"the line of {proposition_id!r} cannot be changed alone; edit the file by hand")
    return changed


def _switched(text: str, proposition_id: str, name: str, value: bool) -> str:
    entry = entry_of(text, proposition_id)
    keys = {key.value: (key, node) for key, node in entry.value if isinstance(key, yaml.ScalarNode)}
    if name in keys:
        key, node = keys[name]
        if value is False and name != "active" and (span := _own_place(text, key, node, flow=bool(entry.flow_style))):
            return text[: span[0]] + text[span[1] :]
        return text[: node.start_mark.index] + _word(value) + text[node.end_mark.index :]
    if value is False and name != "active":
        return text
    if "active" not in keys:
        raise CannotEdit(f"{proposition_id!r} has no line “active:” to change; edit the file by hand")
    key, node = keys["active"]
    place = node.end_mark.index
    if entry.flow_style:
        return f"{text[:place]}, {name}: {_word(value)}{text[place:]}"
    place = end_of_line(text, place)
    newline = "\r\n" if text[place : place + 2] == "\r\n" or "\r\n" in text[:place] else "\n"
    return f"{text[:place]}{newline}{' ' * key.start_mark.column}{name}: {_word(value)}{text[place:]}"


def _own_place(text: str, key: yaml.Node, node: yaml.Node, *, flow: bool) -> tuple[int, int] | None:
    """The stretch of text that would be written for a new switch, where it stands as that."""
    start, end = key.start_mark.index, node.end_mark.index
    if flow:
        return (start - 2, end) if text[start - 2 : start] == ", " else None
    line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start))
    if line < 0 or text[line + 1 : start].strip(" ") or end_of_line(text, end) != end:
        return None
    return (line - 1 if text[line - 1 : line + 1] == "\r\n" else line, end)


def end_of_line(text: str, place: int) -> int:
    """Where the line of `place` ends."""
    while place < len(text) and text[place] not in "\r\n\x85\u2028\u2029":
        place += 1
    return place


def entry_of(text: str, proposition_id: str) -> yaml.MappingNode:
    """The node of a proposition in the text of a file.

    Raises:
        CannotEdit: There is none of that id.
    """
    node, _ = parse(text)
    listed = next((value for key, value in node.value if key.value == "propositions"), None)
    for item in listed.value if isinstance(listed, yaml.SequenceNode) else ():
        if isinstance(item, yaml.MappingNode) and any(
            key.value == "id" and value.value == proposition_id for key, value in item.value
        ):
            return item
    raise CannotEdit(f"there is no proposition {proposition_id!r} in the file any more")


def _id(entry: object) -> object:
    return entry.get("id") if isinstance(entry, dict) else None


def _word(value: bool) -> str:
    return "true" if value else "false"


def _without_false(data: object) -> object:
    """A mapping in which ``rejected: false`` is the same as no such line."""
    if not isinstance(data, dict) or not isinstance(data.get("propositions"), list):
        return data
    items = [
        {k: v for k, v in item.items() if (k, v) != ("rejected", False)} if isinstance(item, dict) else item
        for item in data["propositions"]
    ]
    return {**data, "propositions": items}
