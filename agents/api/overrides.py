"""Overrides and a deadline that a request for a turn or a send may set for this one."""

from __future__ import annotations

from typing import Annotated, Any

from django.utils.module_loading import import_string
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request

from agents.kit.bodies import ABSENT, Tags
from agents.kit.capability import declared_one
from agents.kit.llm.endpoints import problem_of
from agents.kit.llm.providers import reads_files
from agents.models import Agent, Channel
from agents.turn.pipeline import pipeline, stage_name

NEEDED = "agents.change_agent"
HARMLESS = ("tags", "model", "scene")  # overrides that neither leave out a stage nor change its settings

Deadline = Annotated[
    float,
    Field(
        ge=0.1,
        le=60,
        description="seconds the stages may judge, at most those of the configuration; below 2 only for users who may override it",
    ),
]


def _known_stage(name: str) -> str:
    """Return the name of a stage; refuse one that there is not."""
    names = [stage_name(stage) for stage in pipeline().stages]
    if name not in names:
        raise PydanticCustomError("stage", "{known}", {"known": ", ".join(names) or "none: there are no stages"})
    return name


def _callable_model(name: str) -> str:
    """Return the name of a model; refuse one that cannot be called, and files of this machine."""
    if not name.strip() or reads_files(name) or problem_of("actor", name):
        raise PydanticCustomError("model", "the name of a model that can be called")
    return name


ModelName = Annotated[str, AfterValidator(_callable_model)]


class Overrides(BaseModel):
    """Settings for this one, for users who may change agents; further fields are those of the configuration.

    `stages` and fields of the configuration are for users who may change that, too.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    stages: list[Annotated[str, AfterValidator(_known_stage)]] = Field(ABSENT, description="which stages there are")
    model: ModelName = ABSENT
    tags: Tags = ABSENT
    scene: int = Field(ABSENT, ge=0, lt=2**31)


def overrides_of(request: Request, body: Any, *, agent: Agent, channel: Channel, session: str = "") -> dict[str, Any]:
    """Return the overrides of a body's ``overrides`` and ``deadline``, as `Run.overrides` has them.

    Raises:
        PermissionDenied: The user may not change agents, or not what watches over them, which overrides could switch off.
        ValidationError: An override is none, or has a value it cannot have; or the session cannot be continued; or the deadline is
            so short that nothing could be judged, which is for those who may override it.
    """
    overrides: dict[str, Any] = body.overrides.model_dump(exclude_unset=True)
    if overrides and not request.user.has_perm(NEEDED):
        raise PermissionDenied(f"overrides: only for users with the permission {NEEDED}")
    permission_of_guards = declared_one("turn_overrides_need") or NEEDED
    may_set_all = request.user.has_perms((NEEDED, permission_of_guards))
    guarded = [name for name in overrides if name not in HARMLESS]  # could switch off what watches over agents
    if guarded and not may_set_all:
        names = ", ".join(guarded)[:80]
        raise PermissionDenied(f"overrides {names}: only for users with the permission {permission_of_guards}")
    _check_configuration(body.overrides.model_extra or {}, agent=agent, channel=channel, session=session)
    if body.deadline is None:
        return overrides
    return {**_overrides_of_deadline(body.deadline, agent, may_set_all), **overrides}  # what is given itself counts


def _check_configuration(overrides: dict[str, Any], *, agent: Agent, channel: Channel, session: str) -> None:
    """Have the app that declares `turn_request_check` check its overrides, and the session to be continued."""
    path = declared_one("turn_request_check")
    if not path or not (overrides or session):
        return
    errors: dict[str, list[str]] = {}
    for name, text in import_string(path)(agent=agent, channel=channel, overrides=overrides, session=session):
        errors.setdefault(name, []).append(text)
    if errors:
        raise ValidationError(errors)


def _overrides_of_deadline(seconds: float, agent: Agent, any_length: bool) -> dict[str, Any]:
    """Return the overrides by which the app that declares `turn_deadlines` keeps a deadline."""
    path = declared_one("turn_deadlines")
    if not path:
        return {}
    try:
        overrides: dict[str, Any] = import_string(path)(agent=agent, seconds=seconds, any_length=any_length)
    except ValueError as error:
        raise ValidationError({"deadline": [str(error)]}) from None
    return overrides
