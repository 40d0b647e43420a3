"""The gate in the pipeline (S-7.0): judges a draft in `review`, logs what was `committed`, and in `finish` ends what a turn left open."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from agents.models import Channel, Message
from agents.text.fences import neutral, render_prompt
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from agents.turn.send_message import SendRefused, commit
from correction.config.settings import config_of
from correction.gate import observe, sessions
from correction.gate.check import GateResult, action_of_draft, check_for_agent
from correction.gate.sessions import GateSession, KeyTaken, best_attempt, check_session, load_attempts
from correction.models import CorrectionLog, GateDimensionResult, GateMode, Outcome

REPORT, CLOSING = "gate", "gate:closing"
LABELS = {"adherence": "Persona adherence", "consistency": "Self-consistency", "fluency": "Fluency"}
MAX_DRAFT, MAX_FINDING = 1_000, 1_500  # characters quoted


@dataclass(frozen=True, slots=True)
class Closing:
    """What is to be written when a session's message is saved: its last attempt (`log`), and which logged one is said if not that.

    Travels from `review` to `committed` on the turn, under `CLOSING`.
    """

    session: uuid.UUID
    log: CorrectionLog | None = None
    best: int | None = None
    has_earlier: bool = False


def review(turn: Turn, draft: Draft) -> Accept | Revise:
    """Judge a draft (AC-7.0.5). What cannot be judged passes."""
    turn.reports.pop(REPORT, None)
    turn.reports.pop(CLOSING, None)
    config = config_of(turn)
    if turn.preview or (config.gate_is_off and not turn.session):
        turn.skip("only a preview" if turn.preview else "the gate is off for this agent")
        return Accept(draft)
    if config.gate_is_off or config.gate_mode == GateMode.OBSERVE:
        return Accept(draft)  # a session opened before the gate was switched off or over is ended by `committed`
    attempts = load_attempts(session=turn.session, draft_key=turn.draft_key)
    earlier = _with_key(turn, attempts)
    if earlier is not None and _is_same_draft(turn, earlier):
        return _repeat(turn, earlier)
    session = GateSession()
    if turn.session:
        try:
            session = check_session(session=turn.session, agent=turn.agent, channel=turn.channel, attempts=attempts)
        except ValueError as error:
            turn.running[-1].why = f"a new session was begun: {error}"[:300]
    each, total = float(config["gate_deadline_seconds"]), float(config["gate_total_deadline_seconds"])
    result = check_for_agent(
        agent=turn.agent,
        config=config,
        run_id=turn.run.pk if turn.run is not None else None,
        work_id=f"gate_session:{session.id}",
        deadline=min(each, total - session.spent_seconds),
        action=lambda propositions: action_of_draft(turn, draft, propositions),
    )
    turn.count(attempts=1, failed_dimensions=len(result.failures))
    number, allowed = session.next_number, config["max_correction_attempts"]
    log = result.log(
        session=session.id,
        attempt=number,
        draft_key=(turn.draft_key if earlier is None else "") or None,
        agent=turn.agent,
        channel=turn.channel,
        run=turn.run,
        persona_version_id=turn.persona_version_id,
        original_text=turn.original.text if turn.original is not None else draft.text,
        judged_text=draft.text,
        payload=dict(draft.payload),
    )
    if not result.passed and number <= allowed:
        return _send_back(turn, draft, log, result, left=allowed - number + 1)
    has_earlier = bool(session.attempts)
    if result.passed:
        turn.reports[CLOSING] = Closing(session.id, log, has_earlier=has_earlier)
        turn.reports[REPORT] = log.report()
        return Accept(draft, Outcome(log.outcome))
    # The attempts are spent: the best of them is said (AC-7.0.8), which need not be the last.
    best = best_attempt([*session.attempts, log])
    log.outcome = Outcome.FORCED_THROUGH
    other = None if best is log else best.attempt
    turn.reports[CLOSING] = Closing(session.id, log, best=other, has_earlier=has_earlier)
    turn.reports[REPORT] = log.report() | {"best": best.attempt}
    turn.count(forced_through=1)
    return Accept(Draft(best.judged_text, best.payload), Outcome.FORCED_THROUGH)


def _with_key(turn: Turn, attempts: Sequence[CorrectionLog]) -> CorrectionLog | None:
    """The attempt that carries the key of this draft already."""
    return next((log for log in attempts if turn.draft_key and log.draft_key == turn.draft_key), None)


def _is_same_draft(turn: Turn, log: CorrectionLog) -> bool:
    """Whether it is the draft under review and was sent back; a caller may use one key for all drafts of a message."""
    written = turn.original.text if turn.original is not None else None
    same = (log.agent_id, log.channel_id, log.original_text) == (turn.agent.pk, turn.channel.pk, written)
    return same and bool(log.feedback)


def _repeat(turn: Turn, log: CorrectionLog) -> Revise:
    """Answer as for the same draft before."""
    turn.reports[REPORT] = log.report() | {"outcome": str(Outcome.CORRECTED)}
    turn.running[-1].why = "this draft was judged before"
    return Revise(log.feedback, session=str(log.session), outcome=Outcome.CORRECTED)


def _send_back(turn: Turn, draft: Draft, log: CorrectionLog, result: GateResult, *, left: int) -> Revise:
    log.feedback = said = feedback(draft=draft.text, result=result, attempt=log.attempt, left=left)
    try:
        sessions.write(log)
    except KeyTaken:
        earlier = _with_key(turn, load_attempts(draft_key=turn.draft_key))
        if earlier is not None and _is_same_draft(turn, earlier):
            return _repeat(turn, earlier)
        log.draft_key = None
        sessions.write(log)
    turn.reports[REPORT] = log.report()
    turn.count(sent_back=1)
    return Revise(said, session=str(log.session), outcome=Outcome.CORRECTED)


def feedback(*, draft: str, result: GateResult, attempt: int, left: int, external: bool = False) -> str:
    """Write the feedback on an attempt that failed (AC-7.0.7): findings per failed dimension, and to change more each time.

    The draft and the judge's words are data: quoted line by line, their marker-like text neutralised, so that neither can pass for
    an instruction of ours.

    Args:
        draft: The text as it was judged.
        result: What failed is explained.
        attempt: Which attempt this was, from 1.
        left: Retries that are left, 1 or more; 0 only where another program decides what then happens.
        external: Whether it is another program's draft: no tools of ours, and whether it is said is not our decision.
    """

    def quoted(text: str, limit: int) -> str:
        """Text behind bars, so that none of its lines can stand as one of ours."""
        return "\n".join(f"> {line}" for line in neutral(text.strip(), limit)[0].split("\n")) if text.strip() else ""

    def explained(check: GateDimensionResult) -> dict[str, str]:
        return {
            "label": LABELS.get(check.dimension, check.dimension.replace("_", " ").capitalize()),
            "score": f"{check.score:g}",
            "threshold": f"{check.threshold:g}",
            "reasoning": quoted(check.reasoning, MAX_FINDING),
            "recommendations": check.recommendations,
        }

    values = {
        "failed": [explained(check) for check in result.failures],
        "checked": len(result.dimensions),
        "draft": quoted(draft, MAX_DRAFT),
        "attempt": attempt,
        "left": left,
        "external": external,
    }
    return render_prompt("gate/feedback", **values)


def committed(turn: Turn, message: Message) -> None:
    """Log the attempt that passed and link its session to the message; in observe mode queue it to be judged."""
    closing: Closing | None = turn.reports.pop(CLOSING, None)
    if closing is None:
        config = config_of(turn)
        if config.gate_mode == GateMode.OBSERVE and not config.gate_is_off:
            observe.queue(message=message, rate=config["observe_sample_rate"])
        if turn.session:
            _close_unjudged(turn, message)
        return
    session = closing.session
    if closing.log is not None:
        session = sessions.write(closing.log, committed=closing.best is None, message=message).session
    if closing.has_earlier and session == closing.session:
        sessions.close(session=session, message=message, best=closing.best)


def _close_unjudged(turn: Turn, message: Message) -> None:
    """A message was committed in an open session without a verdict: by the cap on revisions, or with the gate off or broken.

    The session ends with it, so that nothing of it is said again. Where it is the text of the last attempt, that one is said.
    """
    try:
        session = check_session(session=turn.session, agent=turn.agent, channel=turn.channel)
    except ValueError:
        return
    last = session.attempts[-1]
    is_last = message.text in (last.judged_text, last.original_text)
    if is_last:
        sessions.end(session=session.id, outcome=Outcome.FORCED_THROUGH)
    sessions.close(session=session.id, message=message, best=last.attempt if is_last else None)


def finish(turn: Turn) -> None:
    """End what the turn left open: commit each best attempt, or note that the agent chose to say nothing."""
    turn.reports.pop(CLOSING, None)
    waiting = {pk: session for pk, session in turn.sessions.items() if session}
    if turn.run is not None and turn.run.attempt > 1:  # an earlier worker may have died between draft and commit
        waiting = sessions.open_sessions_of_run(turn.run.pk) | waiting
    if not waiting:
        turn.skip("nothing was left open")
        return
    for pk, key in waiting.items():
        channel = turn.channel if turn.channel.pk == pk else Channel.objects.filter(pk=pk).first()
        if channel is not None:
            _finish_one(turn, channel, key)


def _finish_one(turn: Turn, channel: Channel, key: str) -> None:
    try:
        session = check_session(session=key, agent=turn.agent, channel=channel)
    except ValueError:  # ended by another process, or no session of ours
        return
    turn.sessions.pop(channel.pk, None)
    abandoned = turn.abandoned
    if not abandoned:
        best = best_attempt(session.attempts)
        turn.reports[CLOSING] = Closing(session.id, best=best.attempt, has_earlier=True)
        key, draft = f"gate_session:{session.id}", Draft(best.judged_text, best.payload)
        try:
            with transaction.atomic():
                sessions.end(session=session.id, outcome=Outcome.FORCED_THROUGH)
                commit(turn=turn, draft=draft, channel=channel, idempotency_key=key)
            turn.count(forced_through=1)
        except SendRefused:
            abandoned = True
        finally:
            turn.reports.pop(CLOSING, None)
    if abandoned:
        sessions.end(session=session.id, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)
