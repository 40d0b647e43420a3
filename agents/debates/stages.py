"""The stage of a debate: it shows a seat what its mode shows it, asks for a typed answer, and marks an answer that breaks the rules."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from django.conf import settings
from django.db.models import Min

from agents.debates.models import Debate, DebateSeat, DebateTurn
from agents.debates.modes import LAYERS, POLL, Context, Entry, answer_of, mode_of
from agents.debates.modes import Mode as Rules
from agents.kit.text.fences import fence, indented, neutral, one_line, render_prompt
from agents.kit.text.tokens import split_sentences
from agents.models import Channel, Message, RunMessage
from agents.turn.pipeline import Accept, Answer, Draft, Revise, Turn
from agents.turn.scripted import next_line

HEADINGS = {
    "role": "Your part in the debate",
    "contract": "How you debate",
    "structure": "What your answer holds",
    "verification": "Before you answer",
}
ROUNDS_IN_FULL = 2  # before the present one; of older ones stance, confidence and first sentence
TOPIC_CHARACTERS, TEXT_CHARACTERS = 2_000, 4_000
SENTENCES_CHARACTERS = 1_800  # all first sentences of older rounds together; each at most and at least:
LONGEST_SENTENCE, SHORTEST_SENTENCE = 160, 20
VIOLATION = "violation"  # in the payload of an answer, and the outcome of a draft


class Mode:
    """Puts a seat into its place in the round that is played, as the debate's mode wants it (specification 004)."""

    name = "debate"
    required = True  # without it a seat would see who said what, and answer without the fields

    def prepare(self, turn: Turn) -> None:
        if not _is_debate(turn.channel):
            turn.skip("not the channel of a debate")
            return
        debate, seat, mode, seen = turn.kept[self.name] = _seat_context(turn)
        number = seen.round
        context = mode.transform_context(seen, seat)
        turn.transcript = []
        values = {
            "name": one_line(turn.agent.display_name),
            "poll": number == POLL,
            "round": number,
            "count": len(context.seats),
            "role": seat.role,
            "perspective": one_line(seat.perspective) if seat.perspective else "",
            "label": seat.label if context.mask else "",
            "stance": mode.required_stances.get(seat.role, ""),
            "stances": mode.stances,
        }
        for layer in LAYERS:
            own = "" if number == POLL else mode.prompt(layer, **values)
            turn.add_section(HEADINGS[layer], render_prompt(f"debates/{layer}", own=own, **values))
        turn.add_section("The debate", _debate_section(context, seat, turn.nonce))
        turn.mask = context.mask or turn.mask
        turn.answer = Answer(mode.shape, _scripted(debate, mode, number, seat))
        older = sum(entry.round < number - ROUNDS_IN_FULL for entry in context.entries)
        turn.count(shown_in_full=len(context.entries) - older, shown_in_short=older)

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        if self.name not in turn.kept:  # what a seat may see does not change during its turn
            if not _is_debate(turn.channel):
                turn.skip("not the channel of a debate")
                return Accept(draft)
            turn.kept[self.name] = _seat_context(turn)
        _, seat, mode, context = turn.kept[self.name]
        # A turn that goes on in another process was not prepared there.
        turn.mask = mode.transform_context(replace(context, entries=()), seat).mask or turn.mask
        fields, violation = mode.validate_response(dict(draft.payload), seat, context)
        turn.count(clamped=int("confidence_raw" in fields), violations=int(bool(violation)))
        if context.round != POLL:
            fields |= {name: value for name in ("role", "perspective") if (value := getattr(seat, name))}
        if not violation:
            return Accept(Draft(draft.text, fields))
        if not _may_be_sent_back(turn):
            return Accept(Draft(draft.text, {**fields, VIOLATION: violation}), VIOLATION)
        turn.count(sent_back=1)
        return Revise(render_prompt("debates/violation", violation=violation), outcome=VIOLATION)


