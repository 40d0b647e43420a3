"""Render, store and version personas. The rendered text is the same for the model that speaks as the agent and for the judge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """What became of an agent that a source wrote."""

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
    for bound, heading in BANDS:
        tolerance = ROUNDING if bound else 0.0
        if strength <= bound + tolerance:
            return heading
    return BANDS[-1][1]


def render_persona(*, system_prompt: str, traits: Iterable[TraitLike]) -> str:
    """Render the persona specification as text: system prompt, then the traits under their strength, strongest first.

    The only rendering, for the model that speaks as the agent and for the judge. The order of the rows does not matter. Strength 0 is
    shown, never dropped. A trait is one line: no text of one can add a heading or another trait; and a sentence before them says that
    they are manner, because users who ask an agent for something can cause one to be written.
    """
    parts = [system_prompt.strip()]
    bands = trait_lines(traits)
    if bands:
        parts += [HEADING, MANNER, *bands]
    return "\n\n".join(parts)


def trait_lines(traits: Iterable[TraitLike]) -> list[str]:
    """Return the traits under their strength, strongest first: one text for each band that has any, e.g. ``### Always\\n- terse: …``."""
    lines_by_heading: dict[str, list[str]] = {}
    for trait in sorted(traits, key=lambda trait: (-trait.strength, trait.name.casefold())):
        lines_by_heading.setdefault(strength_band(trait.strength), []).append(_trait_line(trait))
    texts: list[str] = []
    for _, heading in reversed(BANDS):
        if heading in lines_by_heading:
            texts.append("\n".join([f"### {heading}", *lines_by_heading[heading]]))
    return texts


def _trait_line(trait: TraitLike) -> str:
    """Return a trait on one line, whatever line breaks its texts hold."""
    name = " ".join(trait.name.split())
    description = " ".join(trait.description.split())
    return f"- {name}: {description}" if description else f"- {name}"


