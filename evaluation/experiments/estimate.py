"""What an experiment would cost, before anything is asked: one conversation of each arm with stand-ins for its answers, times all."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction
from pydantic import BaseModel, ConfigDict

from agents.llm import ledger
from agents.models import Agent, Message
from evaluation.experiments.play import specs, start_experiment
from evaluation.experiments.scenario import Scenario
from evaluation.models import ExperimentEnvironment
from evaluation.runs.estimate import STAND_IN, estimate_all, estimated, prompt_tokens
from evaluation.runs.planning import actor_of
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS


class ExperimentEstimate(BaseModel):
    """What would be played and paid. Tokens are estimates; what gate, nudges and swarm ask comes on top. `usd`: None when unpriced."""

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


def estimate_experiment(scenario: Scenario, *, judge: str = "", actor_model: str = "") -> ExperimentEstimate:
    """Estimate an experiment; nothing stays in the database and no model is asked.

    Raises:
        ExperimentRefused: It cannot be played here.
    """
    one = scenario.model_copy(update={"repeats": 1, "environments": 1})
    if scenario.population is not None:
        one = scenario.scaled(2 / scenario.environments).model_copy(update={"repeats": 1})
    with transaction.atomic():
        try:
            experiment = start_experiment(one, judge=judge, actor_model=actor_model)
            environment = experiment.environments.select_related("channel").filter(number=1).order_by("pk").first()
            assert environment is not None  # noqa: S101 (a scenario has one at least)
            sent = _play_stand_ins(environment, scenario)
            experiment.environments.exclude(pk=environment.pk).delete()
            judging = estimated(estimate_all(list(specs(experiment))))
            agent = Agent.objects.get(pk=environment.agents[0])
            model = actor_of(agent, str(scenario.arms[0].overrides.get("model", "")) or actor_model)
        finally:
            transaction.set_rollback(True)
    times, turns = scenario.conversations, scenario.conversations * scenario.agents * len(scenario.steps)
    said = turns * REPLY_TOKENS
    read = times * sent * CALLS_PER_LINE
    acting = ledger.estimate_cost(model, read, said)
    usd: Decimal | None = None if acting is None or judging.cost_usd is None else acting + times * judging.cost_usd
    return ExperimentEstimate(
        conversations=times,
        turns=turns,
        actor_model=model,
        actor_calls=turns * CALLS_PER_LINE,
        actor_tokens=read + said,
        judge=experiment.judge,
        judge_calls=times * judging.calls,
        judge_tokens=times * (judging.input_tokens + judging.output_tokens),
        usd=None if usd is None else float(usd),
    )


def _play_stand_ins(environment: ExperimentEnvironment, scenario: Scenario) -> int:
    """Store what might be said in an environment; return the tokens of the prompts that its turns begin with."""
    channel, position, tokens = environment.channel, environment.channel.next_position, 0
    agents = Agent.objects.in_bulk(environment.agents)
    for number, step in enumerate(scenario.steps, 1):
        common = {"channel": channel, "synthetic": True, "tags": {**channel.tags, "step": str(number)}}
        trigger = Message.objects.create(
            position=position, outsider=scenario.facilitator, text=step.says or "…", **common
        )
        for place, pk in enumerate(environment.agents, position + 1):
            tokens += prompt_tokens(agents[pk], trigger)
            Message.objects.create(position=place, agent=agents[pk], text=STAND_IN, **common)
        position += 1 + len(environment.agents)
    return tokens
