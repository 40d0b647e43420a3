"""Count the ideas of a conversation (S-6.6): ask the judge to list them part by part, then which of them are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from django.conf import settings
from django.db import transaction
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agents.kit.llm import Block, LLMRequest, Reply, Status, Turn, requests
from agents.kit.llm.requests import InvalidAnswer
from agents.kit.text.fences import fence, neutral, one_line
from agents.kit.text.tokens import tokenize
from agents.models import Message
from evaluation.judge.questions import Verdict, object_schema, render, render_trajectory, unscored
from evaluation.models import Dimension, EvaluationRun, EvaluationScore, Idea, IdeaPart, is_heuristic
from evaluation.propositions.schema import Proposition, fill
from evaluation.runs.summary import FAILURES
from evaluation.scorers import ideas_quantity
from evaluation.scorers.subjects import ChannelSubject, Event, Window, said

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
    """The distinct ideas of a channel's run (of repeats: of the first), in order of first mention; empty for an agent's run."""
    of_run = {"part__evaluation_score__evaluation_run": run, "part__evaluation_score__repeat": 1}
    listed = Idea.objects.filter(**of_run, part__evaluation_score__status="scored")
    alike: dict[int, list[Idea]] = {}  # the first of each is the one that counts
    for idea in listed.order_by("part__evaluation_score", "part__number", "number"):
        group = alike.setdefault(idea.same_as_id or idea.pk, [])
        group.insert(0 if idea.same_as_id is None else len(group), idea)
    places = {first.pk: sorted({n for one in (first, *same) for n in one.positions}) for first, *same in alike.values()}
    wanted = {n for positions in places.values() for n in positions}
    said = Message.objects.filter(channel=run.channel_id, position__in=wanted).select_related("agent", "user")
    names = {message.position: message.author_name for message in said}
    return [
        DistinctIdea(
            idea=first.idea,
            description=first.description,
            same=tuple(one.idea for one in same),
            positions=tuple(places[first.pk]),
            by=tuple(dict.fromkeys(names[n] for n in places[first.pk] if n in names)),
        )
        for first, *same in alike.values()
    ]


LONGEST_IDEA, LONGEST_DESCRIPTION = 300, 1000


def _entries(value: Any) -> list[int]:
    """Where an idea was said helps people to find it; a wrong number must not cost the idea."""
    return [n for n in value if isinstance(n, int) and not isinstance(n, bool)] if isinstance(value, list) else []


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class ListedIdea(_Read):
    """One idea of a part. `entries` are numbers of the entries shown, from 1; those that do not exist are left out later."""

    idea: Annotated[str, Field(min_length=1, pattern=r"\S")]
    description: str = ""
    entries: Annotated[list[int], BeforeValidator(_entries)] = []


class _Listing(_Read):
    ideas: list[ListedIdea]


class _Pair(_Read):
    idea: int
    same_as: int


class _Pairs(_Read):
    same: list[_Pair]


_NUMBER, _TEXT = {"type": "integer"}, {"type": "string"}
_LISTED_IDEA = object_schema({"idea": _TEXT, "description": _TEXT, "entries": {"type": "array", "items": _NUMBER}})
_LISTING = object_schema({"ideas": {"type": "array", "items": _LISTED_IDEA}})
_PAIRS = object_schema({"same": {"type": "array", "items": object_schema({"idea": _NUMBER, "same_as": _NUMBER})}})
_LISTED = {
    "ideas": [{"idea": "A bench by the pond", "description": "Somewhere to sit in the park.", "entries": [2, 5]}]
}


def listing_request(
    *,
    name: str,
    proposition: Proposition,
    events: Sequence[Event],
    part: tuple[int, int],
    nonce: str,
    again: bool = False,
    **call: Any,
) -> LLMRequest:
    """Ask for the ideas of one part of a conversation, all of whose messages are `events`.

    Args:
        name: The channel's.
        proposition: Its claim says what is to be listed.
        part: Its number, and how many there are.
        again: Whether the same is asked again (repeats), so that the prompt cache should hold it.
        call: `label`, `model` and `max_tokens` of the request.
    """
    shown = one_line(name)
    text = render(
        "ideas_part",
        name=shown,
        part=part[0],
        parts=part[1],
        trajectory=render_trajectory(Window(tuple(events), 0, ()), nonce=nonce),
        claim=neutral(fill(proposition.claim, {"agent_name": shown, "channel_name": shown}))[0],
    )
    return _request(
        "ideas",
        rubric="ideas",
        text=Block(text, cache=again),
        schema=_LISTING,
        parse=lambda data: _Listing.model_validate(data).ideas,
        example=_LISTED,
        nonce=nonce,
        facts={"lines": [event.text for event in events]},
        **call,
    )


def collapse_request(*, name: str, ideas: Sequence[tuple[str, str]], known: int, nonce: str, **call: Any) -> LLMRequest:
    """Ask which ideas of a list, (idea, description) each, repeat an earlier one; the first `known` are known to differ.

    Returns:
        A request whose answer is a mapping of 0-based places: a repetition to the earlier idea it repeats.
    """
    shown = (neutral(": ".join(filter(None, idea)), LONGEST_IDEA + LONGEST_DESCRIPTION)[0] for idea in ideas)
    lines = [f"{number}. {' '.join(idea.split())}" for number, idea in enumerate(shown, 1)]
    fenced = fence("IDEAS", "\n".join(lines), nonce)
    text = render("ideas_list", name=one_line(name), ideas=fenced, known=known, first=known + 1, last=len(ideas))
    return _request(
        "collapse",
        rubric="ideas_collapse",
        text=Block(text),
        schema=_PAIRS,
        parse=lambda data: _places(_Pairs.model_validate(data), len(ideas)),
        example={"same": [{"idea": 4, "same_as": 1}]},
        nonce=nonce,
        facts={"ideas": [" ".join(idea) for idea in ideas], "known": known},
        **call,
    )


def _request(task: str, *, rubric: str, text: Block, **fields: Any) -> LLMRequest:
    return LLMRequest(
        role="judge",
        task=task,
        system=(Block(render(rubric), cache=True),),
        turns=(Turn("user", (text,)),),
        reask=True,
        retries=settings.LLM_EVALUATION_RETRIES,
        **fields,
    )


def _places(answer: _Pairs, count: int) -> dict[int, int]:
    """Repetition to original; of several originals the first, whichever way round the two were given."""
    originals: dict[int, int] = {}
    for pair in answer.same:
        if pair.idea == pair.same_as:
            continue  # an idea is the same as itself: true, and no repetition
        first, later = sorted((pair.idea, pair.same_as))
        if first < 1 or later > count:
            raise InvalidAnswer(f"same: {pair.idea} and {pair.same_as}: the list has entries 1 to {count}")
        originals[later - 1] = min(first - 1, originals.get(later - 1, count))
    return originals


LISTING_TOKENS = 4000  # most of an answer
BATCH = 60  # new ideas compared in one call with all that are known
DIMENSION = Dimension.IDEAS_QUANTITY.value
AGAIN = (Status.REFUSED, Status.TRUNCATED, Status.RATE_LIMITED, Status.UNAVAILABLE)
NOTHING_MARKED = "needs an LLM judge: no message lists ideas as points or announces one"


def count_ideas(judging: EvaluationContext, calls: Counter[str]) -> None:
    """Make every pending count of a run: list the ideas of each part of the conversation, then collapse the lists into one (S-6.6).

    What a part holds is stored as it is read; a run that resumes asks only for the parts that are missing.
    """
    if not isinstance(judging.subject, ChannelSubject):
        return
    hindrance = ideas_quantity.not_evaluable(judging.subject)
    pending = EvaluationScore.objects.filter(evaluation_run=judging.run, dimension=DIMENSION, status="pending")
    for row in pending.order_by("pk"):
        if not judging.renew():
            return
        if hindrance:
            judging.store([row], [unscored(hindrance)], None)
        else:
            _Count(judging, judging.subject, row, calls).make()


class _Unanswered(Exception):
    """A call that brought no answer: a part that could not be read makes every number wrong."""

    def __init__(self, reply: Reply, what: str) -> None:
        super().__init__(f"{reply.status}: {what}: {reply.error}")
        self.cause = reply.status.value


class _Interrupted(Exception):
    """The answer is still to come, from a batch, or it is not to be asked for now."""


@dataclass(slots=True)
class _Count:
    """One count: a proposition on a conversation. `last` is the reply that came last."""

    judging: EvaluationContext
    subject: ChannelSubject
    row: EvaluationScore
    calls: Counter[str]
    last: Reply | None = None

    def make(self) -> None:
        """Store the count, or why there is none; nothing when it was interrupted."""
        run = self.judging.run
        try:
            parts = self._list_parts()
            listed = list(Idea.objects.filter(part__evaluation_score=self.row).order_by("part__number", "number"))
            self._collapse(listed)
        except _Interrupted:
            return
        except _Unanswered as problem:
            self.judging.store([self.row], [unscored(str(problem), cause=problem.cause, **self._who())], None)
            return
        distinct = [idea for idea in listed if idea.same_as_id is None]
        if not distinct and is_heuristic(run.judge):
            self.judging.store([self.row], [unscored(NOTHING_MARKED, **self._who())], None)
            return
        same, in_parts = len(listed) - len(distinct), f" in {parts} parts" if parts > 1 else ""
        verdict = Verdict(
            status="scored",
            evidence="present" if listed else "absent",
            reasoning=f"{len(listed)} ideas listed{in_parts}, {same} of them the same as another one.",
            justification=" / ".join(idea.idea for idea in distinct[:5]),
            **self._who(),
        )
        self.row.count = len(distinct)
        self.judging.store([self.row], [verdict], None)

    def _who(self) -> dict[str, Any]:
        reply = self.last
        return {
            "judge": self.judging.run.judge,
            "served_model": requests.one_line(reply.served_model, 200) if reply else "",
            "call": reply.call_id if reply else None,
        }

    def _note(self, reply: Reply) -> None:
        self.last, failed = reply, reply.status in FAILURES
        self.calls["failed_calls" if failed else "answered_calls"] += 1
        self.judging.health.note(failed=failed, why=f"{reply.status}: {reply.error}")

    def _list_parts(self) -> int:
        """List the ideas of every part that is not listed yet, a call each; returns the number of parts."""
        row, judging = self.row, self.judging
        if not row.idea_parts.exists():
            parts = [
                IdeaPart(evaluation_score=row, number=n, first_position=first, last_position=last)
                for n, (first, last) in enumerate(ideas_quantity.stretches(self.subject), 1)
            ]
            IdeaPart.objects.bulk_create(parts, batch_size=500)
        number_of_parts, left = row.idea_parts.count(), list(row.idea_parts.filter(listed=False))
        for again in (False, True):  # a failure that may pass is tried once more after everything else
            asked: list[tuple[IdeaPart, list[int]]] = []
            failed: list[IdeaPart] = []
            with closing(judging.ask(self._listings(left, number_of_parts, asked, again=again))) as replies:
                for number, reply in replies:
                    part, positions = asked[number]
                    self._note(reply)
                    if reply.ok and judging.renew():
                        _store_listing(part, positions, reply.value)
                    elif reply.status in AGAIN and not again:
                        failed.append(part)
                    elif not reply.ok:
                        raise _Unanswered(reply, f"part {part.number} of {number_of_parts}")
                    if judging.health.down:
                        raise _Interrupted
            left = failed
        if row.idea_parts.filter(listed=False).exists():
            raise _Interrupted
        return number_of_parts

    def _listings(
        self, parts: Sequence[IdeaPart], number_of_parts: int, asked: list[tuple[IdeaPart, list[int]]], *, again: bool
    ) -> Iterator[LLMRequest]:
        """Requests for these parts, made one by one; notes the part and the positions of its messages in `asked`."""
        judging, row, subject = self.judging, self.row, self.subject
        for part in parts:
            if not judging.may_ask():
                return
            messages = said(subject.said().filter(position__range=(part.first_position, part.last_position)))
            asked.append((part, [message.position for message in messages]))
            yield listing_request(
                name=subject.name,
                proposition=judging.propositions[DIMENSION, row.proposition_id],
                events=[subject.event(message) for message in messages],
                part=(part.number, number_of_parts),
                label=judging.label(DIMENSION, row),
                model=judging.run.judge,
                nonce=judging.nonce,
                max_tokens=2 * LISTING_TOKENS if again else LISTING_TOKENS,
                again=judging.run.repeats > 1,
            )

    def _collapse(self, ideas: Sequence[Idea]) -> None:
        """Find which ideas are the same over all parts, and store it.

        Literal repetitions are matched here, the others by the judge: batch after batch is compared within itself and with all distinct
        ideas before it, so that no pair is left out.
        """
        judging, by_key = self.judging, {idea.pk: idea for idea in ideas}
        first: dict[tuple[str, ...], int] = {}
        originals = {i.pk: first.setdefault(tuple(tokenize(i.idea)) or (i.idea,), i.pk) for i in ideas}
        same = {pk: original for pk, original in originals.items() if original != pk}
        known, rest, tries = list[int](), [pk for pk in originals if pk not in same], 1
        while len(known) + len(rest) > 1 and rest:
            if not judging.may_ask():
                raise _Interrupted
            batch = rest[:BATCH]
            shown = [*known, *batch]
            request = collapse_request(
                name=self.subject.name,
                ideas=[(by_key[pk].idea, by_key[pk].description) for pk in shown],
                known=max(1, len(known)),
                label=judging.label(DIMENSION, self.row),
                model=judging.run.judge,
                nonce=judging.nonce,
                max_tokens=(1000 + 40 * len(batch)) * tries,
            )
            reply = next((reply for _, reply in judging.ask([request])), None)
            if reply is None:
                raise _Interrupted
            self._note(reply)
            if reply.status in AGAIN and tries == 1:
                tries = 2
                continue
            if not reply.ok:
                raise _Unanswered(reply, "collapsing the list")
            for later, earlier in sorted(reply.value.items()):
                if later >= len(known):  # else both are known to differ
                    same[shown[later]] = shown[earlier]
            known += [pk for pk in batch if pk not in same]
            rest, tries = rest[len(batch) :], 1
        for pk, idea in by_key.items():
            original = pk
            while original in same:  # a chain of repetitions leads to its first idea
                original = same[original]
            idea.same_as_id = None if original == pk else original
        Idea.objects.bulk_update(ideas, ["same_as"], batch_size=500)


def _store_listing(part: IdeaPart, positions: list[int], listed: list[ListedIdea]) -> None:
    ideas = [
        Idea(
            part=part,
            number=number,
            idea=requests.one_line(entry.idea, LONGEST_IDEA),
            description=requests.one_line(entry.description, LONGEST_DESCRIPTION),
            positions=sorted({positions[n - 1] for n in entry.entries if 1 <= n <= len(positions)}),
        )
        for number, entry in enumerate(listed, 1)
    ]
    with transaction.atomic():
        if IdeaPart.objects.filter(pk=part.pk, listed=False).update(listed=True):
            Idea.objects.bulk_create(ideas)
