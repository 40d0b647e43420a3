"""Voice line-up: can a line be attributed to its speaker by how it is written? Free, offline, in any language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agents.models import Channel
from agents.text.authors import character_similarities
from evaluation.lines import BLOCKS, Lines, Speaker, lines_to_compare
from evaluation.scorers.windows import MessageWindow
from evaluation.statistics.attribution import Attribution, attribute, time_blocks

MIN_LINES = 5
PERMUTATIONS = 999
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """One speaker in the line-up.

    Attributes:
        speaker: An agent's slug, a user's name, or an outsider's name; `kind` says which.
        lines: What the speaker said; `compared` of these were used.
        recall: Share of the compared lines attributed to the speaker, 0 to 1.
        chance: What the recall is on average when labels are dealt out by chance.
    """

    speaker: str
    kind: str
    lines: int
    compared: int
    recall: float
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A speaker who is not in the line-up, and why."""

    speaker: str
    kind: str
    lines: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """How many of a speaker's lines were taken for another's; `share` of those compared, 0 to 1."""

    speaker: str
    taken_for: str
    lines: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LineUp:
    """The voices of a channel, told apart or not.

    Attributes:
        reason: Why there is no figure; empty when there is. Then the figures are None and there are no voices and confusions.
        lines: Lines said by those who could be in the line-up; `compared` of them were.
        others: Users and outsiders who spoke but are not looked at.
        balanced_accuracy: Mean of the speakers' recalls, 0 to 1: 1 = every line goes to its speaker.
        chance: The same on average with labels dealt out by chance; `chance_high` is what 95 % of the shuffles do not exceed.
        p_value: Chance of such an accuracy or a better one if there were no difference between the voices.
        confusions: Who is taken for whom, the largest share first.
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
    permutations: int
    seed: int
    voices: tuple[Voice, ...] = ()
    confusions: tuple[Confusion, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def distinct(self) -> bool | None:
        """Whether the voices can be told apart better than by chance (p ≤ 0.05); None without a figure."""
        return None if self.p_value is None else self.p_value <= SIGNIFICANT

    def as_json(self) -> dict[str, Any]:
        """The line-up as data; shares are 0 to 1."""
        return {**asdict(self), "distinct": self.distinct}


def line_up(
    *,
    channel: Channel,
    window: MessageWindow | None = None,
    where: Mapping[str, str] | None = None,
    everybody: bool = False,
    min_lines: int = MIN_LINES,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> LineUp:
    """Attribute every line of a channel to a speaker, by the lines of the other stretches of time.

    The lines are cut into 5 contiguous stretches; those of one are attributed by the others (never a random split: neighbouring lines
    share their topic). Names and mentions are masked. What is compared is bounded (`lines_to_compare`), so that a channel of any
    length takes seconds and some 200 MB. Same lines and seed, same result.

    Args:
        channel: Whose messages.
        window: Which of them; default all.
        where: Tags they must have.
        everybody: Users and outsiders too, not only agents.
        min_lines: Speakers with fewer lines are left out; at least 2.
        permutations: Shuffles of the labels for the null; 19 to 100,000.
        seed: Of the shuffles, 0 or more.

    Returns:
        Without figures, and with a reason, when fewer than two speakers have enough lines.

    Raises:
        ValueError: An option out of range.
    """
    for name, value, low, high in (
        ("min_lines", min_lines, 2, None),
        ("permutations", permutations, 19, 100_000),
        ("seed", seed, 0, None),
    ):
        if value < low or (high is not None and value > high):
            raise ValueError(f"{name} is {value}; allowed: {low} {f'to {high:,}' if high else 'or more'}")
    lines = lines_to_compare(
        channel=channel,
        window=window or MessageWindow(),
        where=where or {},
        everybody=everybody,
        min_lines=min_lines,
    )
    speakers = sorted(set(lines.speakers), key=lambda speaker: (speaker.name, speaker.kind))
    result = LineUp(
        channel=channel.slug,
        reason=_too_few(len(lines.said), len(speakers), lines.others, min_lines),
        lines=sum(lines.said.values()),
        compared=len(lines.texts),
        others=lines.others,
        permutations=permutations,
        seed=seed,
        left_out=tuple(
            LeftOut(speaker=s.name, kind=s.kind, lines=lines.said[s], reason=reason)
            for s, reason in sorted(lines.left_out.items(), key=lambda item: (-lines.said[item[0]], item[0]))
        ),
        notes=lines.notes,
    )
    if result.reason:
        return result
    found = attribute(
        character_similarities(lines.texts),
        [speakers.index(speaker) for speaker in lines.speakers],
        time_blocks(lines.speakers, BLOCKS),
        permutations=permutations,
        seed=seed,
    )
    return _with_figures(result, found, lines, speakers)


def _too_few(candidates: int, kept: int, others: int, min_lines: int) -> str:
    """Why there can be no figure; empty when there can."""
    if kept >= 2:
        return ""
    if not candidates:
        return "no agent spoke here" if others else "nobody spoke here"
    if candidates == 1:
        return "only one speaker: there is nobody to be taken for"
    have = f"{kept or 'none'} of {candidates} speakers has"
    return f"{have} {min_lines} lines in at least two stretches of time; two are needed"


def _with_figures(result: LineUp, found: Attribution, lines: Lines, speakers: Sequence[Speaker]) -> LineUp:
    compared = Counter(lines.speakers)
    guesses = [speakers[maker] for maker in found.predictions]
    taken = Counter(pair for pair in zip(lines.speakers, guesses, strict=True) if pair[0] != pair[1])
    confusions = [
        Confusion(speaker=s.name, taken_for=other.name, lines=number, share=round(number / compared[s], 4))
        for (s, other), number in taken.items()
    ]
    voices = [
        Voice(
            speaker=s.name,
            kind=s.kind,
            lines=lines.said[s],
            compared=compared[s],
            recall=round(recall, 4),
            chance=round(chance, 4),
        )
        for s, recall, chance in zip(speakers, found.recalls, found.null_recalls, strict=True)
    ]
    return replace(
        result,
        balanced_accuracy=round(found.balanced_accuracy, 4),
        chance=round(sum(found.null) / len(found.null), 4),
        chance_high=round(found.null[-(-95 * len(found.null) // 100) - 1], 4),
        p_value=round(found.p_value, 6),
        voices=tuple(voices),
        confusions=tuple(sorted(confusions, key=lambda c: (-c.share, -c.lines, c.speaker, c.taken_for))),
    )
