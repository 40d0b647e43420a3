"""Hold what preconditions may read (the agent, the channel, its last messages), and the named functions of functional preconditions.

Rows refer to these functions, each with parameters that are validated: those below, and a team's own (`INTERVENTION_FUNCTIONS`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, get_type_hints

from django.conf import settings
from django.db.models import QuerySet
from django.utils.module_loading import import_string
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.kit.capability import declared
from agents.kit.team_functions import TeamFunctions, import_team_functions
from agents.kit.text.fences import MAX_EVENT_CHARACTERS
from agents.kit.text.ngrams import compute_corpus_repetition
from agents.kit.text.patterns import find_all
from agents.kit.text.voices import pairwise_vocabulary_similarity
from agents.models import Agent, Channel, Message
from agents.personas.persona import render_persona
from correction.interventions.models import InterventionLog
from evaluation.propositions.files import dotted, in_words, location_of
from evaluation.propositions.rules import Phrase

LONGEST_WINDOW = 100  # messages
# Messages. In a channel with 50,000 of the agent, counting all took 90 to 190 ms of each turn, counting to 1,000 takes 3.
COUNTED_TO = 1_000


@dataclass(eq=False, kw_only=True)
class Surroundings:
    """The place of one turn: agent, channel and its last messages. What else is read is read once, and only when asked for.

    Attributes:
        messages: The channel's last messages that hold a text, oldest first, as many as the longest window needs.
    """

    agent: Agent
    channel: Channel
    messages: tuple[Message, ...]

    @classmethod
    def read(cls, *, agent: Agent, channel: Channel, reach: int) -> Surroundings:
        """Read the last `reach` messages (at most 100), in one query."""
        newest = spoken_in(channel).select_related("agent", "user").order_by("-position")[: min(reach, LONGEST_WINDOW)]
        return cls(agent=agent, channel=channel, messages=tuple(newest)[::-1])

    @property
    def position(self) -> int:
        """Return the position of the channel's last message; 0 where there is none."""
        return self.messages[-1].position if self.messages else 0

    @cached_property
    def persona(self) -> str:
        """Return the agent's persona as a judge is shown it."""
        return render_persona(system_prompt=self.agent.system_prompt, traits=self.agent.traits.all())

    @cached_property
    def strongest_traits(self) -> tuple[str, ...]:
        """Return the names of the two strongest traits; one of strength 0 means *stop doing this* and is none of them."""
        traits = self.agent.traits.filter(strength__gt=0).order_by("-strength", "name")
        return tuple(traits.values_list("name", flat=True)[:2])

    @cached_property
    def last_nudge_type(self) -> str:
        """Return the kind of the nudge the agent was last given in this channel; empty where there was none."""
        fired = InterventionLog.objects.filter(agent=self.agent, channel=self.channel, fired=True)
        return fired.order_by("-pk").values_list("nudge_type", flat=True).first() or ""


