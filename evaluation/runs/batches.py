"""Judge in batches, at half the price: a run submits its questions together and resumes when they are answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING

from django.conf import settings
from django.utils import timezone

from agents.kit.llm import LLMRequest, Reply, Status, complete_many, estimate_tokens, ledger, request_digest
from agents.kit.llm.anthropic_api import with_example
from agents.kit.llm.endpoints import Route
from agents.kit.models import LLMBatch, owner_name
from agents.kit.work import batches
from agents.kit.work.batches import (
    NO_ANSWER,
    Answers,
    BatchRefused,
    Outgoing,
    next_round,
    reply_of,
    request_key,
    submit_batch,
)
from evaluation.budget import why_over_budget
from evaluation.models import EvaluationRun
from evaluation.runs.planning import answer_length
from evaluation.runs.summary import waiting_words

if TYPE_CHECKING:
    from evaluation.judge.questions import Replies
    from evaluation.runs.judging import EvaluationContext

MOST_ROUNDS = 3  # what comes up after three batches is asked at once, at full price
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds, where a person waits for batches


class BatchAsking:
    """Asks what a run asks by way of batches: `ask` stands in for `complete_many`. Not safe to use from several threads.

    What an earlier batch answered is yielded, and stored by the code for live answers; everything else is put aside for `submit`.
    """

    def __init__(self, judging: EvaluationContext, way: Route) -> None:
        work_id = judging.run.work_id
        self._judging, self._way = judging, way
        self._answers, self._round = Answers(work_id), next_round(work_id)
        self._outgoing = Outgoing(work_id, way, self._round)

    def ask(self, requests: Iterable[LLMRequest | None]) -> Replies:
        """Yield (index, reply) for what was answered; ask at once what no batch is to be asked any more (see `complete_many`)."""
        numbers, source, more = count(), iter(requests), True
        while more:
            live: list[tuple[int, LLMRequest]] = []
            progress = False
            while True:
                request = next(source, None)
                if request is None:  # nothing now, or nothing at all: it gives more only after a reply
                    break
                index = next(numbers)
                answer = self._answer(request)
                if isinstance(answer, Reply):
                    progress = True
                    yield index, answer
                elif answer is not None:
                    live.append((index, answer))
            for place, reply in complete_many(
                (request for _, request in live), deadline=settings.LLM_EVALUATION_DEADLINE
            ):
                progress = True
                yield live[place][0], reply
            more = progress

    def _answer(self, request: LLMRequest, first: Reply | None = None) -> Reply | LLMRequest | None:
        """The reply of an earlier batch; the request where it is to be asked at once, None where it was put aside."""
        if request.tools or request.gate:
            return request
        digest = request_digest(request)
        row = self._answers.take(request_key(request, digest))
        if row is None and self._round <= MOST_ROUNDS:
            if not self._judging.refused and not self._judging.budget.reason:
                self._outgoing.add(request, digest)
                if self._outgoing.is_full:
                    self.submit()
            return None
        if row is None:
            return request
        if row.result in NO_ANSWER:
            return request
        reply = reply_of(request, row, self._way)
        if first is not None:
            return replace(reply, earlier=(first, *reply.earlier))
        if reply.status is Status.MALFORMED and request.reask and request.schema is not None and request.example:
            return self._answer(with_example(request), reply)  # the second try is the last one, as for live calls
        return reply

    def submit(self) -> None:
        """Submit what was put aside, unless the budget has no room for it beside what is spent and what other batches will cost."""
        judging, run = self._judging, self._judging.run
        if not self._outgoing.questions or judging.refused:
            return
        planned = _estimated(self._outgoing)
        if reason := why_over_budget(run.agent, run.judge, planned=planned):
            judging.budget.reason = reason
            return
        try:
            batch = submit_batch(
                self._outgoing,
                owner=judging.leases.owner,
                allowed=lambda: judging.leases.renew(run, now=True),
                agent_id=run.agent_id,
                planned=planned,
            )
            judging.waits = batch is not None or judging.waits
        except BatchRefused as problem:
            judging.refused = str(problem)


def _estimated(outgoing: Outgoing) -> Decimal:
    """US dollars at the batch price, as far as there is one."""
    model, total = outgoing.way.model, Decimal(0)
    per_claim = answer_length(model).tokens
    for request, *_ in outgoing.questions:
        answered = per_claim * max(1, len(request.facts.get("claims", ())))
        total += ledger.estimate_cost(model, estimate_tokens(request), answered, batch=True) or 0
    return total


def wait_for_batches(
    runs: Sequence[EvaluationRun],
    *,
    resume: Callable[[Sequence[EvaluationRun]], object],
    notice: Callable[[str], None] = lambda words: None,
) -> None:
    """Wait until the batches of these runs are answered and the runs have ended; workers may do parts of it meanwhile.

    Args:
        runs: With those of their channels.
        resume: Called with the runs whose batches are answered.
        notice: Called with what is waited for, whenever that changes.
    """
    ids, said, owner = [run.pk for run in runs], "", owner_name()
    while True:
        unfinished = list(EvaluationRun.objects.filter(pk__in=ids, batch=True, status__in=LLMBatch.OPEN))
        if not unfinished:
            return
        if ready := list(EvaluationRun.objects.filter(EvaluationRun.leasable(), pk__in=[r.pk for r in unfinished])):
            resume(ready)
            continue
        words = "\n".join(waiting_words(unfinished).values())
        if words != said:
            said = words
            notice(words)
        if not batches.work_one(owner=owner):
            time.sleep(_pause(unfinished))


def _pause(runs: Sequence[EvaluationRun]) -> float:
    work_ids = [run.work_id for run in runs]
    open_ones = LLMBatch.objects.filter(work_id__in=work_ids, status=LLMBatch.Status.PENDING)
    due = open_ones.order_by("next_look_at").values_list("next_look_at", flat=True).first()
    left = (due - timezone.now()).total_seconds() if due is not None else 1.0
    return min(max(left, SHORTEST_PAUSE), LONGEST_PAUSE)
