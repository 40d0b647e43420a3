"""Changing one proposition in a file somebody wrote: the lines of the fields that change, every other byte stays."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from evaluation.drafting.edits import CannotEdit, end_of_line, entry_of
from evaluation.drafting.writing import WIDTH, parse


def with_entry(text: str, proposition_id: str, entry: Mapping[str, Any]) -> str:
    """The file's text with another entry in the place of one of its propositions.

    Fields that say the same stay as they were written, with their comments; a changed field keeps the comment behind it, new ones
    come last.

    Args:
        text: The file.
        proposition_id: Which proposition.
        entry: All fields it shall have.

    Raises:
        CannotEdit: The place cannot be found, or the change would reach further than it should.
    """
    try:
        _, data = parse(text)
    except ValueError as error:
        raise CannotEdit(str(error)) from None
    node = entry_of(text, proposition_id)
    wanted = copy.deepcopy(data)
    place = next(
        n for n, p in enumerate(wanted["propositions"]) if isinstance(p, dict) and p.get("id") == proposition_id
    )
    before, wanted["propositions"][place] = wanted["propositions"][place], dict(entry)
    changed = _in_one_line(text, node, entry) if node.flow_style else _in_lines(text, node, before, entry)
    try:
        as_wanted = parse(changed)[1] == wanted
    except ValueError:
        as_wanted = False
    if not as_wanted:
        raise CannotEdit(f"{proposition_id!r} cannot be changed alone; edit the file by hand")
    return changed


def _in_one_line(text: str, node: yaml.MappingNode, entry: Mapping[str, Any]) -> str:
    dumped = yaml.safe_dump(
        dict(entry), allow_unicode=True, sort_keys=False, width=float("inf"), default_flow_style=True
    )
    return text[: node.start_mark.index] + dumped.strip() + text[node.end_mark.index :]


def _in_lines(text: str, node: yaml.MappingNode, before: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    margin = newline + " " * node.value[0][0].start_mark.column
    first, last = node.value[0][0].start_mark.index, end_of_line(text, _end(text, node.value[-1][1]))
    pieces = list(_pieces(text, node, before, entry, margin, last))
    new = [_dumped(name, value, margin) for name, value in entry.items() if name not in before]
    body = "".join(pieces)
    if new or node.value[-1][0].value not in entry:
        body = body.rstrip("\r\n ")
    return text[:first] + body + "".join(margin + field for field in new) + text[last:]


def _pieces(
    text: str, node: yaml.MappingNode, before: Mapping[str, Any], entry: Mapping[str, Any], margin: str, last: int
) -> Iterator[str]:
    """The text of each field up to the next one; none of those that are gone."""
    starts = [key.start_mark.index for key, _ in node.value] + [last]
    for number, (key, value) in enumerate(node.value):
        name, stop = key.value, starts[number + 1]
        if name not in entry:
            continue
        if entry[name] == before.get(name) and type(entry[name]) is type(before.get(name)):
            yield text[starts[number] : stop]
        else:
            yield _dumped(name, entry[name], margin) + text[_end(text, value) : stop]


def _dumped(name: str, value: Any, margin: str) -> str:
    width = max(40, WIDTH - len(margin))
    dumped = yaml.safe_dump({name: value}, allow_unicode=True, sort_keys=False, width=width, default_flow_style=False)
    return margin.join(dumped.rstrip("\n").split("\n"))


def _end(text: str, node: yaml.Node) -> int:
    """Where a value's own text ends: the marks of blocks lie behind the white space and the comments that follow."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    end = node.end_mark.index
    while end > node.start_mark.index and text[end - 1] in " \r\n":
        end -= 1
    return end
