"""What a request for a turn or a send may set for this one: overrides and a deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from django.conf import settings
from django.core.exceptions import ValidationError as InvalidTags
from django.utils.module_loading import import_string
from pydantic import Field
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request

from agents.api.bodies import Anything
from agents.llm.endpoints import problem_of, provider_of
from agents.models import Agent, Channel
from agents.models.conversations import validate_tags
from agents.turn.pipeline import name_of, pipeline

NEEDED = "agents.change_agent"
HARMLESS = ("tags", "model", "scene")  # what no stage is left out or set by
LEAST, MOST = 0.1, 60.0  # seconds


Deadline = Annotated[
    float,
    Field(
        ge=LEAST,
        le=MOST,
        description="seconds the stages may judge, at most those of the configuration; below 2 only for users who may override it",
    ),
]
Overrides = Annotated[
    Anything,
    Field(
        description="settings for this one: model, tags; for users who may change agents. stages and fields of the configuration; "
        "for those who may change that, too"
    ),
]


def overrides_of(request: Request, given: Any, *, agent: Agent, channel: Channel, session: str = "") -> dict[str, Any]:
    """The overrides of a body's ``overrides`` and ``deadline``, as `Run.overrides` has them.

    Raises:
        PermissionDenied: The user may not change agents, or not what watches over them, which overrides could switch off.
        ValidationError: An override is none, or has a value it cannot have; or the session cannot be continued; or the deadline is
            so short that nothing could be judged, which is for those who may override it.
    """
    overrides: dict[str, Any] = dict(given.overrides)
    if overrides and not request.user.has_perm(NEEDED):
        raise PermissionDenied(f"overrides: only for users with the permission {NEEDED}")
    may_set = all(request.user.has_perm(name) for name in (NEEDED, settings.TURN_OVERRIDES_NEED))
    if guarded := [name for name in overrides if name not in HARMLESS and not may_set]:
        text = f"overrides {', '.join(guarded)[:80]}: only for users with the permission {settings.TURN_OVERRIDES_NEED}"
        raise PermissionDenied(text)
    others = {name: value for name, value in overrides.items() if name not in _OWN}
    problems = [text for name, value in overrides.items() if name in _OWN and (text := _OWN[name](value))]
    errors = {"overrides": problems} if problems else {}
    if others or session:
        check = import_string(settings.TURN_REQUEST_CHECK)
        for name, text in check(agent=agent, channel=channel, overrides=others, session=session):
            errors.setdefault(name, []).append(text)
    if errors:
        raise ValidationError(errors)
    if given.deadline is not None:
        try:
            of_seconds = import_string(settings.TURN_DEADLINES)
            deadlines = of_seconds(agent=agent, seconds=given.deadline, any_length=may_set)
        except ValueError as error:
            raise ValidationError({"deadline": [str(error)]}) from None
        overrides = {**deadlines, **overrides}
    return overrides


def _stages(value: Any) -> str:
    known = [name_of(stage) for stage in pipeline().stages]
    if isinstance(value, list) and all(isinstance(name, str) and name in known for name in value):
        return ""
    return f"stages {repr(value)[:80]}: allowed: a list of {', '.join(known)}"


def _model(value: Any) -> str:
    if isinstance(value, str) and value.strip() and provider_of(value) != "replay" and not problem_of("actor", value):
        return ""
    return f"model {repr(value)[:80]}: allowed: the name of a model that can be called"


def _tags(value: Any) -> str:
    try:
        validate_tags(value)
    except InvalidTags as error:
        return "tags: " + " ".join(error.messages)
    return ""


def _scene(value: Any) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return "" if good else f"scene {repr(value)[:80]}: allowed: a whole number of 0 or more"


_OWN: Mapping[str, Callable[[Any], str]] = {"stages": _stages, "model": _model, "tags": _tags, "scene": _scene}
