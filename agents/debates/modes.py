"""The modes of a debate: who speaks after whom, in which role, what a seat is shown, and which answers break the rules.

A mode is a class with a name, registered once with `register`. It runs no turns: `debate` plays the rounds, and the stage asks the mode.
Its prompts are one template, ``prompts/debates/NAME.md``, which says for each of the four `LAYERS` what is the mode's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agents.debates.answers import Answer
from agents.debates.measures import Statistics, statistics
from agents.debates.models import DebateSeat, DebateTurn
from agents.kit.text.authors import NameMask
from agents.kit.text.fences import render_prompt
from agents.models import Agent, MemoryBlock, Trait

LAYERS = ("role", "contract", "structure", "verification")
POLL = 0
Order = Literal["parallel", "seats", "teams"]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that was said, as the reader sees it.

    Attributes:
        round: In which round; what a person added counts to the round before it.
        who: The name or label of the seat; empty for a person.
        answer: None for a person.
    """

    round: int
    who: str
    text: str
    answer: Answer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All that a seat may see when its turn begins.

    Attributes:
        round: The round to be answered; 0 is the poll.
        seats: All of the debate, in order.
        entries: What was said so far and this seat may read, oldest first. In the poll nothing.
        statistics: Of the round before this one; None where the mode does not show them.
        mask: Hides the names of the other seats; None where names are shown.
    """

    mode: str
    topic: str
    round: int
    seats: tuple[DebateSeat, ...]
    entries: tuple[Entry, ...] = ()
    statistics: Statistics | None = None
    mask: NameMask | None = None


Processor = Callable[[Context, DebateSeat], Context]
Validator = Callable[[Fields, DebateSeat, Context], tuple[Fields, str]]


def answer_of(turn: DebateTurn) -> Answer | None:
    """Return a seat's answer in a round; None where there is none, also where its message was deleted or erased.

    Its role is that of the seat, or the seat's perspective where the mode has no roles.
    """
    if turn.message is None:
        return None
    payload = turn.message.payload
    fields = {name: payload[name] for name in Answer.model_fields if name in payload}
    fields["seat"] = turn.seat.number
    fields["role"] = turn.seat.role or turn.seat.perspective
    try:
        return Answer.model_validate(fields)
    except ValidationError:
        return None


LABELS = ("Participant", "Panelist", "Respondent", "Debater")


def labels_for(agents: Sequence[Agent]) -> list[str]:
    """Return a label for each seat, such as ``Participant 2``, with a word that is in none of the agents' names, personas and memories.

    Simulated participants have such names: the label must not be that of another. Where all `LABELS` are taken, it is the first one.
    """
    texts: list[str] = []
    for agent in agents:
        texts += [agent.display_name, agent.slug, agent.system_prompt]
    texts += MemoryBlock.objects.filter(agent__in=agents).values_list("value", flat=True)
    for trait in Trait.objects.filter(agent__in=agents):
        texts += [trait.name, trait.description]
    all_text = "\n".join(texts).casefold()
    word = next((word for word in LABELS if word.casefold() not in all_text), LABELS[0])
    return [f"{word} {number}" for number in range(1, len(agents) + 1)]


def anonymous(context: Context, seat: DebateSeat) -> Context:
    """Put labels in place of names, and mask the names of the other seats in everything that was said.

    The reading seat's own name stays in the texts. Entries of people have no label.
    """
    labels = {each.number: each.label for each in context.seats}
    names: list[str] = []
    for each in context.seats:
        if each.number != seat.number:
            names += [each.agent.display_name, each.agent.slug]
    mask = NameMask(names)
    entries = []
    for entry in context.entries:
        masked = replace(entry, who="", text=mask(entry.text))
        if entry.answer:
            masked = replace(masked, who=labels[entry.answer.seat], answer=_masked(entry.answer, mask))
        entries.append(masked)
    return replace(context, entries=tuple(entries), mask=mask)


def _masked(answer: Answer, mask: NameMask) -> Answer:
    return answer.model_copy(
        update={
            "position": mask(answer.position),
            "reasoning": mask(answer.reasoning),
            "citations": tuple(mask(source) for source in answer.citations),
        }
    )


def with_statistics(context: Context, seat: DebateSeat) -> Context:
    """Add the statistics of the round before."""
    answers = [entry.answer for entry in context.entries if entry.answer and entry.round == context.round - 1]
    return replace(context, statistics=statistics(answers) if answers else None)


def _is_number_not_nan(value: object) -> TypeGuard[float]:
    """Return whether a confidence is a number: no text, no true or false, not NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def required_fields(fields: Fields, seat: DebateSeat, context: Context) -> tuple[Fields, str]:
    """Find a violation when position, reasoning or confidence are missing, or the stance where the mode has stances.

    Returns:
        The fields unchanged, and the violation; empty where there is none.
    """
    texts = ["position", "reasoning"]
    if mode_of(context.mode).stances:
        texts.append("stance")
    missing = [name for name in texts if not str(fields.get(name) or "").strip()]
    if not _is_number_not_nan(fields.get("confidence")):
        missing.append("confidence")
    if not missing:
        return fields, ""
    return fields, f"required fields are missing: {', '.join(missing)}"


