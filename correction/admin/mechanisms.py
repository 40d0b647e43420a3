"""What can be switched on per agent, and which fields of the configuration belong to it: the columns of the matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from correction.config.resolve import FIELDS, GATE_DIMENSIONS


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A group of fields that make sense together.

    Attributes:
        id: Its name in URLs.
        label: Its name for people.
        purpose: What it does, in a line.
        fields: All of them; `switch` first.
        switch: The field that turns it on; the mode for the gate as a whole.
        number: The field shown beside the switch; empty when there is none.
        sign: How that number reads, e.g. ``≥`` before a lowest score.
        dimension: The gate dimension it is; empty for all others.
    """

    id: str
    label: str
    purpose: str
    fields: tuple[str, ...]
    switch: str
    number: str = ""
    sign: str = ""
    dimension: str = ""


def _dimensions() -> Iterator[Mechanism]:
    """A gate dimension is what has its columns; so a new one gets its column in the matrix by itself."""
    for name in GATE_DIMENSIONS:
        fields = tuple(field for field in FIELDS if field.startswith(f"gate_{name}_"))
        purpose = f"judges each draft for {name} before (or, observing, after) it is said"
        yield Mechanism(
            name, name, purpose, fields, f"gate_{name}_enabled", f"gate_{name}_threshold", "≥ ", dimension=name
        )


MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "gate",
        "gate",
        "whether drafts are checked, and how long that may take",
        (
            *("gate_mode", "observe_sample_rate", "max_correction_attempts"),
            *("gate_deadline_seconds", "gate_total_deadline_seconds"),
        ),
        "gate_mode",
    ),
    *_dimensions(),
    Mechanism(
        "rules",
        "rules",
        "checks each draft against the agent's own rules, free of cost",
        ("gate_rules_enabled",),
        "gate_rules_enabled",
    ),
    Mechanism(
        "anti_convergence",
        "anti-convergence",
        "nudges the agent when the channel agrees too much",
        ("anti_convergence_enabled", "convergence_threshold"),
        "anti_convergence_enabled",
        "convergence_threshold",
        "≥ ",
    ),
    Mechanism(
        "variety",
        "variety",
        "nudges the agent when it brings no new ideas",
        ("variety_intervention_enabled", "variety_message_threshold"),
        "variety_intervention_enabled",
        "variety_message_threshold",
        "≥ ",
    ),
    Mechanism(
        "repetition",
        "repetition",
        "shows the agent its own repeated phrases to avoid",
        ("repetition_suppression_enabled", "repetition_threshold"),
        "repetition_suppression_enabled",
        "repetition_threshold",
        "> ",
    ),
    Mechanism(
        "budget",
        "budget",
        "stops paid checks for the day when the budget is used up",
        ("budget_enabled", "daily_budget_usd"),
        "budget_enabled",
        "daily_budget_usd",
        "$",
    ),
    Mechanism(
        "behavior",
        "behaviour requests",
        "changes the persona when somebody asks for it",
        tuple(field for field in FIELDS if field.startswith("behavior_")),
        "behavior_requests_enabled",
        "behavior_daily_limit",
        "≤ ",
    ),
)
BY_ID: dict[str, Mechanism] = {mechanism.id: mechanism for mechanism in MECHANISMS}
BY_SWITCH: dict[str, Mechanism] = {mechanism.switch: mechanism for mechanism in MECHANISMS}
