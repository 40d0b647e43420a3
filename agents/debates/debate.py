"""Ask a debate for rounds, play them, and cancel it.

A round is one turn per seat and then a result, written once. Everything between can be done twice without harm: a seat's turn is queued
under one key per round, its outcome is stored when it has ended, and the result is written together with the debate's next status.
So a debate that was killed resumes where it stopped, and two workers that play the same debate do not ask a seat twice. A turn is queued
only while the debate is leased, in one transaction: when a debate is cancelled, its turns are all known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.conf import settings as django_settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from agents.debates.answers import Answer
from agents.debates.consensus import judge_consensus
from agents.debates.measures import (
    MOST_ROUNDS,
    Changes,
    Consensus,
    Exit,
    Groupthink,
    changes,
    check_exit,
    groupthink,
    statistics,
    vote,
)
from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.debates.modes import POLL, answer_of, mode_of
from agents.debates.starting import DebateRefused, Settings, settings_of
from agents.kit.models.lease import LeaseLost
from agents.kit.running import pause, retry_on_outage, side_by_side
from agents.kit.work.queues import carry_out, do_next, wake_workers
from agents.models import Message, Run, RunStep
from agents.turn.orchestrator import TurnRefused, finish_turn, start_turn
from agents.turn.orchestrator import cancel as cancel_turn
from agents.turn.receive import receive_message

LEASE = timedelta(minutes=10)  # renewed before each seat's turn, and while one waits for it
WAIT = 0.2  # seconds between two looks at a debate that another worker has

Status, Outcome = Debate.Status, DebateTurn.Status
NOT_ENDED = (Debate.WAITING, *Debate.OPEN, Status.ERRORED)  # what crashed can go on
Progress = Callable[[DebateTurn | DebateRound], None]
T = TypeVar("T")


# -- between the rounds
def ask_rounds(debate: Debate, rounds: int | None = 1) -> Debate:
    """Queue so many more rounds of a waiting debate (None = to its end); a worker plays them, or `play`.

    The poll comes with the first round and does not count. A debate that is being played, or queued, stays as it is. One that crashed
    resumes where it stopped.

    Raises:
        DebateRefused: It has ended, or the number is out of range.
    """
    if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
        raise DebateRefused("rounds", f"{rounds}; allowed: 1 to {MOST_ROUNDS}")
    rounds_asked = settings_of(debate).most_rounds
    if rounds is not None:
        played = DebateRound.objects.filter(debate=debate).exclude(number=POLL).count()
        rounds_asked = min(rounds_asked, played + rounds)
    waiting = Debate.objects.filter(pk=debate.pk, status__in=(Debate.WAITING, Status.ERRORED))
    is_queued = waiting.update(status=Status.PENDING, rounds_asked=rounds_asked)
    debate.refresh_from_db()
    if is_queued:
        transaction.on_commit(wake_workers)
    elif debate.status not in Debate.OPEN:  # else it is queued or being played already
        raise DebateRefused("debate", f"debate {debate.pk} has ended ({debate.status}); allowed: one that waits")
    return debate


def cancel(debate: Debate) -> Debate:
    """End a debate: at once, or before the next seat's turn where it is being played. It cannot go on.

    Its turns are cancelled, too: those that wait do not begin, one that has begun ends before its next step. What was said stays. A
    debate that is cancelled already stays as it is.

    Raises:
        DebateRefused: It has ended.
    """
    unfinished = Debate.objects.filter(pk=debate.pk, status__in=NOT_ENDED)
    ended = {"status": Status.CANCELLED, "lease_owner": "", "lease_expires_at": None, "finished_at": timezone.now()}
    with transaction.atomic():
        if unfinished.update(**ended):
            for run in Run.objects.filter(channel=debate.channel_id, status__in=Run.OPEN):
                cancel_turn(run)
            for turn in debate.turns.filter(status=Outcome.PENDING).select_related("seat"):
                outcome = _outcome_when_cancelled(debate, turn)
                DebateTurn.objects.filter(pk=turn.pk, status=Outcome.PENDING).update(**outcome)
    debate.refresh_from_db()
    if debate.status != Status.CANCELLED:
        raise DebateRefused("debate", f"debate {debate.pk} has ended ({debate.status}); allowed: one that has not")
    return debate


def _outcome_when_cancelled(debate: Debate, turn: DebateTurn) -> dict[str, Any]:
    """Return the columns of a turn whose debate was cancelled: its answer, where it gave one before, else the reason."""
    run = Run.objects.filter(idempotency_key=_idempotency_key(turn)).first()
    if run is None:
        return {"status": Outcome.FAILED, "error": "the debate was cancelled"}
    outcome = _outcome_columns(debate, run)
    if outcome["message"] is None and run.status in Run.OPEN:
        outcome |= {"status": Outcome.FAILED, "error": "the debate was cancelled"}
    return outcome


def add_message(debate: Debate, *, text: str, user: AbstractBaseUser | None = None, outsider: str = "") -> Message:
    """Say something to the seats between two rounds, as a person in the audience. See `receive_message`.

    Raises:
        DebateRefused: A round is being played, or the debate has ended.
        SendRefused: It cannot be said.
    """
    debate.refresh_from_db()
    if debate.status != Debate.WAITING:
        raise DebateRefused(
            "debate", f"debate {debate.pk} is {debate.status}; allowed: one that waits for its next round"
        )
    return receive_message(
        channel=debate.channel,
        user=user,
        outsider=outsider,
        text=text,
        tags=dict(debate.channel.tags),
    )


@dataclass(frozen=True, slots=True)
class AnsweredTurn:
    """A seat's turn in a round, with its answer."""

    turn: DebateTurn
    answer: Answer