def confidence_range(fields: Fields, seat: DebateSeat, context: Context) -> tuple[Fields, str]:
    """Clamp a confidence to 0–1 and keep the answer's own as `confidence_raw`. No violation: one that is missing is not this rule's."""
    confidence = fields.get("confidence")
    if not _is_number_not_nan(confidence) or 0 <= confidence <= 1:
        return fields, ""
    return {**fields, "confidence": min(1.0, max(0.0, confidence)), "confidence_raw": confidence}, ""


def required_stance(fields: Fields, seat: DebateSeat, context: Context) -> tuple[Fields, str]:
    """Find a violation when a role takes another stance than its own. The answer stays as it is; in the poll all are free.

    Returns:
        The fields unchanged, and the violation; empty where there is none.
    """
    expected = mode_of(context.mode).required_stances.get(seat.role)
    stance = fields.get("stance")
    if context.round == POLL or expected is None or stance == expected:
        return fields, ""
    return fields, f"the stance of the {seat.role} is {expected}, and the answer says {stance}"


class Config(BaseModel):
    """The settings of a mode besides the settings of every debate.

    Attributes:
        script: What the offline scripted actor says: by number of the seat, the fields of its answers, one entry a round from the first
            on (the poll, if there is one); the last goes on. Fields that are missing are made from the agent's sample lines.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    script: dict[int, list[dict[str, Any]]] = {}


PERSPECTIVES = ("technical", "economic", "ethical", "social")
Perspective = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
MOST_PERSPECTIVES = 100
Assignment = Literal["round-robin", "random", "explicit"]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Perspectives(Config):
    """From which side each seat of an expert panel looks at the question.

    Attributes:
        perspectives: Those of the panel, also own ones. With `explicit` one for each seat, in order.
        assignment: In turn; in turn from a shuffled list; or as given.
        seed: Of the shuffling.
    """

    perspectives: list[Perspective] = Field(default=list(PERSPECTIVES), min_length=1, max_length=MOST_PERSPECTIVES)
    assignment: Assignment = "round-robin"
    seed: Seed = 0

    def assign(self, seats: int) -> list[str]:
        """Return one perspective for each of so many seats; where there are fewer perspectives, they begin again.

        Raises:
            ValueError: With `explicit` there are not as many perspectives as seats.
        """
        if self.assignment == "explicit" and len(self.perspectives) != seats:
            raise ValueError(f"{len(self.perspectives)} named for {seats} seats; allowed: one for each seat")
        chosen = list(self.perspectives)
        if self.assignment == "random":
            random.Random(self.seed).shuffle(chosen)  # noqa: S311 (no secret)
        return [chosen[number % len(chosen)] for number in range(seats)]


class Mode:
    """The rules of a debate. Subclasses set the attributes and override the hooks they need; a mode holds no state of a debate.

    Attributes:
        name: In settings, commands and the API. `title`, `about` and `when` (ends “use it when”): for people.
        stances: Whether answers take a stance (yes, no, neutral); then the topic has to be a question of yes or no.
        order: All seats side by side; one after the other; or the teams one after the other, the seats of a team side by side.
        roles: Every role there is, in the order of the teams.
        min_seats: Fewer are refused.
        required_stances: Role to the stance that it has to take; other roles are free.
        config: What it can be given.
        processors: What `transform_context` does, in order. `validators`: the same of `validate_response`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str] = ""
    when: ClassVar[str] = ""
    stances: ClassVar[bool] = False
    order: ClassVar[Order] = "parallel"
    roles: ClassVar[tuple[str, ...]] = ()
    min_seats: ClassVar[int] = 2
    required_stances: ClassVar[Mapping[str, str]] = {}
    config: ClassVar[type[Config]] = Config
    processors: ClassVar[tuple[Processor, ...]] = ()
    validators: ClassVar[tuple[Validator, ...]] = (required_fields, confidence_range, required_stance)

    @property
    def cost(self) -> str:
        """Return what a round takes, in calls of models and in time."""
        pace = {
            "parallel": "all at once",
            "seats": "one after the other, so a round takes as long as all answers together",
            "teams": "one team after the other",
        }
        return f"each round 1 call per agent, {pace[self.order]}, and 1 of the judge"

    @property
    def shape(self) -> str:
        """Return the name of the typed answer in `turn_answers`."""
        return "stanced position" if self.stances else "position"

    def get_agent_role(self, number: int, seats: int) -> str:
        """Return the role of seat `number` (from 1) of `seats`; empty where the mode has none."""
        return ""

    def perspectives(self, seats: int, config: Mapping[str, Any]) -> list[str]:
        """Return the perspective of each seat; empty ones where the mode has none.

        Raises:
            ValueError: The configuration is not the mode's (a pydantic `ValidationError` is one).
        """
        self.config.model_validate(dict(config))
        return [""] * seats

    def groups(self, seats: Sequence[DebateSeat]) -> list[list[DebateSeat]]:
        """Return the seats in their order of speaking: those of an inner list answer side by side and do not see each other's answers."""
        if self.order == "seats":
            return [[seat] for seat in seats]
        if self.order == "teams":
            teams = [[seat for seat in seats if seat.role == role] for role in self.roles]
            return [team for team in teams if team]
        return [list(seats)]

    def transform_context(self, context: Context, seat: DebateSeat) -> Context:
        """Return the context as this seat is shown it."""
        for process in self.processors:
            context = process(context, seat)
        return context

    def validate_response(self, fields: Fields, seat: DebateSeat, context: Context) -> tuple[Fields, str]:
        """Return the fields as they are stored, and which rules the answer breaks, with semicolons between; empty when it keeps them.

        The context is as it was before `transform_context`. Each validator is given the fields as the one before it returned them.
        """
        violations = []
        for validate in self.validators:
            fields, violation = validate(fields, seat, context)
            violations.append(violation)
        return fields, "; ".join(filter(None, violations))

    def prompt(self, layer: str, **values: Any) -> str:
        """Return the mode's own part of a layer of the prompt."""
        return render_prompt(f"debates/{self.name}", layer=layer, **values)


