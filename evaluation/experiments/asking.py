"""Ask control questions on a copy of a fork, and judge the answers: do they agree with each other, and which rules do they state?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from django.conf import settings
from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field

from agents.kit.llm.requests import Label
from agents.kit.text.tokens import tokenize
from agents.models import Agent, Channel, ChannelMember, Message
from agents.turn.orchestrator import TurnRefused, cancel, finish_turn, start_turn
from agents.turn.receive import receive_message
from evaluation.dimensions import OF_PERSONA
from evaluation.experiments.control_questions import ControlQuestion
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.starting import MOST_EARLIER_MESSAGES, copy_messages
from evaluation.judge.asking import score_propositions
from evaluation.judge.checks import check_proposition
from evaluation.models import SIMULATION, is_heuristic
from evaluation.propositions.files import propositions_for
from evaluation.propositions.schema import Proposition
from evaluation.propositions.traits import with_traits
from evaluation.scorers.context import Context, Event, Window

QUESTION_TAG = "question"
STATED_FROM = 5  # of 9: the judge's score of "the answer states it"
SIMILAR = 0.6  # share of words that two answers have in common, from which on they agree for the offline comparison
STATES = (
    'In this answer {{agent_name}} says of themselves that the following is so, or that they keep to it as a rule: "%s"'
)
STATES_AVOIDED = 'In this answer {{agent_name}} says that they avoid this, or that they must not do it: "%s"'
AGREES = (
    "In both moments {{agent_name}} gives the same answer to the same question, whatever the words: no statement in one "
    "contradicts the other"
)


class QuestionOutcome(BaseModel):
    """What the answers to one control question on one fork showed. Texts are in the messages alone.

    Attributes:
        answers: How many of the turns said something.
        agreements: Of each pair of answers whether they agree; None where that could not be known.
        states: By the id of a proposition whether an answer states it; None where that could not be known.
    """

    model_config = ConfigDict(frozen=True)

    question: str
    answers: int = 0
    agreements: list[bool | None] = Field(default_factory=list)
    states: dict[str, bool | None] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interview:
    """A copy of a fork in which control questions are asked. Each is answered as if it were the first: no answer is shown to another.

    Attributes:
        until: Position of the last copied message: later ones are questions and answers.
        overrides: Of the turns, as the fork's arm has them.
        rules: The propositions that answers about rules may state.
    """

    environment: ExperimentEnvironment
    agent: Agent
    channel: Channel
    until: int
    overrides: Mapping[str, Any]
    asks: int
    rules: Mapping[str, Proposition]

    @classmethod
    def of(
        cls, environment: ExperimentEnvironment, agent: Agent, overrides: Mapping[str, Any], *, asks: int
    ) -> Interview:
        """Return the interview of a fork that was played; the copy is stored once."""
        return cls(
            environment=environment,
            agent=agent,
            channel=_copy_of(environment, agent),
            until=min(MOST_EARLIER_MESSAGES, environment.channel.messages.count()),
            overrides=overrides,
            asks=asks,
            rules=rules_of(agent),
        )

    def ask(self, question: ControlQuestion, *, facilitator: str, renew: Callable[[], object]) -> QuestionOutcome:
        """Ask a question so often as `asks` says, and judge the answers. What was asked before a crash is not asked again.

        Args:
            facilitator: The name under which it is asked.
            renew: Renews the lease; called again and again.
        """
        answers: list[str] = []
        for number in range(1, self.asks + 1):
            renew()
            text = self._answer(question, number, facilitator, renew)
            if text:
                answers.append(text)
        agreements: list[bool | None] = []
        for first, second in combinations(answers, 2):
            renew()
            agreements.append(self._agree(question, first, second, facilitator))
        states: dict[str, bool | None] = {}
        for text in answers:
            renew()
            for name, stated in self._stated_rules(question, text, facilitator).items():
                # One answer that states a rule is enough.
                states[name] = stated if not states.get(name) else True
        return QuestionOutcome(question=question.id, answers=len(answers), agreements=agreements, states=states)

    def _answer(self, question: ControlQuestion, number: int, facilitator: str, renew: Callable[[], object]) -> str:
        """Return what the agent answers, its messages joined; empty where it says nothing, or its turn is refused."""
        key = f"experiment:{self.environment.pk}:{question.id}:{number}"
        tags = {**self.channel.tags, QUESTION_TAG: question.id}
        message = receive_message(
            channel=self.channel, outsider=facilitator, text=question.text, idempotency_key=key, tags=tags
        )
        run = None
        try:
            run = start_turn(
                agent=self.agent,
                channel=self.channel,
                trigger=message,
                overrides={**self.overrides, "until": self.until, "tags": tags},
                idempotency_key=key,
            )
            finish_turn(run, waiting=renew)
        except TurnRefused:
            if run is not None:
                cancel(run)
            return ""
        return "\n".join(Message.objects.filter(run=run).order_by("position").values_list("text", flat=True)).strip()

    def _agree(self, question: ControlQuestion, first: str, second: str, facilitator: str) -> bool | None:
        """Return whether two answers agree; None where that cannot be known."""
        if _have_same_words(first, second):
            return True
        if is_heuristic(self._judge):
            return agree_by_words(first, second)
        result = check_proposition(
            proposition=_claim("lab-agrees", AGREES),
            context=Context(
                agent_name=self.agent.display_name,
                pair=(
                    _moment(self.agent, question, first, facilitator),
                    _moment(self.agent, question, second, facilitator),
                ),
            ),
            label=self._label,
            model=self._judge,
        )
        return result.holds

    def _stated_rules(self, question: ControlQuestion, answer: str, facilitator: str) -> dict[str, bool | None]:
        """Return which rules an answer states, by id of the proposition; nothing for a question that is not about rules."""
        if question.about != "rule":
            return {}
        claims = [stated_claim(rule) for rule in self._looked_for(question)]
        window = _moment(self.agent, question, answer, facilitator)
        verdicts = score_propositions(
            propositions=claims,
            context=Context(
                agent_name=self.agent.display_name, window=window, message=window.first[-1], message_number=2
            ),
            label=self._label,
            model=self._judge,
        )
        stated: dict[str, bool | None] = {}
        for claim, verdict in zip(claims, verdicts, strict=True):
            stated[claim.id] = None
            if verdict.status == "scored" and verdict.value is not None:
                stated[claim.id] = verdict.value >= STATED_FROM
        return stated

    def _looked_for(self, question: ControlQuestion) -> list[Proposition]:
        """Return the proposition that a question names, else the agent's own ones, of an agent without any those for all agents."""
        if question.proposition:
            return [rule for rule in self.rules.values() if rule.id == question.proposition]
        own = [rule for rule in self.rules.values() if not rule.for_all]
        return own or list(self.rules.values())

    @property
    def _judge(self) -> str:
        return self.environment.experiment.judge

    @property
    def _label(self) -> Label:
        return Label(
            purpose="experiment", mechanism="lab", agent_id=self.agent.pk, work_id=asking_work_id(self.environment.pk)
        )


