"""Count the ideas of a conversation (S-6.6): ask the judge to list them part by part, then which of them are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from django.conf import settings
from django.db import transaction
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agents.kit.llm import Block, LLMRequest, Reply, Status, Turn, requests
from agents.kit.llm.requests import InvalidAnswer
from agents.kit.text.fences import MAX_CHARACTERS, fence, one_line, safe_and_cut
from agents.kit.text.tokens import tokenize
from agents.models import Message
from evaluation.judge.prompts import render, render_trajectory
from evaluation.judge.verdicts import Verdict, object_schema, unscored
from evaluation.models import Dimension, EvaluationRun, EvaluationScore, Idea, IdeaPart, is_heuristic
from evaluation.propositions.schema import Proposition, fill
from evaluation.runs.failures import FAILURES
from evaluation.scorers import ideas_quantity
from evaluation.scorers.context import Event, Window
from evaluation.scorers.reading import read_plain_messages
from evaluation.scorers.subjects import ChannelSubject

if TYPE_CHECKING:
    from evaluation.runs.judging import EvaluationContext


class DistinctIdea(BaseModel):
    """One idea that counts, those that say the same, positions in the channel of all of them, and their speakers' names."""

    idea: str
    description: str
    same: tuple[str, ...]
    positions: tuple[int, ...]
    by: tuple[str, ...]


def distinct_ideas(run: EvaluationRun) -> list[DistinctIdea]:
    """Return the distinct ideas of a channel's run (of repeats: of the first), in order of first mention; none for an agent's run."""
    listed = Idea.objects.filter(
        part__evaluation_score__evaluation_run=run,
        part__evaluation_score__repeat=1,
        part__evaluation_score__status="scored",
    )
    groups = _group_alike(listed.order_by("part__evaluation_score", "part__number", "number"))
    positions: set[int] = set()
    for group in groups:
        for idea in group:
            positions.update(idea.positions)
    messages = Message.objects.filter(channel=run.channel_id, position__in=positions).select_related("agent", "user")
    authors = {message.position: message.author_name for message in messages}
    return [_distinct_idea(group, authors) for group in groups]


def _group_alike(ideas: Iterable[Idea]) -> list[list[Idea]]:
    """Gather ideas that say the same; the first of each group is the one that counts."""
    groups: dict[int, list[Idea]] = {}
    for idea in ideas:
        if idea.same_as_id is None:
            groups.setdefault(idea.pk, []).insert(0, idea)  # ideas that say the same may have come before it
        else:
            groups.setdefault(idea.same_as_id, []).append(idea)
    return list(groups.values())


def _distinct_idea(group: Sequence[Idea], authors: Mapping[int, str]) -> DistinctIdea:
    """Return one idea from those that say the same, the first of which counts."""
    first, *same = group
    positions: set[int] = set()
    for idea in group:
        positions.update(idea.positions)
    speakers = [authors[position] for position in sorted(positions) if position in authors]
    return DistinctIdea(
        idea=first.idea,
        description=first.description,
        same=tuple(idea.idea for idea in same),
        positions=tuple(sorted(positions)),
        by=tuple(dict.fromkeys(speakers)),
    )


LONGEST_IDEA = 300  # characters
LONGEST_DESCRIPTION = 1000


