"""The end of a turn: what the gate still has open is committed with its best attempt, or noted as abandoned."""

from __future__ import annotations

from django.db import transaction

from agents.models import Channel
from agents.turn.send_message import SendRefused, commit
from agents.turn.values import Draft, Turn
from correction import gate_log
from correction.gate_log import CLOSING, Closing
from correction.gate_session import best_attempt, check_session, open_sessions_of_run
from correction.models import Outcome


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
        gate_log.end(session=session.id, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)
        return
    best = best_attempt(session.attempts())
    turn.reports[CLOSING] = Closing(session.id, best=best.number, has_earlier=True)
    try:
        with transaction.atomic():
            gate_log.end(session=session.id, outcome=Outcome.FORCED_THROUGH)
            commit(
                turn=turn,
                draft=Draft(best.text, best.payload),
                channel=channel,
                idempotency_key=f"gate_session:{session.id}",
            )
        turn.count(forced_through=1)
    except SendRefused:
        gate_log.end(session=session.id, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)
    finally:
        turn.reports.pop(CLOSING, None)
