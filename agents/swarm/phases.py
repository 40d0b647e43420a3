"""The default swarm and its ten phases, shipped in ``phases.yaml`` and stored as rows that people edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from django.conf import settings
from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from agents.models import Agent, Swarm, SwarmPhase
from agents.swarm.intents import intents

FILE = Path(__file__).with_name("phases.yaml")
# Polishers that may put another answer in the place of a draft.
SAFETY, RECOVERY = "safety-and-refusal", "error-recovery"
TEMPLATES = ("calibration", "message", "guidance", "answer", "polish", "draft")

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$")]


class DefaultPhase(BaseModel):
    """A phase as the file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Slug
    phase: Literal["pre", "main", "post"]
    temperature: float = Field(ge=0, le=2)
    prompt: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class DefaultSwarm(BaseModel):
    """The file: a swarm with its phases, in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Slug
    intents: list[str] = Field(min_length=1)
    post_executor: Literal["combined", "sequential", "off"]
    phases: list[DefaultPhase] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> DefaultSwarm:
        twice = [name for name, n in Counter(phase.name for phase in self.phases).items() if n > 1]
        if twice:
            raise ValueError(f"phase {twice[0]!r} is there twice; allowed: names of their own")
        if unknown := set(self.intents) - set(intents()):
            raise ValueError(f"intent {min(unknown)!r} is unknown; allowed: {', '.join(intents())}")
        return self


def read_swarm(path: Path = FILE) -> DefaultSwarm:
    """The swarm that a file describes.

    Raises:
        ValueError: It is no YAML, or holds something unknown, missing or empty (a pydantic `ValidationError` is one).
    """
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    return DefaultSwarm.model_validate(content)


def problems(path: Path = FILE) -> list[str]:
    """What is wrong with the shipped swarm and with the templates that its stages render; for ``manage.py check``."""
    wrong = []
    try:
        read_swarm(path)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_context=False):
            wrong.append(f"{path.name}: {'.'.join(map(str, one['loc']))}: {one['msg']}")
    except ValueError as error:
        wrong.append(str(error))
    folder = settings.BASE_DIR / "templates" / "prompts" / "swarm"
    for name in TEMPLATES:
        template = folder / f"{name}.md"
        if not template.is_file() or not template.read_text(encoding="utf-8").strip():
            wrong.append(f"{template.name} is missing or empty")
    return wrong


@lru_cache(maxsize=1)
def default_swarm() -> DefaultSwarm:
    return read_swarm()


def ensure_default_swarm() -> Swarm:
    """The default swarm, stored with its phases if it is not there. What people changed stays as it is; no agent is assigned."""
    shipped = default_swarm()
    with transaction.atomic():
        swarm, new = Swarm.objects.get_or_create(
            name=shipped.name, defaults={"intents": shipped.intents, "post_executor": shipped.post_executor}
        )
        if new:
            orders: Counter[str] = Counter()
            for phase in shipped.phases:
                orders[phase.phase] += 1
                SwarmPhase.objects.create(swarm=swarm, order=orders[phase.phase], **phase.model_dump())
    return swarm


def seed_swarm(agents: Sequence[Agent]) -> str:
    """Store the default swarm; the example agents stay without one."""
    swarm = ensure_default_swarm()
    return f"Swarm {swarm.name}: {swarm.phases.count()} phases, {swarm.agents.count()} agents."
