"""The gate in the pipeline: judges a draft in `review` and logs what was committed (S-7.0)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.template.loader import render_to_string

from agents.models import Channel, Message
from agents.text.fences import neutral
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from agents.turn.send_message import SendRefused, commit
from correction.config.resolve import ResolvedConfig, config_of
from correction.gate import observe, sessions
from correction.gate.check import action_of_draft, check_for_agent
from correction.gate.scores import DimensionCheck, GateResult
from correction.gate.sessions import (
    CLOSING,
    Attempt,
    Closing,
    Entry,
    KeyTaken,
    Logged,
    Session,
    best_attempt,
    check_session,
    load_logged,
    open_sessions_of_run,
    usable,
)
from correction.models import GateMode, Outcome


def finish(turn: Turn) -> None:
    """End what the turn left open: commit each best attempt, or note that the agent chose to say nothing."""
    turn.reports.pop(CLOSING, None)
    waiting = {pk: session for pk, session in turn.sessions.items() if session}
    # An earlier claim of the run may have died between draft and commit.
    if turn.run is not None and turn.run.attempt > 1:
        waiting = {pk: str(session) for session, pk in open_sessions_of_run(turn.run.pk)} | waiting
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
    except ValueError:  # somebody ended it, or it was no session of ours
        return
    turn.sessions.pop(channel.pk, None)
    if turn.abandoned:
        sessions.end(session=session.id, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)
        return
    best = best_attempt(session.attempts())
    turn.reports[CLOSING] = Closing(session.id, best=best.number, has_earlier=True)
    try:
        with transaction.atomic():
            sessions.end(session=session.id, outcome=Outcome.FORCED_THROUGH)
            commit(
                turn=turn,
                draft=Draft(best.text, best.payload),
                channel=channel,
                idempotency_key=f"gate_session:{session.id}",
            )
        turn.count(forced_through=1)
    except SendRefused:
        sessions.end(session=session.id, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)
    finally:
        turn.reports.pop(CLOSING, None)


LABELS = {"adherence": "Persona adherence", "consistency": "Self-consistency", "fluency": "Fluency"}
MAX_DRAFT, MAX_FINDING = 1_000, 1_500  # characters quoted


def feedback(*, draft: str, checks: Sequence[DimensionCheck], attempt: int, left: int, external: bool = False) -> str:
    """The feedback for an attempt that failed.

    The draft and the judge's words are data: quoted line by line, their marker-like text neutralised, so that neither can pass for
    an instruction of ours.

    Args:
        draft: The text as it was judged.
        checks: Every dimension that was checked; those that failed are explained.
        attempt: Which attempt this was, from 1.
        left: Retries that are left, 1 or more; 0 only where another program decides what then happens.
        external: Whether it is another program's draft: no tools of ours, and whether it is said is not our decision.
    """
    failed = [
        {
            "label": LABELS.get(check.dimension, check.dimension.replace("_", " ").capitalize()),
            "score": f"{check.score:g}",
            "threshold": f"{check.threshold:g}",
            "reasoning": _quoted(check.reasoning, MAX_FINDING),
            "recommendations": check.recommendations,
        }
        for check in checks
        if not check.passed
    ]
    values = {
        "failed": failed,
        "checked": len(checks),
        "draft": _quoted(draft, MAX_DRAFT),
        "attempt": attempt,
        "left": left,
        "external": external,
    }
    return render_to_string("prompts/gate/feedback.md", values).strip()


def _quoted(text: str, limit: int) -> str:
    """Text behind bars, so that none of its lines can stand as one of ours."""
    return "\n".join(f"> {line}" for line in neutral(text.strip(), limit)[0].split("\n")) if text.strip() else ""


REPORT = "gate"


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
    logged = load_logged(session=turn.session, draft_key=turn.draft_key)
    earlier = _with_key(turn, logged)
    if earlier is not None and _is_of(turn, earlier) and earlier.log.feedback:
        return _again(turn, earlier)
    session = _session(turn, logged)
    result = _judge(turn, draft, config, session)
    turn.count(attempts=1, failed_dimensions=len(result.failures))
    entry = _entry(turn, draft, session, result, key=turn.draft_key if earlier is None else "")
    if result.passed:
        return _accept(turn, draft, session, entry)
    if session.next_number > config["max_correction_attempts"]:
        return _force(turn, draft, session, entry)
    return _send_back(turn, draft, entry, left=config["max_correction_attempts"] - session.next_number + 1)


def _with_key(turn: Turn, logged: Sequence[Logged]) -> Logged | None:
    """The attempt that carries the key of this draft already."""
    if not turn.draft_key:
        return None
    return next((one for one in logged if one.log.draft_key == turn.draft_key), None)


def _is_of(turn: Turn, logged: Logged) -> bool:
    """Whether it is the draft under review; a caller may use one key for all drafts of a message."""
    log, written = logged.log, turn.original.text if turn.original is not None else None
    return (log.agent_id, log.channel_id, log.original_text) == (turn.agent.pk, turn.channel.pk, written)


def _again(turn: Turn, earlier: Logged) -> Revise:
    """What was said of the same draft before."""
    log = earlier.log
    turn.reports[REPORT] = {
        "session": str(log.session),
        "attempt": log.attempt,
        "outcome": str(Outcome.CORRECTED),
        "judge": log.judge,
        "dimensions": {
            r.dimension: {
                "score": r.score,
                "threshold": float(r.threshold),
                "passed": r.passed,
                "status": r.status,
                "reasoning": r.reasoning or r.reason,
            }
            for r in earlier.results
        },
    }
    turn.running[-1].why = "this draft was judged before"
    return Revise(log.feedback, session=str(log.session), outcome=Outcome.CORRECTED)


def _session(turn: Turn, logged: Sequence[Logged]) -> Session:
    """The session to continue; a new one where there is none, or where it cannot be continued (the trace says why)."""
    if not turn.session:
        return Session()
    try:
        return usable(logged, session=turn.session, agent=turn.agent, channel=turn.channel)
    except ValueError as error:
        turn.running[-1].why = f"a new session was begun: {error}"[:300]
        return Session()


def _judge(turn: Turn, draft: Draft, config: ResolvedConfig, session: Session) -> GateResult:
    left = float(config["gate_total_deadline_seconds"]) - session.spent_seconds
    return check_for_agent(
        agent=turn.agent,
        config=config,
        run_id=turn.run.pk if turn.run is not None else None,
        work_id=f"gate_session:{session.id}",
        deadline=min(float(config["gate_deadline_seconds"]), left),
        action=lambda claims: action_of_draft(turn, draft, claims),
    )


def _entry(turn: Turn, draft: Draft, session: Session, result: GateResult, *, key: str) -> Entry:
    original = turn.original.text if turn.original is not None else draft.text
    return Entry(
        session=session.id,
        attempt=session.next_number,
        outcome=Outcome.CORRECTED,
        result=result,
        draft_key=key or None,
        columns={
            "agent": turn.agent,
            "channel": turn.channel,
            "run": turn.run,
            "persona_version_id": turn.persona_version_id,
            "original_text": original,
            "judged_text": draft.text,
            "payload": dict(draft.payload),
        },
    )


def _report(turn: Turn, entry: Entry, outcome: str, **more: Any) -> None:
    turn.reports[REPORT] = {
        "session": str(entry.session),
        "attempt": entry.attempt,
        "outcome": str(outcome),
        "judge": entry.result.judge,
        "dimensions": entry.result.as_json(),
        **more,
    }


def _accept(turn: Turn, draft: Draft, session: Session, entry: Entry) -> Accept:
    outcome = entry.result.unjudged_outcome
    if outcome is None:
        outcome = Outcome.PASSED if entry.attempt == 1 else Outcome.PASSED_AFTER_RETRY
    turn.reports[CLOSING] = Closing(session.id, replace(entry, outcome=outcome), has_earlier=bool(session.logged))
    _report(turn, entry, outcome)
    return Accept(draft, outcome)


def _force(turn: Turn, draft: Draft, session: Session, entry: Entry) -> Accept:
    """The attempts are spent: the best of them is said (AC-7.0.8), which need not be the last."""
    present = Attempt(number=entry.attempt, text=draft.text, payload=draft.payload, scores=entry.result.scores)
    best = best_attempt([*session.attempts(), present])
    turn.reports[CLOSING] = Closing(
        session.id,
        replace(entry, outcome=Outcome.FORCED_THROUGH),
        best=None if best is present else best.number,
        has_earlier=bool(session.logged),
    )
    _report(turn, entry, Outcome.FORCED_THROUGH, best=best.number)
    turn.count(forced_through=1)
    return Accept(Draft(best.text, best.payload), Outcome.FORCED_THROUGH)


def _send_back(turn: Turn, draft: Draft, entry: Entry, *, left: int) -> Revise:
    told = feedback(draft=draft.text, checks=entry.result.dimensions, attempt=entry.attempt, left=left)
    try:
        log = sessions.write(replace(entry, feedback=told))
    except KeyTaken:
        earlier = _with_key(turn, load_logged(draft_key=turn.draft_key))
        if earlier is not None and _is_of(turn, earlier) and earlier.log.feedback:
            return _again(turn, earlier)
        log = sessions.write(replace(entry, feedback=told, draft_key=None))
    _report(turn, replace(entry, session=log.session, attempt=log.attempt), Outcome.CORRECTED)
    turn.count(sent_back=1)
    return Revise(told, session=str(log.session), outcome=Outcome.CORRECTED)


def committed(turn: Turn, message: Message) -> None:
    """Log the attempt that was let pass and link the whole session to the message; in observe mode queue it to be judged."""
    closing: Closing | None = turn.reports.pop(CLOSING, None)
    if closing is None:
        config = config_of(turn)
        if config.gate_mode == GateMode.OBSERVE and not config.gate_is_off:
            observe.queue(message=message, rate=config["observe_sample_rate"])
        if turn.session:
            _said_over_our_head(turn, message)
        return
    session = closing.session
    if closing.entry is not None:
        session = sessions.write(closing.entry, committed=closing.best is None, message=message).session
    if closing.has_earlier and session == closing.session:
        sessions.close(session=session, message=message, best=closing.best)


def _said_over_our_head(turn: Turn, message: Message) -> None:
    """A message was said in an open session without a verdict: by the pipeline's cap on revisions, or with the gate off or broken.

    The session ends with it, so that nothing of it is said again. Where it is the text of the last attempt, that one is said.
    """
    try:
        session = check_session(session=turn.session, agent=turn.agent, channel=turn.channel)
    except ValueError:
        return
    last = session.logged[-1].log
    is_last = message.text in (last.judged_text, last.original_text)
    if is_last:
        sessions.end(session=session.id, outcome=Outcome.FORCED_THROUGH)
    best = last.attempt if is_last else None
    sessions.close(session=session.id, message=message, best=best)
