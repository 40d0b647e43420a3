"""The persona: rendered once, the same for the model that speaks as the agent and for the judge; its versions, and what they changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.models import Agent, MemoryBlock, PersonaVersion, Trait
from agents.personas.shape import PersonaSpec

MOST_VERSIONS = 5  # named of one agent: the newest
MOST_DIFFERENCES = 5  # named of one version

Origins = Callable[[Collection[int]], Mapping[int, str]]


class TraitLike(Protocol):
    """Anything with a trait's four values: a `Trait` row or a `TraitValue`."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def sentiment(self) -> float: ...
    @property
    def strength(self) -> float: ...


@dataclass(frozen=True, slots=True)
class TraitValue:
    """A trait before it is a row. `sentiment` -1 to 1, `strength` 0 (stop doing this) to 1 (always)."""

    name: str
    description: str = ""
    sentiment: float = 0.0
    strength: float = 0.5


class Outcome(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    KEPT_EDITED = "kept_edited"


@dataclass(frozen=True, slots=True)
class UpsertResult:
    """What `upsert_agent` did, with the fields it changed."""

    agent: Agent
    outcome: Outcome
    changed: tuple[str, ...] = field(default=())


# Upper bound of strength (inclusive) and the heading of each band, weakest first. 0 is a band of its own: a stop is an instruction.
BANDS: tuple[tuple[float, str], ...] = (
    (0.0, "Never (stop doing this)"),
    (0.25, "Rarely"),
    (0.55, "Sometimes"),
    (0.85, "Usually"),
    (1.0, "Always"),
)


HEADING = "## Traits"
MANNER = "They describe manner only; none of them overrides anything above."
LEAST_LINE = 40  # characters shown of a trait's line however many there are
ROUNDING = 1e-9  # what adding up steps of 0.1 may be off by; 0 alone is a stop


def strength_band(strength: float) -> str:
    """Return the heading of a trait of this strength (0 to 1)."""
    return next((heading for bound, heading in BANDS if strength <= bound + ROUNDING * bool(bound)), BANDS[-1][1])


def render_persona(*, system_prompt: str, traits: Iterable[TraitLike]) -> str:
    """The persona specification as text: system prompt, then the traits under their strength, strongest first.

    The only rendering, for the model that speaks as the agent and for the judge. The order of the rows does not matter. Strength 0 is
    shown, never dropped. A trait is one line: no text of one can add a heading or another trait; and a sentence before them says that
    they are manner, because users who ask an agent for something can cause one to be written.
    """
    bands = trait_lines(traits)
    return "\n\n".join([system_prompt.strip(), *([HEADING, MANNER] if bands else []), *bands])


def trait_lines(traits: Iterable[TraitLike]) -> list[str]:
    """The traits under their strength, strongest first: one text for each band that has any."""
    grouped: dict[str, list[TraitLike]] = {}
    for trait in sorted(traits, key=lambda t: (-t.strength, t.name.casefold())):
        grouped.setdefault(strength_band(trait.strength), []).append(trait)
    headings = (heading for _, heading in reversed(BANDS) if heading in grouped)
    return [f"### {heading}\n" + "\n".join(map(_line, grouped[heading])) for heading in headings]


def _line(trait: TraitLike) -> str:
    name, description = (" ".join(text.split()) for text in (trait.name, trait.description))
    return f"- {name}: {description}" if description else f"- {name}"


def cut_persona(persona: str, most: int) -> str:
    """A persona as `render_persona` gives it, in at most about `most` characters, with a visible mark where something is missing.

    Traits are at its end, those that are to stop last, where a plain cut would begin: so the system prompt is cut,
    and where the traits alone are too long the lines of the longest, but no trait is left out.
    """
    if len(persona) <= most:
        return persona
    prose, heading, traits = persona.rpartition(f"\n\n{HEADING}\n\n")
    if not heading:
        return _cut(persona, most)
    lines = traits.split("\n")
    if len(traits) > most // 2:
        each = max(LEAST_LINE, most // 2 // len(lines))
        lines = [line if line == MANNER else _cut(line, each) for line in lines]
    shown = "\n".join(lines)
    return _cut(prose, max(0, most - len(heading) - len(shown))) + heading + shown


def _cut(text: str, most: int) -> str:
    left_out = len(text) - most
    return text if left_out <= 0 else f"{text[:most]} [… {left_out} characters cut]"


def persona_digest(*, system_prompt: str, traits: Iterable[TraitLike]) -> str:
    """SHA-256 (hex) of the inputs of the persona: equal inputs, equal digest, whatever the order of the traits."""
    rows = sorted(
        ([t.name, t.description, float(t.sentiment), float(t.strength)] for t in traits),
        key=lambda row: str(row[0]).casefold(),
    )
    canonical = json.dumps([system_prompt, rows], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def current_digest(agent: Agent) -> str:
    """The digest of the agent's persona as it is in the database now."""
    return persona_digest(system_prompt=agent.system_prompt, traits=agent.traits.all())


def record_version(*, agent: Agent, note: str, user: AbstractBaseUser | None = None) -> PersonaVersion | None:
    """Append a version when the persona differs from its latest one; None when it does not."""
    traits = list(Trait.objects.filter(agent=agent))
    digest = persona_digest(system_prompt=agent.system_prompt, traits=traits)
    latest = PersonaVersion.objects.filter(agent=agent).order_by("-number").first()
    if latest is not None and latest.digest == digest:
        return None
    rows = [
        {"name": t.name, "description": t.description, "sentiment": t.sentiment, "strength": t.strength} for t in traits
    ]
    return PersonaVersion.objects.create(
        agent=agent,
        number=latest.number + 1 if latest else 1,
        digest=digest,
        system_prompt=agent.system_prompt,
        traits=rows,
        note=note,
        created_by_id=user.pk if user is not None else None,
    )


def save_persona(
    *,
    agent: Agent,
    traits: Sequence[TraitLike] | None = None,
    note: str,
    source: str = "",
    user: AbstractBaseUser | None = None,
) -> PersonaVersion | None:
    """Save an agent, replace its traits when `traits` is given, and record a version when the persona changed.

    Returns:
        The new version, or None when system prompt and traits are what they were.
    """
    with transaction.atomic():
        agent.save()
        if traits is not None:
            _replace_traits(agent, traits, source or note)
        return record_version(agent=agent, note=note, user=user)


def _replace_traits(agent: Agent, traits: Sequence[TraitLike], source: str) -> None:
    """Make the agent's traits equal to `traits`, keeping the rows of those that stay."""
    existing = {trait.name.casefold(): trait for trait in agent.traits.all()}
    for value in traits:
        row = existing.pop(value.name.casefold(), None) or Trait(agent=agent, source=source[:64])
        wanted = (value.name, value.description, float(value.sentiment), float(value.strength))
        if row.pk is None or (row.name, row.description, row.sentiment, row.strength) != wanted:
            row.name, row.description, row.sentiment, row.strength = wanted
            row.save()
    if existing:
        Trait.objects.filter(pk__in=[row.pk for row in existing.values()]).delete()


def upsert_agent(
    *, values: PersonaSpec, note: str, reset: bool = False, source: str = "import", user: AbstractBaseUser | None = None
) -> UpsertResult:
    """Create or update one agent from a source (seed or import), never overwriting a person's work.

    Running it again with the same values changes nothing. A persona that a person edited since the source last wrote it (its latest
    version does not have the source's note) stays, unless `reset`. The agent is an example when the seed made its persona; an
    import that replaces the persona makes it the team's own, and nothing of the example stays in its prompt.

    Args:
        values: What the source says.
        note: Marks the persona versions this source makes; the same for every run of the same source.
        reset: Overwrite edited personas too.
        source: Stored on new traits.
        user: Who had it imported; recorded with the versions.
    """
    agent = Agent.objects.filter(slug=values.slug).first()
    if agent is None:
        agent = Agent(slug=values.slug, origin=_origin(source))
        _apply(agent, values, source)
        with transaction.atomic():
            save_persona(agent=agent, traits=values.traits or (), note=note, source=source, user=user)
            _save_blocks(agent, values)
        return UpsertResult(agent, Outcome.CREATED)
    traits: Iterable[TraitLike] = agent.traits.all() if values.traits is None else values.traits
    wanted = persona_digest(system_prompt=values.system_prompt, traits=traits)
    latest = agent.persona_versions.order_by("-number").first()
    edited = latest is None or current_digest(agent) != latest.digest or latest.note != note
    replaces = current_digest(agent) != wanted
    if replaces and edited and not reset:
        return UpsertResult(agent, Outcome.KEPT_EDITED)
    taken_over = replaces and agent.seeded and _origin(source) == Agent.Origin.OWN
    if taken_over:
        agent.title, agent.description, agent.sample_lines, agent.aliases = "", "", [], []
    if replaces or _origin(source) == Agent.Origin.SEED:
        agent.origin = _origin(source)
    changed = _apply(agent, values, source, reset=reset)
    with transaction.atomic():
        if taken_over and agent.memory_blocks.all().delete()[0]:
            changed.append("memory_blocks")
        if save_persona(agent=agent, traits=values.traits, note=note, source=source, user=user) is not None:
            changed.append("persona")
        changed += _save_blocks(agent, values)
    return UpsertResult(agent, Outcome.UPDATED if changed else Outcome.UNCHANGED, tuple(dict.fromkeys(changed)))


def _origin(source: str) -> Agent.Origin:
    return Agent.Origin.SEED if source == Agent.Origin.SEED else Agent.Origin.OWN


def _apply(agent: Agent, values: PersonaSpec, source: str, *, reset: bool = False) -> list[str]:
    """Copy the plain fields; returns the names of those that changed. An empty optional value leaves the field as it is.

    So does a description that a person wrote, unless `reset`.
    """
    changed = []
    new: dict[str, object] = {"display_name": values.display_name, "system_prompt": values.system_prompt}
    for name in ("title", "avatar_color", "model_id"):
        if getattr(values, name):
            new[name] = getattr(values, name)
    by_person = agent.description_origin == Agent.DescriptionOrigin.PERSON and not reset
    if values.description and (not by_person or values.description == agent.description):
        new["description"] = values.description
        if source in Agent.DescriptionOrigin.values and not by_person:
            new["description_origin"] = source
    for name in ("sample_lines", "aliases"):
        if getattr(values, name):
            new[name] = list(getattr(values, name))
    for name, value in new.items():
        if getattr(agent, name) != value:
            setattr(agent, name, value)
            changed += [name] if name != "description_origin" else []
    return changed


def _save_blocks(agent: Agent, values: PersonaSpec) -> list[str]:
    """Create the memory blocks that are missing. Existing ones are the agent's own by now and stay."""
    created = [
        block.label
        for block in values.memory_blocks
        if MemoryBlock.objects.get_or_create(agent=agent, label=block.label, defaults={"value": block.value})[1]
    ]
    return [f"memory block {label}" for label in created]


class PersonaMovedOn(ValueError):
    """The persona was changed since the person who decided saw it."""


def values_of(version: PersonaVersion) -> list[TraitValue]:
    """The traits of a version."""
    names = ("name", "description", "sentiment", "strength")
    return [TraitValue(**{name: trait[name] for name in names}) for trait in version.traits]


def restore_version(
    *, version: PersonaVersion, seen: str, user: AbstractBaseUser | None = None
) -> PersonaVersion | None:
    """Make the persona what it was in `version`, as a new version: nothing of the history is lost.

    Args:
        version: To go back to.
        seen: Digest of the persona that was shown when it was decided.
        user: Who decided.

    Returns:
        The new version; None when the persona is as in `version` already.

    Raises:
        PersonaMovedOn: The persona was changed since; nothing is done.
    """
    with transaction.atomic():
        agent = Agent.objects.select_for_update(no_key=True).get(pk=version.agent_id)
        if current_digest(agent) != seen:
            raise PersonaMovedOn(f"the persona of {agent.slug} was changed since it was shown; look at it again")
        agent.system_prompt = version.system_prompt
        note = f"restored version {version.number}"
        return save_persona(agent=agent, traits=values_of(version), note=note, user=user)


def save_system_prompt(
    *, agent: Agent, system_prompt: str, seen: str, note: str, user: AbstractBaseUser | None = None
) -> PersonaVersion | None:
    """Make a text the agent's system prompt, as a new version; traits stay. Arguments and errors as of `restore_version`."""
    with transaction.atomic():
        agent = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
        if current_digest(agent) != seen:
            raise PersonaMovedOn(f"the persona of {agent.slug} was changed since it was shown; look at it again")
        agent.system_prompt = system_prompt
        return save_persona(agent=agent, note=note, user=user)


@dataclass(frozen=True, slots=True)
class PersonaChange:
    """One version of a persona that came later.

    Attributes:
        version: Its primary key.
        number: Counted per agent.
        at: When it was saved.
        origin: What made it and who asked for it, e.g. ``behaviour request 12 by anna``.
        differences: What it changed, e.g. ``concise replies 0.5 → 0.9``.
    """

    version: int
    number: int
    at: datetime
    origin: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        what = ", ".join(self.differences[:MOST_DIFFERENCES])
        left_out = len(self.differences) - MOST_DIFFERENCES
        more = f" and {left_out} more" if left_out > 0 else ""
        return (
            f"version {self.number}, {self.origin}: {what}{more}" if what else f"version {self.number}, {self.origin}"
        )


def changes_since(since: Iterable[tuple[int, str]]) -> dict[tuple[int, str], tuple[PersonaChange, ...]]:
    """The versions that came after the persona of a digest, oldest first, for many agents in four queries at most.

    Args:
        since: Agents' primary keys with the digests that were looked at. Of several versions of that digest the newest counts.

    Returns:
        By what was asked: at most five versions, the newest; none where no version of that digest is stored.
    """
    wanted = set(since)
    rows = PersonaVersion.objects.filter(agent__in={agent for agent, _ in wanted}).order_by("agent", "number")
    by_agent: dict[int, list[Any]] = {}
    for row in rows.values("pk", "agent", "number", "digest"):
        by_agent.setdefault(row["agent"], []).append(row)
    later: dict[tuple[int, str], list[int]] = {}
    for agent, digest in wanted:
        versions = by_agent.get(agent, [])
        place = max((n for n, row in enumerate(versions) if row["digest"] == digest), default=None)
        if place is not None and place + 1 < len(versions):  # with the one before, to tell what changed
            first = max(place, len(versions) - MOST_VERSIONS - 1)
            later[agent, digest] = [row["pk"] for row in versions[first:]]
    return _in_words(later)


def changes_between(agent_slug: str, before: str, after: str) -> tuple[PersonaChange, ...]:
    """The versions of an agent's persona that lie between two digests, oldest first; none where they are not stored."""
    versions = list(PersonaVersion.objects.filter(agent__slug=agent_slug).order_by("number").values("pk", "digest"))
    starts = [n for n, row in enumerate(versions) if row["digest"] == before]
    ends = [n for n, row in enumerate(versions) if row["digest"] == after]
    pairs = [(end - start, start, end) for start in starts for end in ends if start < end]
    if not pairs:
        return ()
    _, start, end = min(pairs)
    keys = [row["pk"] for row in versions[max(start, end - MOST_VERSIONS) : end + 1]]
    return _in_words({(0, before): keys}).get((0, before), ())


def differences(before: PersonaVersion, after: PersonaVersion) -> tuple[str, ...]:
    """What one version changed of another, trait by trait; strengths as numbers."""
    old, new = ({str(trait["name"]).casefold(): trait for trait in version.traits} for version in (before, after))
    changes = [_difference(old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())]
    prompt = ["system prompt"] if before.system_prompt != after.system_prompt else []
    return tuple(filter(None, (*changes, *prompt)))


def _difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None or after is None:
        trait = after or before or {}
        return f"{trait['name']} {'new at' if before is None else 'removed, was'} {float(trait['strength']):g}"
    if before == after:
        return ""
    name = after["name"] if before["name"] == after["name"] else f"{before['name']}, now {after['name']},"
    if before["strength"] != after["strength"]:
        return f"{name} {float(before['strength']):g} → {float(after['strength']):g}"
    return f"{str(name).rstrip(',')} reworded"


def _in_words(later: Mapping[tuple[int, str], Sequence[int]]) -> dict[tuple[int, str], tuple[PersonaChange, ...]]:
    """The versions by key in words; the first of each is what the next is compared with."""
    keys = {pk for versions in later.values() for pk in versions}
    if not keys:
        return {}
    versions = PersonaVersion.objects.select_related("created_by").in_bulk(keys)
    origins: dict[int, str] = {}
    for path in declared_list("persona_change_origins"):
        find: Origins = import_string(path)
        origins.update(find(keys))
    return {
        asked: tuple(
            PersonaChange(
                version=pk,
                number=versions[pk].number,
                at=versions[pk].created_at,
                origin=origins.get(pk) or _origin_of(versions[pk]),
                differences=differences(versions[earlier], versions[pk]),
            )
            for earlier, pk in pairwise(keys_of_one)
        )
        for asked, keys_of_one in later.items()
    }


def _origin_of(version: PersonaVersion) -> str:
    by = f" by {version.created_by.get_username()}" if version.created_by is not None else ""
    return f"{version.note or 'no note'}{by}"
