"""What a request for a turn or a send may set for this one: overrides and a deadline."""

from __future__ import annotations

from typing import Annotated, Any

from django.utils.module_loading import import_string
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request

from agents.kit.bodies import ABSENT, Tags
from agents.kit.capability import declared_one
from agents.kit.llm.endpoints import problem_of, provider_of
from agents.models import Agent, Channel
from agents.turn.pipeline import pipeline, stage_name

NEEDED = "agents.change_agent"
HARMLESS = ("tags", "model", "scene")  # what no stage is left out or set by

Deadline = Annotated[
    float,
    Field(
        ge=0.1,
        le=60,
        description="seconds the stages may judge, at most those of the configuration; below 2 only for users who may override it",
    ),
]


def _stage(name: str) -> str:
    known = [stage_name(stage) for stage in pipeline().stages]
    if name not in known:
        raise PydanticCustomError("stage", "{known}", {"known": ", ".join(known) or "none: there are no stages"})
    return name


def _model(name: str) -> str:
    if not name.strip() or provider_of(name) == "replay" or problem_of("actor", name):
        raise PydanticCustomError("model", "the name of a model that can be called")
    return name


ModelName = Annotated[str, AfterValidator(_model)]


class Overrides(BaseModel):
    """Settings for this one, for users who may change agents; further fields are those of the configuration.

    `stages` and fields of the configuration are for users who may change that, too.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    stages: list[Annotated[str, AfterValidator(_stage)]] = Field(ABSENT, description="which stages there are")
    model: ModelName = ABSENT
    tags: Tags = ABSENT
    scene: int = Field(ABSENT, ge=0, lt=2**31)


def overrides_of(request: Request, body: Any, *, agent: Agent, channel: Channel, session: str = "") -> dict[str, Any]:
    """The overrides of a body's ``overrides`` and ``deadline``, as `Run.overrides` has them.

    Raises:
        PermissionDenied: The user may not change agents, or not what watches over them, which overrides could switch off.
        ValidationError: An override is none, or has a value it cannot have; or the session cannot be continued; or the deadline is
            so short that nothing could be judged, which is for those who may override it.
    """
    overrides: dict[str, Any] = body.overrides.model_dump(exclude_unset=True)
    if overrides and not request.user.has_perm(NEEDED):
        raise PermissionDenied(f"overrides: only for users with the permission {NEEDED}")
    guard = declared_one("turn_overrides_need") or NEEDED
    may_set = request.user.has_perms((NEEDED, guard))
    if guarded := [name for name in overrides if name not in HARMLESS and not may_set]:
        text = f"overrides {', '.join(guarded)[:80]}: only for users with the permission {guard}"
        raise PermissionDenied(text)
    of_configuration = body.overrides.model_extra or {}
    errors: dict[str, list[str]] = {}
    check_path = declared_one("turn_request_check")
    if check_path and (of_configuration or session):
        check = import_string(check_path)
        for name, text in check(agent=agent, channel=channel, overrides=of_configuration, session=session):
            errors.setdefault(name, []).append(text)
    if errors:
        raise ValidationError(errors)
    deadlines_path = declared_one("turn_deadlines")
    if deadlines_path and body.deadline is not None:
        try:
            of_seconds = import_string(deadlines_path)
            deadlines = of_seconds(agent=agent, seconds=body.deadline, any_length=may_set)
        except ValueError as error:
            raise ValidationError({"deadline": [str(error)]}) from None
        overrides = {**deadlines, **overrides}
    return overrides
