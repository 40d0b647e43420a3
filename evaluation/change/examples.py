"""Messages that show what changed: the lowest judgements of a proposition, the best then beside the worst now, and since which tag."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Window
from django.db.models.expressions import OrderBy
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import RowNumber
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from agents.builds import BUILD_TAGS, Tag, first_said_with_tag
from agents.kit.text.markdown import plain
from agents.models import Message
from evaluation.change.change import HIT
from evaluation.change.models import Change
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import worst_judgement
from evaluation.statistics.bootstrap import HIGHEST

EXCERPT = 240
MOST_MESSAGES = 3  # that show a finding
COURSE_POINTS = 24  # of a proposition's scores over time, in the baseline and in the evaluation


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
        """Return the proposition's sentence for people."""
        return f"{self.claim} (should not hold)" if self.inverted else self.claim

    @property
    def place(self) -> str:
        """Return where the message is, e.g. ``#general 41``; empty for a window."""
        return f"#{self.channel} {self.position}" if self.position is not None else ""


def worst_message(runs: Iterable[EvaluationRun], dimension: str, proposition: str) -> WorstMessage | None:
    """Return a proposition's judgement, of a message or a window, that scored lowest in these evaluations; None where none was scored."""
    judgements = [worst_judgement(run, dimension, proposition) for run in runs]
    scored = [judgement for judgement in judgements if judgement is not None]
    if not scored:
        return None
    return _as_message(min(scored, key=lambda judgement: (judgement.score or 0, judgement.pk)))


def lowest_messages(run: int, dimension: str, proposition: str = "") -> list[WorstMessage]:
    """Return the lowest judgements of single messages, as `lowest_scores` has them, for people."""
    return [_as_message(row) for row in lowest_scores(run, dimension, proposition)]


def lowest_scores(run: int, dimension: str, proposition: str = "") -> list[EvaluationScore]:
    """Return the lowest judgements of single messages in a dimension, the lowest of each of three messages at most.

    Args:
        run: Primary key of the evaluation.
        proposition: Only its judgements; empty: of all.
    """
    rows = EvaluationScore.objects.filter(
        evaluation_run=run, dimension=dimension, status="scored", message__isnull=False
    )
    if proposition:
        rows = rows.filter(proposition_id=proposition)
    rows = rows.select_related("message__channel", "message__agent", "evaluation_run__channel").order_by("score", "pk")
    lowest: dict[int | None, EvaluationScore] = {}
    for row in rows[: 10 * MOST_MESSAGES]:  # enough for three messages: several propositions can be about one of them
        lowest.setdefault(row.message_id, row)
    return list(lowest.values())[:MOST_MESSAGES]


def _as_message(row: EvaluationScore) -> WorstMessage:
    """Return a judgement with what was asked and where its message is; of a window the message's fields are empty."""
    channel = row.evaluation_run.channel if row.message is None else row.message.channel
    worst = WorstMessage(
        claim=row.claim,
        inverted=row.inverted,
        text=_excerpt(row.context_snippet),
        score=row.score,
        reasoning=row.reasoning or row.justification,
        channel=channel.slug if channel is not None else "",
    )
    if row.message is None:
        return worst
    message = row.message
    worst.external_id = message.external_id
    worst.position = message.position
    if not worst.text:
        worst.text = _excerpt(message.text)
    if message.sent_at:
        worst.sent_at = message.sent_at.isoformat()
    heard = preceding_messages([message]).get(message.pk)
    if heard is not None:
        worst.heard = f"{heard.author_name}: {_excerpt(heard.text)}"
    return worst


def preceding_messages(messages: Iterable[Message]) -> dict[int, Message]:
    """Return the message just before each of these in its channel, by primary key; one that began its channel is left out."""
    earlier = Message.objects.filter(channel=OuterRef("channel"), position__lt=OuterRef("position"))
    newest_earlier = Subquery(earlier.order_by("-position").values("pk")[:1])
    pairs = Message.objects.filter(pk__in={message.pk for message in messages}).order_by()
    before = dict(pairs.annotate(before=newest_earlier).values_list("pk", "before"))
    messages_by_pk = Message.objects.select_related("agent", "user").in_bulk(set(before.values()) - {None})
    return {pk: messages_by_pk[earlier_pk] for pk, earlier_pk in before.items() if earlier_pk in messages_by_pk}


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"