def _usable_entries(value: Any) -> list[int]:
    """Keep the numbers among an idea's entries. They help people to find it; a wrong one must not cost the idea."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, int) and not isinstance(entry, bool)]


class _JudgeAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class ListedIdea(_JudgeAnswer):
    """One idea of a part. `entries` are numbers of the entries shown, from 1; those that do not exist are left out later."""

    idea: Annotated[str, Field(min_length=1, pattern=r"\S")]
    description: str = ""
    entries: Annotated[list[int], BeforeValidator(_usable_entries)] = []


class _Listing(_JudgeAnswer):
    ideas: list[ListedIdea]


class _SamePair(_JudgeAnswer):
    """Numbers of two entries of a list, from 1, that are the same idea."""

    idea: int
    same_as: int


class _SamePairs(_JudgeAnswer):
    same: list[_SamePair]


_NUMBER = {"type": "integer"}
_TEXT = {"type": "string"}
_LISTED_IDEA_SCHEMA = object_schema(
    {"idea": _TEXT, "description": _TEXT, "entries": {"type": "array", "items": _NUMBER}}
)
_LISTING_SCHEMA = object_schema({"ideas": {"type": "array", "items": _LISTED_IDEA_SCHEMA}})
_SAME_PAIR_SCHEMA = object_schema({"idea": _NUMBER, "same_as": _NUMBER})
_SAME_PAIRS_SCHEMA = object_schema({"same": {"type": "array", "items": _SAME_PAIR_SCHEMA}})
_LISTING_EXAMPLE = {
    "ideas": [{"idea": "A bench by the pond", "description": "Somewhere to sit in the park.", "entries": [2, 5]}]
}


def listing_request(
    *,
    name: str,
    proposition: Proposition,
    events: Sequence[Event],
    part: tuple[int, int],
    nonce: str,
    asked_again: bool = False,
    **call: Any,
) -> LLMRequest:
    """Ask for the ideas of one part of a conversation, all of whose messages are `events`; each is shown whole.

    Args:
        name: The channel's.
        proposition: Its claim says what is to be listed.
        part: Its number, and how many there are.
        asked_again: Whether the same is asked again (repeats), so that the prompt cache should hold it.
        call: `label`, `model` and `max_tokens` of the request.
    """
    channel_name = one_line(name)
    claim = fill(proposition.claim, {"agent_name": channel_name, "channel_name": channel_name})
    text = render(
        "ideas_part",
        name=channel_name,
        part=part[0],
        parts=part[1],
        trajectory=render_trajectory(Window(tuple(events), 0, ()), nonce=nonce, longest=MAX_CHARACTERS),
        claim=safe_and_cut(claim),
    )
    return _request(
        "ideas",
        rubric="ideas",
        text=Block(text, cache=asked_again),
        schema=_LISTING_SCHEMA,
        parse=lambda data: _Listing.model_validate(data).ideas,
        example=_LISTING_EXAMPLE,
        nonce=nonce,
        facts={"lines": [event.text for event in events]},
        **call,
    )


def collapse_request(*, name: str, ideas: Sequence[tuple[str, str]], known: int, nonce: str, **call: Any) -> LLMRequest:
    """Ask which ideas of a list, (idea, description) each, repeat an earlier one; the first `known` are known to differ.

    Returns:
        A request whose answer is a mapping of 0-based places: a repetition to the earlier idea it repeats.
    """
    lines: list[str] = []
    for number, (idea, description) in enumerate(ideas, 1):
        entry = ": ".join(part for part in (idea, description) if part)
        entry = safe_and_cut(entry, LONGEST_IDEA + LONGEST_DESCRIPTION)
        lines.append(f"{number}. {' '.join(entry.split())}")
    fenced = fence("IDEAS", "\n".join(lines), nonce)
    text = render("ideas_list", name=one_line(name), ideas=fenced, known=known, first=known + 1, last=len(ideas))
    return _request(
        "collapse",
        rubric="ideas_collapse",
        text=Block(text),
        schema=_SAME_PAIRS_SCHEMA,
        parse=lambda data: _originals(_SamePairs.model_validate(data), len(ideas)),
        example={"same": [{"idea": 4, "same_as": 1}]},
        nonce=nonce,
        facts={"ideas": [" ".join(idea) for idea in ideas], "known": known},
        **call,
    )


def _request(task: str, *, rubric: str, text: Block, **fields: Any) -> LLMRequest:
    """Build a call of the judge about ideas."""
    return LLMRequest(
        role="judge",
        task=task,
        system=(Block(render(rubric), cache=True),),
        turns=(Turn("user", (text,)),),
        reask=True,
        retries=settings.LLM_EVALUATION_RETRIES,
        **fields,
    )


def _originals(answer: _SamePairs, count: int) -> dict[int, int]:
    """Return, by the 0-based place of a repetition, that of the idea it repeats; of several the first.

    The judge may name the two of a pair in either order.

    Args:
        count: How many ideas the list has.

    Raises:
        InvalidAnswer: A pair names an entry that the list does not have.
    """
    originals: dict[int, int] = {}
    for pair in answer.same:
        if pair.idea == pair.same_as:
            continue  # an idea is the same as itself: true, and no repetition
        earlier, later = sorted((pair.idea, pair.same_as))
        if earlier < 1 or later > count:
            raise InvalidAnswer(f"same: {pair.idea} and {pair.same_as}: the list has entries 1 to {count}")
        named_before = originals.get(later - 1, count)  # `count`: by no pair before
        originals[later - 1] = min(earlier - 1, named_before)
    return originals


LISTING_TOKENS = 4000  # most of an answer
IDEAS_COMPARED_AT_ONCE = 60  # new ideas, in one call, with all that are known
DIMENSION = Dimension.IDEAS_QUANTITY.value
TRIED_AGAIN = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)
NOTHING_MARKED = "needs an LLM judge: no message lists ideas as points or announces one"


def count_ideas(context: EvaluationContext, calls: Counter[str]) -> None:
    """Make every pending count of a run: list the ideas of each part of the conversation, then collapse the lists into one (S-6.6).

    What a part holds is stored as it is read; a run that resumes asks only for the parts that are missing. Nothing is done for an agent's
    run; counts that cannot be made now stay pending.

    Args:
        calls: Counts the calls that were answered and those that failed.
    """
    if not isinstance(context.subject, ChannelSubject):
        return
    hindrance = ideas_quantity.not_evaluable(context.subject)
    pending = EvaluationScore.objects.filter(evaluation_run=context.run, dimension=DIMENSION, status="pending")
    for row in pending.order_by("pk"):
        if not context.renew():
            return
        if hindrance:
            context.store([row], [unscored(hindrance)], None)
        else:
            _Count(context, context.subject, row, calls).make()


class _CallFailed(Exception):
    """A call that brought no answer: a part that could not be read makes every number wrong."""

    def __init__(self, reply: Reply, what: str) -> None:
        super().__init__(f"{reply.status}: {what}: {reply.error}")
        self.cause = reply.status.value


class _Interrupted(Exception):
    """The answer is still to come, from a batch, or it is not to be asked for now."""


@dataclass(slots=True)
class _Count:
    """One count: a proposition on a conversation. `last_reply` is the reply that came last."""

    context: EvaluationContext
    subject: ChannelSubject
    row: EvaluationScore
    calls: Counter[str]
    last_reply: Reply | None = None

    def make(self) -> None:
        """Store the count of distinct ideas, or why there is none; nothing when it was interrupted.

        There is none where a call failed, and where an offline judge found no idea at all: it sees only those that are marked. A model's
        0 is a count.
        """
        try:
            parts = self._list_parts()
            listed = list(Idea.objects.filter(part__evaluation_score=self.row).order_by("part__number", "number"))
            self._collapse(listed)  # sets `same_as` of those that repeat another one
        except _Interrupted:
            return
        except _CallFailed as problem:
            self._store(unscored(str(problem), cause=problem.cause, **self._judge_columns()))
            return
        distinct = [idea for idea in listed if idea.same_as_id is None]
        if not distinct and is_heuristic(self.context.run.judge):
            self._store(unscored(NOTHING_MARKED, **self._judge_columns()))
            return
        same = len(listed) - len(distinct)
        in_parts = f" in {parts} parts" if parts > 1 else ""
        verdict = Verdict(
            status="scored",
            evidence="present" if listed else "absent",
            reasoning=f"{len(listed)} ideas listed{in_parts}, {same} of them the same as another one.",
            justification=" / ".join(idea.idea for idea in distinct[:5]),
            **self._judge_columns(),
        )
        self.row.count = len(distinct)
        self._store(verdict)

    def _store(self, verdict: Verdict) -> None:
        self.context.store([self.row], [verdict], None)

    def _judge_columns(self) -> dict[str, Any]:
        """Return the fields of a verdict that say who judged."""
        judge = self.context.run.judge
        reply = self.last_reply
        if reply is None:
            return {"judge": judge, "served_model": "", "call": None}
        return {"judge": judge, "served_model": requests.short_line(reply.served_model, 200), "call": reply.call_id}

    def _note_reply(self, reply: Reply) -> None:
        """Count a reply, and note it for the judge's health."""
        self.last_reply = reply
        failed = reply.status in FAILURES
        self.calls["failed_calls" if failed else "answered_calls"] += 1
        self.context.health.note(failed=failed, why=f"{reply.status}: {reply.error}")

    def _list_parts(self) -> int:
        """List the ideas of every part that is not listed yet, a call each; return the number of parts, listed before or now.

        Raises:
            _CallFailed: A call failed in a way that does not pass, or twice.
            _Interrupted: A part is still not listed: its answer comes later, from a batch, or nothing more may be asked now.
        """
        row = self.row
        if not row.idea_parts.exists():
            self._make_parts()
        number_of_parts = row.idea_parts.count()
        failed = self._list(list(row.idea_parts.filter(listed=False)), number_of_parts, is_last_try=False)
        if failed:  # a failure that may pass is tried once more after everything else
            self._list(failed, number_of_parts, is_last_try=True)
        if row.idea_parts.filter(listed=False).exists():
            raise _Interrupted
        return number_of_parts

    def _make_parts(self) -> None:
        """Store the parts of the conversation, none of which is listed yet."""
        parts: list[IdeaPart] = []
        for number, (first, last) in enumerate(ideas_quantity.stretches(self.subject), 1):
            part = IdeaPart(evaluation_score=self.row, number=number, first_position=first, last_position=last)
            parts.append(part)
        IdeaPart.objects.bulk_create(parts, batch_size=500)

    def _list(self, parts: Sequence[IdeaPart], number_of_parts: int, *, is_last_try: bool) -> list[IdeaPart]:
        """List and store the ideas of these parts; return those whose call failed in a way that may pass.

        Parts that are not answered now, as in a batch, are neither stored nor returned; nor are those whose run another worker has.

        Raises:
            _CallFailed: A call failed otherwise, or for the last time.
            _Interrupted: The judge is down.
        """
        context = self.context
        asked_parts: list[_AskedPart] = []
        failed: list[IdeaPart] = []
        listing_requests = self._listing_requests(parts, number_of_parts, asked_parts, is_last_try=is_last_try)
        with closing(context.ask(listing_requests)) as replies:
            for number, reply in replies:
                part = asked_parts[number].part
                self._note_reply(reply)
                if reply.ok and context.renew():
                    _store_listing(part, asked_parts[number].positions, reply.value)
                elif reply.status in TRIED_AGAIN and not is_last_try:
                    failed.append(part)
                elif not reply.ok:
                    raise _CallFailed(reply, f"part {part.number} of {number_of_parts}")
                if context.health.down:
                    raise _Interrupted
        return failed

    def _listing_requests(
        self, parts: Sequence[IdeaPart], number_of_parts: int, asked_parts: list[_AskedPart], *, is_last_try: bool
    ) -> Iterator[LLMRequest]:
        """Yield a request for each part, made one by one, and note in `asked_parts` what it is about; stop where nothing more may be asked.

        On the last try there is room for twice as long an answer.
        """
        context, subject = self.context, self.subject
        for part in parts:
            if not context.may_ask():
                return
            messages = read_plain_messages(
                subject.messages().filter(position__range=(part.first_position, part.last_position))
            )
            asked_parts.append(_AskedPart(part, [message.position for message in messages]))
            yield listing_request(
                name=subject.name,
                proposition=context.propositions[DIMENSION, self.row.proposition_id],
                events=[subject.event(message) for message in messages],
                part=(part.number, number_of_parts),
                label=context.label(DIMENSION, self.row),
                model=context.run.judge,
                nonce=context.nonce,
                max_tokens=2 * LISTING_TOKENS if is_last_try else LISTING_TOKENS,
                asked_again=context.run.repeats > 1,
            )

    def _collapse(self, ideas: Sequence[Idea]) -> None:
        """Find which ideas are the same over all parts, and store it: each that repeats another points to the first that says it.

        Literal repetitions are matched here, the others by the judge: batch after batch is compared within itself and with all distinct
        ideas before it, so that no pair is left out.
        """
        by_key = {idea.pk: idea for idea in ideas}
        same_as = _literal_repetitions(ideas)  # by the key of a repetition that of an earlier idea
        distinct: list[int] = []
        remaining = [pk for pk in by_key if pk not in same_as]
        while remaining and len(distinct) + len(remaining) > 1:
            batch = remaining[:IDEAS_COMPARED_AT_ONCE]
            compared = [*distinct, *batch]
            entries = [(by_key[pk].idea, by_key[pk].description) for pk in compared]
            originals = self._ask_which_are_same(entries, known=len(distinct))
            for later, earlier in sorted(originals.items()):
                if later >= len(distinct):  # else both are known to differ
                    same_as[compared[later]] = compared[earlier]
            distinct += [pk for pk in batch if pk not in same_as]
            remaining = remaining[len(batch) :]
        for pk, idea in by_key.items():
            original = pk
            while original in same_as:  # a chain of repetitions leads to its first idea
                original = same_as[original]
            idea.same_as_id = None if original == pk else original
        Idea.objects.bulk_update(ideas, ["same_as"], batch_size=500)

    def _ask_which_are_same(self, ideas: Sequence[tuple[str, str]], *, known: int) -> dict[int, int]:
        """Ask which ideas of a list repeat an earlier one, where the first `known` are known to differ; see `collapse_request`.

        A failure that may pass is tried once more, with room for twice as long an answer.

        Raises:
            _CallFailed: It failed again, or in a way that does not pass.
            _Interrupted: Nothing may be asked now, or the answer comes later, from a batch.
        """
        reply = self._ask_once(ideas, known=known, tokens_factor=1)
        if reply.status in TRIED_AGAIN:
            reply = self._ask_once(ideas, known=known, tokens_factor=2)
        if not reply.ok:
            raise _CallFailed(reply, "collapsing the list")
        originals: dict[int, int] = reply.value
        return originals

    def _ask_once(self, ideas: Sequence[tuple[str, str]], *, known: int, tokens_factor: int) -> Reply:
        """Ask which ideas repeat an earlier one, with so many times the usual room for the answer.

        Raises:
            _Interrupted: Nothing may be asked now, or the answer comes later, from a batch.
        """
        context = self.context
        if not context.may_ask():
            raise _Interrupted
        new = len(ideas) - known
        request = collapse_request(
            name=self.subject.name,
            ideas=ideas,
            known=max(1, known),  # the first idea of a list repeats none
            label=context.label(DIMENSION, self.row),
            model=context.run.judge,
            nonce=context.nonce,
            max_tokens=(1000 + 40 * new) * tokens_factor,
        )
        for _, reply in context.ask([request]):
            self._note_reply(reply)
            return reply
        raise _Interrupted


