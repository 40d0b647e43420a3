"""Ask the judge in batches, at half the price: a run submits its questions together and resumes when they are answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING

from django.conf import settings
from django.utils import timezone

from agents.kit.llm import LLMRequest, Reply, complete_many, estimate_tokens, ledger
from agents.kit.llm.providers.base import Route
from agents.kit.models import LLMBatch
from agents.kit.work.batches import (
    MOST_ROUNDS,
    Answers,
    BatchRefused,
    InBatch,
    Outgoing,
    next_round,
    submit_batch,
)
from evaluation.budget import why_over_budget
from evaluation.models import EvaluationRun
from evaluation.runs.planning import answer_length

if TYPE_CHECKING:
    from evaluation.judge.asking import Replies
    from evaluation.runs.judging import EvaluationContext

SHORTEST_PAUSE = 0.05  # seconds, where a person waits for batches
LONGEST_PAUSE = 5.0


class BatchAsking:
    """Asks what a run asks by way of batches: `ask` stands in for `complete_many`. Not safe to use from several threads.

    What an earlier batch answered is yielded, and stored by the code for live answers; everything else is put aside for `submit`.
    """

    def __init__(self, context: EvaluationContext, route: Route) -> None:
        work_id = context.run.work_id
        self._context = context
        self._answers = Answers(work_id, route)
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

    def _answer(self, request: LLMRequest) -> Reply | LLMRequest | None:
        """Return the reply of an earlier batch, the request itself where it is to be asked at once, None where it was put aside."""
        step = self._answers.next_step(request, may_wait=self._round <= MOST_ROUNDS)
        if isinstance(step, InBatch):
            self._keep_for_next_batch(step)
            return None
        return step

    def _keep_for_next_batch(self, step: InBatch) -> None:
        """Keep a request for the next batch, unless no batch would be accepted."""
        if self._context.refused or self._context.budget.reason:
            return
        self._outgoing.add(step.request, step.digest)
        if self._outgoing.is_full:
            self.submit()

    def submit(self) -> None:
        """Submit what was put aside, unless the budget has no room for it beside what is spent and what other batches will cost.

        The context learns the outcome: `waits` for a batch, `refused` with the reason, or the budget's reason.
        """
        context = self._context
        run = context.run
        if not self._outgoing.questions or context.refused:
            return
        planned = planned_cost(self._outgoing.route.model, [request for request, *_ in self._outgoing.questions])
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


def planned_cost(judge: str, requests: Iterable[LLMRequest]) -> Decimal:
    """Return what requests to a judge will cost in a batch: US dollars; those without a price count as 0."""
    per_claim = answer_length(judge).tokens
    total = Decimal(0)
    for request in requests:
        claims = max(1, len(request.facts.get("claims", ())))
        cost = ledger.estimate_cost(judge, estimate_tokens(request), per_claim * claims, batch=True)
        total += cost or 0
    return total


def seconds_until_check(runs: Sequence[EvaluationRun]) -> float:
    """Return the seconds until the next look at a batch of these runs is due, 0.05 to 5; 1 where no batch waits for a look."""
    work_ids = [run.work_id for run in runs]
    open_batches = LLMBatch.objects.filter(work_id__in=work_ids, status=LLMBatch.Status.PENDING)
    due = open_batches.order_by("next_look_at").values_list("next_look_at", flat=True).first()
    seconds = 1.0
    if due is not None:
        seconds = (due - timezone.now()).total_seconds()
    return min(max(seconds, SHORTEST_PAUSE), LONGEST_PAUSE)
