"""Try one proposition on a few messages before it counts: what it scores, on what, and at what cost. No evaluation is stored."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import mean, stdev
from typing import Any

from django.conf import settings
from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from agents.kit.llm import Label, estimate_tokens, ledger
from agents.kit.llm.ledger import Totals, totals
from agents.kit.llm.providers import is_priced
from agents.kit.text.fences import new_nonce
from agents.models import Agent, Message
from agents.personas.persona import render_persona
from evaluation.budget import why_over_budget
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.judge.asking import ask_all
from evaluation.judge.questions import Question, build_request
from evaluation.judge.verdicts import MAX_SCORE, Verdict, unscored
from evaluation.propositions.schema import Proposition
from evaluation.runs.judging import settle
from evaluation.runs.planning import OUTPUT_TOKENS_PER_CLAIM
from evaluation.runs.spec import MOST_REPEATS
from evaluation.scorers import SCORERS, ReadsAhead
from evaluation.scorers.subjects import Subject
from evaluation.statistics.agreement import judge_noise
from evaluation.windows import MessageWindow
from evaluation.wording import spent_json

MOST_MESSAGES = 1000
FEWEST_TO_TELL = 5  # messages with a score from which "all alike" says something
PURPOSE = "try"


class Judgement(BaseModel):
    """One judgement of a trial: 0 to 9, or why there is no score."""

    model_config = ConfigDict(from_attributes=True)

    status: str
    score: int | None = Field(validation_alias="value")
    reasoning: str
    justification: str
    reason: str


class Tried(BaseModel):
    """One message: the mean of its judgements that were scored (None without any), one judgement per repeat.

    Attributes:
        message: Its id. `source`: the message itself.
    """

    message: int
    channel: str
    text: str
    score: float | None
    judgements: list[Judgement]
    source: SkipValidation[Any] = Field(exclude=True)

    @property
    def shown(self) -> Judgement:
        """Return the first judgement that was scored, else the first one."""
        for judgement in self.judgements:
            if judgement.status == "scored":
                return judgement
        return self.judgements[0]


class Trial(BaseModel):
    """The outcome, as `--json` prints it: messages in order of time, judged by a model or by ``rule``.

    Attributes:
        spread: Standard deviation between messages, in points; None with fewer than two scores.
        noise: Standard deviation of one judgement around its message's mean, in points; None without repeats.
        hint: What to think about before accepting it; empty when nothing stands out.
        about: The proposition. `agent_row`: the agent.
    """

    proposition: str
    claim: str
    active: bool
    agent: str
    judge: str
    messages: list[Tried]
    mean: float | None
    spread: float | None
    noise: float | None
    scored: int
    trivial: int
    unscored: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    unpriced_calls: int
    hint: str
    reason: str
    about: SkipValidation[Proposition] = Field(exclude=True)
    agent_row: SkipValidation[Any] = Field(exclude=True)
    spent: SkipValidation[Totals] = Field(exclude=True)


def _build_trial(
    proposition: Proposition, agent: Agent, judge: str, messages: list[Tried], work_id: str, reason: str = ""
) -> Trial:
    """Return the outcome of a trial; its cost is the sum of the calls with this `work_id`.

    Args:
        messages: Those judged; none where nothing was.
        reason: Why nothing was judged; empty where something was.
    """
    spent = totals(work_id=work_id)
    scores = [message.score for message in messages if message.score is not None]
    judgements = [judgement for message in messages for judgement in message.judgements]
    statuses = Counter(judgement.status for judgement in judgements)
    return Trial(
        proposition=proposition.id,
        claim=proposition.claim,
        active=proposition.active,
        agent=agent.slug,
        judge=judge,
        messages=messages,
        mean=mean(scores) if scores else None,
        spread=stdev(scores) if len(scores) > 1 else None,
        noise=judge_noise([_scores_of(message) for message in messages]),
        scored=statuses["scored"],
        trivial=statuses["trivial"],
        unscored=statuses["unscored"],
        **spent_json(spent),
        hint=_hint(scores, judgements),
        reason=reason,
        about=proposition,
        agent_row=agent,
        spent=spent,
    )


def _scores_of(message: Tried) -> list[float]:
    return [
        float(judgement.score)
        for judgement in message.judgements
        if judgement.status == "scored" and judgement.score is not None
    ]


def _hint(scores: Sequence[float], judgements: Sequence[Judgement]) -> str:
    """Return what to think about before the proposition is accepted; empty when nothing stands out, or for too few scores to tell.

    Args:
        scores: Of the messages that have one.
    """
    if judgements and not scores:
        return f"Nothing could be scored: {judgements[0].reason}"
    if len(scores) < FEWEST_TO_TELL:
        return ""
    lowest, highest = min(scores), max(scores)
    if lowest == highest == MAX_SCORE:
        return "Every message scores 9: this does not tell good from bad messages. Make the claim sharper, or try it on a bad build."
    if lowest == highest:
        return f"Every message scores {lowest:g}: this does not tell messages apart."
    if highest <= 2:
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
        n: Most messages, 1 to 1,000.
        repeats: Judgements per message, 1 to 20; rules are exact and judged once.
        model: Overrides the configured judge.
        window: From which stretch of its speech; default: all of it.
        deadline: Seconds for each call; default: that of evaluations.
        done: Called with 1 after each judgement.

    Returns:
        Where the agent said nothing or its budget is used up, a trial without messages whose `reason` says so.

    Raises:
        ValueError: The proposition is not judged message by message, or a number is out of range; says what is allowed.
    """
    _check_request(proposition, n, repeats)
    judge = "rule" if proposition.rule else model or str(settings.JUDGE_MODEL)
    work_id = f"{PURPOSE}:{secrets.token_hex(8)}"
    subject = _subject(agent, n=n, seed=seed, window=window)
    messages = _drawn_messages(subject)
    why_not = _why_not_judged(proposition, agent, messages, judge)
    if why_not:
        return _build_trial(proposition, agent, judge, [], work_id, why_not)
    label = Label(purpose=PURPOSE, dimension=proposition.dimension, agent_id=agent.pk, work_id=work_id)
    prepared = _prepare(proposition, messages, subject, judge, label)
    verdicts: dict[int, list[Verdict]] = defaultdict(list)  # by message
    for pk, verdict in prepared.settled.items():
        verdicts[pk].append(verdict)
        done(1)
    questions = [question for question in prepared.questions for _ in range(repeats)]
    for answered in ask_all(questions, deadline=settings.LLM_EVALUATION_DEADLINE if deadline is None else deadline):
        [message] = answered.question.items  # each question is about one message
        verdicts[message.pk].extend(answered.verdicts)
        done(1)
    tried = [_tried(message, verdicts[message.pk] or [unscored("not judged")]) for message in messages]
    return _build_trial(proposition, agent, judge, tried, work_id)