@dataclass(frozen=True, slots=True)
class _AskedPart:
    """A part whose ideas were asked for, and the positions of its messages in the order in which they were shown."""

    part: IdeaPart
    positions: list[int]


def _literal_repetitions(ideas: Sequence[Idea]) -> dict[int, int]:
    """Return, by the key of an idea that repeats an earlier one word for word, the key of the first such idea."""
    first_by_words: dict[tuple[str, ...], int] = {}
    same_as: dict[int, int] = {}
    for idea in ideas:
        words = tuple(tokenize(idea.idea)) or (idea.idea,)  # of signs alone, such as an emoji, the text itself
        first = first_by_words.setdefault(words, idea.pk)
        if first != idea.pk:
            same_as[idea.pk] = first
    return same_as


def _store_listing(part: IdeaPart, positions: list[int], listed: list[ListedIdea]) -> None:
    """Store the ideas of a part, unless another worker did, with the positions of the messages in which they occur; note it as listed.

    Entries that an idea names and that were not shown are left out; long texts are cut.

    Args:
        positions: Those of the part's messages, in the order in which they were shown.
    """
    ideas: list[Idea] = []
    for number, entry in enumerate(listed, 1):
        mentioned = {positions[shown - 1] for shown in entry.entries if 1 <= shown <= len(positions)}
        idea = Idea(
            part=part,
            number=number,
            idea=requests.short_line(entry.idea, LONGEST_IDEA),
            description=requests.short_line(entry.description, LONGEST_DESCRIPTION),
            positions=sorted(mentioned),
        )
        ideas.append(idea)
    with transaction.atomic():
        if IdeaPart.objects.filter(pk=part.pk, listed=False).update(listed=True):
            Idea.objects.bulk_create(ideas)