def _answered_turns(debate: Debate) -> list[AnsweredTurn]:
    """Return the answers of all rounds, in the order of rounds and seats."""
    turns = DebateTurn.objects.filter(debate=debate, status=Outcome.ANSWERED, message__isnull=False)
    answered = []
    for turn in turns.select_related("seat", "message").order_by("round", "seat__number"):
        answer = answer_of(turn)
        if answer is not None:
            answered.append(AnsweredTurn(turn, answer))
    return answered


# -- playing
def play(debate: Debate, *, owner: str, progress: Progress | None = None) -> Debate:
    """Play the rounds that were asked for, here, or wait until the worker that has the debate has played them.

    Args:
        owner: The lease's name, see `owner_name`.
        progress: Called with each `DebateTurn` that has ended and each `DebateRound`; not for those that another worker played. It may be
            called in other threads.

    Returns:
        The debate as it is then.
    """
    while debate.status in Debate.OPEN:
        if debate.is_leased_by(owner) or debate.acquire(owner=owner, lease=LEASE):
            carry_out(debate, lambda debate: _play_leased(debate, owner, progress or _show_nothing), owner=owner)
        else:
            pause(WAIT)
        debate.refresh_from_db()
    return debate


def work_one(*, owner: str) -> bool:
    """Play the debate that has waited longest; return whether there was one."""
    return do_next(Debate, lambda debate: _play_leased(debate, owner, _show_nothing), owner=owner, lease=LEASE)


def _show_nothing(event: DebateTurn | DebateRound) -> None:
    """Ignore the progress: nobody watches."""


def _play_leased(debate: Debate, owner: str, progress: Progress) -> None:
    """Play a leased debate, round by round, until it ends or has played the rounds that were asked for; its status is then stored.

    The loop ends because `_end_round` stores that status and gives the lease up.

    Raises:
        LeaseLost: Another worker has the debate, or it was cancelled.
    """
    settings = settings_of(debate)
    rules = mode_of(debate.mode)
    seats = list(debate.seats.select_related("agent").order_by("number"))
    while debate.is_leased_by(owner):
        rounds = list(debate.rounds.order_by("number"))
        number = _next_round(rounds, settings)
        if number > debate.rounds_asked:  # all were played before
            debate.finish(owner=owner, status=Debate.WAITING)
            return
        groups = [seats] if number == POLL else rules.groups(seats)
        for group in groups:
            _play_group(debate, number, group, owner, progress)
        progress(_end_round(debate, number, settings, rounds, groups, owner))


def _next_round(rounds: Sequence[DebateRound], settings: Settings) -> int:
    """Return the number of the round after those that are stored."""
    if rounds:
        return rounds[-1].number + 1
    return POLL if settings.poll else 1


