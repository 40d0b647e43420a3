"""Judgements on their way to the judge: some need no judge, the others share calls (AC-6.0.4, AC-6.0.15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from agents.models import Message
from agents.text.fences import one_line
from evaluation.judge.prompts import Context
from evaluation.judge.verdicts import Verdict, trivial, unscored, verdict_by_rule
from evaluation.propositions.rules import PRECONDITIONS, Target
from evaluation.propositions.schema import Proposition
from evaluation.scorers.subjects import ChannelSubject, Subject, stretch_end

T = TypeVar("T")


class Open(NamedTuple, Generic[T]):
    """An item that needs the judge, with what it is about."""

    item: T
    proposition: Proposition
    message: Message | None
    earlier: Message | None = None
    repeat: int = 1


def context_of(scorer: Any, subject: Subject | ChannelSubject, entry: Open[Any], additional: Any) -> Context:
    """What the judge is shown for an item, with what is given to every judgement of the run."""
    found: Context = scorer.context(subject, entry.proposition, entry.message, entry.earlier)
    return replace(found, additional=additional or None)


class Group(NamedTuple, Generic[T]):
    """Items that share a call. `alone` when no other group is shown the same window."""

    entries: list[Open[T]]
    alone: bool


def groups(entries: Iterable[Open[T]], per_call: int) -> Iterator[Group[T]]:
    """Items that may share a call: the same message, window and repeat, up to `per_call` of them.

    What begins alike comes as far apart as possible, the messages of one stretch and the repeats of one item: by then the prompt cache
    may hold what they share.
    """
    found: dict[tuple[object, ...], list[Open[T]]] = {}
    for entry in entries:
        message = entry.message.pk if entry.message else None
        found.setdefault((message, entry.repeat, *entry.proposition.context_key), []).append(entry)
    seen: Counter[tuple[object, ...]] = Counter()
    ordered = []
    for group in found.values():
        shared = (group[0].repeat, *_shown(group[0]))
        ordered.append((group[0].repeat, seen[shared], shared, group))
        seen[shared] += 1
    for _, _, shared, group in sorted(ordered, key=lambda place: place[:2]):
        alone = seen[shared] == 1 and group[0].earlier is None and len(group) <= per_call
        for start in range(0, len(group), per_call):
            yield Group(group[start : start + per_call], alone)


def _shown(entry: Open[Any]) -> tuple[object, ...]:
    """Equal for items that are shown the same window."""
    message, proposition = entry.message, entry.proposition
    end = stretch_end(message.position, proposition.last_n) if message and entry.earlier is None else None
    return (message.channel_id if message else None, end, *proposition.context_key)


def settle(
    proposition: Proposition,
    message: Message | None,
    subject: Subject | ChannelSubject,
    earlier: Message | None = None,
    additional: Mapping[str, Any] | None = None,
) -> Verdict | None:
    """The verdict of what needs no judge: a false precondition, a rule, a message that is gone. None when the judge is needed."""
    if message is None and proposition.dimension == "adherence" and not proposition.over_window:
        return unscored("the message was deleted before it was judged")
    if proposition.dimension == "consistency" and (message is None or earlier is None):
        return unscored("a message of the pair was deleted before it was judged")
    if message is not None and proposition.precondition:
        target = Target(message.text, message.channel.kind, message.parent_id is not None)
        if not PRECONDITIONS[proposition.precondition](target, additional or {}, variables_in(subject, message)):
            return trivial(f"precondition {proposition.precondition} does not hold")
    if message is not None and proposition.rule:
        return verdict_by_rule(proposition.rule, message.text, inverted=proposition.inverted)
    return None


def variables_in(subject: Subject | ChannelSubject, message: Message) -> dict[str, str]:
    """Values of the variables of a claim about one message."""
    name = subject.agent.display_name if isinstance(subject, Subject) else subject.name
    return {"agent_name": one_line(name), "channel_name": one_line(str(message.channel))}