def _check_request(proposition: Proposition, n: int, repeats: int) -> None:
    """Refuse a proposition that cannot be judged on single messages that were sent, and numbers out of range.

    Raises:
        ValueError: Says what is allowed.
    """
    if proposition.dimension not in BY_ONE_MESSAGE:
        allowed = ", ".join(BY_ONE_MESSAGE)
        raise ValueError(f"{proposition.id} is of {proposition.dimension}, judged over a window; allowed: {allowed}")
    if "{{action}}" in proposition.claim.replace(" ", ""):
        raise ValueError(f"{proposition.id} speaks of a draft ({{{{action}}}}), and messages that were sent are none")
    if not 1 <= n <= MOST_MESSAGES:
        raise ValueError(f"n {n}: 1 to {MOST_MESSAGES}")
    if not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(f"repeats {repeats}: 1 to {MOST_REPEATS}")


def _why_not_judged(proposition: Proposition, agent: Agent, messages: Sequence[Message], judge: str) -> str:
    """Return why nothing is judged: the agent said nothing, or its budget is used up; empty when something is."""
    if not messages:
        return f"{agent} has said nothing yet"
    if proposition.rule:  # costs nothing
        return ""
    return why_over_budget(agent, judge) or ""


def _tried(message: Message, verdicts: Sequence[Verdict]) -> Tried:
    """Return a message with its judgements; its score is the mean of those that were scored, None without any."""
    values = [verdict.value for verdict in verdicts if verdict.status == "scored" and verdict.value is not None]
    return Tried(
        message=message.pk,
        channel=message.channel.slug,
        text=message.text,
        score=mean(values) if values else None,
        judgements=[Judgement.model_validate(verdict) for verdict in verdicts],
        source=message,
    )


def _subject(agent: Agent, *, n: int, seed: int, window: MessageWindow | None) -> Subject:
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return Subject(agent=agent, persona=persona, window=window or MessageWindow(), where={}, samples=n, seed=seed)


def messages_said(agent: Agent, *, n: int, window: MessageWindow) -> list[Message]:
    """Return up to `n` messages of what an agent said in a window, in order of time; drawn where there are more."""
    return _drawn_messages(_subject(agent, n=n, seed=0, window=window))


def _drawn_messages(subject: Subject) -> list[Message]:
    """Return the messages of a trial, in order of time."""
    sample = subject.sample()
    rows = Message.objects.select_related("channel", "agent", "user").in_bulk(sample)
    return [rows[pk] for pk in sample if pk in rows]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The verdicts of messages where they take no judge, by message, and the questions about the others."""

    settled: dict[int, Verdict]
    questions: list[Question]


def _prepare(
    proposition: Proposition, messages: Sequence[Message], subject: Subject, judge: str, label: Label
) -> _Prepared:
    """Settle what takes no judge (an exact rule, or a precondition that is not met), and make a question of each other message.

    Nothing is asked yet.
    """
    nonce = new_nonce()
    prepared = _Prepared({}, [])
    scorer = SCORERS[proposition.dimension]
    if isinstance(scorer, ReadsAhead):
        scorer.read_ahead(subject, messages)
    for message in messages:
        verdict = settle(proposition, message, subject)
        if verdict is not None:
            prepared.settled[message.pk] = verdict
            continue
        question = Question(
            propositions=(proposition,),
            context=scorer.context(subject, proposition, message),
            label=label,
            model=judge,
            nonce=nonce,
            items=(message,),
        )
        prepared.questions.append(question)
    return prepared


class TrialEstimate(BaseModel):
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
    """Estimate what `try_proposition` would ask of the configured judge with the same arguments, each message once.

    `cost_usd` is 0 where nothing is billed, None where the judge has no known price.
    """
    judge = "rule" if proposition.rule else str(settings.JUDGE_MODEL)
    subject = _subject(agent, n=n, seed=0, window=window)
    messages = _drawn_messages(subject)
    questions = _prepare(proposition, messages, subject, judge, Label(purpose=PURPOSE)).questions
    sent = sum(estimate_tokens(build_request(question)) for question in questions)
    answered = len(questions) * OUTPUT_TOKENS_PER_CLAIM
    is_billed = bool(questions) and is_priced(judge)
    return TrialEstimate(
        messages=len(messages),
        calls=len(questions),
        input_tokens=sent,
        output_tokens=answered,
        cost_usd=ledger.estimate_cost(judge, sent, answered) if is_billed else Decimal(0),
        judge=judge,
        billed=is_billed,
    )