def spoken_in(channel: Channel) -> QuerySet[Message]:
    """Return the messages of a channel that hold a text. Those of a simulation count in its channel, and nowhere else."""
    messages = Message.objects.filter(channel=channel, text__regex=r"\S")
    return messages if channel.synthetic else messages.filter(synthetic=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionContext:
    """The agent, channel and messages that one intervention looks at (AC-7.1.3).

    Attributes:
        messages: The last messages of the channel in the intervention's window, oldest first.
        surroundings: What lies beyond the window.
    """

    agent: Agent
    channel: Channel
    messages: tuple[Message, ...]
    surroundings: Surroundings

    @property
    def own_messages(self) -> tuple[Message, ...]:
        """Return those of the messages that the agent sent."""
        return tuple(message for message in self.messages if message.agent_id == self.agent.pk)


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=10_000)]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a function: whether it holds (None = not known), in words, and the number it measured."""

    held: bool | None
    reasoning: str = ""
    score: float | None = None


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AtLeast(Parameters):
    at_least: Count = Field(description="holds from this number on")


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function that rows can name: `parameters` is the model its parameters must fit, `doc` says what it looks at."""

    name: str
    doc: str
    parameters: type[Parameters]
    call: Callable[[InterventionContext, Any], Finding | bool]

    def bind(self, parameters: Mapping[str, Any]) -> Callable[[InterventionContext], Finding | bool]:
        """Return a function of the context alone, which calls this one with these parameters.

        Raises:
            ValueError: The parameters do not fit; names each one and what is allowed.
        """
        try:
            fitting = self.parameters.model_validate(dict(parameters))
        except ValidationError as error:
            raise ValueError(f"{self.name}: {self._problems(error)}") from None
        return lambda context: self.call(context, fitting)

    def _problems(self, error: ValidationError) -> str:
        """Return what is wrong with parameters, each with what is allowed."""
        problems = []
        for item in error.errors():
            name = dotted(location_of(dict(item)))
            problem = in_words(dict(item), list(self.parameters.model_fields))
            problems.append(f"{name}: {problem}" if name else problem)
        return "; ".join(problems)

    def describe(self) -> dict[str, str]:
        """Return the parameters, each with what it means and whether it may be left out."""
        described = {}
        for name, parameter in self.parameters.model_fields.items():
            optional = "" if parameter.is_required() else " (optional)"
            described[name] = f"{parameter.description or ''}{optional}".strip()
        return described


def known_functions() -> dict[str, NamedFunction]:
    """Return all functions by name: those of this module, and of `INTERVENTION_FUNCTIONS` those that can be used."""
    return {**FUNCTIONS, **_team_functions(tuple(settings.INTERVENTION_FUNCTIONS)).usable}


def function_problems() -> Mapping[str, str]:
    """Return the paths of `INTERVENTION_FUNCTIONS` that cannot be used, each with what is wrong."""
    return _team_functions(tuple(settings.INTERVENTION_FUNCTIONS)).problems


@lru_cache(maxsize=8)
def _team_functions(paths: tuple[str, ...]) -> TeamFunctions[NamedFunction]:
    return import_team_functions(paths, kind="function", taken=FUNCTIONS, checked=_as_named_function)


def function_named(name: str) -> NamedFunction:
    """Return the function of this name.

    Raises:
        ValueError: No function has this name; names those that exist.
    """
    functions = known_functions()
    if name not in functions:
        raise ValueError(f"function {name!r} is not registered; allowed: {', '.join(sorted(functions))}")
    return functions[name]


class Similarity(Parameters):
    at_least: Share = Field(description="similarity from which it holds, 0 to 1")


class MessageCount(AtLeast):
    of: Literal["agent", "channel"] = Field("agent", description="whose messages count: agent (default) or channel")


class Mentions(Parameters):
    phrases: list[Phrase] = Field(min_length=1, max_length=200, description="phrases, or /regex/")
    at_least: Count = Field(1, description="in how many of the last messages, default 1")


class Indicators(Parameters):
    at_least: Annotated[int, Field(ge=1, le=2)] = Field(
        2, description="indicators from which it holds, 1 to 2; default 2"
    )


def message_count(context: InterventionContext, parameters: MessageCount) -> Finding:
    """Count the messages ever committed in this channel, by the agent or by all, but no further than 1,000 or the number asked for."""
    messages = spoken_in(context.channel)
    whose = "in this channel"
    if parameters.of == "agent":
        messages = messages.filter(agent=context.agent)
        whose = "of the agent in this channel"
    most = max(parameters.at_least, COUNTED_TO)
    count = messages.order_by()[:most].count()
    number = f"{count} or more" if count == most else str(count)
    return Finding(count >= parameters.at_least, f"{number} messages {whose}, at least {parameters.at_least}", count)


def vocabulary_similarity(context: InterventionContext, parameters: Similarity) -> Finding:
    """Compare the words of the speakers of the last messages, 0 to 1: the mean share of content words that two speakers share."""
    by_speaker: dict[str, list[str]] = {}
    for message in context.messages:
        by_speaker.setdefault(speaker(message), []).append(judged_text(message))
    similarity = pairwise_vocabulary_similarity(by_speaker)
    if similarity is None:  # there are no two to compare
        return Finding(held=False, reasoning="fewer than two speakers with three content words in the last messages")
    is_similar = similarity >= parameters.at_least
    reasoning = f"vocabulary similarity {similarity:.2f}, at least {parameters.at_least:.2f}"
    return Finding(is_similar, reasoning, similarity)