def print_example(worst: WorstMessage, console: Console, *, skip: Collection[str] = ()) -> None:
    """Print a proposition's sentence, and the message that scored lowest on it after what was said before it.

    Args:
        skip: Sentences and messages that the reader has seen.
    """
    if worst.asked not in skip:
        console.print(f"  “{escape(plain(worst.asked, 200))}”")
    where = f"{escape(worst.place)} " if worst.place else ""
    if worst.text in skip:
        console.print(f"  {where}scored {worst.score}: the message above")
        return
    if worst.heard:
        console.print(f"  [dim]{escape(plain(worst.heard, 150))}[/]")
    console.print(f"  {where}scored {worst.score}: “{escape(plain(worst.text, 150))}”")


# -- the best then beside the worst now
JudgementsKey = tuple[int, str, str]  # evaluation, dimension, proposition
KEY_COLUMNS = ("evaluation_run", "dimension", "proposition_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A message, what it scored on a proposition, and the message before it, where that was looked for."""

    message: Message
    score: int
    heard: Message | None = None


class ComparedJudgements(NamedTuple):
    """The judgements of a proposition before and now, and whether its score rose."""

    before: JudgementsKey
    now: JudgementsKey
    rose: bool


def quotes_of(compared: Sequence[ComparedJudgements]) -> list[tuple[Quote | None, Quote | None]]:
    """Return two messages for each, from before and from now: the best and the worst; where the score rose the worst and the best.

    None for one that no scored message shows.
    """
    keys_of_best = [judgements.now if judgements.rose else judgements.before for judgements in compared]
    keys_of_worst = [judgements.before if judgements.rose else judgements.now for judgements in compared]
    best = _extreme_judgements(keys_of_best, F("score").desc())
    worst = _extreme_judgements(keys_of_worst, F("score").asc())
    quotes = _quotes([*best.values(), *worst.values()])
    pairs = []
    for judgements in compared:
        extremes_before, extremes_now = (worst, best) if judgements.rose else (best, worst)
        row_before = extremes_before.get(judgements.before)
        row_now = extremes_now.get(judgements.now)
        pairs.append((quotes.get(row_before) if row_before else None, quotes.get(row_now) if row_now else None))
    return pairs


def _rows_of(keys: Iterable[JudgementsKey]) -> QuerySet[EvaluationScore]:
    """Return the judgements with these keys."""
    where = Q(pk__in=[])
    for run, dimension, proposition in keys:
        where |= Q(evaluation_run=run, dimension=dimension, proposition_id=proposition)
    return EvaluationScore.objects.filter(where).order_by()


class _ScoredMessage(NamedTuple):
    """The primary key of a message, and what it scored."""

    message: int
    score: int


def _extreme_judgements(keys: Iterable[JudgementsKey], by_score: OrderBy) -> dict[JudgementsKey, _ScoredMessage]:
    """Return of each the judgement that comes first by its score; of equals that of the newest message."""
    rank = Window(
        RowNumber(),
        partition_by=[F("evaluation_run"), F("dimension"), F("proposition_id")],
        order_by=[by_score, F("message").desc()],
    )
    scored = _rows_of(keys).filter(status="scored", score__isnull=False, message__isnull=False)
    first = scored.annotate(rank=rank).filter(rank=1)
    extremes = {}
    for run, dimension, proposition, message, score in first.values_list(*KEY_COLUMNS, "message", "score"):
        extremes[run, dimension, proposition] = _ScoredMessage(message, score)
    return extremes


def _quotes(rows: Collection[_ScoredMessage]) -> dict[_ScoredMessage, Quote]:
    """Return the messages themselves, where they are still there."""
    keys = {row.message for row in rows}
    messages = Message.objects.select_related("channel", "agent").in_bulk(keys)
    return {row: Quote(message=messages[row.message], score=row.score) for row in rows if row.message in messages}


def add_evidence(rows: Sequence[Change]) -> None:
    """Set the messages that show these propositions' changes, their scores over time, and since which tag they changed.

    A few statements for all. Rows without such a message or tag stay as they are. Nothing is stored.
    """
    add_history(rows)
    compared = _compared_judgements(rows)
    for row, (quote_before, quote_now) in zip(rows, quotes_of(compared), strict=True):
        if quote_before is not None:
            row.baseline_quote = quote_before.message
            row.baseline_quote_score = quote_before.score
        if quote_now is not None:
            row.quote = quote_now.message
            row.quote_score = quote_now.score


def _compared_judgements(rows: Iterable[Change]) -> list[ComparedJudgements]:
    compared = []
    for row in rows:
        before = (row.baseline_run_id, row.dimension, row.proposition)
        now = (row.evaluation_run_id, row.dimension, row.proposition)
        compared.append(ComparedJudgements(before, now, rose=(row.points or 0.0) > 0))
    return compared


def add_history(rows: Sequence[Change]) -> None:
    """Set these propositions' scores over time, and since which tag they changed, as `add_evidence` does, without messages."""
    compared = _compared_judgements(rows)
    tags = _tags_since(compared)
    agents = {row.agent_id for row, judgements in zip(rows, compared, strict=True) if judgements.now in tags}
    first_said = first_said_with_tag(agents) if agents else {}  # when each agent first said something with a tag
    _add_courses(rows)
    for row, judgements in zip(rows, compared, strict=True):
        tag = tags.get(judgements.now)
        if tag is not None:
            row.since_tag, row.since_value = tag
            row.since_at = first_said.get((row.agent_id, tag))


def _add_courses(rows: Sequence[Change]) -> None:
    """Set the scores of these propositions over time, in one statement for all."""
    keys = set()
    for row in rows:
        keys.add((row.baseline_run_id, row.dimension, row.proposition))
        keys.add((row.evaluation_run_id, row.dimension, row.proposition))
    # What was judged over a window has no message: it stays in the order in which it was judged.
    judgements = _rows_of(keys).filter(status__in=("scored", "unscored")).order_by("message__said_at", "message", "pk")
    scores: dict[JudgementsKey, list[int | None]] = defaultdict(list)
    for run, dimension, proposition, score in judgements.values_list(*KEY_COLUMNS, "score").iterator():
        scores[run, dimension, proposition].append(score)
    for row in rows:
        by_hits = row.result.hits is not None
        row.baseline_course = course_of(scores[row.baseline_run_id, row.dimension, row.proposition], by_hits=by_hits)
        row.course = course_of(scores[row.evaluation_run_id, row.dimension, row.proposition], by_hits=by_hits)


def course_of(scores: Iterable[int | None], *, by_hits: bool) -> list[float]:
    """Return scores as at most `COURSE_POINTS` means of neighbours, of about as many scores each; empty where nothing was scored.

    Args:
        scores: 0 to 9, oldest first; None where a message has none.
        by_hits: Whether hits are compared: a message with one counts as 0, each other one as 9.
    """
    values = []
    for score in scores:
        if by_hits:
            values.append(0.0 if score is not None and score <= HIT else HIGHEST)
        elif score is not None:
            values.append(float(score))
    number = min(len(values), COURSE_POINTS)
    means = []
    for point in range(number):
        start = point * len(values) // number
        end = (point + 1) * len(values) // number
        means.append(round(fmean(values[start:end]), 1))
    return means


def _tags_since(compared: Sequence[ComparedJudgements]) -> dict[JudgementsKey, Tag]:
    """Return the tag that every judged message carries now and none carried before; of several the first of `BUILD_TAGS`.

    Where no message tells, as of what was judged over whole windows: the tag that the evaluation now asked for, if the one before asked
    for another value of it.

    Returns:
        By the judgements now; those without such a tag are left out.
    """
    keys = [judgements.before for judgements in compared] + [judgements.now for judgements in compared]
    values = _tag_values(keys)
    runs = EvaluationRun.objects.filter(pk__in={run for run, _, _ in keys}).order_by()
    asked_for = dict(runs.values_list("pk", "where"))
    tags = {}
    for judgements in compared:
        run_before = judgements.before[0]
        run_now = judgements.now[0]
        for name in BUILD_TAGS:
            value = _value_since(values[judgements.before, name], values[judgements.now, name])
            if value is None:
                value = _asked_value_since(asked_for[run_before].get(name), asked_for[run_now].get(name))
            if value is not None:
                tags[judgements.now] = (name, value)
                break
    return tags


def _tag_values(keys: Iterable[JudgementsKey]) -> dict[tuple[JudgementsKey, str], set[str | None]]:
    """Return which values each of `BUILD_TAGS` has in the judged messages; None where a message does not have it.

    Returns:
        By judgements and tag.
    """
    columns = {f"tag_{name}": KeyTextTransform(name, "message__tags") for name in BUILD_TAGS}
    scored = _rows_of(keys).filter(status="scored", message__isnull=False).annotate(**columns)
    values: dict[tuple[JudgementsKey, str], set[str | None]] = defaultdict(set)
    for run, dimension, proposition, *row in scored.values_list(*KEY_COLUMNS, *columns).distinct():
        for name, value in zip(BUILD_TAGS, row, strict=True):
            values[(run, dimension, proposition), name].add(value)
    return values


def _value_since(before: Collection[str | None], now: Collection[str | None]) -> str | None:
    """Return the value of a tag that every message has now and none had before; None where there is none."""
    if len(now) != 1 or not before:
        return None
    (value,) = now
    if value is None or value in before:
        return None
    return str(value)


def _asked_value_since(before: str | None, now: str | None) -> str | None:
    """Return the value of a tag that the later of two evaluations asked for, where the earlier one asked for another."""
    if before is None or now is None or before == now:
        return None
    return str(now)