def _is_debate(channel: Channel) -> bool:
    """Whether a debate is played there. Channels of imported debates have the same kind."""
    return channel.kind == Channel.Kind.DEBATE and Debate.objects.filter(channel=channel).exists()


def _seat_context(turn: Turn) -> tuple[Debate, DebateSeat, Rules, Context]:
    """The debate and the seat of the turn, and what it may see by the debate's mode.

    Raises:
        ValueError: It is the turn of no seat. Nobody speaks in a debate between the rounds.
    """
    place = turn.overrides.get("debate")
    if not isinstance(place, dict):
        raise ValueError(
            f"no seat's turn in debate channel {turn.channel.slug}; allowed: rounds that `manage.py debate` plays"
        )
    seat = DebateSeat.objects.select_related("debate", "agent").get(
        debate=place["debate"], number=place["seat"], debate__channel=turn.channel, agent=turn.agent
    )
    mode = mode_of(seat.debate.mode)
    return seat.debate, seat, mode, _context(seat.debate, mode, int(place["round"]), seat)


def _may_be_sent_back(turn: Turn) -> bool:
    """Whether the turn has sent no draft back for a violation yet; its rows also say what another process did."""
    if turn.revisions.get(turn.channel.pk, 0) >= settings.TURN_MAX_REVISIONS:
        return False
    answers = RunMessage.objects.filter(run=turn.run, role=RunMessage.Role.TOOL)
    return not answers.filter(content__detail__outcome=VIOLATION).exists()


# -- what was said
def _context(debate: Debate, mode: Rules, number: int, seat: DebateSeat) -> Context:
    """What the seat may see: rounds before this one, and of this one the groups before its own. In the poll nothing.

    Seats of a round are in the order of speaking, not of arrival. What a person says is shown from the next round on.
    """
    seats = tuple(debate.seats.select_related("agent").order_by("number"))
    context = Context(mode=debate.mode, topic=debate.topic, round=number, seats=seats)
    if number == POLL:
        return context
    groups = mode.groups(seats)
    own = next(place for place, group in enumerate(groups) if any(one.number == seat.number for one in group))
    earlier = {one.number for group in groups[:own] for one in group}
    order = {one.number: place for place, one in enumerate(chain.from_iterable(groups))}
    names = {one.number: f"{one.number}. {one_line(one.agent.display_name)}" for one in seats}
    turns = DebateTurn.objects.filter(debate=debate, round__lte=number, status=DebateTurn.Status.ANSWERED)
    said = []
    for turn in turns.select_related("seat", "message"):
        answer = answer_of(turn)
        if answer is not None and turn.message and (turn.round < number or turn.seat.number in earlier):
            entry = Entry(round=turn.round, who=names[answer.seat], text=turn.message.text, answer=answer)
            said.append(((turn.round, order[answer.seat]), entry))
    for round, message in _audience(debate, number):
        said.append(((round, len(seats) + message.position), Entry(round=round, who="", text=message.text)))
    return replace(context, entries=tuple(entry for _, entry in sorted(said, key=lambda one: one[0])))


def _audience(debate: Debate, number: int) -> list[tuple[int, Message]]:
    """What persons said before this round began, each with the round before it."""
    messages = list(Message.objects.filter(channel=debate.channel_id, agent=None).order_by("position"))
    if not messages:
        return []
    rounds = DebateTurn.objects.filter(debate=debate).order_by("round").values_list("round")
    begun = dict(rounds.annotate(Min("created_at")))
    return [
        (max((round for round, at in begun.items() if at <= message.created_at), default=POLL), message)
        for message in messages
        if number not in begun or message.created_at < begun[number]
    ]


# -- the same as text
def _debate_section(context: Context, seat: DebateSeat, nonce: str) -> str:
    """The question, what was said, and its statistics; what others wrote is data."""
    since = context.round - ROUNDS_IN_FULL
    older = [entry for entry in context.entries if entry.round < since]
    recent = [entry for entry in context.entries if entry.round >= since]
    return render_prompt(
        "debates/debate",
        topic=fence("QUESTION", indented(context.topic, TOPIC_CHARACTERS), nonce),
        older=fence("EARLIER ROUNDS", "\n".join(_in_short(older, seat)), nonce) if older else "",
        recent=fence("LAST ROUNDS", "\n".join(_in_full(recent, seat)), nonce) if recent else "",
        statistics=context.statistics,
        poll=context.round == POLL,
    )