MODES: dict[str, Mode] = {}
M = TypeVar("M", bound=Mode)


def register(mode: type[M]) -> type[M]:
    """Make a mode available under its name.

    Raises:
        ValueError: Another mode has the name.
    """
    if mode.name in MODES:
        raise ValueError(f"mode {mode.name!r} is registered already; allowed: a name of its own")
    MODES[mode.name] = mode()
    return mode


def mode_of(name: str) -> Mode:
    """Return the mode of that name.

    Raises:
        ValueError: There is none.
    """
    if name not in MODES:
        raise ValueError(f"mode {name!r} is unknown; allowed: {', '.join(MODES)}")
    return MODES[name]


@register
class Collaborative(Mode):
    name = "collaborative"
    title = "Collaborative"
    about = "All build on each other's answers and look for the best common one."
    when = "you want one answer that all can carry, such as a plan or a text."


@register
class Adversarial(Mode):
    name = "adversarial"
    title = "Adversarial"
    about = "Each in turn attacks the weakest point of the others and defends its own position."
    when = "the question is one of yes or no, and you want to know which answer survives attacks."
    stances = True
    order = "seats"


@register
class Socratic(Mode):
    name = "socratic"
    title = "Socratic"
    about = "Each in turn questions the assumptions behind what was said, its own included."
    when = "the question itself may be wrong, or rests on what nobody has checked."
    order = "seats"


@register
class ExpertPanel(Mode):
    name = "expert-panel"
    title = "Expert panel"
    about = "Each looks at the question from an assigned perspective."
    when = "a decision has several sides, such as technology, money and ethics, and none may be forgotten."
    config = Perspectives

    def perspectives(self, seats: int, config: Mapping[str, Any]) -> list[str]:
        return Perspectives.model_validate(dict(config)).assign(seats)


@register
class DevilsAdvocate(Mode):
    """The first seat argues for yes, the second for no; the others weigh both and are free."""

    name = "devils-advocate"
    title = "Devil's advocate"
    about = "One argues for yes, one for no, and the others weigh both."
    when = "all would agree too easily: one agent has to argue for the other side."
    stances = True
    order = "seats"
    roles = ("primary", "opposition", "evaluator")
    required_stances: ClassVar = {"primary": "yes", "opposition": "no"}

    def get_agent_role(self, number: int, seats: int) -> str:
        return self.roles[min(number, len(self.roles)) - 1]


@register
class Delphi(Mode):
    name = "delphi"
    title = "Delphi"
    about = "Nobody knows who said what; each sees the answers and their statistics, and answers again."
    when = "you want an estimate or a vote in which no name and no loud voice decides."
    stances = True
    processors = (anonymous, with_statistics)


@register
class RedTeamBlueTeam(Mode):
    name = "red-team-blue-team"
    title = "Red team, blue team"
    about = "The red team attacks what is proposed, then the blue team answers."
    when = "a plan has to be tested for its weak points before it is carried out."
    order = "teams"
    roles = ("red", "blue")

    def get_agent_role(self, number: int, seats: int) -> str:
        return self.roles[(number - 1) % 2]
