"""The stage of a debate: it shows a seat what its mode shows it, asks for a typed answer, and marks an answer that breaks the rules."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from django.conf import settings
from django.db.models import Min

from agents.debates.models import Debate, DebateSeat, DebateTurn
from agents.debates.modes import LAYERS, POLL, Context, Entry, answer_of, mode_of
from agents.debates.modes import Mode as Rules
from agents.kit.text.fences import fence, indented, one_line, render_prompt, safe_and_cut
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


@dataclass(frozen=True, slots=True)
class SeatContext:
    """The seat whose turn it is, and what it may see by the debate's mode."""

    debate: Debate
    seat: DebateSeat
    rules: Rules
    context: Context


class Mode:
    """Show a seat what the debate's mode lets it see, and check its answer by the mode's rules (specification 004)."""

    name = "debate"
    required = True  # without it a seat would see who said what, and answer without the fields

    def prepare(self, turn: Turn) -> None:
        """Replace the transcript by what the seat may see, and ask for a typed answer. Skipped in other channels than a debate's.

        The poll has none of the mode's own prompts: it is the same in all modes. The counters say how much was shown, in full and in short.

        Raises:
            ValueError: It is the turn of no seat.
        """
        if not _is_debate(turn.channel):
            turn.skip("not the channel of a debate")
            return
        own = turn.kept[self.name] = _seat_context(turn)
        context = own.rules.transform_context(own.context, own.seat)
        turn.transcript = []
        values = _prompt_values(own, context)
        for layer in LAYERS:
            text_of_mode = "" if context.round == POLL else own.rules.prompt(layer, **values)
            turn.add_section(HEADINGS[layer], render_prompt(f"debates/{layer}", own=text_of_mode, **values))
        turn.add_section("The debate", _debate_section(context, own.seat, turn.nonce))
        turn.mask = context.mask or turn.mask  # hides the other seats' names where the mode does
        turn.wanted_answer = Answer(own.rules.shape, _scripted_answer(own.debate, own.rules, context.round, own.seat))
        older = sum(entry.round < context.round - ROUNDS_IN_FULL for entry in context.entries)
        turn.count(shown_in_full=len(context.entries) - older, shown_in_short=older)

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        """Send an answer back that breaks a rule of the mode, once; after that accept it with the violation in its payload.

        The accepted fields are those the mode returns, with the seat's role and perspective. Skipped in other channels than a debate's.
        """
        if self.name not in turn.kept:  # a turn that resumes in another process was not prepared there
            if not _is_debate(turn.channel):
                turn.skip("not the channel of a debate")
                return Accept(draft)
            turn.kept[self.name] = _seat_context(turn)
        own: SeatContext = turn.kept[self.name]
        without_entries = replace(own.context, entries=())  # what was said is not needed for the mask
        turn.mask = own.rules.transform_context(without_entries, own.seat).mask or turn.mask
        fields, violation = own.rules.validate_response(dict(draft.payload), own.seat, own.context)
        turn.count(clamped=int("confidence_raw" in fields), violations=int(bool(violation)))
        if own.context.round != POLL and own.seat.role:
            fields["role"] = own.seat.role
        if own.context.round != POLL and own.seat.perspective:
            fields["perspective"] = own.seat.perspective
        if not violation:
            return Accept(Draft(draft.text, fields))
        if not _may_be_sent_back(turn):
            return Accept(Draft(draft.text, {**fields, VIOLATION: violation}), VIOLATION)
        turn.count(sent_back=1)
        return Revise(render_prompt("debates/violation", violation=violation), outcome=VIOLATION)


def _prompt_values(own: SeatContext, context: Context) -> dict[str, Any]:
    """Return the values of the prompt's templates; `label` is empty where names are shown, `stance` where the role is free."""
    seat = own.seat
    return {
        "name": one_line(seat.agent.display_name),
        "poll": context.round == POLL,
        "round": context.round,
        "count": len(context.seats),
        "role": seat.role,
        "perspective": one_line(seat.perspective) if seat.perspective else "",
        "label": seat.label if context.mask else "",
        "stance": own.rules.required_stances.get(seat.role, ""),
        "stances": own.rules.stances,
    }


def _is_debate(channel: Channel) -> bool:
    """Return whether a debate is played there. Channels of imported debates have the same kind."""
    return channel.kind == Channel.Kind.DEBATE and Debate.objects.filter(channel=channel).exists()


