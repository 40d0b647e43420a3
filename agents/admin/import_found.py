"""What the check of an import found and what came of it, as its page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString

from agents.console import display
from agents.imports.choices import Choices
from agents.imports.control import lacks_agent
from agents.models import Agent, Channel, Import
from agents.persona import Outcome

_OUTCOMES: dict[str, display.Tone] = {
    "created": "good",
    "updated": "info",
    "unchanged": "plain",
    "kept_edited": "warning",
}
_WHY = {Outcome.KEPT_EDITED: "the persona was edited here or does not come from an import: it stays as it is"}
_NOTES = (
    ("system_prompts", "system prompts, which are not messages"),
    (
        "other_author",
        "are stored under another author and keep it; with another name of the channel they are imported for this one",
    ),
    ("replaced_characters", "characters that cannot be stored, replaced by U+FFFD"),
    ("cut_texts", "texts cut for their length"),
    ("replies_without_parent", "replies whose parent is not there"),
)


def found_context(job: Import, choices: Choices, *, may_read: bool) -> dict[str, Any]:
    """What the check found."""
    found = job.found
    if job.kind == Import.Kind.PERSONAS:
        return {
            "found": {
                "personas": _personas(found, may_read),
                "total": found["personas_total"],
                "kept": found["outcomes"].get("kept_edited", 0),
                "changes": found["imported"],
            }
        }
    names = {slug for slug, _ in found["channels"]}
    there = {channel.slug: channel for channel in Channel.objects.filter(slug__in=names)}
    return {
        "found": {
            **{
                name: found[name]
                for name in ("imported", "duplicates", "undecided", "speakers_total", "channels_total")
            },
            "messages": found["imported"] + found["duplicates"],
            "notes": notes_of(found),
            "refusal": found["refusal"],
            "no_agent": lacks_agent(job),
            "likely": bool(job.found.get("likely")) and not choices.agents,
            "channels": [
                {
                    "link": _channel_link(there[slug]) if slug in there else display.isolated(slug),
                    "new": slug not in there,
                    "messages": count,
                }
                for slug, count in found["channels"]
            ],
            "sample": _sample(found["sample"], choices) if may_read else [],
        }
    }


def result_context(job: Import) -> dict[str, Any]:
    """What was imported, with links to it."""
    result = job.result
    if job.kind == Import.Kind.PERSONAS:
        return {"personas": _personas(result, may_read=False), "total": result["personas_total"]}
    there = {channel.slug: channel for channel in Channel.objects.filter(slug__in=result["channels"])}
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=result["spoke"])}
    return {
        "channels": [
            _channel_link(there[slug]) if slug in there else display.isolated(slug) for slug in result["channels"]
        ],
        "more_channels": max(0, result["channels_total"] - len(result["channels"])),
        "agents": [display.agent_chip(agents[slug]) for slug in result["spoke"] if slug in agents],
        "made": [display.agent_chip(agents[slug]) for slug in result["agents"] if slug in agents],
        "notes": notes_of(result),
        "there": max(0, result["imported"] + result["duplicates"] - job.stored),
    }


def notes_of(told: Mapping[str, Any]) -> list[str]:
    """What else a report says, one sentence each."""
    skipped = [f"{count:,} skipped: {reason}" for reason, count in told["skipped_by_reason"].items()]
    return skipped + [f"{told[key]:,} {words}" for key, words in _NOTES if told[key]]


def _sample(sample: Sequence[Mapping[str, Any]], choices: Choices) -> list[dict[str, Any]]:
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in={row["slug"] for row in sample})}
    rows = []
    for row in sample:
        agent, new = agents.get(row["slug"]), choices.made.get(row["outsider"])
        name = agent.display_name if agent else new.display_name if new else row["outsider"] or "a user"
        rows.append(
            {
                "avatar": display.avatar(name, agent.avatar_color if agent else ""),
                "name": display.isolated(name),
                "is": "agent" if agent else "new agent" if new else "",
                "text": display.visible(row["text"]),
                "sent": display.moment(parse_datetime(row["sent_at"])) if row["sent_at"] else "",
            }
        )
    return rows


def _personas(told: Mapping[str, Any], may_read: bool) -> list[dict[str, Any]]:
    agents = {a.slug: a for a in Agent.objects.filter(slug__in=[row["slug"] for row in told["personas"]])}
    return [
        {
            "name": display.agent_chip(agents[row["slug"]]) if row["slug"] in agents else display.isolated(row["name"]),
            "slug": row["slug"],
            "outcome": display.badge(
                str(row["outcome"]).replace("_", " "), _OUTCOMES[row["outcome"]], _WHY.get(row["outcome"], "")
            ),
            "changed": ", ".join(row["changed"]),
            "text": display.folded(row["text"], 80) if may_read and row.get("text") else "",
        }
        for row in told["personas"]
    ]


def _channel_link(channel: Channel) -> SafeString:
    return display.link(reverse("admin:agents_channel_transcript", args=[channel.pk]), channel)
