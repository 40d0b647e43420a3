"""Ask the judge in batches, at half the price: a run submits its questions together and resumes when they are answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING

from django.conf import settings
from django.utils import timezone

from agents.kit.llm import LLMRequest, Reply, Status, complete_many, estimate_tokens, ledger, request_digest
from agents.kit.llm.providers.base import Route
from agents.kit.llm.requests import with_example
from agents.kit.models import LLMBatch
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

if TYPE_CHECKING:
    from evaluation.judge.questions import Replies
    from evaluation.runs.judging import EvaluationContext

MOST_ROUNDS = 3  # what comes up after three batches is asked at once, at full price
SHORTEST_PAUSE = 0.05  # seconds, where a person waits for batches
LONGEST_PAUSE = 5.0


class BatchAsking:
    """Asks what a run asks by way of batches: `ask` stands in for `complete_many`. Not safe to use from several threads.

    What an earlier batch answered is yielded, and stored by the code for live answers; everything else is put aside for `submit`.
    """

    def __init__(self, context: EvaluationContext, route: Route) -> None:
        work_id = context.run.work_id
        self._context = context
        self._route = route
        self._answers = Answers(work_id)
        self._round = next_round(work_id)
        self._outgoing = Outgoing(work_id, route, self._round)

    def ask(self, requests: Iterable[LLMRequest | None]) -> Replies:
        """Yield (index, reply) for what was answered; ask at once what no batch is to be asked any more (see `complete_many`).

        `requests` yields None when it has nothing now; it may have more after a reply. So it is read again after each reply. What is put
        aside for a batch yields nothing.
        """
        numbers = count()
        source = iter(requests)
        answered = True
        while answered:
            answered = False
            live: list[tuple[int, LLMRequest]] = []
            while (request := next(source, None)) is not None:
                number = next(numbers)
                answer = self._answer(request)
                if isinstance(answer, Reply):
                    answered = True
                    yield number, answer
                elif answer is not None:
                    live.append((number, answer))
            live_requests = [live_request for _, live_request in live]
            for index, reply in complete_many(live_requests, deadline=settings.LLM_EVALUATION_DEADLINE):
                answered = True
                yield live[index][0], reply

    def _answer(self, request: LLMRequest, first: Reply | None = None) -> Reply | LLMRequest | None:
        """Return the reply of an earlier batch, the request itself where it is to be asked at once, None where it was put aside.

        At once is asked what cannot wait, what a batch brought no answer to, and what comes up after three batches.

        Args:
            first: The malformed reply to the same request, when this is the second try with an example.
        """
        if request.tools or request.gate:  # these cannot wait for a batch
            return request
        digest = request_digest(request)
        row = self._answers.take(request_key(request, digest))
        if row is None and self._round <= MOST_ROUNDS:
            self._put_aside(request, digest)
            return None
        if row is None or row.result in NO_ANSWER:
            return request
        reply = reply_of(request, row, self._route)
        if first is not None:
            return replace(reply, earlier=(first, *reply.earlier))  # the first try has a ledger row of its own
        can_ask_again = request.reask and request.schema is not None and request.example
        if reply.status is Status.MALFORMED and can_ask_again:
            return self._answer(with_example(request), reply)  # the second try is the last one, as for live calls
        return reply

    def _put_aside(self, request: LLMRequest, digest: str) -> None:
        """Keep a request for the next batch, unless no batch would be accepted."""
        if self._context.refused or self._context.budget.reason:
            return
        self._outgoing.add(request, digest)
        if self._outgoing.is_full:
            self.submit()

    def submit(self) -> None:
        """Submit what was put aside, unless the budget has no room for it beside what is spent and what other batches will cost.

        The context is told what came of it: `waits` for a batch, `refused` with the reason, or the budget's reason.
        """
        context, run = self._context, self._context.run
        if not self._outgoing.questions or context.refused:
            return
        planned = _planned_cost(self._outgoing)
        over_budget = why_over_budget(run.agent, run.judge, planned=planned)
        if over_budget:
            context.budget.reason = over_budget
            return
        try:
            batch = submit_batch(
                self._outgoing,
                owner=context.leases.owner,
                allowed=lambda: context.leases.renew(run, now=True),
                agent_id=run.agent_id,
                planned=planned,
            )
        except BatchRefused as problem:
            context.refused = str(problem)
            return
        if batch is not None:
            context.waits = True


def _planned_cost(outgoing: Outgoing) -> Decimal:
    """Return what the requests put aside will cost: US dollars at the batch price; those without a price count as 0."""
    model = outgoing.way.model
    per_claim = answer_length(model).tokens
    total = Decimal(0)
    for request, *_ in outgoing.questions:
        claims = max(1, len(request.facts.get("claims", ())))
        cost = ledger.estimate_cost(model, estimate_tokens(request), per_claim * claims, batch=True)
        total += cost or 0
    return total


def seconds_until_look(runs: Sequence[EvaluationRun]) -> float:
    """Return the seconds until the next look at a batch of these runs is due, 0.05 to 5; 1 where no batch waits for a look."""
    work_ids = [run.work_id for run in runs]
    open_batches = LLMBatch.objects.filter(work_id__in=work_ids, status=LLMBatch.Status.PENDING)
    due = open_batches.order_by("next_look_at").values_list("next_look_at", flat=True).first()
    seconds = 1.0
    if due is not None:
        seconds = (due - timezone.now()).total_seconds()
    return min(max(seconds, SHORTEST_PAUSE), LONGEST_PAUSE)