def _renew_lease(debate: Debate, owner: str) -> None:
    """Renew the lease.

    Raises:
        LeaseLost: Another worker has the debate, or it was cancelled.
    """
    if not debate.extend_lease(owner=owner, lease=LEASE):
        raise LeaseLost(f"debate {debate.pk} is not held by {owner} any more")


def _while_leased(debate: Debate, owner: str, write: Callable[[], T]) -> T:
    """Renew the lease and write something in one transaction, and return what `write` does; tried again after an outage of the database.

    Args:
        write: Does no harm when it is done twice.

    Raises:
        LeaseLost: The debate is not ours any more or was cancelled; nothing was written.
    """

    def renew_and_write() -> T:
        with transaction.atomic():
            _renew_lease(debate, owner)
            return write()

    return retry_on_outage(renew_and_write)


def _renew_while_waiting(debate: Debate, owner: str) -> None:
    """Renew the lease while another worker has a seat's turn.

    In a cancelled debate the lease is gone, but the turn's end is awaited all the same, for what it says is stored.

    Raises:
        LeaseLost: Another worker has the debate.
    """
    try:
        _renew_lease(debate, owner)
    except LeaseLost:
        if not Debate.objects.filter(pk=debate.pk, status=Status.CANCELLED).exists():
            raise


def _play_group(debate: Debate, number: int, group: Sequence[DebateSeat], owner: str, progress: Progress) -> None:
    """Have the seats of a group answer a round side by side, except those that have, and store the outcomes.

    One after the other where `WORKER_THREADS` is 1.

    Raises:
        LeaseLost: The debate is not ours any more or was cancelled.
    """
    turns = [DebateTurn(debate=debate, round=number, seat=seat) for seat in group]
    # Those that are there already, of a player that was killed, stay as they are.
    _while_leased(debate, owner, lambda: DebateTurn.objects.bulk_create(turns, ignore_conflicts=True))
    pending = debate.turns.filter(round=number, seat__in=group, status=Outcome.PENDING)
    jobs = []
    for turn in pending.select_related("seat__agent").order_by("seat__number"):
        jobs.append(partial(_have_seat_answer, debate, turn, owner, progress))
    threads = 1 if django_settings.WORKER_THREADS == 1 else len(group)
    side_by_side(jobs, threads)


def _have_seat_answer(debate: Debate, turn: DebateTurn, owner: str, progress: Progress) -> None:
    """Have a seat answer, and store the outcome; a turn that is refused is cancelled, and the seat has failed in this round.

    Raises:
        LeaseLost: Another worker has the debate, or it was cancelled before the turn was queued.
    """
    run = None
    try:
        run = _while_leased(debate, owner, lambda: _queue_turn_once(debate, turn))
        outcome = _outcome_columns(debate, finish_turn(run, waiting=partial(_renew_while_waiting, debate, owner)))
    except TurnRefused as error:
        if run is not None:
            cancel_turn(run)  # it is queued, but another turn of the agent was abandoned and stands in its way
        outcome = {"status": Outcome.FAILED, "error": str(error)}
    for name, value in outcome.items():
        setattr(turn, name, value)
    turn.save(update_fields=["run", "message", "status", "violation", "error"])
    progress(turn)


def _idempotency_key(turn: DebateTurn) -> str:
    """Return the key under which a seat's turn in a round is queued once."""
    return f"debate:{turn.debate_id}:{turn.round}:{turn.seat.number}"


def _queue_turn_once(debate: Debate, turn: DebateTurn) -> Run:
    """Queue the seat's turn in this round and return it; the same one where it was queued before.

    Raises:
        TurnRefused: The agent can take no turn, and took none in this round before.
    """
    seat = turn.seat
    overrides: dict[str, Any] = {
        "debate": {"debate": debate.pk, "round": turn.round, "seat": seat.number},
        "tags": {**debate.channel.tags, "round": str(turn.round), "seat": str(seat.number)},
    }
    if seat.model:
        overrides["model"] = seat.model
    key = _idempotency_key(turn)
    try:
        return start_turn(agent=seat.agent, channel=debate.channel, overrides=overrides, idempotency_key=key)
    except TurnRefused:  # the agent was made inactive, say; it may have spoken before that
        run: Run | None = Run.objects.filter(idempotency_key=key).first()
        if run is None:
            raise
        return run