def _in_full(entries: Sequence[Entry], seat: DebateSeat) -> list[str]:
    lines = []
    for entry in entries:
        stand = _stand(entry)
        lines.append(f"{_round(entry)}, {_who(entry, seat)}" + (f": {stand}" if stand else ""))
        parts = {"says": entry.text}
        if (answer := entry.answer) is not None:
            parts |= {
                "position": answer.position,
                "reasoning": answer.reasoning,
                "sources": "; ".join(answer.citations),
            }
        shown: set[str] = set()
        for name, text in parts.items():
            if text.strip() and text not in shown:
                lines.append(f"    {name}: {indented(text, TEXT_CHARACTERS)}")
            shown.add(text)
    return lines


def _in_short(entries: Sequence[Entry], seat: DebateSeat) -> list[str]:
    """The course of each seat: of every answer the stance, the confidence and the first sentence, unless it is that of the round before.

    All sentences together have a limit, so that a long debate does not make long prompts.
    """
    limit = max(SHORTEST_SENTENCE, min(LONGEST_SENTENCE, SENTENCES_CHARACTERS // max(1, len(entries))))
    courses: dict[str, list[str]] = {}
    last: dict[str, str] = {}
    for entry in entries:
        who, sentence = _who(entry, seat), first_sentence(entry.answer.position if entry.answer else entry.text)
        shown = sentence if len(sentence) <= limit else sentence[: limit - 1].rstrip() + "\u2026"
        shown = "the same" if entry.answer and last.get(who) == sentence else shown
        line = ": ".join(filter(None, (_round(entry).lower(), _stand(entry), shown)))
        courses.setdefault(who, []).append(f"    {line}")
        last[who] = sentence
    return [line for who, course in courses.items() for line in (who, *course)]


def _round(entry: Entry) -> str:
    return "Poll" if entry.round == POLL else f"Round {entry.round}"


def _who(entry: Entry, seat: DebateSeat) -> str:
    answer = entry.answer
    if answer is None:
        return "from the audience"
    return entry.who + f" ({one_line(answer.role)})" * bool(answer.role) + " (you)" * (answer.seat == seat.number)


def _stand(entry: Entry) -> str:
    answer = entry.answer
    confidence = f"{answer.confidence:.2f}" if answer and answer.confidence is not None else ""
    return ", ".join(filter(None, (answer.stance if answer else "", confidence)))


def first_sentence(text: str) -> str:
    """The first sentence of a text, on one line."""
    return next(iter(split_sentences(neutral(" ".join(text.split()), TEXT_CHARACTERS)[0])), "")


# -- offline
def _scripted(debate: Debate, mode: Rules, number: int, seat: DebateSeat) -> dict[str, Any]:
    """What the scripted actor answers: made from the agent's sample lines, and then as the mode's `Config.script` says.

    The same seat in the same round always answers the same.
    """
    agent, values = seat.agent, dict[str, Any]()
    fixed = zlib.crc32(agent.slug.encode())
    if lines := [line for line in agent.sample_lines if line.strip()]:
        line = next_line(lines, agent=agent.slug, said=(), rejected=(), scene=number) or ""
        values = {"text": line, "position": first_sentence(line), "reasoning": line}
    values["stance"] = mode.required_stances.get(seat.role) or ("yes", "no", "neutral")[fixed % 3]
    values["confidence"] = round(min(0.95, 0.5 + fixed % 25 / 100 + 0.03 * number), 2)
    config = mode.config.model_validate(debate.settings.get("config", {}))
    if script := config.script.get(seat.number):
        turn_number = number if debate.settings.get("poll", True) else number - 1
        values |= script[min(turn_number, len(script) - 1)]
    return values
