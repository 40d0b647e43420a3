"""Voice line-up: can a line be attributed to its speaker by how it is written? Free, offline, in any language.

A command makes one at once; the console queues it as a row that a worker makes, and shows the newest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import Max
from pydantic import BaseModel, Field, computed_field

from agents.kit.bodies import Body, Reads, Tags
from agents.kit.text.authors import MASK, NameMask, character_similarities
from agents.kit.use_cases import Shown
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Channel, Message
from evaluation.lineup.models import LineUpRun
from evaluation.scorers.subjects import said_in, why_outside
from evaluation.statistics.attribution import attribute, time_blocks
from evaluation.windows import ALLOWED, MessageWindow, parse_window

BLOCKS = 5
MIN_LINES = 5
PERMUTATIONS = 999
SIGNIFICANT = 0.05
MOST_SPEAKERS = 50
MOST_LINES = 2_000
MOST_CHARACTERS = 2_000
Status = LineUpRun.Status
WAITING = (Status.PENDING, Status.RUNNING)
LEASE = timedelta(minutes=10)  # it takes seconds, whatever the channel


class LineUpRequest(Body):
    """Which lines and speakers of a channel are compared."""

    where: Annotated[Tags, Shown(label="Only messages tagged")] = Field(
        {}, description="only lines with all of these tags, such as build=41"
    )
    window: Annotated[MessageWindow, Reads(parse_window, ALLOWED, maxLength=32)] = Field(
        "all", validate_default=True, description=f"which lines: {ALLOWED} (default: all)"
    )
    everybody: bool = Field(False, description="users and outsiders too, not only agents")


class Voice(BaseModel):
    """One speaker in the line-up.

    Attributes:
        speaker: An agent's slug, a user's name, or an outsider's name; `kind` says which.
        lines: What the speaker said; `compared` of these were used.
        recall: Share of the compared lines attributed to the speaker, 0 to 1.
        chance: What the recall is on average with the labels shuffled.
        taken_for: The speaker whom the other lines are most often taken for, `taken` of them; empty without any.
    """

    speaker: str
    kind: str
    lines: int
    compared: int
    recall: float
    chance: float
    taken_for: str = ""
    taken: int = 0


class LeftOut(BaseModel):
    """A speaker who is not in the line-up, and why."""

    speaker: str
    kind: str
    lines: int
    reason: str


class LineUp(BaseModel):
    """The voices of a channel, and whether they can be told apart. Shares are 0 to 1.

    Attributes:
        reason: Why there is no figure; empty when there is. Then the figures are None and there are no voices.
        lines: Lines said by those who could be in the line-up; `compared` of them were.
        others: Users and outsiders who spoke but are not looked at.
        balanced_accuracy: Mean of the speakers' recalls, 0 to 1: 1 = every line goes to its speaker.
        chance: The same on average with the labels shuffled; `chance_high` is what 95 % of the shuffles do not exceed.
        p_value: Chance of such an accuracy or a better one if there were no difference between the voices.
        notes: What was capped, in sentences.
    """

    channel: str
    reason: str = ""
    lines: int
    compared: int
    others: int
    blocks: int = BLOCKS
    balanced_accuracy: float | None = None
    chance: float | None = None
    chance_high: float | None = None
    p_value: float | None = None
    permutations: int = PERMUTATIONS
    voices: list[Voice] = []
    left_out: list[LeftOut] = []
    notes: list[str] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def distinct(self) -> bool | None:
        """Whether the voices can be told apart better than by chance (p ≤ 0.05); None without a figure."""
        return None if self.p_value is None else self.p_value <= SIGNIFICANT


def line_up(
    *,
    channel: Channel,
    window: MessageWindow | None = None,
    where: Mapping[str, str] | None = None,
    everybody: bool = False,
) -> LineUp:
    """Attribute every line of a channel to a speaker, by the lines of the other stretches of time.

    The lines are cut into 5 contiguous stretches; those of one are attributed by the others (never a random split: neighbouring lines
    share their topic). Names and mentions are masked. What is compared is bounded, so that a channel of any length takes seconds and
    some 200 MB. Same lines, same result.

    Args:
        channel: Whose messages.
        window: Which of them; default all.
        where: Tags they must have.
        everybody: Users and outsiders too, not only agents.

    Returns:
        Without figures, and with a reason, when fewer than two speakers have enough lines.
    """
    result, said, lines = _lines_to_compare(channel, window or MessageWindow(), where or {}, everybody)
    if result.reason:
        return result
    makers = [speaker for speaker, _ in lines]
    speakers = sorted(set(makers), key=lambda speaker: (speaker.name, speaker.kind))
    attribution = attribute(
        character_similarities([text for _, text in lines]),
        [speakers.index(speaker) for speaker in makers],
        time_blocks(makers, BLOCKS),
        permutations=PERMUTATIONS,
    )
    compared = Counter(makers)
    guesses = [speakers[maker] for maker in attribution.predictions]
    taken: dict[_Speaker, tuple[int, _Speaker]] = {}
    mistakes = Counter(pair for pair in zip(makers, guesses, strict=True) if pair[0] != pair[1])
    for (s, other), n in sorted(mistakes.items(), key=lambda item: (item[1], item[0]), reverse=True):
        taken.setdefault(s, (n, other))
    voices = [
        Voice(
            speaker=s.name,
            kind=s.kind,
            lines=said[s],
            compared=compared[s],
            recall=round(recall, 4),
            chance=round(chance, 4),
            **({"taken": taken[s][0], "taken_for": taken[s][1].name} if s in taken else {}),
        )
        for s, recall, chance in zip(speakers, attribution.recalls, attribution.null_recalls, strict=True)
    ]
    return result.model_copy(
        update={
            "balanced_accuracy": round(attribution.balanced_accuracy, 4),
            "chance": round(sum(attribution.null) / len(attribution.null), 4),
            "chance_high": round(attribution.null[-(-95 * len(attribution.null) // 100) - 1], 4),
            "p_value": round(attribution.p_value, 6),
            "voices": voices,
        }
    )


def _too_few(candidates: int, usable: int, others: int) -> str:
    """Why there can be no figure; empty when there can."""
    if usable >= 2:
        return ""
    if not candidates:
        return "no agent spoke here" if others else "there are no messages here"
    if candidates == 1:
        return "only one speaker, so that no line can be taken for another's"
    have = f"{usable or 'none'} of {candidates} speakers has"
    return f"{have} {MIN_LINES} lines in at least two stretches of time; two are needed"


# -- the lines
class _Speaker(NamedTuple):
    """An author: `kind` is agent, user or outsider; `name` an agent's slug, a user's name or an outsider's."""

    kind: str
    name: str