def _outcome_columns(debate: Debate, run: Run) -> dict[str, Any]:
    """Return the outcome of a seat's turn that has ended as columns of `DebateTurn`: answered, silent (completed, no message) or failed."""
    message = run.messages.filter(channel=debate.channel_id).order_by("position").first()
    outcome = {"run": run, "message": message, "status": Outcome.ANSWERED, "violation": "", "error": ""}
    if message is not None:
        outcome["violation"] = str(message.payload.get("violation", ""))
    elif run.status == Run.Status.COMPLETED:
        outcome["status"] = Outcome.SILENT
        outcome["error"] = _reason_for_silence(run)
    else:
        outcome["status"] = Outcome.FAILED
        outcome["error"] = run.error or f"its turn ended {run.status}"
    return outcome


def _reason_for_silence(run: Run) -> str:
    """Return the reason that the agent gave for saying nothing, else what is known."""
    steps = RunStep.objects.filter(run=run, kind="tool_call").order_by("-number")
    for detail in steps.values_list("detail", flat=True):
        if detail.get("reason"):
            return str(detail["reason"])
    return run.error or "it ended its turn without an answer"


def _end_round(
    debate: Debate,
    number: int,
    settings: Settings,
    earlier: Sequence[DebateRound],
    groups: Sequence[Sequence[DebateSeat]],
    owner: str,
) -> DebateRound:
    """Measure a round, and store its figures together with the debate's next status; return the stored round.

    The debate fails where no seat answered, is completed where an exit criterion holds, waits where no more rounds were asked for, and
    else goes on. A poll has neither consensus nor groupthink and ends nothing.

    Args:
        earlier: The rounds before it.
        groups: Its seats in their order of speaking.

    Raises:
        LeaseLost: The debate is not ours any more.
    """
    answered = _answered_turns(debate)
    answers_by_round: dict[int, list[Answer]] = defaultdict(list)
    for each in answered:
        answers_by_round[each.turn.round].append(each.answer)
    answers = answers_by_round[number]
    consensus = Consensus(agreement=None)  # not known: a poll, or no judge is to be asked
    warning = groupthink([], None)  # a blind poll is no group, and ends nothing
    exit = Exit(ends=False)
    if number != POLL:
        if settings.judge:
            _renew_lease(debate, owner)  # the judge takes a while
            consensus = judge_consensus(debate, number, answers)
        # Only the agreement of a judge that read the positions; without one they are compared by their words.
        agreement_read = None if consensus.heuristic else consensus.agreement
        warning = groupthink(answers, agreement_read)
        exit = _exit_after(number, answers_by_round, earlier, consensus, warning, settings)
    changed = _changes_since_last_round(debate, number, groups, earlier, answered)
    figures = statistics(answers).model_dump(mode="json")
    figures["vote"] = vote(answers).model_dump(mode="json")
    figures["changes"] = changed.model_dump(mode="json") if changed else None
    row = DebateRound(
        debate=debate,
        number=number,
        consensus=consensus.model_dump(mode="json"),
        groupthink=warning.model_dump(mode="json"),
        statistics=figures,
        exit=exit.model_dump(mode="json"),
    )
    next_status: dict[str, Any] = {}  # none: it goes on with the next round
    if not answers:
        next_status = {"status": Status.FAILED, "error": _why_no_answer(debate, number)}
    elif exit.ends:
        next_status = {"status": Status.COMPLETED, "exit_reason": exit.reason, "exit_details": exit.details}
    elif number >= debate.rounds_asked:
        next_status = {"status": Debate.WAITING}
    _store_round(debate, row, next_status, owner)
    return row


def _store_round(debate: Debate, row: DebateRound, next_status: Mapping[str, Any], owner: str) -> None:
    """Store a round together with the debate's next status, or renew the lease where it goes on.

    Raises:
        LeaseLost: The debate is not ours any more; nothing was stored.
    """
    with transaction.atomic():
        if not _set_next_status(debate, next_status, owner):
            raise LeaseLost(f"debate {debate.pk} is not held by {owner} any more")
        row.save(force_insert=True)  # a round is written once


