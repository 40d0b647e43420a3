"""The stages of a swarm: read a person's message before the agent answers it, and polish what the agent wrote.

`Calibration` decides once for a turn and stores it with the dialog state in one transaction, so that a turn that is resumed after
a crash asks nothing twice. Both stages fail open: without them the agent answers as it would without a swarm.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from agents.kit.capability import declared
from agents.kit.llm.endpoints import route_of
from agents.kit.text.fences import fence, render_prompt, safe_and_cut
from agents.models import Channel, Message
from agents.swarm import clarifier, guards, memory
from agents.swarm.calibration import (
    PREFERENCES,
    UNCERTAIN,
    CalibrationResult,
    MessageCalibration,
    by_rules,
    calibrate,
    guidance,
    stated_preferences,
)
from agents.swarm.clarifier import Decision, decide
from agents.swarm.intents import intent_of, swarms_for
from agents.swarm.models import DialogState, Swarm, SwarmPhase, SwarmTurn, UserPreferences
from agents.swarm.polish import Material, PolishResult, executor_of, polish
from agents.swarm.state import add_answer, add_quoted, advance, assume, entries, forget_asked, state_of, updating
from agents.swarm.summaries import messages_of, queue_summary
from agents.turn.pipeline import Accept, Draft, Overrides, Turn

logger = logging.getLogger(__name__)

NO_SWARM = "the agent has no swarm"
REPORT = "swarm"  # key of the context among the reports of a turn
CLARIFIER = "clarifier"  # in the payload of a question that was asked in place of an answer
QUOTED_KINDS = ("anchor", "goal", "facts", "decisions")  # that calibrators report; assumptions are made here


@dataclass(frozen=True, slots=True)
class NoSwarm:
    """Why no swarm takes part in a turn."""

    reason: str


@dataclass(slots=True, kw_only=True)
class SwarmContext:
    """What the stages of a swarm know of a turn.

    Attributes:
        message: The person's message that is answered.
        intent: What it is about.
        voice: The swarm that calibrates and polishes.
        role: The swarm of this intent, where that is another one.
        row: What was done in this turn; None while nothing was.
        polish_seconds: Spent on polishing since the last message, all its drafts together.
    """

    message: Message
    intent: str
    voice: Swarm
    role: Swarm | None
    row: SwarmTurn | None = None
    polish_seconds: float = 0.0

    @property
    def swarms(self) -> list[Swarm]:
        """Return the swarms that take part, the voice first."""
        return [self.voice] if self.role is None else [self.voice, self.role]

    def phases(self, kind: str) -> list[SwarmPhase]:
        """Return the enabled phases of a kind, in order; a role swarm adds only main phases, after those of the voice."""
        swarms = self.swarms if kind == SwarmPhase.Phase.MAIN else [self.voice]
        phases: list[SwarmPhase] = []
        for swarm in swarms:
            phases += [phase for phase in swarm.phases.all() if phase.phase == kind and phase.enabled]
        return phases


class Calibration:
    """Reads the message, asks back where it must, and tells the agent how to answer and what was said before (specification 003)."""

    name = "calibration"
    needs = "has_swarm"
    lacking = NO_SWARM

    def prepare(self, turn: Turn) -> Draft | None:
        """Return a question that is sent in place of an answer; None where the agent answers, then with guidance and memory in its prompt.

        Without a swarm for this message the stage counts as skipped, and nothing is added.
        """
        context = swarm_context(turn)
        if isinstance(context, NoSwarm):
            turn.skip(context.reason)
            return None
        _log_loaded(turn, context)
        read = _read_message(turn, context)
        decision = Decision.model_validate(read.row.calibration["decision"])
        turn.count(
            pre=len(context.phases("pre")),
            main=len(context.phases("main")),
            heuristic=int(read.row.heuristic),
        )
        if decision.kind == "clarify":
            turn.count(clarified=1)
            return Draft(decision.text, {CLARIFIER: True})
        _offer_tools(turn, context)
        memory.remember(turn, read.state, read.row.calibration["preferences"], message=context.message)
        _add_guidance(turn, context, read.row, decision)
        return None


class Polish:
    """Has the swarm polish a draft, before the gate judges it (specification 003)."""

    name = "polish"
    needs = "has_swarm"
    lacking = NO_SWARM

    def review(self, turn: Turn, draft: Draft) -> Accept:
        """Return the polished draft; the draft itself where polishing is off, failed or was refused, and where it is not tried.

        It is not tried without a swarm, in another channel than the person's, and for a draft with a payload, whose text belongs to its
        data. What was done is stored in the turn's row, but for a preview.
        """
        context = swarm_context(turn)
        if isinstance(context, NoSwarm):
            turn.skip(context.reason)
            return Accept(draft)
        if turn.channel.pk != context.message.channel_id:
            turn.skip("not said where the person wrote")
            return Accept(draft)
        if draft.payload:
            turn.count(typed=1)
            return Accept(draft)
        if context.row is None:
            context.row = _row_of(turn) or _new_row(turn, context)
        executor = executor_of(context.voice)
        result = polish(
            turn,
            draft.text,
            context.phases("post"),
            _material(turn, context, context.row),
            executor=executor,
            deadline=settings.TURN_SWARM_POST_DEADLINE - context.polish_seconds,  # all drafts of a message share it
        )
        context.polish_seconds += sum(result.milliseconds.values()) / 1000
        _note_polish(context.row, draft, result)
        if not turn.preview:
            context.row.save()
        _count_polish(turn, draft, result)
        logger.info("[personality-post] mode=%s, length=%d", executor, len(result.text))
        outcome = "replaced" if result.replaced else ""
        return Accept(Draft(result.text, draft.payload), outcome)

    def committed(self, turn: Turn, message: Message) -> None:
        """Link the message to what the swarm did; the next message has the full time for polishing again."""
        context = swarm_context(turn)
        if isinstance(context, NoSwarm):
            return
        context.polish_seconds = 0.0
        row = context.row or _row_of(turn)
        if row is not None:
            SwarmTurn.objects.filter(pk=row.pk).update(message=message)


# -- which swarm, and for what
def swarm_context(turn: Turn) -> SwarmContext | NoSwarm:
    """Return what the stages know of the turn, or why no swarm takes part; found out once a turn and kept in its reports."""
    context: SwarmContext | NoSwarm | None = turn.reports.get(REPORT)
    if context is None:
        context = _make_context(turn)
        turn.reports[REPORT] = context
    return context


def _make_context(turn: Turn) -> SwarmContext | NoSwarm:
    """Find the message that is answered, its intent and the swarms for it; or return why no swarm takes part."""
    if not settings.TURN_SWARM_ENABLED:
        return NoSwarm("swarms are off (TURN_SWARM_ENABLED)")
    asks_for_typed_answer = turn.channel.kind == Channel.Kind.DEBATE or turn.wanted_answer is not None
    if asks_for_typed_answer:
        return NoSwarm("a typed answer is asked for")
    message = _message_to_answer(turn)
    if message is None:
        return NoSwarm("no person's message is answered")
    swarms = list(Swarm.objects.filter(agents=turn.agent, enabled=True).order_by("pk").prefetch_related("phases"))
    if not swarms:
        return NoSwarm(NO_SWARM)
    intent = intent_of(message.text)
    chosen = swarms_for(swarms, intent)
    if chosen.voice is not None:
        return SwarmContext(message=message, intent=intent, voice=chosen.voice, role=chosen.role)
    if chosen.role is not None:  # no swarm has the intent `general`, so this one calibrates and polishes, too
        return SwarmContext(message=message, intent=intent, voice=chosen.role, role=None)
    return NoSwarm(f"no swarm of the agent answers the intent {intent}")


def _message_to_answer(turn: Turn) -> Message | None:
    """Return the person's message that the turn answers: its trigger, or else the last message but for the turn's own.

    None where there is no such message, or an agent wrote it.
    """
    message = turn.trigger
    if message is None:
        message = _last_message_of_others(turn)
    if message is None or message.agent_id is not None:
        return None
    return message


def _last_message_of_others(turn: Turn) -> Message | None:
    for message in reversed(turn.transcript):
        if turn.run is None or message.run_id != turn.run.pk:
            return message
    return None


def _log_loaded(turn: Turn, context: SwarmContext) -> None:
    """Log the lines that specification 003 expects for each message: intent, swarm, model and temperature, numbers of phases.

    The swarm is the role swarm where there is one; the temperature is that of the first main phase.
    """
    main_phases = context.phases("main")
    temperature = f"{main_phases[0].temperature:g}" if main_phases else "none"
    route = route_of("actor", Overrides.of(turn.overrides).model or turn.agent.model_id)
    logger.info("[handleUserMessage] Intent: %s", context.intent)
    logger.info("[swarm-loader] ✓ Loaded swarm: %s", context.swarms[-1].name)
    logger.info("[modelRouter] Selected: %s:%s (temp=%s)", route.provider.name, route.model_at_server, temperature)
    logger.info("[buildSwarmPrompt] pre=%d main=%d", len(context.phases("pre")), len(main_phases))


# -- reading the message
@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A message as the swarm read it.

    Attributes:
        row: The calibration, and what was decided about asking back.
        state: What the agent keeps of the conversation, this message taken into account.
    """

    row: SwarmTurn
    state: DialogState