def _lines_to_compare(
    channel: Channel, window: MessageWindow, where: Mapping[str, str], everybody: bool
) -> tuple[LineUp, dict[_Speaker, int], list[tuple[_Speaker, str]]]:
    """Choose the lines: at most 2,000, evenly spread over what each of the at most 50 speakers said who said most.

    Only primary keys are read of all messages, texts of the chosen ones. A line that is nothing but names and mentions is no line. Speakers
    with fewer than `MIN_LINES`, or with lines in only one of the 5 stretches of time, are left out.

    Returns:
        The line-up without figures, how many lines each candidate said, and the lines to compare: masked, in the channel's order.
    """
    by_author: dict[tuple[int | None, int | None, str], list[int]] = {}
    messages = said_in(channel=channel, window=window, where=where)
    for pk, agent, user, outsider in messages.values_list("pk", "agent_id", "user_id", "outsider").iterator():
        by_author.setdefault((agent, user, outsider), []).append(pk)
    authors, names = _authors(channel)
    everything = {
        _Speaker("outsider", outsider) if outsider else authors[agent, user]: pks
        for (agent, user, outsider), pks in by_author.items()
    }
    said = {speaker: pks for speaker, pks in everything.items() if everybody or speaker.kind == "agent"}
    few = f"fewer than {MIN_LINES} lines"
    left = {speaker: few for speaker, pks in said.items() if len(pks) < MIN_LINES}
    by_lines = sorted((s for s in said if s not in left), key=lambda s: (-len(said[s]), s))
    left.update(dict.fromkeys(by_lines[MOST_SPEAKERS:], f"not among the {MOST_SPEAKERS} who said most"))
    chosen = by_lines[:MOST_SPEAKERS]
    share = MOST_LINES // max(1, len(chosen))
    notes = (
        ["This channel was simulated for an evaluation: these lines were never really said."]
        if channel.synthetic
        else []
    )
    if any(len(said[s]) > share for s in chosen):
        notes.append(f"At most {share} lines of each speaker were compared, evenly spread over all of them.")
    outsiders = {speaker.name for speaker in everything if speaker.kind == "outsider"}
    lines, cut = _masked({pk: s for s in chosen for pk in _evenly(said[s], share)}, NameMask(names | outsiders))
    if cut:
        notes.append(f"Of {cut} lines only the first {MOST_CHARACTERS:,} characters were compared.")
    while drop := _unusable([speaker for speaker, _ in lines]):
        left.update(drop)
        lines = [line for line in lines if line[0] not in drop]
    usable = {speaker for speaker, _ in lines}
    left.update({s: f"{few} that are more than names" for s in chosen if s not in usable and s not in left})
    counts = {speaker: len(pks) for speaker, pks in said.items()}
    others = len(everything) - len(said)
    too_few = _too_few(len(said), len(usable), others)
    if not everything:
        too_few += why_outside(said_in(channel=channel, window=MessageWindow(), where=where), window)
    result = LineUp(
        channel=channel.slug,
        reason=too_few,
        lines=sum(counts.values()),
        compared=len(lines),
        others=others,
        left_out=[
            LeftOut(speaker=s.name, kind=s.kind, lines=counts[s], reason=reason)
            for s, reason in sorted(left.items(), key=lambda item: (-counts[item[0]], item[0]))
        ],
        notes=notes,
    )
    return result, counts, lines