def _seat_context(turn: Turn) -> SeatContext:
    """Return the seat of the turn, and what it may see by the debate's mode.

    Raises:
        ValueError: It is the turn of no seat. Nobody speaks in a debate between the rounds.
    """
    seat_keys = turn.overrides.get("debate")
    if not isinstance(seat_keys, dict):
        raise ValueError(
            f"no seat's turn in debate channel {turn.channel.slug}; allowed: rounds that `manage.py debate` plays"
        )
    seat = DebateSeat.objects.select_related("debate", "agent").get(
        debate=seat_keys["debate"], number=seat_keys["seat"], debate__channel=turn.channel, agent=turn.agent
    )
    mode = mode_of(seat.debate.mode)
    context = _visible_context(seat.debate, mode, int(seat_keys["round"]), seat)
    return SeatContext(seat.debate, seat, mode, context)


def _may_be_sent_back(turn: Turn) -> bool:
    """Return whether a draft may be sent back for a violation: the turn has revisions left, and has sent none back for one.

    What was sent back is read from the turn's rows, which also say what another process did before this one resumed it.
    """
    if turn.revisions.get(turn.channel.pk, 0) >= settings.TURN_MAX_REVISIONS:
        return False
    answers = RunMessage.objects.filter(run=turn.run, role=RunMessage.Role.TOOL)
    return not answers.filter(content__detail__outcome=VIOLATION).exists()


# -- what was said
def _visible_context(debate: Debate, mode: Rules, number: int, seat: DebateSeat) -> Context:
    """Return what the seat may see: rounds before this one, and of this one the groups before its own. In the poll nothing.

    Seats of a round are in the order of speaking, not of arrival. What a person says is shown from the next round on.
    """
    seats = tuple(debate.seats.select_related("agent").order_by("number"))
    context = Context(mode=debate.mode, topic=debate.topic, round=number, seats=seats)
    if number == POLL:
        return context
    groups = mode.groups(seats)
    visible_now = _seats_before(groups, seat)
    speaking_order = {each.number: index for index, each in enumerate(chain.from_iterable(groups))}
    names = {each.number: f"{each.number}. {one_line(each.agent.display_name)}" for each in seats}
    turns = DebateTurn.objects.filter(debate=debate, round__lte=number, status=DebateTurn.Status.ANSWERED)
    sorted_by: list[tuple[int, int, Entry]] = []  # round, place within it, entry
    for turn in turns.select_related("seat", "message"):
        answer = answer_of(turn)
        is_visible = turn.round < number or turn.seat.number in visible_now
        if answer is not None and turn.message and is_visible:
            entry = Entry(round=turn.round, who=names[answer.seat], text=turn.message.text, answer=answer)
            sorted_by.append((turn.round, speaking_order[answer.seat], entry))
    # People come after all seats of the round before, by position.
    for round_before, message in _audience_remarks(debate, number):
        entry = Entry(round=round_before, who="", text=message.text)
        sorted_by.append((round_before, len(seats) + message.position, entry))
    sorted_by.sort(key=lambda item: item[:2])
    return replace(context, entries=tuple(entry for _, _, entry in sorted_by))


def _seats_before(groups: Sequence[Sequence[DebateSeat]], seat: DebateSeat) -> set[int]:
    """Return the numbers of the seats that speak in the groups before this seat's own."""
    numbers: set[int] = set()
    for group in groups:
        if any(each.number == seat.number for each in group):
            break
        numbers.update(each.number for each in group)
    return numbers


def _audience_remarks(debate: Debate, number: int) -> list[tuple[int, Message]]:
    """Return what people said before this round began, each with the round that was the last to begin before it (0: the poll, or none)."""
    messages = list(Message.objects.filter(channel=debate.channel_id, agent=None).order_by("position"))
    if not messages:
        return []
    rounds = DebateTurn.objects.filter(debate=debate).order_by("round").values_list("round")
    begin_times = dict(rounds.annotate(Min("created_at")))
    remarks = []
    for message in messages:
        if number in begin_times and message.created_at >= begin_times[number]:
            continue  # said during this round: shown from the next one on
        begun = [each for each, begin in begin_times.items() if begin <= message.created_at]
        remarks.append((max(begun, default=POLL), message))
    return remarks


# -- the same as text
def _debate_section(context: Context, seat: DebateSeat, nonce: str) -> str:
    """Return the question, the answers so far and their statistics as text; what others wrote is fenced.

    The last `ROUNDS_IN_FULL` rounds are given in full, older ones in short.
    """
    first_in_full = context.round - ROUNDS_IN_FULL
    older = [entry for entry in context.entries if entry.round < first_in_full]
    recent = [entry for entry in context.entries if entry.round >= first_in_full]
    return render_prompt(
        "debates/debate",
        topic=fence("QUESTION", indented(context.topic, TOPIC_CHARACTERS), nonce),
        older=fence("EARLIER ROUNDS", "\n".join(_lines_in_short(older, seat)), nonce) if older else "",
        recent=fence("LAST ROUNDS", "\n".join(_lines_in_full(recent, seat)), nonce) if recent else "",
        statistics=context.statistics,
        poll=context.round == POLL,
    )


