"""Messages that show what changed: the lowest judgements of a proposition, as values and for the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from agents.kit.text.markdown import plain
from agents.models import Message
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import worst_judgement

EXCERPT = 240
MOST_MESSAGES = 3  # that show a finding


class WorstMessage(BaseModel):
    """The judgement that scored lowest, what was asked, and where its message is.

    Attributes:
        claim: What the judge was asked, as it read it. inverted: it should not hold; 9 = not at all.
        score: 0 to 9.
        external_id, position, channel, sent_at: Of the message; empty where a window was judged.
        heard: What was said just before it, as ``NAME: text``; empty where nothing was.
    """

    claim: str
    inverted: bool
    text: str
    score: int | None
    reasoning: str
    external_id: str = ""
    position: int | None = None
    channel: str = ""
    sent_at: str = ""
    heard: str = ""

    @property
    def asked(self) -> str:
        """The proposition's sentence for people."""
        return f"{self.claim} (should not hold)" if self.inverted else self.claim

    @property
    def place(self) -> str:
        """For people, e.g. ``#general 41``; empty for a window."""
        return f"#{self.channel} {self.position}" if self.position is not None else ""


def worst_message(runs: Iterable[EvaluationRun], dimension: str, proposition: str) -> WorstMessage | None:
    """The judgement of a proposition that scored lowest in these evaluations; None where none was scored."""
    rows = [row for row in (worst_judgement(run, dimension, proposition) for run in runs) if row is not None]
    if not rows:
        return None
    return _as_message(min(rows, key=lambda row: (row.score or 0, row.pk)))


def lowest_messages(run: int, dimension: str, proposition: str = "") -> list[WorstMessage]:
    """Return what `lowest_scores` are of, for people."""
    return [_as_message(row) for row in lowest_scores(run, dimension, proposition)]


def lowest_scores(run: int, dimension: str, proposition: str = "") -> list[EvaluationScore]:
    """Return the lowest judgements of single messages in a dimension, or by one proposition of it, a few, one of each message.

    Args:
        run: Primary key of the evaluation.
    """
    rows = EvaluationScore.objects.filter(
        evaluation_run=run, dimension=dimension, status="scored", message__isnull=False
    )
    if proposition:
        rows = rows.filter(proposition_id=proposition)
    rows = rows.select_related("message__channel", "message__agent", "evaluation_run__channel").order_by("score", "pk")
    lowest: dict[int | None, EvaluationScore] = {}
    for row in rows[: 10 * MOST_MESSAGES]:  # several propositions can be about one message
        lowest.setdefault(row.message_id, row)
    return list(lowest.values())[:MOST_MESSAGES]


def _as_message(row: EvaluationScore) -> WorstMessage:
    message, place = row.message, dict[str, Any]()
    if message is not None:
        sent = message.sent_at.isoformat() if message.sent_at else ""
        place = {"external_id": message.external_id, "position": message.position, "sent_at": sent}
    channel = message.channel if message is not None else row.evaluation_run.channel
    heard = _just_before(message) if message is not None else None
    return WorstMessage(
        claim=row.claim,
        inverted=row.inverted,
        text=_excerpt(row.context_snippet or (message.text if message else "")),
        heard=f"{heard.author_name}: {_excerpt(heard.text)}" if heard is not None else "",
        score=row.score,
        reasoning=row.reasoning or row.justification,
        channel=channel.slug if channel is not None else "",
        **place,
    )


def _just_before(message: Message) -> Message | None:
    before = Message.objects.filter(channel=message.channel_id, position__lt=message.position)
    return before.select_related("agent", "user").order_by("-position").first()


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"


def print_example(worst: WorstMessage, console: Console, *, skip: Collection[str] = ()) -> None:
    """A proposition's sentence, and the message that scored lowest on it after what was said before it.

    Args:
        skip: Sentences and messages that the reader has seen.
    """
    if worst.asked not in skip:
        console.print(f"  “{escape(plain(worst.asked, 200))}”")
    place = f"{escape(worst.place)} " if worst.place else ""
    if worst.text in skip:
        console.print(f"  {place}scored {worst.score}: the message above")
        return
    if worst.heard:
        console.print(f"  [dim]{escape(plain(worst.heard, 150))}[/]")
    console.print(f"  {place}scored {worst.score}: “{escape(plain(worst.text, 150))}”")
