"""What trying a proposition would need before anything is asked: messages, calls, tokens, cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings

from agents.llm import Label, estimate_tokens, ledger
from agents.llm.endpoints import provider_of
from agents.models import Agent
from evaluation.drafting.trying import PURPOSE, drawn, subject_for
from evaluation.judge.questions import Question, build_request
from evaluation.propositions.schema import Proposition
from evaluation.runs.estimate import OUTPUT_TOKENS_PER_CLAIM
from evaluation.runs.questions import Open, context_of, settle
from evaluation.scorers import adherence
from evaluation.scorers.windows import MessageWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEstimate:
    """Before a trial. Tokens are characters / 4 of the prompts and an assumption for the answers.

    Attributes:
        messages: How many would be drawn.
        calls: How many of them a judge would be asked about; the others are settled free of cost.
        cost_usd: None when the judge has no price.
        judge: The model, or ``rule``.
        billed: Whether the judge is one that costs anything.
    """

    messages: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    judge: str
    billed: bool


def estimate_trial(
    *, proposition: Proposition, agent: Agent, n: int, window: MessageWindow | None = None
) -> TrialEstimate:
    """What `try_proposition` would ask of the configured judge with the same arguments."""
    judge = "rule" if proposition.rule else str(settings.JUDGE_MODEL)
    subject = subject_for(agent, n=n, seed=0, window=window)
    messages = drawn(subject)
    calls = sent = 0
    label = Label(purpose=PURPOSE)
    for message in messages:
        if settle(proposition, message, subject) is not None:
            continue
        context = context_of(adherence, subject, Open(None, proposition, message), None)
        question = Question(propositions=(proposition,), context=context, label=label, model=judge)
        calls, sent = calls + 1, sent + estimate_tokens(build_request(question))
    billed = calls > 0 and provider_of(judge) == "anthropic"
    answered = calls * OUTPUT_TOKENS_PER_CLAIM
    cost = ledger.estimate_cost(judge, sent, answered) if billed else Decimal(0)
    return TrialEstimate(
        messages=len(messages),
        calls=calls,
        input_tokens=sent,
        output_tokens=answered,
        cost_usd=cost,
        judge=judge,
        billed=billed,
    )