def _read_message(turn: Turn, context: SwarmContext) -> ReadMessage:
    """Calibrate a message and store the result, once a turn: a turn that was killed afterwards finds here what it had decided.

    The model is asked outside of a transaction; then the dialog state and the row are stored in one. A preview stores neither.
    """
    state = state_of(turn.agent, turn.channel)
    context.row = _row_of(turn)
    if context.row is not None:
        return ReadMessage(context.row, state)
    transcript = [message for message in turn.transcript if message.position < context.message.position]
    transcript.append(context.message)
    _drop_question_to_another(state, transcript)
    result = _calibrate(turn, context, state, transcript)
    row = _new_row(turn, context)
    row.heuristic = result.calibration.heuristic
    if result.milliseconds is not None:
        row.milliseconds = {"pre": result.milliseconds}
    with updating(turn.agent, turn.channel, stored=not turn.preview) as state:
        row.calibration = _take_into_account(turn, context, state, result.calibration, transcript)
        row.calibration["failed"] = result.failure
        row.steps = _steps_before_answer(context, row)
        if not turn.preview:
            row.save(force_insert=True)
    context.row = row
    turn.count(dropped=row.calibration["dropped"])
    return ReadMessage(row, state)


def _steps_before_answer(context: SwarmContext, row: SwarmTurn) -> list[dict[str, Any]]:
    """Return what a row stores of the calibrators' call, and of the main phases, whose prompts the agent is shown unless it asks back."""
    failure = row.calibration["failed"]
    steps: list[dict[str, Any]] = []
    calibrators = context.phases("pre")
    if calibrators:
        steps.append(_step("pre", "pre", calibrators, outcome="failed" if failure else "read", why=failure))
    main_phases = context.phases("main")
    asks_back = row.calibration["decision"]["kind"] == "clarify"
    if main_phases and asks_back:
        steps.append(_step("main", "main", main_phases, outcome="skipped", why="the swarm asked back instead"))
    elif main_phases:
        steps.append(_step("main", "main", main_phases, outcome="shown"))
    polishers = context.phases("post")
    if polishers and asks_back:
        steps.append(_step("post", "post", polishers, outcome="skipped", why="a question back is not polished"))
    return steps


