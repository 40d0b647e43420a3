"""The lines of a channel by which its speakers are compared: what each said, evenly spread, names masked, within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agents.models import Channel, Message
from agents.text.authors import MASK, NameMask
from evaluation.scorers.windows import MessageWindow, said_in
from evaluation.statistics.attribution import time_blocks

BLOCKS = 5
MOST_SPEAKERS = 50
MOST_LINES = 2_000
MOST_CHARACTERS = 2_000


class Speaker(NamedTuple):
    """An author: `kind` is agent, user or outsider; `name` an agent's slug, a user's name or an outsider's."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Lines:
    """What is compared.

    Attributes:
        texts: The lines in the channel's order, masked.
        speakers: Whose each of them is.
        said: How many lines every speaker said who may be compared, also those left out.
        left_out: Why a speaker is not compared.
        others: How many speakers may not be compared because they are no agents.
        notes: What was capped, and whether the channel was simulated, in sentences.
    """

    texts: tuple[str, ...]
    speakers: tuple[Speaker, ...]
    said: Mapping[Speaker, int]
    left_out: Mapping[Speaker, str]
    others: int
    notes: tuple[str, ...]


def lines_to_compare(
    *, channel: Channel, window: MessageWindow, where: Mapping[str, str], everybody: bool, min_lines: int
) -> Lines:
    """Choose the lines: at most 2,000, evenly spread over what each of the at most 50 speakers said who said most.

    Only primary keys are read of all messages, texts of the chosen ones. A line that is nothing but names and mentions is no line. Speakers
    with fewer than `min_lines`, or with lines in only one of the 5 stretches of time, are left out.
    """
    by_author: dict[tuple[int | None, int | None, str], list[int]] = {}
    messages = said_in(channel=channel, window=window, where=where)
    for pk, agent, user, outsider in messages.values_list("pk", "agent_id", "user_id", "outsider").iterator():
        by_author.setdefault((agent, user, outsider), []).append(pk)
    authors, names = _authors(channel)
    everything = {
        Speaker("outsider", outsider) if outsider else authors[agent, user]: pks
        for (agent, user, outsider), pks in by_author.items()
    }
    said = {speaker: pks for speaker, pks in everything.items() if everybody or speaker.kind == "agent"}
    few = f"fewer than {min_lines} lines"
    left = {speaker: few for speaker, pks in said.items() if len(pks) < min_lines}
    by_lines = sorted((s for s in said if s not in left), key=lambda s: (-len(said[s]), s))
    left.update(dict.fromkeys(by_lines[MOST_SPEAKERS:], f"not among the {MOST_SPEAKERS} who said most"))
    chosen = by_lines[:MOST_SPEAKERS]
    share = MOST_LINES // max(1, len(chosen))
    notes = (
        ["This channel was simulated for an evaluation: nobody really said these lines."] if channel.synthetic else []
    )
    if any(len(said[s]) > share for s in chosen):
        notes.append(f"At most {share} lines of each speaker were compared, evenly spread over all of them.")
    outsiders = {speaker.name for speaker in everything if speaker.kind == "outsider"}
    lines, cut = _masked({pk: s for s in chosen for pk in _evenly(said[s], share)}, NameMask(names | outsiders))
    if cut:
        notes.append(f"Of {cut} lines only the first {MOST_CHARACTERS:,} characters were compared.")
    while drop := _unusable([speaker for speaker, _ in lines], min_lines):
        left.update(drop)
        lines = [line for line in lines if line[0] not in drop]
    kept = {speaker for speaker, _ in lines}
    left.update({s: f"{few} that are more than names" for s in chosen if s not in kept and s not in left})
    return Lines(
        texts=tuple(text for _, text in lines),
        speakers=tuple(speaker for speaker, _ in lines),
        said={speaker: len(pks) for speaker, pks in said.items()},
        left_out=left,
        others=len(everything) - len(said),
        notes=tuple(notes),
    )


def _authors(channel: Channel) -> tuple[dict[tuple[int | None, int | None], Speaker], set[str]]:
    """The channel's agents and users by (agent, user) key, and everything that they and its members are called."""
    authors: dict[tuple[int | None, int | None], Speaker] = {}
    names: set[str] = set()
    for source in (Message.objects.filter(channel=channel).order_by(), channel.memberships.order_by()):
        agents = source.filter(agent__isnull=False)
        for pk, slug, name in agents.values_list("agent_id", "agent__slug", "agent__display_name").distinct():
            authors[pk, None] = Speaker("agent", slug)
            names |= {slug, name}
        users = source.filter(user__isnull=False)
        fields = ("user_id", "user__username", "user__first_name", "user__last_name")
        for pk, username, *called in users.values_list(*fields).distinct():
            authors[None, pk] = Speaker("user", username)
            names |= {username, *called}
    return authors, names


def _evenly(pks: Sequence[int], most: int) -> Sequence[int]:
    return pks if len(pks) <= most else [pks[index * len(pks) // most] for index in range(most)]


def _masked(picked: Mapping[int, Speaker], mask: NameMask) -> tuple[list[tuple[Speaker, str]], int]:
    """The picked lines in the channel's order, masked, and how many were cut."""
    rows: list[tuple[int, int, str]] = []
    pks = list(picked)
    for start in range(0, len(pks), 500):
        chunk = Message.objects.filter(pk__in=pks[start : start + 500])
        rows.extend(chunk.values_list("position", "pk", "text"))
    lines, cut = [], 0
    for _, pk, text in sorted(rows):
        cut += len(text) > MOST_CHARACTERS
        masked = " ".join(mask(text[:MOST_CHARACTERS]).split())
        if any(not char.isspace() for char in masked.replace(MASK, "")):
            lines.append((picked[pk], masked))
    return lines, cut


def _unusable(speakers: Sequence[Speaker], min_lines: int) -> dict[Speaker, str]:
    """Who has to be left out of these lines before they can be cut into stretches of time."""
    few = {
        s: f"fewer than {min_lines} lines that are more than names"
        for s, n in Counter(speakers).items()
        if n < min_lines
    }
    if few:
        return few
    seen = set(zip(speakers, time_blocks(speakers, BLOCKS), strict=True))
    stretches = Counter(speaker for speaker, _ in seen)
    return {speaker: "spoke in one stretch of time only" for speaker, number in stretches.items() if number < 2}