def _lines_in_full(entries: Sequence[Entry], seat: DebateSeat) -> list[str]:
    """Return each entry as lines: e.g. ``Round 2, 1. Pam (you): yes, 0.80``, then each of its texts once, empty ones left out."""
    lines = []
    for entry in entries:
        heading = f"{_round_name(entry)}, {_author(entry, seat)}"
        if stance := _stance_and_confidence(entry):
            heading += f": {stance}"
        lines.append(heading)
        texts = {"says": entry.text}
        if entry.answer is not None:
            texts["position"] = entry.answer.position
            texts["reasoning"] = entry.answer.reasoning
            texts["sources"] = "; ".join(entry.answer.citations)
        written: set[str] = set()
        for label, text in texts.items():
            if text.strip() and text not in written:
                lines.append(f"    {label}: {indented(text, TEXT_CHARACTERS)}")
            written.add(text)
    return lines


def _lines_in_short(entries: Sequence[Entry], seat: DebateSeat) -> list[str]:
    """Return the course of each seat: of every answer the stance, the confidence and the first sentence.

    A seat's sentence that is that of its answer before is given as "the same". All sentences together have a limit, so that a long debate
    does not make long prompts; but each may have `SHORTEST_SENTENCE` characters. People are one "seat", "from the audience".
    """
    longest = SENTENCES_CHARACTERS // max(1, len(entries))
    longest = max(SHORTEST_SENTENCE, min(LONGEST_SENTENCE, longest))
    courses: dict[str, list[str]] = {}
    last_sentences: dict[str, str] = {}
    for entry in entries:
        author = _author(entry, seat)
        sentence = first_sentence(entry.answer.position if entry.answer else entry.text)
        shortened = sentence
        if len(sentence) > longest:
            shortened = sentence[: longest - 1].rstrip() + "\u2026"
        if entry.answer and last_sentences.get(author) == sentence:
            shortened = "the same"
        last_sentences[author] = sentence
        parts = [_round_name(entry).lower(), _stance_and_confidence(entry), shortened]
        line = ": ".join(part for part in parts if part)
        courses.setdefault(author, []).append(f"    {line}")
    lines = []
    for author, course in courses.items():
        lines += [author, *course]
    return lines


def _round_name(entry: Entry) -> str:
    return "Poll" if entry.round == POLL else f"Round {entry.round}"


def _author(entry: Entry, seat: DebateSeat) -> str:
    """Return whose entry it is, as the reading seat sees it, e.g. ``2. Dwight (opposition) (you)``."""
    answer = entry.answer
    if answer is None:
        return "from the audience"
    author = entry.who
    if answer.role:
        author += f" ({one_line(answer.role)})"
    if answer.seat == seat.number:
        author += " (you)"
    return author


def _stance_and_confidence(entry: Entry) -> str:
    """Return ``yes, 0.80``, or what the answer has of it."""
    parts = []
    if entry.answer and entry.answer.stance:
        parts.append(str(entry.answer.stance))
    if entry.answer and entry.answer.confidence is not None:
        parts.append(f"{entry.answer.confidence:.2f}")
    return ", ".join(parts)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, on one line; empty where there is none."""
    sentences = split_sentences(safe_and_cut(" ".join(text.split()), TEXT_CHARACTERS))
    return next(iter(sentences), "")


# -- offline
def _scripted_answer(debate: Debate, mode: Rules, number: int, seat: DebateSeat) -> dict[str, Any]:
    """Return what the scripted (offline) actor answers: fields of the mode's `Config.script`, others from the agent's sample lines.

    The same seat in the same round always answers the same. Without sample lines and script there are only a stance and a confidence.
    """
    agent = seat.agent
    checksum = zlib.crc32(agent.slug.encode())  # chooses for each agent, and always the same
    values: dict[str, Any] = {}
    lines = [line for line in agent.sample_lines if line.strip()]
    if lines:
        line = next_line(lines, agent=agent.slug, said=(), rejected=(), scene=number) or ""
        values = {"text": line, "position": first_sentence(line), "reasoning": line}
    values["stance"] = mode.required_stances.get(seat.role) or ("yes", "no", "neutral")[checksum % 3]
    # 0.5 to 0.95, different for each agent, and growing with the rounds.
    values["confidence"] = round(min(0.95, 0.5 + checksum % 25 / 100 + 0.03 * number), 2)
    config = mode.config.model_validate(debate.settings.get("config", {}))
    script = config.script.get(seat.number)
    if script:
        # The script's first entry is the poll, or without one round 1; its last one goes on.
        turn_number = number if debate.settings.get("poll", True) else number - 1
        values |= script[min(turn_number, len(script) - 1)]
    return values