def cut_persona(persona: str, most: int) -> str:
    """Shorten a persona as `render_persona` gives it to at most about `most` characters, with a mark where something is missing.

    Traits are at its end, those that are to stop last, where a plain cut would begin: so the system prompt is cut,
    and where the traits alone are too long the lines of the longest, but no trait is left out.
    """
    if len(persona) <= most:
        return persona
    system_prompt, heading, traits = persona.rpartition(f"\n\n{HEADING}\n\n")
    if not heading:
        return _cut(persona, most)
    if len(traits) > most // 2:  # about half of the room is kept for the system prompt
        traits = _with_cut_lines(traits, most // 2)
    room = max(0, most - len(heading) - len(traits))
    return _cut(system_prompt, room) + heading + traits


def _with_cut_lines(traits: str, most: int) -> str:
    """Cut the lines of traits to equal lengths that make about `most` characters together."""
    lines = traits.split("\n")
    each = max(LEAST_LINE, most // len(lines))
    return "\n".join(line if line == MANNER else _cut(line, each) for line in lines)


def _cut(text: str, most: int) -> str:
    left_out = len(text) - most
    return text if left_out <= 0 else f"{text[:most]} [… {left_out} characters cut]"


def persona_digest(*, system_prompt: str, traits: Iterable[TraitLike]) -> str:
    """Return the SHA-256 (hex) of the inputs of the persona: equal inputs, equal digest, whatever the order of the traits."""
    in_order = sorted(traits, key=lambda trait: trait.name.casefold())
    rows = [[trait.name, trait.description, float(trait.sentiment), float(trait.strength)] for trait in in_order]
    canonical = json.dumps([system_prompt, rows], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def current_digest(agent: Agent) -> str:
    """Return the digest of the agent's persona as it is in the database now."""
    return persona_digest(system_prompt=agent.system_prompt, traits=agent.traits.all())


def record_version(*, agent: Agent, note: str, user: AbstractBaseUser | None = None) -> PersonaVersion | None:
    """Append a version when the persona in the database (system prompt, traits) differs from its latest one; None when it does not.

    Args:
        agent: As it is saved.
        note: What made the change, e.g. ``import``.
        user: Who made it; None: not known, or no user.
    """
    traits = list(Trait.objects.filter(agent=agent))
    digest = persona_digest(system_prompt=agent.system_prompt, traits=traits)
    latest = PersonaVersion.objects.filter(agent=agent).order_by("-number").first()
    if latest is not None and latest.digest == digest:
        return None
    rows = [
        {
            "name": trait.name,
            "description": trait.description,
            "sentiment": trait.sentiment,
            "strength": trait.strength,
        }
        for trait in traits
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
    """Save an agent, replace its traits when `traits` is given, and record a version when the persona changed; all or nothing.

    Args:
        traits: All that it is to have; None: they stay.
        note: Stored with the version, and as the source of new traits where `source` is empty.
        user: Who made the change, for the version; None: no user.

    Returns:
        The new version, or None when system prompt and traits are what they were.
    """
    with transaction.atomic():
        agent.save()
        if traits is not None:
            _replace_traits(agent, traits, source or note)
        return record_version(agent=agent, note=note, user=user)


def _replace_traits(agent: Agent, traits: Sequence[TraitLike], source: str) -> None:
    """Make the agent's traits equal to `traits`, keeping the rows of those that stay, which are known by name, whatever its case.

    Args:
        source: Stored on new rows, its first 64 characters; others keep theirs.
    """
    rows_left = {trait.name.casefold(): trait for trait in agent.traits.all()}
    for value in traits:
        row = rows_left.pop(value.name.casefold(), None)
        if row is None:
            row = Trait(agent=agent, source=source[:64])
        elif _is_equal(row, value):
            continue
        row.name = value.name
        row.description = value.description
        row.sentiment = float(value.sentiment)
        row.strength = float(value.strength)
        row.save()
    if rows_left:
        Trait.objects.filter(pk__in=[row.pk for row in rows_left.values()]).delete()


def _is_equal(trait: TraitLike, other: TraitLike) -> bool:
    return (trait.name, trait.description, trait.sentiment, trait.strength) == (
        other.name,
        other.description,
        other.sentiment,
        other.strength,
    )


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

    Returns:
        The outcome, and the names of the fields that changed; of a new agent none are named.
    """
    agent = Agent.objects.filter(slug=values.slug).first()
    if agent is None:
        return _create_agent(values, note=note, source=source, user=user)
    is_replaced = current_digest(agent) != _digest_after(agent, values)  # the values would change prompt or traits
    if is_replaced and not reset and _was_edited(agent, note):
        return UpsertResult(agent, Outcome.KEPT_EDITED)
    # An example becomes the team's own.
    is_taken_over = is_replaced and agent.seeded and _origin(source) == Agent.Origin.OWN
    if is_taken_over:
        _clear_example(agent)
    if is_replaced or _origin(source) == Agent.Origin.SEED:
        agent.origin = _origin(source)
    changed = _copy_fields(agent, values, source, reset=reset)
    with transaction.atomic():
        if is_taken_over and agent.memory_blocks.exists():
            agent.memory_blocks.all().delete()
            changed.append("memory_blocks")
        version = save_persona(agent=agent, traits=values.traits, note=note, source=source, user=user)
        if version is not None:
            changed.append("persona")
        changed += _add_missing_blocks(agent, values)
    outcome = Outcome.UPDATED if changed else Outcome.UNCHANGED
    return UpsertResult(agent, outcome, tuple(dict.fromkeys(changed)))


def _create_agent(values: PersonaSpec, *, note: str, source: str, user: AbstractBaseUser | None) -> UpsertResult:
    agent = Agent(slug=values.slug, origin=_origin(source))
    _copy_fields(agent, values, source)
    with transaction.atomic():
        save_persona(agent=agent, traits=values.traits or (), note=note, source=source, user=user)
        _add_missing_blocks(agent, values)
    return UpsertResult(agent, Outcome.CREATED)


def _digest_after(agent: Agent, values: PersonaSpec) -> str:
    """Return the digest that the agent's persona would have with these values; where they name no traits, its own stay."""
    traits: Iterable[TraitLike] = agent.traits.all() if values.traits is None else values.traits
    return persona_digest(system_prompt=values.system_prompt, traits=traits)


def _was_edited(agent: Agent, note: str) -> bool:
    """Return whether a person changed the persona since the source with this note last wrote it."""
    latest = agent.persona_versions.order_by("-number").first()
    if latest is None or latest.note != note:
        return True
    return current_digest(agent) != str(latest.digest)


def _clear_example(agent: Agent) -> None:
    """Empty what an example has besides its persona, so that nothing of it stays in an agent of the team's own."""
    agent.title = ""
    agent.description = ""
    agent.sample_lines = []
    agent.aliases = []


def _origin(source: str) -> Agent.Origin:
    return Agent.Origin.SEED if source == Agent.Origin.SEED else Agent.Origin.OWN


def _copy_fields(agent: Agent, values: PersonaSpec, source: str, *, reset: bool = False) -> list[str]:
    """Copy the plain fields, without saving them; return the names of those that changed. Traits and memory blocks are none.

    An empty optional value leaves the field as it is. A description that a person wrote stays, too, unless `reset`.
    """
    new_values: dict[str, object] = {"display_name": values.display_name, "system_prompt": values.system_prompt}
    for name in ("title", "avatar_color", "model_id"):
        if getattr(values, name):
            new_values[name] = getattr(values, name)
    is_by_person = agent.description_origin == Agent.DescriptionOrigin.PERSON and not reset
    if values.description and not is_by_person:
        new_values["description"] = values.description
        if source in Agent.DescriptionOrigin.values:
            agent.description_origin = source
    for name in ("sample_lines", "aliases"):
        if getattr(values, name):
            new_values[name] = list(getattr(values, name))
    changed: list[str] = []
    for name, value in new_values.items():
        if getattr(agent, name) != value:
            setattr(agent, name, value)
            changed.append(name)
    return changed


def _add_missing_blocks(agent: Agent, values: PersonaSpec) -> list[str]:
    """Create the memory blocks whose label is missing; return for each ``memory block LABEL``.

    Existing ones are the agent's own by now and stay.
    """
    created: list[str] = []
    for block in values.memory_blocks:
        _, is_new = MemoryBlock.objects.get_or_create(agent=agent, label=block.label, defaults={"value": block.value})
        if is_new:
            created.append(f"memory block {block.label}")
    return created


class PersonaMovedOn(ValueError):
    """The persona was changed since the person who decided saw it."""


def values_of(version: PersonaVersion) -> list[TraitValue]:
    """Return the traits of a version."""
    return [
        TraitValue(trait["name"], trait["description"], trait["sentiment"], trait["strength"])
        for trait in version.traits
    ]


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
        agent = _locked_agent(version.agent_id, seen)
        agent.system_prompt = version.system_prompt
        note = f"restored version {version.number}"
        return save_persona(agent=agent, traits=values_of(version), note=note, user=user)


def _locked_agent(agent_id: int, seen_digest: str) -> Agent:
    """Return an agent with its row locked.

    Args:
        seen_digest: Digest of the persona that was shown to the person who decided.

    Raises:
        PersonaMovedOn: The persona was changed since.
    """
    agent = Agent.objects.select_for_update(no_key=True).get(pk=agent_id)
    if current_digest(agent) != seen_digest:
        raise PersonaMovedOn(f"the persona of {agent} was changed since it was shown; look at it again")
    return agent


def save_system_prompt(
    *, agent: Agent, system_prompt: str, seen: str, note: str, user: AbstractBaseUser | None = None
) -> PersonaVersion | None:
    """Make a text the agent's system prompt, as a new version; traits stay.

    Args:
        seen: Digest of the persona that was shown when it was decided.
        user: Who decided; None: no user.

    Returns:
        The new version; None when the system prompt was this one already.

    Raises:
        PersonaMovedOn: The persona was changed since; nothing is done.
    """
    with transaction.atomic():
        agent = _locked_agent(agent.pk, seen)
        agent.system_prompt = system_prompt
        return save_persona(agent=agent, note=note, user=user)


@dataclass(frozen=True, slots=True)
class PersonaChange:
    """One version of a persona that came later.

    Attributes:
        number: Counted per agent.
        origin: What made it and who asked for it, e.g. ``behaviour request 12 by anna``.
        differences: What it changed, e.g. ``concise replies 0.5 → 0.9``.
    """

    number: int
    origin: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """Return, e.g., ``version 3, import by anna: concise replies 0.5 → 0.9, system prompt``; at most five differences are named."""
        text = f"version {self.number}, {self.origin}"
        if self.differences:
            text += f": {', '.join(self.differences[:MOST_DIFFERENCES])}"
        left_out = len(self.differences) - MOST_DIFFERENCES
        if left_out > 0:
            text += f" and {left_out} more"
        return text


def changes_since(since: Iterable[tuple[int, str]]) -> dict[tuple[int, str], tuple[PersonaChange, ...]]:
    """Return the versions that came after the persona of a digest, oldest first, for many agents in four queries at most.

    Args:
        since: Agents' primary keys with the digests that were looked at. Of several versions of that digest the newest counts.

    Returns:
        By what was asked: at most five versions, the newest. What has no later version, or no version of that digest, is left out.
    """
    digests = set(since)
    agents = {agent for agent, _ in digests}
    rows = PersonaVersion.objects.filter(agent__in=agents).order_by("agent", "number")
    versions_of: dict[int, list[Any]] = {}
    for row in rows.values("pk", "agent", "number", "digest"):
        versions_of.setdefault(row["agent"], []).append(row)
    later: dict[tuple[int, str], list[int]] = {}
    for agent, digest in digests:
        versions = versions_of.get(agent, [])
        of_digest = [index for index, row in enumerate(versions) if row["digest"] == digest]
        if of_digest and of_digest[-1] + 1 < len(versions):
            # One version more than is named: what the first one changed shows in the one before it.
            first = max(of_digest[-1], len(versions) - MOST_VERSIONS - 1)
            later[agent, digest] = [row["pk"] for row in versions[first:]]
    return _changes(later)


def changes_between(agent_slug: str, before: str, after: str) -> tuple[PersonaChange, ...]:
    """Return the versions after the persona of the digest `before` up to that of `after`, oldest first; at most five, the newest.

    None where no version of `before` is followed by one of `after`. Where a digest occurs several times, the nearest pair counts.
    """
    versions = list(PersonaVersion.objects.filter(agent__slug=agent_slug).order_by("number").values("pk", "digest"))
    pairs: list[tuple[int, int, int]] = []  # distance, start, end
    for start, older in enumerate(versions):
        for end, newer in enumerate(versions):
            if start < end and older["digest"] == before and newer["digest"] == after:
                pairs.append((end - start, start, end))
    if not pairs:
        return ()
    _, start, end = min(pairs)
    # One version more than is named: what the first one changed shows in the one before it.
    keys = [row["pk"] for row in versions[max(start, end - MOST_VERSIONS) : end + 1]]
    key = (0, before)  # any key will do for the only question
    return _changes({key: keys}).get(key, ())


def differences(before: PersonaVersion, after: PersonaVersion) -> tuple[str, ...]:
    """Return what one version changed of another: traits by name, e.g. ``concise replies 0.5 → 0.9``, then ``system prompt``.

    Empty where nothing changed.
    """
    old = {str(trait["name"]).casefold(): trait for trait in before.traits}
    new = {str(trait["name"]).casefold(): trait for trait in after.traits}
    changes: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        change = _difference(old.get(name), new.get(name))
        if change:
            changes.append(change)
    if before.system_prompt != after.system_prompt:
        changes.append("system prompt")
    return tuple(changes)


def _difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Return what became of a trait: new, removed, another strength, or reworded; empty where nothing did.

    For example ``warm new at 0.5``, ``warm removed, was 0.5``, ``warm 0.5 → 0.9``, ``warm, now Warm reworded``. A new strength hides a
    new wording.

    Args:
        before, after: A trait's values in a version; None: the version has no such trait.
    """
    if before is None and after is not None:
        return f"{after['name']} new at {float(after['strength']):g}"
    if after is None and before is not None:
        return f"{before['name']} removed, was {float(before['strength']):g}"
    if before is None or after is None or before == after:
        return ""
    is_renamed = before["name"] != after["name"]
    if before["strength"] != after["strength"]:
        name = f"{before['name']}, now {after['name']}," if is_renamed else after["name"]
        return f"{name} {float(before['strength']):g} → {float(after['strength']):g}"
    name = f"{before['name']}, now {after['name']}" if is_renamed else after["name"]
    return f"{name} reworded"


def _changes(later: Mapping[tuple[int, str], Sequence[int]]) -> dict[tuple[int, str], tuple[PersonaChange, ...]]:
    """Return, for each question, its versions but the first, with what each changed of the one before.

    Args:
        later: By what was asked: primary keys of versions, oldest first; the first is only compared with.
    """
    keys = {pk for versions in later.values() for pk in versions}
    if not keys:
        return {}
    versions = PersonaVersion.objects.select_related("created_by").in_bulk(keys)
    origins = _declared_origins(keys)
    changes: dict[tuple[int, str], tuple[PersonaChange, ...]] = {}
    for question, version_keys in later.items():
        of_agent: list[PersonaChange] = []
        for earlier_key, key in pairwise(version_keys):
            version = versions[key]
            of_agent.append(
                PersonaChange(
                    number=version.number,
                    origin=origins.get(key) or _origin_by_note(version),
                    differences=differences(versions[earlier_key], version),
                )
            )
        changes[question] = tuple(of_agent)
    return changes


def _declared_origins(keys: Collection[int]) -> dict[int, str]:
    """Return what made versions, as far as apps know (`persona_change_origins`)."""
    origins: dict[int, str] = {}
    for path in declared_list("persona_change_origins"):
        origins_of: Origins = import_string(path)
        origins.update(origins_of(keys))
    return origins


def _origin_by_note(version: PersonaVersion) -> str:
    note = version.note or "no note"
    return note if version.created_by is None else f"{note} by {version.created_by.get_username()}"
