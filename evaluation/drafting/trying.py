"""Trying one proposition on a few messages before it counts: what it scores, on what, and at what cost. No evaluation is stored."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import mean, stdev
from typing import Any

from django.conf import settings

from agents.llm import Label, estimate_tokens, ledger
from agents.llm.endpoints import provider_of
from agents.llm.ledger import Totals, totals
from agents.models import Agent, Message
from agents.persona import render_persona
from agents.text.fences import new_nonce
from evaluation.judge.questions import MAX_SCORE, Question, Verdict, ask_all, build_request, unscored
from evaluation.propositions.schema import Proposition
from evaluation.runs.budget import OUTPUT_TOKENS_PER_CLAIM, why_over_budget
from evaluation.runs.judging import Open, context_of, settle
from evaluation.runs.planning import MOST_REPEATS
from evaluation.scorers import adherence
from evaluation.scorers.subjects import Subject
from evaluation.scorers.windows import MessageWindow
from evaluation.statistics.agreement import judge_noise
from evaluation.wording import spent_json

MOST_MESSAGES = 1000
FEWEST_TO_TELL = 5  # messages with a score from which "all alike" says something
PURPOSE = "try"


@dataclass(frozen=True, slots=True)
class Tried:
    """One message: what it scored, once per repeat."""

    message: Message
    verdicts: tuple[Verdict, ...]

    @property
    def score(self) -> float | None:
        """The mean over its repeats that were scored; None when none was."""
        values = [v.value for v in self.verdicts if v.status == "scored" and v.value is not None]
        return mean(values) if values else None

    @property
    def shown(self) -> Verdict:
        """The first verdict that was scored, else the first one."""
        return next((v for v in self.verdicts if v.status == "scored"), self.verdicts[0])


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome: messages in order of time, judged by a model or by ``rule``. `reason`: why nothing was tried."""

    proposition: Proposition
    agent: Agent
    judge: str
    messages: tuple[Tried, ...]
    spent: Totals
    reason: str = ""

    @property
    def scores(self) -> list[float]:
        return [score for one in self.messages if (score := one.score) is not None]

    @property
    def mean(self) -> float | None:
        return mean(self.scores) if self.scores else None

    @property
    def spread(self) -> float | None:
        """Standard deviation between messages, in points; None with fewer than two scores."""
        return stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def noise(self) -> float | None:
        """Standard deviation of one judgement around its message's mean, in points; None without repeats."""
        values = [
            [float(v.value) for v in one.verdicts if v.status == "scored" and v.value is not None]
            for one in self.messages
        ]
        return judge_noise(values)

    def count(self, status: str) -> int:
        """Judgements of that status, repeats included."""
        return sum(v.status == status for one in self.messages for v in one.verdicts)

    @property
    def hint(self) -> str:
        """What to think about before accepting it; empty when nothing stands out."""
        if self.messages and not self.scores:
            return "Nothing could be scored: " + next((v.reason for one in self.messages for v in one.verdicts), "")
        if len(self.scores) < FEWEST_TO_TELL:
            return ""
        low, high = min(self.scores), max(self.scores)
        if low == high == MAX_SCORE:
            return "Every message scores 9: this does not tell good from bad messages. Make the claim sharper, or try it on a bad build."
        if low == high:
            return f"Every message scores {low:g}: this does not tell messages apart."
        if high <= 2:
            return "Hardly any message satisfies this: either the agent is off its persona, or the claim asks for too much."
        return ""


