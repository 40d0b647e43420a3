"""The stages of a swarm: read a person's message before the agent answers it, and polish what the agent wrote.

`Calibration` decides once for a turn and writes it down with the dialog state in one transaction, so that a turn that is resumed after
a crash asks nothing twice. Both stages fail open: without them the agent answers as it would without a swarm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from agents.kit.capability import declared
from agents.kit.llm.endpoints import route_of
from agents.kit.text.fences import fence, neutral, render_prompt
from agents.models import Channel, Message
from agents.swarm import clarifier, guards, memory
from agents.swarm.calibration import PREFERENCES, UNCERTAIN, by_rules, calibrate, guidance, stated_preferences
from agents.swarm.calibration import Calibration as Reading
from agents.swarm.clarifier import Decision, decide
from agents.swarm.intents import chosen, intent_of
from agents.swarm.models import DialogState, Swarm, SwarmPhase, SwarmTurn, UserPreferences
from agents.swarm.polish import Material, Polished, executor_of, polish
from agents.swarm.state import add_answer, add_quoted, advance, assume, entries, forget_asked, state_of, updating
from agents.turn.pipeline import Accept, Draft, Overrides, Turn

logger = logging.getLogger(__name__)

NO_SWARM = "the agent has no swarm"
PLACE = "swarm"  # of what the stages know of a turn, in its reports
CLARIFIER = "clarifier"  # in the payload of a question that was asked in place of an answer
KINDS = ("anchor", "goal", "facts", "decisions")


@dataclass(slots=True, kw_only=True)
class Place:
    """What the stages know of a turn.

    Attributes:
        message: The person's, that is answered. `intent`: what it is about.
        voice: The swarm that calibrates and polishes. `role`: the one of this intent, where that is another.
        stored: Whether what is done is written down; not in a preview or a trial.
        row: What was done in this turn; None while nothing was.
        polished: What the last polish did. `seconds`: what polishing took since the last message, all its drafts together.
    """

    message: Message
    intent: str
    voice: Swarm
    role: Swarm | None
    stored: bool = True
    row: SwarmTurn | None = None
    polished: Polished | None = None
    seconds: float = 0.0

    def phases(self, phase: str) -> list[SwarmPhase]:
        """The enabled phases of a kind, in order; those of the role swarm's main phase come after the voice's."""
        swarms = [self.voice, self.role] if self.role is not None and phase == SwarmPhase.Phase.MAIN else [self.voice]
        return [one for swarm in swarms for one in swarm.phases.all() if one.phase == phase and one.enabled]


class Calibration:
    """Reads the message, asks back where it must, and tells the agent how to answer and what was said before (specification 003)."""

    name = "calibration"
    needs, lacking = "has_swarm", NO_SWARM

    def prepare(self, turn: Turn) -> Draft | None:
        place = placed(turn)
        if isinstance(place, str):
            turn.skip(place)
            return None
        pre, main = place.phases("pre"), place.phases("main")
        _log_loaded(turn, place, pre, main)
        row, state = _read(turn, place, pre)
        decision = Decision.model_validate(row.calibration["decision"])
        turn.count(pre=len(pre), main=len(main), heuristic=int(row.heuristic))
        if decision.kind == "clarify":
            turn.count(clarified=1)
            return Draft(decision.text, {CLARIFIER: True})
        assumption = decision.text if decision.kind == "assume" else ""
        cannot = decision.text if decision.kind == "cannot" else ""
        turn.count(assumed=int(bool(assumption)), unanswerable=int(bool(cannot)))
        tools = [name for swarm in (place.voice, place.role) if swarm is not None for name in swarm.tools]
        turn.tools += [
            name for name in dict.fromkeys(tools) if name in declared("turn_tools") and name not in turn.tools
        ]
        turn.temperature = main[0].temperature if main else None
        preferences = row.calibration["preferences"]
        memory.remember(turn, state, preferences, message=place.message)
        advice = render_prompt(
            "swarm/answer",
            guidance=guidance(_reading_of(row), preferences=preferences, assumption=assumption, nonce=turn.nonce),
            prompts=[phase.prompt.strip() for phase in main],
            cannot=fence("MISSING", neutral(cannot)[0], turn.nonce) if cannot else "",
            tools=turn.tools,
        )
        turn.add_section("How to answer", advice)
        return None


class Polish:
    """Has the swarm polish a draft, before the gate judges it (specification 003)."""

    name = "polish"
    needs, lacking = "has_swarm", NO_SWARM

    def review(self, turn: Turn, draft: Draft) -> Accept:
        place = placed(turn)
        if not isinstance(place, str) and turn.channel.pk != place.message.channel_id:
            place = "not said where the person wrote"
        if isinstance(place, str):
            turn.skip(place)
            return Accept(draft)
        executor = executor_of(place.voice)
        if draft.payload:
            turn.count(typed=1)
            return Accept(draft)
        row = place.row = place.row or _row_of(turn) or _new_row(turn, place)
        material = _material(turn, place, row)
        left, phases = settings.TURN_SWARM_POST_DEADLINE - place.seconds, place.phases("post")
        polished = place.polished = polish(turn, draft.text, phases, material, executor=executor, deadline=left)
        place.seconds += sum(polished.milliseconds.values()) / 1000
        changed = polished.text != draft.text
        row.draft, row.polished, row.replaced = draft.text, polished.text if changed else "", polished.replaced
        row.rejected = [*row.rejected, *polished.rejected]
        row.milliseconds = {**row.milliseconds, **polished.milliseconds}
        row.heuristic = row.heuristic or polished.heuristic
        if place.stored:
            row.save()
        for failure in polished.failed:
            logger.warning("a polisher gave no answer: %s", failure)
        turn.count(
            post=len(polished.milliseconds),
            polished=int(changed and not polished.replaced),
            replaced=int(bool(polished.replaced)),
            refused=len(polished.rejected),
            failed=len(polished.failed),
            heuristic=int(polished.heuristic),
        )
        logger.info("[personality-post] mode=%s, length=%d", executor, len(polished.text))
        return Accept(Draft(polished.text, draft.payload), "replaced" if polished.replaced else "")

    def committed(self, turn: Turn, message: Message) -> None:
        place = placed(turn)
        if isinstance(place, str):
            return
        place.seconds = 0.0
        if (row := place.row or _row_of(turn)) is not None:
            SwarmTurn.objects.filter(pk=row.pk).update(message=message)


# -- which swarm, and for what
def placed(turn: Turn) -> Place | str:
    """What the stages know of the turn, or why no swarm takes part. One statement, once a turn in each process."""
    known: Place | str | None = turn.reports.get(PLACE)
    if known is None:
        known = turn.reports[PLACE] = _place(turn)
    return known


def _place(turn: Turn) -> Place | str:
    if not settings.TURN_SWARM_ENABLED:
        return "swarms are off (TURN_SWARM_ENABLED)"
    if turn.channel.kind == Channel.Kind.DEBATE or turn.answer is not None:
        return "a typed answer is asked for"
    message = _asked(turn)
    if message is None:
        return "no person's message is answered"
    swarms = list(Swarm.objects.filter(agents=turn.agent, enabled=True).order_by("pk").prefetch_related("phases"))
    if not swarms:
        return NO_SWARM
    intent = intent_of(message.text)
    voice, role = chosen(swarms, intent)
    if voice is None and role is None:
        return f"no swarm of the agent answers the intent {intent}"
    first: Any = voice or role
    return Place(message=message, intent=intent, voice=first, role=role if voice else None, stored=not turn.preview)


def _asked(turn: Turn) -> Message | None:
    """The person's message that the turn answers: its trigger, or else the last one of the conversation but for the turn's own."""
    message = turn.trigger
    if message is None:
        own = turn.run.pk if turn.run is not None else None
        others = (one for one in reversed(turn.transcript) if own is None or one.run_id != own)
        message = next(others, None)
    return message if message is not None and message.agent_id is None else None


def _log_loaded(turn: Turn, place: Place, pre: list[SwarmPhase], main: list[SwarmPhase]) -> None:
    way = route_of("actor", Overrides.of(turn.overrides).model or turn.agent.model_id)
    logger.info("[handleUserMessage] Intent: %s", place.intent)
    logger.info("[swarm-loader] ✓ Loaded swarm: %s", (place.role or place.voice).name)
    temperature = f"{main[0].temperature:g}" if main else "none"
    logger.info(
        "[modelRouter] Selected: %s:%s (temp=%s)", way.provider, way.model.removeprefix("offline:"), temperature
    )
    logger.info("[buildSwarmPrompt] pre=%d main=%d", len(pre), len(main))


# -- reading the message
def _read(turn: Turn, place: Place, pre: list[SwarmPhase]) -> tuple[SwarmTurn, DialogState]:
    """Calibrate and note it, once for a turn: one that was killed before its prompt was stored finds here what it had decided."""
    agent, channel, message = turn.agent, turn.channel, place.message
    state = state_of(agent, channel)
    place.row = _row_of(turn)
    if place.row is not None:
        return place.row, state
    transcript = [one for one in turn.transcript if one.position < message.position] + [message]
    row = _new_row(turn, place)
    begun, reading, failed = time.monotonic(), Reading(), ""
    if turn.preview:
        reading = by_rules(trigger=message, transcript=transcript, state=state)
    elif pre:
        reading, reply = calibrate(
            agent=agent,
            trigger=message,
            transcript=transcript,
            state=state,
            phases=pre,
            deadline=settings.TURN_SWARM_PRE_DEADLINE,
            nonce=turn.nonce,
            run_id=turn.run.pk if turn.run is not None else None,
            model=Overrides.of(turn.overrides).model,
            temperature=min(phase.temperature for phase in pre),
        )
        row.milliseconds = {"pre": round((time.monotonic() - begun) * 1000)}
        if not reply.ok:
            failed = f"{reply.status}: {reply.error}"
            logger.warning("the calibrators gave no answer: %s", failed)
            turn.count(failed=1)
            if not reading.missing:  # a failed call is no reason to ask back
                reading = reading.model_copy(update={"risk": 0.0, "question": ""})
    row.heuristic = reading.heuristic
    with updating(agent, channel, stored=place.stored) as state:
        row.calibration = _apply(place, state, reading, transcript) | {"failed": failed}
        if place.stored:
            row.save(force_insert=True)
    place.row = row
    turn.count(dropped=row.calibration["dropped"])
    return row, state


def _apply(place: Place, state: DialogState, reading: Reading, transcript: Sequence[Message]) -> dict[str, Any]:
    """Apply a reading to the state, once for a message, and decide what to do about it.

    Returns:
        What a `SwarmTurn` stores of both.
    """
    message, dropped = place.message, 0
    decision, saved = decide(reading, state, message.text), _saved_preferences(message)
    if advance(state, message):
        if message.agent_id is None:
            forget_asked(state, message)
            add_answer(state, message, transcript[-2] if len(transcript) > 1 else None)
        for kind in KINDS:
            dropped += add_quoted(state, kind, getattr(reading, kind), transcript)
        if not entries(state, "anchor"):
            rules = by_rules(trigger=message, transcript=transcript, state=state)
            add_quoted(state, "anchor", rules.anchor, transcript)
        stated = stated_preferences(reading, [one for one in transcript if _author(one) == _author(message)])
        state.preferences = {**state.preferences, **stated}
        clarifier.settle(state, decision, position=message.position)
        if decision.kind == "assume":
            assume(state, decision.text, message)
        if place.stored:
            memory.queue_summary(state)
            if stated and message.user_id:  # the name of an outsider is no proof of who they are
                UserPreferences.objects.update_or_create(user_id=message.user_id, defaults=stated)
    return {
        "reading": reading.model_dump(mode="json"),
        "decision": decision.model_dump(mode="json"),
        "preferences": {**saved, **state.preferences},
        "dropped": dropped,
    }


def _author(message: Message) -> tuple[int | None, int | None, str]:
    return message.agent_id, message.user_id, message.outsider


def _saved_preferences(message: Message) -> dict[str, str]:
    """How the user who wrote a message likes to be answered, in all conversations."""
    row = UserPreferences.objects.filter(user=message.user_id).values(*PREFERENCES).first() if message.user_id else None
    return {name: value for name, value in (row or {}).items() if value}


def _row_of(turn: Turn) -> SwarmTurn | None:
    return SwarmTurn.objects.filter(run=turn.run).first() if turn.run is not None else None


def _new_row(turn: Turn, place: Place) -> SwarmTurn:
    swarm = place.role or place.voice
    return SwarmTurn(agent=turn.agent, channel=turn.channel, swarm=swarm, run=turn.run, intent=place.intent)


def _reading_of(row: SwarmTurn) -> Reading:
    return Reading.model_validate(row.calibration.get("reading", {}))


# -- polishing
def _material(turn: Turn, place: Place, row: SwarmTurn) -> Material:
    preferences = row.calibration.get("preferences", {})
    return Material(
        message=place.message.text,
        preferences="\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in sorted(preferences.items())),
        outcomes=[outcome for outcome in turn.performed if outcome.name in turn.tools],
        uncertain=_reading_of(row).uncertainty > UNCERTAIN,
        names=[turn.agent.display_name, place.message.author_name],
        rules=guards.agent_rules(turn.agent),
    )
