"""The debate that is asked for: one request, from which command, page and route are made (`agents.kit.use_cases`)."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from django.contrib.auth.base_user import AbstractBaseUser
from pydantic import AfterValidator, Field, ValidationInfo

from agents.debates.measures import MOST_ROUNDS, ConvergenceRounds, Criteria, Rounds, Share
from agents.debates.models import Debate
from agents.debates.modes import MODES, MOST_PERSPECTIVES, PERSPECTIVES, Assignment, Mode, Perspective, Seed
from agents.debates.starting import MOST_SEATS, TOPIC_CHARACTERS, ExtraRounds, start_debate
from agents.kit.bodies import ABSENT, Body, OneOf, Reads, is_local
from agents.kit.llm.providers import reads_files
from agents.kit.use_cases import ChoiceCard, FieldDisplay
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agent

CRITERIA = Criteria()
ASSIGNMENTS = get_args(Assignment)
USUAL_MODE = next(iter(MODES))


def _agent(name: str) -> Agent:
    """Return the agent of that name or slug.

    Raises:
        LookupError: There is none.
    """
    try:
        return find_agent(name)
    except UnknownAgent as error:
        raise LookupError(str(error)) from None


def _model(name: str, info: ValidationInfo) -> str:
    """Return the name of a model; refuse one that is a file on this machine, except on the command line."""
    if reads_files(name) and not is_local(info):
        raise ValueError(f"{name[:80]!r}: allowed: the name of a model")
    return name


def _card(mode: Mode) -> ChoiceCard:
    return ChoiceCard(value=mode.name, title=mode.title, about=mode.about, when=mode.when, cost=mode.cost)


NamedAgent = Annotated[Agent, Reads(_agent, "the slug of an agent", maxLength=200)]
ActingModel = Annotated[str, AfterValidator(_model)]


class DebateRequest(Body):
    """A question, who debates it, and how."""

    topic: Annotated[str, FieldDisplay(option="topic", label="Question", is_long=True)] = Field(
        description=f"what is debated, at most {TOPIC_CHARACTERS:,} characters; where the mode has stances, a question that yes or no "
        "answers"
    )
    mode: Annotated[
        str,
        OneOf(*MODES),
        FieldDisplay(cards=lambda: [_card(mode) for mode in MODES.values()]),
    ] = Field(
        USUAL_MODE,
        description=f"the rules: who speaks after whom, in which role, and who sees what (default: {USUAL_MODE})",
    )
    agents: Annotated[list[NamedAgent], FieldDisplay(metavar="SLUGS")] = Field(
        [],
        max_length=MOST_SEATS,
        description="in the order of the seats, by slug, such as michael,dwight,pam; active, and not busy elsewhere. The mode gives the "
        "roles in this order: in devil's advocate the first argues for yes, the second for no",
    )
    rounds: Rounds = Field(
        CRITERIA.max_rounds,
        description=f"most rounds, 1 to {MOST_ROUNDS}; the poll does not count (default: {CRITERIA.max_rounds})",
    )
    models: Annotated[dict[str, ActingModel], FieldDisplay(option="--model", metavar="SEAT=MODEL")] = Field(
        {},
        max_length=MOST_SEATS,
        description="the model that acts for a seat, by the seat's number or slug, such as 2=claude-haiku-5-5",
    )
    perspectives: list[Perspective] = Field(
        ABSENT,
        min_length=1,
        max_length=MOST_PERSPECTIVES,
        description="of an expert panel, given to the seats in turn; may be your own (default: "
        f"{', '.join(PERSPECTIVES)})",
    )
    assignment: Annotated[str, OneOf(*ASSIGNMENTS)] = Field(
        ABSENT,
        description="how perspectives are given to seats; explicit: one for each seat, in order (default: round-robin)",
    )
    seed: Seed = Field(ABSENT, description="seed of the random assignment (default: 0)")
    poll: Annotated[bool, FieldDisplay(label="Blind poll first")] = Field(
        True,
        description="every seat answers once alone, before the first round: talking is compared with it (default: yes)",
    )
    judge: Annotated[bool, FieldDisplay(label="Judge each round")] = Field(
        True, description="a judge is asked after each round how far the answers agree (default: yes)"
    )
    consensus: Share | None = Field(
        CRITERIA.consensus,
        description="ends when the agreement of the last round is at least this, 0 to 1; off, or null in JSON: never (default: "
        f"{CRITERIA.consensus})",
    )
    convergence_rounds: ConvergenceRounds | None = Field(
        CRITERIA.convergence_rounds,
        description="ends when no seat changed its position for this many rounds; off, or null in JSON: never (default: "
        f"{CRITERIA.convergence_rounds})",
    )
    convergence_similarity: Share = Field(
        CRITERIA.convergence_similarity,
        description=f"two positions of a seat that are this similar count as the same, 0 to 1 (default: {CRITERIA.convergence_similarity})",
    )
    confidence: Share | None = Field(
        CRITERIA.confidence,
        description=f"ends when every seat is at least this sure, 0 to 1; off, or null in JSON: never (default: {CRITERIA.confidence})",
    )
    extra_rounds_on_groupthink: ExtraRounds = Field(
        0, description="played at most where it would end and they agree too easily (default: 0)"
    )
    real: Annotated[bool, FieldDisplay(label="Real speech")] = Field(
        False,
        description="what is said is measured like the agents' other messages; else only when selected by its tag",
    )


def request_debate(request: DebateRequest, *, user: AbstractBaseUser | None = None) -> Debate:
    """Make the debate; it waits until rounds are asked for.

    Raises:
        DebateRefused: It cannot be played.
    """
    chosen: dict[str, Any] = request.sent
    return start_debate(**{"mode": request.mode, "agents": request.agents, **chosen}, user=user)