def try_proposition(
    *,
    proposition: Proposition,
    agent: Agent,
    n: int = 10,
    repeats: int = 1,
    model: str = "",
    seed: int = 0,
    window: MessageWindow | None = None,
    deadline: float | None = None,
    done: Callable[[int], None] = lambda judged: None,
) -> Trial:
    """Judge one proposition, active or not, on messages drawn from what the agent said.

    Calls have rows in the ledger; nothing else is stored.

    Args:
        proposition: Of adherence, at evaluation level.
        agent: Whose messages.
        n: Most messages, 1 to 1,000.
        repeats: Judgements per message, 1 to 20; rules are exact and judged once.
        model: Overrides the configured judge.
        seed: Of the sampling: the same draws the same messages.
        window: From which stretch of its speech; default: all of it.
        deadline: Seconds for each call; default: that of evaluations.
        done: Called with the number of judgements that arrived.

    Raises:
        ValueError: Something asked for makes no sense; says what is allowed.
    """
    if proposition.dimension != adherence.DIMENSION:
        raise ValueError(
            f"{proposition.id} is of {proposition.dimension}, judged over a whole window; allowed: adherence"
        )
    if "{{action}}" in proposition.claim.replace(" ", ""):
        raise ValueError(f"{proposition.id} speaks of a draft ({{{{action}}}}), and messages that were sent are none")
    if not 1 <= n <= MOST_MESSAGES:
        raise ValueError(f"n {n}: 1 to {MOST_MESSAGES}")
    if not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(f"repeats {repeats}: 1 to {MOST_REPEATS}")
    judge = "rule" if proposition.rule else model or str(settings.JUDGE_MODEL)
    work_id = f"{PURPOSE}:{secrets.token_hex(8)}"
    subject = _subject(agent, n=n, seed=seed, window=window)
    messages = _drawn(subject)
    reason = "" if messages else f"{agent} has said nothing yet"
    if messages and not proposition.rule:
        reason = why_over_budget(agent, judge) or ""
    if reason:
        return Trial(proposition, agent, judge, (), totals(work_id=work_id), reason)
    label = Label(purpose=PURPOSE, dimension=proposition.dimension, agent_id=agent.pk, work_id=work_id)
    verdicts: dict[int, list[Verdict]] = defaultdict(list)
    questions: list[Question] = []
    for message, verdict_or_question in _settled_or_asked(proposition, messages, subject, judge, label):
        if isinstance(verdict_or_question, Question):
            questions += [verdict_or_question] * repeats
        else:
            verdicts[message.pk].append(verdict_or_question)
            done(1)
    for answered in ask_all(questions, deadline=settings.LLM_EVALUATION_DEADLINE if deadline is None else deadline):
        [message] = answered.question.items
        verdicts[message.pk].extend(answered.verdicts)
        done(1)
    tried = tuple(Tried(message, tuple(verdicts[message.pk] or [unscored("not judged")])) for message in messages)
    return Trial(proposition, agent, judge, tried, totals(work_id=work_id))


def _subject(agent: Agent, *, n: int, seed: int, window: MessageWindow | None) -> Subject:
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return Subject(agent=agent, persona=persona, window=window or MessageWindow(), where={}, samples=n, seed=seed)


def _drawn(subject: Subject) -> list[Message]:
    """The messages of a trial, in order of time."""
    chosen = subject.sample()
    rows = Message.objects.select_related("channel", "agent", "user").in_bulk(chosen)
    return [rows[pk] for pk in chosen if pk in rows]


def _settled_or_asked(
    proposition: Proposition, messages: Sequence[Message], subject: Subject, judge: str, label: Label
) -> Iterator[tuple[Message, Verdict | Question]]:
    """Each message with its verdict where that takes no judge, else with the question."""
    nonce = new_nonce()
    for message in messages:
        verdict = settle(proposition, message, subject)
        if verdict is not None:
            yield message, verdict
            continue
        context = context_of(adherence, subject, Open(None, proposition, message), None)
        yield (
            message,
            Question(
                propositions=(proposition,), context=context, label=label, model=judge, nonce=nonce, items=(message,)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEstimate:
    """Before a trial. Tokens are characters / 4 of the prompts and an assumption for the answers.

    Attributes:
        calls: How many of the messages a judge would be asked about; the others are settled free of cost.
        cost_usd: None when the judge has no price.
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
    subject = _subject(agent, n=n, seed=0, window=window)
    messages = _drawn(subject)
    looked_at = _settled_or_asked(proposition, messages, subject, judge, Label(purpose=PURPOSE))
    questions = [
        verdict_or_question for _, verdict_or_question in looked_at if isinstance(verdict_or_question, Question)
    ]
    calls, sent = len(questions), sum(estimate_tokens(build_request(question)) for question in questions)
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


def trial_json(trial: Trial) -> dict[str, Any]:
    """Return the outcome as data."""
    p = trial.proposition
    return {
        "proposition": p.id,
        "claim": p.claim,
        "active": p.active,
        "agent": trial.agent.slug,
        "judge": trial.judge,
        "messages": [
            {
                "message": one.message.pk,
                "channel": one.message.channel.slug,
                "text": one.message.text,
                "score": one.score,
                "judgements": [
                    {
                        "status": v.status,
                        "score": v.value,
                        "reasoning": v.reasoning,
                        "justification": v.justification,
                        "reason": v.reason,
                    }
                    for v in one.verdicts
                ],
            }
            for one in trial.messages
        ],
        "mean": trial.mean,
        "spread": trial.spread,
        "noise": trial.noise,
        **{name: trial.count(name) for name in ("scored", "trivial", "unscored")},
        **spent_json(trial.spent),
        "hint": trial.hint,
        "reason": trial.reason,
    }