def _step(
    kind: str, call: str, phases: Sequence[SwarmPhase], *, outcome: str, text: str = "", why: str = ""
) -> dict[str, Any]:
    """Return one of a row's `steps`."""
    phase_entries = [{name: getattr(phase, name) for name in ("id", "name", "order", "version")} for phase in phases]
    return {"kind": kind, "call": call, "phases": phase_entries, "outcome": outcome, "text": text, "why": why}


def _calibrate(
    turn: Turn, context: SwarmContext, state: DialogState, transcript: Sequence[Message]
) -> CalibrationResult:
    """Ask the calibrators of the swarm, in one call. In a preview rules answer; without enabled calibrators nothing is seen."""
    phases = context.phases("pre")
    if turn.preview:
        return CalibrationResult(by_rules(trigger=context.message, transcript=transcript, state=state))
    if not phases:
        return CalibrationResult(MessageCalibration())
    result = calibrate(
        agent=turn.agent,
        trigger=context.message,
        transcript=transcript,
        state=state,
        phases=phases,
        deadline=settings.TURN_SWARM_PRE_DEADLINE,
        nonce=turn.nonce,
        run_id=turn.run.pk if turn.run is not None else None,
        model=Overrides.of(turn.overrides).model,
        temperature=min(phase.temperature for phase in phases),  # of one call for all of them: the most careful one's
    )
    if result.failure:
        logger.warning("the calibrators gave no answer: %s", result.failure)
        turn.count(failed=1)
    return result


