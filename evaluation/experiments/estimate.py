"""What an experiment would cost and could show, before anything is asked: one conversation of each arm with stand-ins for answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field

from agents.kit.llm import ledger
from agents.kit.text.wording import counted
from agents.models import Agent, Message
from evaluation.experiments.compare import too_few
from evaluation.experiments.measuring import specs
from evaluation.experiments.models import ExperimentEnvironment
from evaluation.experiments.scenario import Scenario
from evaluation.experiments.starting import BEFORE_TAG, STEP_TAG, start_experiment
from evaluation.models import is_heuristic
from evaluation.runs.estimate import STAND_IN, estimate_all, estimated, prompt_tokens
from evaluation.runs.numbers import Spending
from evaluation.simulation.conversations import actor_of
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS
from evaluation.statistics.arms import detectable_d, pairs_for_a_verdict, pairs_needed
from evaluation.statistics.difference import ALPHA, smallest_detectable_change

# Assumptions about the judging of one answer to a control question.
ANSWER_PROMPT_TOKENS = 1_200
ANSWER_VERDICT_TOKENS = 200


class ExperimentEstimate(BaseModel):
    """The estimate of an experiment: what is played and paid, and what it could show.

    Tokens are estimates; what gate, nudges and swarm ask comes on top.

    Attributes:
        usd: None when unpriced.
        pairs: Conversations of an arm, each compared with its like in the control; repeats of one are the same pair.
        comparisons: Judged rows of the report, tested together.
        heuristic: The judge is an offline one, on whose scores no verdict rests.
        pairs_for_a_verdict: Below so many no difference, however large, could be significant.
        pairs_needed: So many find a difference of one standard deviation (of the pairs' differences) with power 0.8.
        detectable_d: The smallest difference found with power 0.8, in the same unit; None where none could be.
        forks: Of an arm of a laboratory, which are compared in place of pairs, in standard deviations between forks; 0: it is none.
    """

    model_config = ConfigDict(frozen=True)

    conversations: int
    turns: int
    actor_model: str
    actor_calls: int
    actor_tokens: int
    judge: str
    judge_calls: int
    judge_tokens: int
    usd: float | None
    pairs: int
    repeats: int
    comparisons: int
    heuristic: bool
    pairs_for_a_verdict: int
    pairs_needed: int | None
    detectable_d: float | None
    forks: int = Field(0, exclude_if=lambda forks: forks == 0)

    def findings(self) -> Iterator[str]:
        """Yield what the experiment could show, in sentences.

        E.g. "20 conversations an arm, 3 comparisons: 80 % power to find a difference of 0.82 standard deviations of paired conversations."
        """
        if self.forks:
            yield from self._findings_of_lab()
            return
        if self.heuristic:
            yield f"No verdict on scores is possible: {self.judge} is an offline heuristic. What is counted without a judge is compared."
        if self.detectable_d is None:
            few = too_few(self.pairs, self.comparisons)
            yield f"No verdict is possible: {few}, and 80 % power at 1 standard deviation {self.pairs_needed}."
        else:
            size = f"{self.pairs} conversations an arm, {counted(self.comparisons, 'comparison')}"
            power = f"80 % power to find a difference of {self.detectable_d:.2f} standard deviations of paired conversations"
            if self.detectable_d > 1:
                power += f"; for one of 1 it takes {self.pairs_needed}"
            yield f"{size}: {power}."
        if self.repeats > 1:
            yield f"{self.repeats} repeats make each conversation's scores steadier; they add no conversations to compare."

    def _findings_of_lab(self) -> Iterator[str]:
        if self.heuristic:
            yield f"{self.judge} is an offline heuristic: a verdict is possible only where exact rules score a whole measure."
        size = f"{counted(self.forks, 'fork')} of each arm, {counted(self.comparisons, 'comparison')}"
        if self.detectable_d is None:
            yield f"No verdict is possible: {size}; it takes 2 forks at least."
            return
        yield f"{size}: 80 % power to find a difference of {self.detectable_d:.2f} standard deviations between forks."


def estimate_experiment(scenario: Scenario, *, judge: str = "", actor_model: str = "") -> ExperimentEstimate:
    """Estimate an experiment from one conversation of each; nothing stays in the database and no model is asked.

    `usd` is None where the price of actor or judge is unknown.

    Raises:
        ExperimentRefused: It cannot be played here.
    """
    conversation = _estimate_conversation(scenario, judge=judge, actor_model=actor_model)
    conversations = scenario.conversations
    turns = scenario.turns
    tokens_per_turn = conversation.actor_tokens / (scenario.agents * len(scenario.steps))
    actor_input_tokens = round(turns * tokens_per_turn * CALLS_PER_LINE)
    actor_output_tokens = turns * REPLY_TOKENS
    judging = estimated(
        [
            *[conversation.judging] * conversations,
            conversation.judging_once,
            _judging_of_answers(scenario, conversation),
        ]
    )
    actor_usd = ledger.estimate_cost(conversation.actor_model, actor_input_tokens, actor_output_tokens)
    usd = None
    if actor_usd is not None and judging.cost_usd is not None:
        usd = float(actor_usd + judging.cost_usd)
    return ExperimentEstimate(
        conversations=conversations,
        turns=turns,
        actor_model=conversation.actor_model,
        actor_calls=turns * CALLS_PER_LINE,
        actor_tokens=actor_input_tokens + actor_output_tokens,
        judge=conversation.judge,
        judge_calls=judging.calls,
        judge_tokens=judging.input_tokens + judging.output_tokens,
        usd=usd,
        pairs=scenario.environments,
        repeats=scenario.repeats,
        comparisons=scenario.comparisons,
        heuristic=is_heuristic(conversation.judge),
        pairs_for_a_verdict=pairs_for_a_verdict(scenario.comparisons),
        pairs_needed=pairs_needed(1.0, scenario.comparisons),
        detectable_d=_detectable_d(scenario),
        forks=scenario.repeats if scenario.lab is not None else 0,
    )


def _detectable_d(scenario: Scenario) -> float | None:
    """Return the smallest difference that is found with power 0.8: of pairs of conversations, or between the forks of a laboratory."""
    if scenario.lab is None:
        return detectable_d(scenario.environments, scenario.comparisons)
    return smallest_detectable_change(scenario.repeats, 1.0, alpha=ALPHA / scenario.comparisons)


@dataclass(frozen=True, slots=True)
class _ConversationEstimate:
    """The estimate of one conversation.

    Attributes:
        actor_tokens: Of the prompts that its turns begin with.
        judging_once: Of what is judged in this conversation alone: the messages before the fork of a laboratory.
    """

    judge: str
    actor_model: str
    actor_tokens: int
    judging: Spending
    judging_once: Spending


def _judging_of_answers(scenario: Scenario, conversation: _ConversationEstimate) -> Spending:
    """Estimate the judging of the answers to a laboratory's control questions; nothing where none are asked, or the judge is offline.

    Each pair of answers to one question is compared, and rules are looked for in each answer about rules, in one call.
    """
    if scenario.lab is None or is_heuristic(conversation.judge):
        return Spending(cost_usd=Decimal(0))
    asks = scenario.lab.asks
    calls = len(scenario.lab.questions) * asks * (asks - 1) // 2
    calls += asks * sum(question.about == "rule" for question in scenario.lab.questions)
    calls *= scenario.conversations
    input_tokens = calls * ANSWER_PROMPT_TOKENS
    output_tokens = calls * ANSWER_VERDICT_TOKENS
    return Spending(
        calls=calls,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=ledger.estimate_cost(conversation.judge, input_tokens, output_tokens),
    )


def _estimate_conversation(scenario: Scenario, *, judge: str, actor_model: str) -> _ConversationEstimate:
    """Start the smallest form of an experiment, say stand-ins in one conversation, estimate its evaluations, and roll all back.

    The conversation is the control's first. No model is asked.

    Raises:
        ExperimentRefused: It cannot be played here.
    """
    if scenario.population is None:
        smallest = scenario.model_copy(update={"repeats": 1, "environments": 1})
    else:  # two environments and their people, or the one there is: fewer are not made by `scaled`
        smallest = scenario.scaled(min(1.0, 2 / scenario.environments)).model_copy(update={"repeats": 1})
    with transaction.atomic():
        try:
            experiment = start_experiment(smallest, judge=judge, actor_model=actor_model)
            environment = experiment.environments.select_related("channel").filter(number=1).order_by("pk").first()
            assert environment is not None  # noqa: S101 (a scenario has one at least)
            experiment.environments.exclude(
                pk=environment.pk
            ).delete()  # so that `specs` has the evaluations of this one only
            actor_tokens = _say_stand_ins(environment, scenario)
            agent = Agent.objects.get(pk=environment.agents[0])
            planned = [spec for _, spec in specs(experiment)]
            return _ConversationEstimate(
                judge=experiment.judge,
                actor_model=actor_of(agent, str(scenario.arms[0].overrides.get("model", "")) or actor_model),
                actor_tokens=actor_tokens,
                judging=estimated(estimate_all([spec for spec in planned if BEFORE_TAG not in spec.where])),
                judging_once=estimated(estimate_all([spec for spec in planned if BEFORE_TAG in spec.where])),
            )
        finally:
            transaction.set_rollback(True)


def _say_stand_ins(environment: ExperimentEnvironment, scenario: Scenario) -> int:
    """Store a stand-in for each message of an environment: in each step one of the facilitator's, then one of each agent's.

    Returns:
        The tokens of the prompts that its turns begin with.
    """
    channel = environment.channel
    position = channel.next_position
    tokens = 0
    agents = Agent.objects.in_bulk(environment.agents)
    for number, step in enumerate(scenario.steps, 1):
        common = {"channel": channel, "synthetic": True, "tags": {**channel.tags, STEP_TAG: str(number)}}
        trigger = Message.objects.create(
            position=position, outsider=scenario.facilitator, text=step.says or "…", **common
        )
        for pk in environment.agents:
            position += 1
            tokens += prompt_tokens(agents[pk], trigger)
            Message.objects.create(position=position, agent=agents[pk], text=STAND_IN, **common)
        position += 1
    return tokens