def silence(context: InterventionContext, parameters: AtLeast) -> Finding:
    """Count the messages of others since the agent last spoke, as far as the window reaches."""
    since = 0
    for message in reversed(context.messages):
        if message.agent_id == context.agent.pk:
            break
        since += 1
    return Finding(
        since >= parameters.at_least, f"{since} messages since the agent spoke, at least {parameters.at_least}", since
    )


def repetition(context: InterventionContext, parameters: Similarity) -> Finding:
    """Measure the share of 3-grams that recur across the agent's own last messages, 0 to 1."""
    own = [judged_text(message) for message in context.own_messages]
    share = compute_corpus_repetition(own)
    return Finding(share >= parameters.at_least, f"repetition {share:.2f}, at least {parameters.at_least:.2f}", share)


def mentions(context: InterventionContext, parameters: Mentions) -> Finding:
    """Count the last messages in which at least one of the phrases occurs."""
    count = 0
    undecided_reasons: list[str] = []  # of messages in which a pattern took too long and nothing else matched
    for message in context.messages:
        matched, undecided = find_all(parameters.phrases, judged_text(message))
        if matched:
            count += 1
        elif undecided:
            undecided_reasons.append(str(next(iter(undecided.values()))))
    if count < parameters.at_least <= count + len(undecided_reasons):  # the undecided messages would decide
        return Finding(held=None, reasoning=undecided_reasons[0])
    return Finding(count >= parameters.at_least, f"{count} messages, at least {parameters.at_least}", count)


def groupthink(context: InterventionContext, parameters: Indicators) -> Finding:
    """Count the indicators of groupthink in the last complete round of the debate in this channel: high confidence, and no dissent.

    Not known where the channel has no debate, and before its first round is complete; a blind poll is no round.
    """
    path = declared("channel_indicators").get("groupthink")  # None: debates are not installed
    indicators = import_string(path)(context.channel) if path else None
    if indicators is None:
        return Finding(held=None, reasoning="no complete round of a debate in this channel")
    count = len(indicators)
    reasoning = f"{count} indicators of groupthink, at least {parameters.at_least}"
    if indicators:
        reasoning += f": {'; '.join(indicators)}"
    return Finding(count >= parameters.at_least, reasoning, count)


def _as_named_function(call: Callable[..., Finding | bool]) -> NamedFunction:
    """Wrap a function so that rows can name it, under its own name; it takes the context alone, or the context and parameters.

    The class of its parameters is read from the type hint of its second argument.

    Raises:
        TypeError: It is no function, or takes other arguments.
    """
    if not inspect.isfunction(call):
        raise TypeError(f"it is {type(call).__name__}; allowed: a function")
    name = call.__name__
    doc = inspect.getdoc(call) or ""
    arguments = list(inspect.signature(call).parameters)
    if len(arguments) == 1:
        return NamedFunction(name, doc, Parameters, lambda context, parameters: call(context))
    parameters = get_type_hints(call).get(arguments[1]) if len(arguments) == 2 else None
    if not (inspect.isclass(parameters) and issubclass(parameters, Parameters)):
        raise TypeError(
            f"its arguments are ({', '.join(arguments)}); allowed: (context), or (context, parameters) with a class of Parameters"
        )
    return NamedFunction(name, doc, parameters, call)


FUNCTIONS: dict[str, NamedFunction] = {
    call.__name__: _as_named_function(call)
    for call in (message_count, vocabulary_similarity, silence, repetition, mentions, groupthink)
}


def speaker(message: Message) -> str:
    """Return a key of who sent a message: another speaker of the same name has another key."""
    return f"{message.agent_id or ''}/{message.user_id or ''}/{message.outsider}"


def judged_text(message: Message) -> str:
    """Return as much of a message as a judge is shown."""
    return message.text[:MAX_EVENT_CHARACTERS]
