"""Messages that show what changed: the lowest judgements of a proposition, the best then beside the worst now, and since which tag."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import F, Q, Window
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import RowNumber
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from agents.builds import BUILD_TAGS, Tag, first_of_tags
from agents.kit.text.markdown import plain
from agents.models import Message
from evaluation.change.models import Change
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


# -- the best then beside the worst now
Key = tuple[int, str, str]  # evaluation, dimension, proposition
_KEY = ("evaluation_run", "dimension", "proposition_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A message, and what it scored on a proposition."""

    message: Message
    score: int


class ComparedJudgements(NamedTuple):
    """The judgements of a proposition before and now, and whether its score rose."""

    before: Key
    now: Key
    rose: bool


def quotes_of(compared: Sequence[ComparedJudgements]) -> list[tuple[Quote | None, Quote | None]]:
    """Return two messages for each: the best before and the worst now, or the reverse where the score rose."""
    best = _extremes([keys.now if keys.rose else keys.before for keys in compared], F("score").desc())
    worst = _extremes([keys.before if keys.rose else keys.now for keys in compared], F("score").asc())
    keys = {row["message"] for row in (*best.values(), *worst.values())}
    messages = Message.objects.select_related("channel", "agent").in_bulk(keys)

    def quote(row: Mapping[str, Any] | None) -> Quote | None:
        message = messages.get(row["message"]) if row else None
        return Quote(message=message, score=row["score"]) if row and message else None

    pairs = []
    for before, now, rose in compared:
        first, second = (worst, best) if rose else (best, worst)
        pairs.append((quote(first.get(before)), quote(second.get(now))))
    return pairs


def _rows_of(keys: Iterable[Key]) -> Any:
    where = Q(pk__in=[])
    for run, dimension, proposition in keys:
        where |= Q(evaluation_run=run, dimension=dimension, proposition_id=proposition)
    return EvaluationScore.objects.filter(where).order_by()


def _extremes(keys: Iterable[Key], by_score: Any) -> dict[Key, dict[str, Any]]:
    """The judgement of each that comes first by its score; of equals that of the newest message."""
    place = Window(
        RowNumber(),
        partition_by=[F("evaluation_run"), F("dimension"), F("proposition_id")],
        order_by=[by_score, F("message").desc()],
    )
    rows = _rows_of(keys).filter(status="scored", score__isnull=False, message__isnull=False)
    first = rows.annotate(place=place).filter(place=1).values(*_KEY, "message", "score")
    return {_key_of(row): row for row in first}


def _key_of(row: Mapping[str, Any]) -> Key:
    return row["evaluation_run"], row["dimension"], row["proposition_id"]


def add_evidence(rows: Sequence[Change]) -> None:
    """Set the messages that show these propositions' changes, and since which tag they changed; in a few statements for all."""
    compared = []
    for row in rows:
        before = (row.baseline_run_id, row.dimension, row.proposition)
        now = (row.evaluation_run_id, row.dimension, row.proposition)
        compared.append(ComparedJudgements(before, now, rose=(row.points or 0.0) > 0))
    quotes, tags = quotes_of(compared), _tags_since(compared)
    tagged = {row.agent_id for row, keys in zip(rows, compared, strict=True) if keys.now in tags}
    first = first_of_tags(tagged) if tagged else {}
    for row, keys, (best, worst) in zip(rows, compared, quotes, strict=True):
        if best is not None:
            row.baseline_quote, row.baseline_quote_score = best.message, best.score
        if worst is not None:
            row.quote, row.quote_score = worst.message, worst.score
        if (tag := tags.get(keys.now)) is not None:
            row.since_tag, row.since_value = tag
            row.since_at = first.get((row.agent_id, tag))


def _tags_since(compared: Sequence[ComparedJudgements]) -> dict[Key, Tag]:
    """The tag that every judged message carries now and none carried before; where there are several the first of `BUILD_TAGS`.

    Of what was judged over whole windows: the tag that each of the two evaluations asked for.
    """
    tagged = {f"tag_{key}": KeyTextTransform(key, "message__tags") for key in BUILD_TAGS}
    keys = [key for before, now, _ in compared for key in (before, now)]
    rows = _rows_of(keys).filter(status="scored", message__isnull=False)
    seen: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.annotate(**tagged).values(*_KEY, *tagged).distinct():
        seen[_key_of(row)].append(row)
    runs = EvaluationRun.objects.filter(pk__in={key[0] for key in keys}).order_by()
    asked = dict(runs.values_list("pk", "where"))
    tags = {}
    for before, now, _ in compared:
        for name in BUILD_TAGS:
            value = _value_since(name, seen[before], seen[now])
            if value is None and asked[before[0]].get(name) not in (None, asked[now[0]].get(name)):
                value = asked[now[0]].get(name)
            if value is not None:
                tags[now] = (name, str(value))
                break
    return tags


def _value_since(name: str, before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str | None:
    """The value of a tag that every message has now and none had before; None where there is none."""
    values, others = ({row[f"tag_{name}"] for row in rows} for rows in (now, before))
    if len(values) != 1 or None in values or not others or values & others:
        return None
    return str(values.pop())