def _set_next_status(debate: Debate, next_status: Mapping[str, Any], owner: str) -> bool:
    """Store the debate's next status, or renew the lease where it goes on; return whether the debate is still ours."""
    if next_status:
        return debate.finish(owner=owner, **next_status)
    # Not `_renew_lease`, which obeys a request to stop: the judge that was paid for would be asked again.
    leased = Debate.objects.filter(pk=debate.pk, status=Status.RUNNING, lease_owner=owner)
    return leased.update(lease_expires_at=timezone.now() + LEASE) > 0


def _exit_after(
    number: int,
    answers_by_round: Mapping[int, Sequence[Answer]],
    earlier: Sequence[DebateRound],
    consensus: Consensus,
    warning: Groupthink,
    settings: Settings,
) -> Exit:
    """Decide whether the debate ends after a round that is no poll, and why.

    Args:
        earlier: The rounds before it, the poll among them.
    """
    played = [row for row in earlier if row.number != POLL]
    agreements = [row.consensus.get("agreement") for row in played]
    # An earlier round with details is one after which a criterion held already, and an extra round was played because of groupthink.
    extra_played = sum(bool(row.exit["details"]) for row in played)
    exit = check_exit(
        [answers_by_round.get(each, []) for each in range(1, number + 1)],
        [*agreements, consensus.agreement],
        settings,
        groupthink=warning,
        extra_rounds=settings.extra_rounds_on_groupthink,
        extra_played=extra_played,
    )
    if exit.reason == "consensus" and consensus.heuristic:
        return exit.model_copy(update={"details": f"{exit.details}, by stances and words (heuristic)"})
    return exit


def _changes_since_last_round(
    debate: Debate,
    number: int,
    groups: Sequence[Sequence[DebateSeat]],
    earlier: Sequence[DebateRound],
    answered: Sequence[AnsweredTurn],
) -> Changes | None:
    """Compare the stances of a round with those of the round before; None for the first.

    A stance that the seat's role requires does not count as a change after the poll, in which all were free.
    """
    if not earlier:
        return None
    before = [each.answer for each in answered if each.turn.round == number - 1]
    after = [each.answer for each in answered if each.turn.round == number]
    if earlier[-1].number == POLL:
        required = mode_of(debate.mode).required_stances
        after = [answer for answer in after if required.get(answer.role) != answer.stance]
    return changes(before, after, _texts_seen(debate, number, groups, answered))


def _texts_seen(
    debate: Debate, number: int, groups: Sequence[Sequence[DebateSeat]], answered: Sequence[AnsweredTurn]
) -> dict[int, list[str]]:
    """Return what each seat could read before it answered in a round, or had said itself, by the seat's number.

    That is: the question, the names of all seats, what people said, the answers of earlier rounds, and those of the groups before its own.

    Args:
        groups: The seats of the round in their order of speaking.
        answered: Of all rounds; later ones than this do not exist yet.
    """
    known_to_all = [debate.topic]
    for group in groups:
        for seat in group:
            known_to_all += [seat.agent.display_name, seat.agent.slug, seat.label]
    known_to_all += Message.objects.filter(channel=debate.channel_id, agent=None).values_list("text", flat=True)
    texts_of_round: dict[int, list[str]] = {}
    for each in answered:
        texts = [each.turn.message.text if each.turn.message else "", each.answer.position, each.answer.reasoning]
        if each.turn.round < number:
            known_to_all += texts
        else:  # of this round
            texts_of_round[each.answer.seat] = texts
    seen: dict[int, list[str]] = {}
    for group in groups:  # the seats of a group do not see each other's answers; those of later groups do
        for seat in group:
            seen[seat.number] = list(known_to_all)
        for seat in group:
            known_to_all += texts_of_round.get(seat.number, [])
    return seen


def _why_no_answer(debate: Debate, number: int) -> str:
    """Return why no seat answered in a round, seat by seat."""
    turns = DebateTurn.objects.filter(debate=debate, round=number).select_related("seat__agent")
    reasons = [f"{turn.seat.agent}: {turn.error[:200]}" for turn in turns.order_by("seat__number")]
    round_name = "the poll" if number == POLL else f"round {number}"
    return f"no seat answered in {round_name} ({'; '.join(reasons)})"