def _authors(channel: Channel) -> tuple[dict[tuple[int | None, int | None], _Speaker], set[str]]:
    """The channel's agents and users by (agent, user) key, and everything that they and its members are called."""
    authors: dict[tuple[int | None, int | None], _Speaker] = {}
    names: set[str] = set()
    for source in (Message.objects.filter(channel=channel).order_by(), channel.memberships.order_by()):
        agents = source.filter(agent__isnull=False)
        known = agents.values_list("agent_id", "agent__slug", "agent__display_name", "agent__aliases").distinct()
        for pk, slug, name, aliases in known:
            authors[pk, None] = _Speaker("agent", slug)
            names |= {slug, name, *aliases}
        users = source.filter(user__isnull=False)
        fields = ("user_id", "user__username", "user__first_name", "user__last_name")
        for pk, username, *called in users.values_list(*fields).distinct():
            authors[None, pk] = _Speaker("user", username)
            names |= {username, *called}
    return authors, names


def _evenly(pks: Sequence[int], most: int) -> Sequence[int]:
    return pks if len(pks) <= most else [pks[index * len(pks) // most] for index in range(most)]


def _masked(picked: Mapping[int, _Speaker], mask: NameMask) -> tuple[list[tuple[_Speaker, str]], int]:
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


def _unusable(speakers: Sequence[_Speaker]) -> dict[_Speaker, str]:
    """Who has to be left out of these lines before they can be cut into stretches of time."""
    few = {
        s: f"fewer than {MIN_LINES} lines that are more than names"
        for s, n in Counter(speakers).items()
        if n < MIN_LINES
    }
    if few:
        return few
    seen = set(zip(speakers, time_blocks(speakers, BLOCKS), strict=True))
    stretches = Counter(speaker for speaker, _ in seen)
    return {speaker: "spoke in one stretch of time only" for speaker, number in stretches.items() if number < 2}


# -- queued line-ups
def queue_line_up(
    *, channel: Channel, window: str = "all", where: Mapping[str, str] | None = None, everybody: bool = False
) -> tuple[LineUpRun, bool]:
    """Have a worker measure the voices of a channel in a window (see `parse_window`); the others are those of `line_up`.

    Returns:
        The line-up, and whether it is new: one at a time waits for a channel.

    Raises:
        ValueError: The window is not understood.
    """
    parse_window(window)
    options = {"everybody": everybody}
    try:
        with transaction.atomic():
            queued = LineUpRun.objects.create(channel=channel, window=window, where=dict(where or {}), options=options)
            transaction.on_commit(wake_workers)
    except IntegrityError:
        waiting = LineUpRun.objects.filter(channel=channel, status__in=WAITING).first()
        if waiting is None:  # it ended between the two statements
            return queue_line_up(channel=channel, window=window, where=where, everybody=everybody)
        return waiting, False
    return queued, True


def work_one(*, owner: str) -> bool:
    """Make the line-up that has waited longest; return whether there was one."""
    return do_next(LineUpRun, _measure, owner=owner, lease=LEASE)


def _measure(waiting: LineUpRun) -> dict[str, Any]:
    """Make a leased line-up; how it ends, as columns. One without a figure is completed, too: its result says why."""
    channel = waiting.channel
    newest = Message.objects.filter(channel=channel).aggregate(n=Max("position"))["n"] or 0
    window = parse_window(waiting.window, now=waiting.created_at)
    result = line_up(channel=channel, window=window, where=waiting.where, **waiting.options).model_dump()
    return {"status": Status.COMPLETED, "result": result, "last_position": newest}


def newest_line_up(channel: Channel) -> LineUpRun | None:
    """The newest line-up of a channel that was made."""
    return LineUpRun.objects.filter(channel=channel, status=Status.COMPLETED).first()


def said_since(made: LineUpRun) -> int:
    """How many messages were stored in the channel after it was measured."""
    return Message.objects.filter(channel=made.channel_id, position__gt=made.last_position).count()