def _take_into_account(
    turn: Turn,
    context: SwarmContext,
    state: DialogState,
    calibration: MessageCalibration,
    transcript: Sequence[Message],
) -> dict[str, Any]:
    """Decide what to do about a message, and enter into the state what it says, once for a message.

    A summary that is due is queued, and what a user prefers is stored for all their conversations; a preview does neither.

    Args:
        state: Of `updating`, which saves it.
        transcript: Up to this message, which is the last one.

    Returns:
        What a `SwarmTurn` stores of it. In its preferences those of this conversation come before the user's saved ones.
    """
    message = context.message
    stated: dict[str, str] = {}
    _drop_question_to_another(state, transcript)
    decision = decide(calibration, state, message.text)
    dropped = 0
    is_new = advance(state, message)
    if is_new:
        dropped = _enter_quoted(state, calibration, transcript)
        stated = stated_preferences(calibration, _messages_of_author(message, transcript))
        clarifier.settle(state, decision, position=message.position)
        if decision.kind == "assume":
            assume(state, decision.text, message)
        if not turn.preview:
            queue_summary(state)
            if stated and message.user_id:  # the name of an outsider is no proof of who they are
                UserPreferences.objects.update_or_create(user_id=message.user_id, defaults=stated)
    return {
        "reading": calibration.model_dump(mode="json"),
        "decision": decision.model_dump(mode="json"),
        "preferences": {**_saved_preferences(message), **_preferences_here(state, message, stated)},
        "dropped": dropped,
    }


def _drop_question_to_another(state: DialogState, transcript: Sequence[Message]) -> None:
    """Drop a waiting question that was put to another person than the author of the last message; the state is not saved here."""
    asked_after = [message for message in transcript if message.position == state.pending.get("position")]
    if asked_after and asked_after[0] not in _messages_of_author(transcript[-1], transcript):
        state.pending = {}


def _enter_quoted(state: DialogState, calibration: MessageCalibration, transcript: Sequence[Message]) -> int:
    """Enter what the last message of a transcript says into the state; return how many reported entries quote what nobody said.

    A person's message first removes what it asks to forget, and may answer the question before it, if no other person was asked.
    """
    message = transcript[-1]
    if message.agent_id is None:
        forget_asked(state, message)
        people_before = [earlier for earlier in transcript[:-1] if earlier.agent_id is None]
        asked_another = bool(people_before) and people_before[-1] not in _messages_of_author(message, transcript)
        if not asked_another:
            add_answer(state, message, transcript[-2] if len(transcript) > 1 else None)
    dropped = 0
    for kind in QUOTED_KINDS:
        dropped += add_quoted(state, kind, getattr(calibration, kind), transcript)
    if not entries(state, "anchor"):  # the calibrators named none, or none that was said
        rules = by_rules(trigger=message, transcript=transcript, state=state)
        add_quoted(state, "anchor", rules.anchor, transcript)
    return dropped


def _messages_of_author(message: Message, transcript: Sequence[Message]) -> list[Message]:
    """Return the messages of a transcript by the author of a message."""
    # An outsider has a name only, agents and users have keys.
    author = (message.agent_id, message.user_id, message.outsider)
    return [other for other in transcript if (other.agent_id, other.user_id, other.outsider) == author]


def _preferences_here(state: DialogState, message: Message, stated: dict[str, str]) -> dict[str, str]:
    """Return how the author of a message likes to be answered in this conversation; the state keeps it, unless other people talk there.

    Args:
        state: Not saved here, see `updating`.
        stated: In this message.
    """
    if not stated and not state.preferences:
        return {}
    messages_of_people = messages_of(state.channel).filter(agent=None)
    if messages_of_people.exclude(user=message.user_id, outsider=message.outsider).exists():
        return stated  # what the state keeps may be another person's
    kept: dict[str, str] = {**state.preferences, **stated}
    state.preferences = kept
    return kept


def _saved_preferences(message: Message) -> dict[str, str]:
    """Return how the user who wrote a message likes to be answered, in all conversations."""
    if not message.user_id:
        return {}
    row = UserPreferences.objects.filter(user=message.user_id).values(*PREFERENCES).first() or {}
    return {name: value for name, value in row.items() if value}


