"""The gate in the pipeline: judges a draft in `review` and logs what was committed (S-7.0)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agents.models import Message
from agents.turn.values import Accept, Draft, Revise, Turn
from correction import gate_log, observe
from correction.config import ResolvedConfig, config_of
from correction.feedback import feedback
from correction.gate_context import action_of_draft
from correction.gate_for_agent import check_for_agent
from correction.gate_log import CLOSING, Closing, Entry, KeyTaken
from correction.gate_session import (
    Attempt,
    Logged,
    Session,
    best_attempt,
    check_session,
    load_logged,
    usable,
)
from correction.gate_values import GateResult
from correction.models import GateMode, Outcome

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
        log = gate_log.write(replace(entry, feedback=told))
    except KeyTaken:
        earlier = _with_key(turn, load_logged(draft_key=turn.draft_key))
        if earlier is not None and _is_of(turn, earlier) and earlier.log.feedback:
            return _again(turn, earlier)
        log = gate_log.write(replace(entry, feedback=told, draft_key=None))
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
        session = gate_log.write(closing.entry, committed=closing.best is None, message=message).session
    if closing.has_earlier and session == closing.session:
        gate_log.close(session=session, message=message, best=closing.best)


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
        gate_log.end(session=session.id, outcome=Outcome.FORCED_THROUGH)
    best = last.attempt if is_last else None
    gate_log.close(session=session.id, message=message, best=best)
