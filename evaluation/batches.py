"""Judging in batches, at half the price: a run's questions are handed in together, and it goes on when they are answered.

A run is gone through as ever. What a batch answered before is given to whoever asks for it; the rest is put aside and handed in when the
run has been gone through. So a batch's answers are read, checked and stored by what reads, checks and stores live ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from django.utils import timezone

from agents.llm import LLMRequest, Reply, Status, batch_work, estimate_tokens, ledger, request_digest
from agents.llm.batch_answers import NO_ANSWER, Answers, forget_answers, is_waiting, reply_of
from agents.llm.batch_submit import NotHandedIn, Outgoing, hand_in, next_round, request_key
from agents.llm.dispatch import is_distant
from agents.llm.endpoints import Route, route_of
from agents.llm.messages import with_example
from agents.models import LLMBatch, owner_name
from evaluation.asking import Ask
from evaluation.budget import why_over_budget
from evaluation.estimate import ASSUMED, answer_lengths
from evaluation.execution import Session
from evaluation.models import EvaluationRun

__all__ = ["Postbox", "cancel_batches", "forget_answers", "is_waiting", "see_through", "waiting_words"]

MOST_ROUNDS = 3  # what comes up after three batches is asked at once, at full price
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds, where a person waits for batches


class Postbox:
    """What runs in batches ask, on its way out or answered already. Everything else is let through."""

    def __init__(self) -> None:
        self._desks: dict[str, _Desk] = {}

    def add(self, session: Session) -> None:
        """Put aside what this run asks, if it is one for batches; judges that are at hand need none."""
        way = route_of("judge", session.run.judge)
        if session.run.batch and is_distant(way):
            self._desks[session.run.work_id] = _Desk(session, way)

    def asked(self, ask: Ask) -> Ask | None:
        """What is to be asked now: the same, or None when it was answered or put aside."""
        desk = self._desks.get(ask.request.label.work_id)
        return ask if desk is None else desk.asked(ask)

    def send(self) -> None:
        """Hand in what was put aside."""
        for desk in self._desks.values():
            desk.send()


class _Desk:
    def __init__(self, session: Session, way: Route) -> None:
        self._session, self._way = session, way
        work_id = session.run.work_id
        self._answers, self._round = Answers(work_id), next_round(work_id)
        self._outgoing = Outgoing(work_id, way, self._round)

    def asked(self, ask: Ask) -> Ask | None:
        request = ask.request
        if request.tools or request.gate:
            return ask
        digest = request_digest(request)
        row = self._answers.take(request_key(request, digest))
        if row is None:
            return self._put_aside(ask, digest)
        if row.result in NO_ANSWER:
            return ask
        reply = reply_of(request, row, self._way)
        if reply.status is Status.MALFORMED and request.reask and request.schema is not None and request.example:
            return self.asked(_again(ask, reply))
        ask.take(reply)
        return None

    def _put_aside(self, ask: Ask, digest: str) -> Ask | None:
        session = self._session
        if self._round > MOST_ROUNDS:
            return ask
        if session.refused or session.budget.reason or session.lost:
            return None
        self._outgoing.add(ask.request, digest)
        if self._outgoing.is_full:
            self.send()
        return None

    def send(self) -> None:
        """Hand in what was put aside, unless the budget has no room for it beside what is spent and what other batches will cost."""
        session, run = self._session, self._session.run
        if not self._outgoing.questions or session.lost or session.refused:
            return
        planned = _estimated(self._outgoing)
        if reason := why_over_budget(run.agent, run.judge, planned=planned):
            session.budget.reason = reason
            return
        try:
            batch = hand_in(
                self._outgoing,
                owner=session.owner,
                allowed=session.keep_now,
                agent_id=run.agent_id,
                planned=planned,
            )
            session.waits = batch is not None or session.waits
        except NotHandedIn as problem:
            session.refused = str(problem)


def _again(ask: Ask, first: Reply) -> Ask:
    """The second try after a malformed answer, by the rules of live judging: with an example, and the last one."""

    def take(reply: Reply) -> None:
        ask.take(replace(reply, earlier=(first, *reply.earlier)))

    return Ask(with_example(ask.request), take)


def _estimated(outgoing: Outgoing) -> Decimal:
    """US dollars at the batch price, as far as there is one."""
    model = outgoing.way.model
    lengths, whole = answer_lengths(model), Decimal(0)
    for request, *_ in outgoing.questions:
        answered = lengths.get(request.label.dimension, ASSUMED).tokens * _claims(request)
        whole += ledger.estimate_cost(model, estimate_tokens(request), answered, batch=True) or 0
    return whole


def _claims(request: LLMRequest) -> int:
    return max(1, len(request.facts.get("claims", ())))


def cancel_batches(runs: Iterable[int]) -> int:
    """Have the worker cancel what these runs (by primary key) have handed in; what was answered by then is paid for."""
    work_ids = [f"evaluation_run:{pk}" for pk in runs]
    open_ones = LLMBatch.objects.filter(work_id__in=work_ids, status__in=LLMBatch.OPEN)
    now = timezone.now()
    return open_ones.update(cancel_requested_at=now, next_look_at=now)


def waiting_words(runs: Sequence[EvaluationRun]) -> dict[int, str]:
    """What each run waits for, by primary key, its channels' batches included; one query for any number of runs. Others are left out."""
    by_work = {run.work_id: run.pk for run in runs}
    found: dict[int, list[str]] = {}
    for batch in LLMBatch.objects.filter(work_id__in=list(by_work), status__in=LLMBatch.OPEN).order_by("pk"):
        name = batch.batch_id or "(being handed in)"
        words = f"waiting for batch {name}: {batch.answered} of {batch.requests} answered"
        if batch.cancel_requested_at is not None:
            words = f"batch {name} is being cancelled"
        found.setdefault(by_work[batch.work_id], []).append(words + (f" ({batch.error})" if batch.error else ""))
    return {pk: "; ".join(words) for pk, words in found.items()}


def see_through(
    runs: Sequence[EvaluationRun],
    *,
    go_on: Callable[[Sequence[EvaluationRun]], object],
    notice: Callable[[str], None] = lambda words: None,
) -> None:
    """Stay until the batches of these runs are answered and the runs have ended. Workers may do parts of it meanwhile.

    Args:
        runs: With those of their channels.
        go_on: Called with the runs whose batches are answered.
        notice: Told what is waited for, whenever that changes.
    """
    ids, told, owner = [run.pk for run in runs], "", owner_name()
    while True:
        unfinished = list(EvaluationRun.objects.filter(pk__in=ids, batch=True, status__in=LLMBatch.OPEN))
        if not unfinished:
            return
        if ready := list(EvaluationRun.objects.filter(EvaluationRun.leasable(), pk__in=[r.pk for r in unfinished])):
            go_on(ready)
            continue
        words = "\n".join(waiting_words(unfinished).values())
        if words != told:
            told = words
            notice(words)
        if not batch_work.work_one(owner=owner):
            time.sleep(_pause(unfinished))


def _pause(runs: Sequence[EvaluationRun]) -> float:
    work_ids = [run.work_id for run in runs]
    open_ones = LLMBatch.objects.filter(work_id__in=work_ids, status=LLMBatch.Status.PENDING)
    due = open_ones.order_by("next_look_at").values_list("next_look_at", flat=True).first()
    left = (due - timezone.now()).total_seconds() if due is not None else 1.0
    return min(max(left, SHORTEST_PAUSE), LONGEST_PAUSE)