def _row_of(turn: Turn) -> SwarmTurn | None:
    return SwarmTurn.objects.filter(run=turn.run).first() if turn.run is not None else None


def _new_row(turn: Turn, context: SwarmContext) -> SwarmTurn:
    """Make what is stored of a turn; it names the role swarm where one takes part."""
    return SwarmTurn(
        agent=turn.agent,
        channel=turn.channel,
        swarm=context.swarms[-1],
        run=turn.run,
        intent=context.intent,
    )


def _calibration_of(row: SwarmTurn) -> MessageCalibration:
    return MessageCalibration.model_validate(row.calibration.get("reading", {}))


# -- what the agent's prompt says
def _offer_tools(turn: Turn, context: SwarmContext) -> None:
    """Offer the agent the tools of its swarms that are installed, and set the temperature of the first main phase.

    Without a main phase the temperature is None, which leaves it to the server.
    """
    for swarm in context.swarms:
        for name in swarm.tools:
            if name in declared("turn_tools") and name not in turn.tools:
                turn.tools.append(name)
    main_phases = context.phases("main")
    turn.temperature = main_phases[0].temperature if main_phases else None


def _add_guidance(turn: Turn, context: SwarmContext, row: SwarmTurn, decision: Decision) -> None:
    """Add the section "How to answer" to the prompt: advice, the main phases' prompts, what to assume or to leave unanswered."""
    assumption = decision.text if decision.kind == "assume" else ""
    cannot_answer = decision.text if decision.kind == "cannot" else ""
    turn.count(assumed=int(bool(assumption)), unanswerable=int(bool(cannot_answer)))
    advice = guidance(
        _calibration_of(row), preferences=row.calibration["preferences"], assumption=assumption, nonce=turn.nonce
    )
    body = render_prompt(
        "swarm/answer",
        guidance=advice,
        prompts=[phase.prompt.strip() for phase in context.phases("main")],
        cannot=fence("MISSING", safe_and_cut(cannot_answer), turn.nonce) if cannot_answer else "",
        tools=turn.tools,
    )
    turn.add_section("How to answer", body)


# -- polishing
def _material(turn: Turn, context: SwarmContext, row: SwarmTurn) -> Material:
    """Return what polishers are shown beside the draft, and what a rewriting is checked against.

    Preferences are a line each, such as ``learning style: visual``. Of the tools, only those that the swarm or others offered as further
    ones count, not `send_message` and the like.
    """
    preferences = row.calibration.get("preferences", {})
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in sorted(preferences.items())]
    return Material(
        message=context.message.text,
        preferences="\n".join(lines),
        outcomes=[outcome for outcome in turn.performed if outcome.name in turn.tools],
        uncertain=_calibration_of(row).uncertainty > UNCERTAIN,
        names=[turn.agent.display_name, context.message.author_name],
        rules=guards.agent_rules(turn.agent),
    )


def _note_polish(row: SwarmTurn, draft: Draft, result: PolishResult) -> None:
    """Note in the row, without saving it, what polishing did to the last draft.

    Texts that were refused for earlier drafts stay; of a phase that was asked again only the last time stays.
    """
    before_answer = [step for step in row.steps if step["kind"] != "post"]
    polishing = [
        _step("post", step.call.name, step.call.phases, outcome=step.outcome, text=step.text, why=step.why)
        for step in result.steps
    ]
    row.steps = before_answer + polishing
    row.draft = draft.text
    row.polished = result.text if result.text != draft.text else ""
    row.replaced = result.replaced
    row.rejected = [*row.rejected, *result.rejected]
    row.milliseconds = {**row.milliseconds, **result.milliseconds}
    row.heuristic = row.heuristic or result.heuristic


def _count_polish(turn: Turn, draft: Draft, result: PolishResult) -> None:
    """Log each call that failed, and add to the stage's counters: calls (`post`), and what became of the draft."""
    for failure in result.failed:
        logger.warning("a polisher gave no answer: %s", failure)
    was_polished = result.text != draft.text and not result.replaced
    turn.count(
        post=len(result.milliseconds),
        polished=int(was_polished),
        replaced=int(bool(result.replaced)),
        refused=len(result.rejected),
        failed=len(result.failed),
        heuristic=int(result.heuristic),
    )