def asked_in(fork: str) -> str:
    """Return the slug of the copy of a fork in which control questions are asked."""
    return f"{fork}-questions"


def asking_work_id(environment: int) -> str:
    """Return the ledger's name for the judging of a fork's answers."""
    return f"experiment_environment:{environment}"


def rules_of(agent: Agent) -> dict[str, Proposition]:
    """Return the propositions of adherence that an agent is measured by, those of its traits among them, by id.

    Raises:
        PropositionError: A file cannot be used.
    """
    propositions = propositions_for(agent_slug=agent.slug, dimension=OF_PERSONA, seeded=agent.seeded)
    propositions = with_traits(propositions, agent.traits.all(), automatic=settings.TRAIT_PROPOSITIONS)
    return {proposition.id: proposition for proposition in propositions}


def stated_claim(rule: Proposition) -> Proposition:
    """Return the claim that an answer states a rule. The offline judge goes by the rule's cues; a rule without cues it cannot see."""
    text = STATES_AVOIDED if rule.inverted else STATES
    cues = None if rule.inverted else rule.cues
    return replace(_claim(rule.id, text % rule.claim), cues=cues)


def _claim(name: str, text: str) -> Proposition:
    """Return a claim about answers; the judge does not see the persona, so that it goes by the answer alone."""
    return Proposition(dimension=OF_PERSONA, id=name, claim=text, include_personas=False)


def _moment(agent: Agent, question: ControlQuestion, answer: str, facilitator: str) -> Window:
    """Return a question and its answer as a window of events."""
    stimulus = Event("stimulus", agent.display_name, question.text, facilitator)
    return Window((stimulus, Event("action", agent.display_name, answer)), 0, ())


def _copy_of(environment: ExperimentEnvironment, agent: Agent) -> Channel:
    """Return the copy of a fork in which questions are asked; it is stored with all its messages, or not at all."""
    fork = environment.channel
    slug = asked_in(fork.slug)
    with transaction.atomic():
        channel, is_new = Channel.objects.get_or_create(
            slug=slug,
            defaults={
                "name": fork.name,
                "kind": fork.kind,
                "synthetic": True,
                "tags": {name: fork.tags[name] for name in (Experiment.TAG, SIMULATION)},
            },
        )
        if is_new:
            ChannelMember.objects.create(channel=channel, agent=agent)
            copy_messages(fork.slug, channel, until=fork.messages.order_by("-position")[0].position)
    return channel


# -- without a judge
def agree_by_words(first: str, second: str) -> bool | None:
    """Return whether two answers agree as far as words alone tell: a heuristic. None where they do not tell.

    They agree where they are equal but for case and punctuation, or most of their words are the same and no number differs. They disagree
    where both name numbers, and other ones, or one says yes and the other no. Everything else takes a judge.
    """
    if _have_same_words(first, second):
        return True
    words = [_normalised(first), _normalised(second)]
    numbers = [set(re.findall(r"\d+", text)) for text in (first, second)]
    if numbers[0] and numbers[1] and numbers[0] != numbers[1]:
        return False
    polarity = {word[0] for word in words if word and word[0] in ("yes", "no")}
    if len(polarity) == 2:
        return False
    together = set(words[0]) | set(words[1])
    shared = set(words[0]) & set(words[1])
    if together and len(shared) / len(together) >= SIMILAR:
        return True
    return None


def _have_same_words(first: str, second: str) -> bool:
    """Return whether two texts are equal but for case and punctuation; of texts without words, whether they are equal."""
    words = _normalised(first)
    if not words:
        return first == second
    return words == _normalised(second)


def _normalised(text: str) -> Sequence[str]:
    return [word.casefold() for word in tokenize(text) if any(character.isalnum() for character in word)]
