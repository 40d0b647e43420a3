"""Nudges: what an agent is shown when an intervention fires, by kind and character. They live in ``nudges/*.yaml``."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from django.conf import settings
from django.db import models
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agents.kit.text.fences import one_line
from correction.interventions.functions import InterventionContext
from correction.interventions.intervention import Effect, PromptModification
from evaluation.propositions.files import (
    FileProblem,
    YamlProblems,
    dotted,
    in_words,
    line_of,
    location_of,
    read_folders,
    read_mapping,
)
from evaluation.propositions.schema import fill

FOLDER = Path(__file__).with_name("nudges")
GENERIC = "_default"
VARIABLES = ("agent_name", "channel_name", "manner")


class NudgeType(models.TextChoices):
    """The kinds of nudges (S-7.1)."""

    DEVILS_ADVOCATE = "devils_advocate", "devil's advocate"
    CHANGE_SUBJECT = "change_subject", "change the subject"
    PERSONAL_STORY = "personal_story", "personal story"
    CHALLENGING_QUESTION = "challenging_question", "challenging question"
    NEW_IDEAS = "new_ideas", "new ideas"


AGAINST_CONVERGENCE = (
    NudgeType.DEVILS_ADVOCATE,
    NudgeType.CHALLENGING_QUESTION,
    NudgeType.PERSONAL_STORY,
    NudgeType.CHANGE_SUBJECT,
)
FOR_VARIETY = (NudgeType.NEW_IDEAS,)


def _checked_nudge(text: str) -> str:
    check_nudge(text)
    return text


def check_nudge(text: str) -> None:
    """Check that the text uses no other variables than nudges have.

    Raises:
        ValueError: It does; says which there are.
    """
    try:
        fill(text, dict.fromkeys(VARIABLES, ""))
    except ValueError:
        allowed = ", ".join("{{" + name + "}}" for name in VARIABLES)
        raise ValueError(f"unknown variable; allowed: {allowed}") from None


Text = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_checked_nudge)]


class NudgeFile(BaseModel):
    """A nudge file: whose it is, and a text for each kind; a kind that is left out falls back to the generic text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    agent_id: str | None = Field(None, description="the agent's slug; default the file's name")
    nudges: dict[Annotated[NudgeType, Field(strict=False)], Text] = Field(min_length=1)


class NudgeError(YamlProblems):
    """Nudge files that cannot be used."""


def load_file(path: Path) -> tuple[str, Mapping[NudgeType, str]]:
    """Return whose file it is (an agent's slug, or ``_default``), and its texts by their kind.

    The file names the agent, else its own name does. That of ``_default`` must have a text of each kind.

    Raises:
        NudgeError: With every problem of the file.
    """
    try:
        node, data = read_mapping(path, "nudges")
    except YamlProblems as error:
        raise NudgeError(error.problems) from None
    try:
        parsed = NudgeFile.model_validate(data)
    except ValidationError as error:
        raise NudgeError([_problem(path, node, dict(item)) for item in error.errors()]) from None
    owner = parsed.agent_id or path.stem
    if owner == GENERIC:
        missing = [kind.value for kind in NudgeType if kind not in parsed.nudges]
        if missing:
            line = line_of(node, ("nudges",))
            raise NudgeError([FileProblem(path, line, "nudges", f"missing: {', '.join(missing)}")])
    return owner, parsed.nudges


def _problem(path: Path, node: Any, item: dict[str, Any]) -> FileProblem:
    """Return a problem that pydantic found, with its line in the file."""
    location = tuple(part for part in location_of(item) if part != "[key]")
    if item["type"] == "enum":
        message = f"unknown kind; allowed: {', '.join(NudgeType.values)}"
    else:
        message = in_words(item, list(NudgeFile.model_fields))
    return FileProblem(path, line_of(node, location), dotted(location), message)


def load_nudges(*, seeded: bool = True) -> dict[str, dict[NudgeType, str]]:
    """Return the texts of every agent that has some, and the generic ones under ``_default``. Only changed files are read again.

    Our folder is read first, then the team's (`NUDGE_DIRS`), whose texts win, kind by kind.

    Args:
        seeded: Whether the texts of the example agents are among them: they are for these alone (`Agent.seeded`).

    Raises:
        NudgeError: With the problems of all files, and of folders that do not exist.
    """
    folders = (FOLDER, *map(Path, settings.NUDGE_DIRS))
    files, problems = read_folders(folders, "NUDGE_DIRS", load_file)
    if problems:
        raise NudgeError(problems)
    merged: dict[str, dict[NudgeType, str]] = {}
    for path, (owner, texts) in files:
        is_of_example = path.is_relative_to(FOLDER) and owner != GENERIC
        if seeded or not is_of_example:
            merged.setdefault(owner, {}).update(texts)
    return merged


def choose_type(context: InterventionContext, among: Sequence[NudgeType]) -> NudgeType:
    """Return the kind of the next nudge: they take turns, so that of several an agent never gets the same twice in a row in a channel.

    Where to begin follows from the names of agent and channel, so that the agents of a channel do not all begin alike.
    """
    last = context.surroundings.last_nudge_type
    if last in among:
        following = among.index(NudgeType(last)) + 1
        return among[following % len(among)]
    names = f"{context.agent.slug}/{context.channel.slug}"
    return among[zlib.crc32(names.encode()) % len(among)]


def nudge_text(context: InterventionContext, kind: NudgeType) -> str:
    """Return the agent's own text of this kind, else the generic one with the agent's name and strongest traits (AC-7.1.8)."""
    nudges = load_nudges(seeded=context.agent.seeded)
    text = nudges.get(context.agent.slug, {}).get(kind)
    return fill_nudge(text or nudges[GENERIC][kind], context)


def fill_nudge(text: str, context: InterventionContext) -> str:
    """Put the variables into a nudge, each on one line: names and traits come from imported files."""
    name = one_line(context.agent.display_name)
    manner = f"as {name} would"
    if "manner" in text and context.surroundings.strongest_traits:  # else the query for traits is spared
        traits = ", ".join(one_line(trait) for trait in context.surroundings.strongest_traits)
        manner += f" ({traits})"
    values = {"agent_name": name, "channel_name": one_line(str(context.channel)), "manner": manner}
    return fill(text, values).strip()


def nudge_effect(*among: NudgeType) -> Effect:
    """Return an effect that gives the next nudge of these kinds."""

    def effect(context: InterventionContext) -> PromptModification:
        kind = choose_type(context, among)
        return PromptModification(guidance=nudge_text(context, kind), nudge_type=kind.value)

    return effect


def text_effect(text: str, nudge_type: str = "") -> Effect:
    """Return an effect that gives this text.

    Raises:
        ValueError: It uses a variable that nudges do not have.
    """
    check_nudge(text)
    return lambda context: PromptModification(guidance=fill_nudge(text, context), nudge_type=nudge_type)
