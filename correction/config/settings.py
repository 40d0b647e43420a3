"""The settings of correction, each declared once: column, constraint, form, API, command, help and labels follow from `MECHANISMS`.

`AgentEvaluationConfig` is the table: one row of defaults, one per agent; an empty field inherits (AC-7.3.1, AC-7.3.2). `resolve_config`
says what is in effect (AC-7.3.3): the first of override, agent, defaults row and built-in value that is set wins.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import sentry_sdk
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q, QuerySet
from simple_history.models import HistoricalRecords

from agents.models import Agent
from evaluation.dimensions import Dimension

if TYPE_CHECKING:
    from agents.turn.pipeline import Turn

MOST_NAMES = 100  # in a list of names
LONGEST_NAME = 150  # characters: a user name has at most 150, a trait's 120
BEYOND_BOUNDS = 10**9  # more than any whole number may be set to
NO_NAMES = "none"  # a list with nothing in it, which is not the same as inheriting one
INHERIT = "inherit"
_WORDS_FOR_ON = ("on", "true", "yes", "1")
_WORDS_FOR_OFF = ("off", "false", "no", "0")

Kind = Literal["toggle", "choice", "whole number", "number", "list of names"]
_JSON_TYPES: dict[Kind, str] = {
    "toggle": "boolean",
    "choice": "string",
    "whole number": "integer",
    "number": "number",
    "list of names": "array",
}


class GateMode(models.TextChoices):
    """When drafts are judged."""

    OFF = "off", "off"
    OBSERVE = "observe", "observe (judge after sending, hold nothing back)"
    ENFORCE = "enforce", "enforce (judge before sending)"


class IngestKeep(models.TextChoices):
    """Which new conversations of those that other programs send are stored."""

    ALL = "all", "all"
    RATE = "rate", "a share (ingest rate)"
    QUOTA = "quota", "so many a day (ingest quota)"


class LeastConfidence(models.TextChoices):
    """From which confidence on a behaviour request is applied automatically."""

    NEVER = "never", "never (a person decides)"
    HIGH = "high", "high"
    MEDIUM = "medium", "medium or high"
    LOW = "low", "any"


class Requesters(models.TextChoices):
    """Whose behaviour requests count."""

    ANYONE = "anyone", "anyone, outsiders too"
    MEMBERS = "members", "users who are members of the channel"
    NAMED = "named", "the users named below"


class Scope(models.TextChoices):
    """Where a behaviour request holds once it is applied."""

    PERSONA = "persona", "the whole persona"
    CHANNEL = "channel", "the channel where it was said"
    PERSON = "person", "towards the person who asked"


class ConfigError(ValueError):
    """Changes that are refused. `errors` says per field what is wrong and what is allowed."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(self.errors.values()))


def short(text: str) -> str:
    """Return what was typed as an error quotes it."""
    return text if len(text) <= 60 else f"{text[:60]}…"


def validate_names(value: object) -> None:
    """Check that it is a list of up to 100 names of 1 to 150 printable characters, none twice, none with spaces around it.

    Raises:
        ValidationError: It is not; names the value.
    """
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValidationError("A list of names; got %(value)r.", params={"value": value})
    if len(value) > MOST_NAMES or len(set(value)) != len(value):
        raise ValidationError(f"At most {MOST_NAMES} names, none twice.")
    for name in value:
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise ValidationError(f"Name %(name)r: 1 to {LONGEST_NAME} printable characters.", params={"name": name})


def read_names(value: Any) -> list[str]:
    """Return the names in a text or a list, trimmed, each once, in their order; no name for the text ``none``.

    Raises:
        ValueError: It is neither, or a quote is not closed.
    """
    if isinstance(value, str):
        return _without_repeats(_names_in_text(value))
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError("neither a text nor a list of texts")
    return _without_repeats(value)


def _names_in_text(text: str) -> list[str]:
    """Return the names that commas and lines separate; one with a comma stands in double quotes. ``none`` alone is an empty list.

    Raises:
        ValueError: A quote is not closed.
    """
    if text.strip().lower() == NO_NAMES:
        return []
    names: list[str] = []
    try:
        for row in csv.reader(text.splitlines(), skipinitialspace=True, strict=True):
            names += row
    except csv.Error as error:
        raise ValueError(str(error)) from error
    return [name for name in names if name.strip()]  # a comma at the end of a line leaves an empty one


def _without_repeats(names: Iterable[str]) -> list[str]:
    """Return each name once, with single spaces between its words."""
    return list(dict.fromkeys(" ".join(name.split()) for name in names))


def show_names(names: Sequence[str]) -> str:
    """Return the list as one line that `read_names` reads; ``none`` for an empty list.

    In quotes: a name with a comma or quote, or that would be read as ``none`` or ``inherit``.
    """
    quoted = []
    for name in names:
        needs_quotes = "," in name or '"' in name or name.lower() in (NO_NAMES, INHERIT)
        if needs_quotes:
            escaped = name.replace('"', '""')
            quoted.append(f'"{escaped}"')
        else:
            quoted.append(name)
    return ", ".join(quoted) or NO_NAMES


@dataclass(frozen=True)
class Setting:
    """One setting: a toggle, unless it has `choices`, `bounds` (a number; `places` 0 = a whole one) or a list as built-in value.

    Attributes:
        built_in: What holds where no row says anything; None = nothing, or it follows from others (`settings.merge`).
        help: What it does.
        advanced: Whether it goes beyond what the specifications ask for. Form, help, command and docs fold it under *Advanced*.
        name: The column, API field and command option.
    """

    built_in: Any
    help: str
    choices: type[models.TextChoices] | None = None
    bounds: tuple[str, str] | None = None
    digits: int = 3
    places: int = 1
    advanced: bool = False
    name: str = ""

    @property
    def kind(self) -> Kind:
        """Return which values it takes."""
        if self.choices is not None:
            return "choice"
        if self.bounds is not None:
            return "number" if self.places else "whole number"
        return "list of names" if isinstance(self.built_in, list) else "toggle"

    @property
    def label(self) -> str:
        """Return its name for people."""
        if self.name == "gate_mode":  # "mode" alone would not say of what
            return "gate mode"
        without_prefix = self.name.removeprefix("gate_").removeprefix("behavior_")
        without_unit = without_prefix.removesuffix("_usd").removesuffix("_seconds")
        return without_unit.replace("_", " ")

    @property
    def allowed(self) -> str:
        """Return in words what it may be set to."""
        if self.choices is not None:
            return " or ".join(self.choices.values)
        if self.bounds is not None:
            low, high = self.bounds
            if self.places == 0:
                return f"a whole number, {low} to {high}"
            plural = "s" if self.places > 1 else ""
            return f"{low} to {high} with at most {self.places} decimal place{plural}"
        if self.kind == "toggle":
            return "on or off"
        return (
            f"up to {MOST_NAMES} names of at most {LONGEST_NAME} characters, separated by commas or lines (one with a comma in double "
            f"quotes), or {NO_NAMES}"
        )

    @cached_property
    def column(self) -> models.Field[Any, Any]:
        """Return the database column, which allows exactly what `allowed` says."""
        field = self._new_column(null=True, blank=True, help_text=self.help)
        field.advanced = self.advanced  # type: ignore[attr-defined]  # for the help page
        return field

    def _new_column(self, **options: Any) -> models.Field[Any, Any]:
        """Return a column of the kind of this setting."""
        if self.choices is not None:
            return models.CharField(max_length=8, choices=self.choices.choices, **options)
        if self.bounds is not None:
            return self._new_number_column(*self.bounds, **options)
        if self.kind == "list of names":
            return models.JSONField(validators=[validate_names], **options)
        return models.BooleanField(**options)

    def _new_number_column(self, low: str, high: str, **options: Any) -> models.Field[Any, Any]:
        """Return a column for numbers between these bounds."""
        if self.places == 0:
            validators = [MinValueValidator(int(low)), MaxValueValidator(int(high))]
            return models.PositiveIntegerField(validators=validators, **options)
        limits = [MinValueValidator(Decimal(low)), MaxValueValidator(Decimal(high))]
        return models.DecimalField(max_digits=self.digits, decimal_places=self.places, validators=limits, **options)

    @property
    def constraint(self) -> models.CheckConstraint | None:
        """Return what the database itself checks of the value; None for toggles and lists."""
        if self.choices is not None:
            allowed = Q(**{f"{self.name}__in": list(self.choices.values)})
            message = None
        elif self.bounds is not None:
            low, high = self.bounds
            allowed = Q(**{f"{self.name}__gte": Decimal(low), f"{self.name}__lte": Decimal(high)})
            message = f"{self.name}: from {low} to {high}, or empty to inherit."
        else:
            return None
        inherits = Q(**{f"{self.name}__isnull": True})
        return models.CheckConstraint(
            condition=inherits | allowed, name=f"config_{self.name}", violation_error_message=message
        )

    @property
    def schema(self) -> dict[str, Any]:
        """Return the value's JSON schema; null = inherit."""
        shape: dict[str, Any] = {"type": [_JSON_TYPES[self.kind], "null"]}
        if self.choices is not None:
            shape["enum"] = [*self.choices.values, None]
        if self.kind == "list of names":
            shape["items"] = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
            shape["maxItems"] = MOST_NAMES
        return shape

    def read(self, value: Any) -> Any:
        """Return a value, typed or as text, as the column stores it; None for one that means inherit (None, empty, ``inherit``).

        Raises:
            ConfigError: It is not allowed; names field, value and range.
        """
        if isinstance(value, str):
            value = value.strip()
            if value.lower() in ("", INHERIT):
                return None
        if value is None:
            return None
        try:
            typed = self._typed(value)
            if typed == []:  # a column takes an empty list for no value; here it is one: no name
                return typed
            return self.column.clean(typed, None)
        except (ValueError, ArithmeticError, ValidationError):
            refused = f"{self.name} {short(repr(value))}: allowed: {self.allowed}, or {INHERIT}"
            raise ConfigError({self.name: refused}) from None

    def show(self, value: Any) -> str:
        """Return a value in effect for people: on, off, a number; a dash where nothing is set."""
        if value is None:
            return "–"
        if self.kind == "toggle":
            return "on" if value else "off"
        if self.kind == "list of names":
            return show_names(value)
        if isinstance(value, Decimal):
            return f"{value.normalize():f}"  # without the zeros that the column adds
        return str(value)

    def show_stored(self, value: Any) -> str:
        """Return a stored value for people."""
        return INHERIT if value is None else self.show(value)

    def _typed(self, value: Any) -> Any:
        """Return the value in the column's type.

        Raises:
            ValueError, ArithmeticError: It is of another type: 2.5 is no whole number, true no number.
        """
        if self.kind == "list of names":
            return read_names(value)
        if not isinstance(value, str | int | float | Decimal):
            raise ValueError("neither a text nor a number")
        text = str(value).lower()
        if self.kind == "toggle":
            return _read_toggle(text)
        if self.choices is not None:
            if text not in self.choices.values:
                raise ValueError("none of the choices")
            return text
        if isinstance(value, bool):
            raise ValueError("no number")
        return self._read_number(text)

    def _read_number(self, text: str) -> int | Decimal:
        """Return the number in a text, not rounded: more decimal places than allowed are refused by the column.

        Raises:
            ValueError, ArithmeticError: It is no number, not finite, or not whole where it has to be.
        """
        number = Decimal(text)
        if not number.is_finite():
            raise ValueError("no number")
        if self.places == 0:
            if number != number.to_integral_value():
                raise ValueError("no whole number")
            if abs(number) >= BEYOND_BOUNDS:  # an integer of a million digits takes long to make
                return BEYOND_BOUNDS
            return int(number)
        if number == round(number, self.places):
            return number.quantize(Decimal(1).scaleb(-self.places))
        return number


def _read_toggle(text: str) -> bool:
    """Return whether a word means on."""
    if text in _WORDS_FOR_ON:
        return True
    if text in _WORDS_FOR_OFF:
        return False
    raise ValueError("neither on nor off")


@dataclass(frozen=True)
class Mechanism:
    """Settings that belong together: a column of the console's matrix.

    Attributes:
        id: Its name in URLs, and for people where it has no `name`. `purpose`: what it does, in a line.
        settings: All of them. The first, the `switch`, turns it on; for the gate it is the mode.
        number: The setting shown beside the switch; empty when there is none.
        sign: How that number reads, e.g. ``≥`` before a lowest score.
        is_dimension: Whether it is a dimension that the gate judges; its propositions are the action-level files of that name.
    """

    id: str
    purpose: str
    settings: Mapping[str, Setting]
    number: str = ""
    sign: str = ""
    name: str = ""
    is_dimension: bool = False

    @property
    def label(self) -> str:
        """Return its name for people."""
        return self.name or self.id.replace("_", "-")

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of its settings."""
        return tuple(self.settings)

    @property
    def switch(self) -> str:
        """Return the name of the setting that turns it on."""
        return self.fields[0]


# Settings that a dimension has beside its switch and threshold.
_FURTHER_SETTINGS = {
    Dimension.ADHERENCE: {
        "gate_adherence_hard": Setting(
            False, "judge adherence in hard mode: every flaw takes 20 % off (default off)", advanced=True
        )
    }
}


def _mechanism_of(dimension: Dimension) -> Mechanism:
    """Return the settings of a dimension that the gate judges."""
    return Mechanism(
        dimension.value,
        f"judges each draft for {dimension} before (or, observing, after) it is said",
        {
            f"gate_{dimension}_enabled": Setting(False, f"check drafts for {dimension.label.lower()}"),
            f"gate_{dimension}_threshold": Setting(
                Decimal("5.0"), "lowest score that passes, 0 to 9 (default 5)", bounds=("0", "9")
            ),
            **_FURTHER_SETTINGS.get(dimension, {}),
        },
        number=f"gate_{dimension}_threshold",
        sign="≥ ",
        is_dimension=True,
    )


# The dimensions whose rules the gate can check.
DIMENSIONS_WITH_RULES = [d.value for d in Dimension if d.kind.has_gate and d.kind.takes_rules]
# Every mechanism is off (AC-7.3.2), but requests to behave differently are read.
MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "gate",
        "whether drafts are checked, and how long that may take",
        {
            "gate_mode": Setting(
                None,
                "off, observe (judged after sending) or enforce (judged before); empty = inherit, and where nothing is set: enforce "
                "as soon as a check is enabled",
                choices=GateMode,
            ),
            "observe_sample_rate": Setting(
                Decimal("1.000"),
                "share of conversations whose messages are judged in observe mode, 0 to 1",
                bounds=("0", "1"),
                digits=4,
                places=3,
                advanced=True,
            ),
            "ingest_keep": Setting(
                "all",
                "which new conversations are stored of those that other programs send (messages API, OTLP): all, rate (the share "
                "ingest_rate) or quota (about ingest_quota a day) (default all); decided once for a whole conversation",
                choices=IngestKeep,
                advanced=True,
            ),
            "ingest_rate": Setting(
                Decimal("1.00000"),
                "share of new conversations that is stored where ingest_keep is rate, and on the first day of a quota, above 0 to 1 "
                "(default 1)",
                bounds=("0.00001", "1"),
                digits=6,
                places=5,
                advanced=True,
            ),
            "ingest_quota": Setting(
                200,
                "about how many new conversations a day (UTC) are stored where ingest_keep is quota (default 200)",
                bounds=("1", "1000000"),
                places=0,
                advanced=True,
            ),
            "observe_by_batches": Setting(
                False,
                "judge observed messages in batches: half the price, and a verdict within a day instead of at once (default off); the "
                "judge's provider must have batches",
                advanced=True,
            ),
            "max_correction_attempts": Setting(
                2,
                "retries after the first draft, 0 to 10 (default 2); then the best attempt is sent",
                bounds=("0", "10"),
                places=0,
            ),
            "gate_deadline_seconds": Setting(
                Decimal("5.00"),
                "seconds for judging one dimension; what is late passes (default 5)",
                bounds=("0.1", "60"),
                digits=5,
                places=2,
                advanced=True,
            ),
            "gate_total_deadline_seconds": Setting(
                Decimal("12.00"),
                "seconds of judging for one message, retries included (default 12)",
                bounds=("0.1", "300"),
                digits=6,
                places=2,
                advanced=True,
            ),
        },
    ),
    *(_mechanism_of(dimension) for dimension in Dimension if dimension.kind.has_gate),
    Mechanism(
        "rules",
        "checks each draft against the agent's own rules, free of cost",
        {
            "gate_rules_enabled": Setting(
                None,
                "check the agent's own rules (and, offline, cues) on the draft, free of cost; empty = wherever "
                f"{' or '.join(DIMENSIONS_WITH_RULES)} is checked",
                advanced=True,
            )
        },
    ),
    Mechanism(
        "anti_convergence",
        "nudges the agent when the channel agrees too much",
        {
            "anti_convergence_enabled": Setting(False, "nudge the agent when the channel agrees too much"),
            "convergence_threshold": Setting(
                Decimal("6.0"),
                "score of the claim that the last messages merely agree with each other, 0 to 9, from which on the agent is nudged "
                "(default 6); needs a model as judge",
                bounds=("0", "9"),
            ),
            "anti_convergence_dm_allowed": Setting(
                False, "nudge against convergence in direct messages, too", advanced=True
            ),
        },
        number="convergence_threshold",
        sign="≥ ",
    ),
    Mechanism(
        "variety",
        "nudges the agent when it brings no new ideas",
        {
            "variety_intervention_enabled": Setting(False, "nudge the agent when it brings no new ideas"),
            "variety_message_threshold": Setting(
                7,
                "messages of the agent in the channel before it is looked at (default 7)",
                bounds=("1", "10000"),
                places=0,
            ),
            "variety_dm_allowed": Setting(False, "nudge towards new ideas in direct messages, too", advanced=True),
        },
        number="variety_message_threshold",
        sign="≥ ",
    ),
    Mechanism(
        "repetition",
        "shows the agent its own repeated phrases to avoid",
        {
            "repetition_suppression_enabled": Setting(False, "show the agent its own repeated phrases to avoid"),
            "repetition_threshold": Setting(
                Decimal("0.300"),
                "share of recurring 3-grams in its last 5 messages, 0 to 1, above which they are shown (default 0.3); they also are "
                "where nearly all of the messages share a phrase",
                bounds=("0", "1"),
                digits=4,
                places=3,
            ),
        },
        number="repetition_threshold",
        sign="> ",
    ),
    Mechanism(
        "budget",
        "stops paid checks for the day when the budget is used up",
        {
            "budget_enabled": Setting(False, "stop paid checks for the day when the budget is used up", advanced=True),
            "daily_budget_usd": Setting(
                None,
                "US dollars a day (UTC) for checking this agent",
                bounds=("0", "100000"),
                digits=11,
                places=4,
                advanced=True,
            ),
        },
        number="daily_budget_usd",
        sign="$",
    ),
    Mechanism(
        "behavior",
        "changes the persona when a person asks for it",
        {
            "behavior_requests_enabled": Setting(
                True, "look for requests to behave differently in what people say to the agent (default on)"
            ),
            "behavior_auto_apply": Setting(
                "high",
                "least confidence from which a request is applied automatically: high, medium, low, or never (default high); the others "
                "wait for a person",
                choices=LeastConfidence,
                advanced=True,
            ),
            "behavior_requesters": Setting(
                "members",
                "whose requests count: anyone, members (users who are members of the channel where it was said; outsiders are not) "
                "or named (default members)",
                choices=Requesters,
                advanced=True,
            ),
            "behavior_named_requesters": Setting(
                [], "user names whose requests count where behavior_requesters is named; exact names", advanced=True
            ),
            "behavior_scope": Setting(
                "person",
                "where a request holds of someone who may not edit the persona (of who may, it changes the persona): person (towards who "
                "asked), channel (where it was said) or persona (for everybody, everywhere) (default person)",
                choices=Scope,
                advanced=True,
            ),
            "behavior_protected_traits": Setting(
                [], "traits that no message can change, in upper or lower case", advanced=True
            ),
            "behavior_daily_limit": Setting(
                10,
                "requests applied automatically per day (UTC), 0 to 1000 (default 10); further ones wait for a person",
                bounds=("0", "1000"),
                places=0,
                advanced=True,
            ),
        },
        name="behaviour requests",
        number="behavior_daily_limit",
        sign="≤ ",
    ),
)
SETTINGS: dict[str, Setting] = {
    name: replace(setting, name=name) for mechanism in MECHANISMS for name, setting in mechanism.settings.items()
}
GATE_DIMENSIONS: tuple[str, ...] = tuple(mechanism.id for mechanism in MECHANISMS if mechanism.is_dimension)


class _Abstract:
    abstract = True


_Columns: Any = type(
    "_Columns",
    (models.Model,),
    {"__module__": __name__, "Meta": _Abstract, **{name: setting.column for name, setting in SETTINGS.items()}},
)


class AgentEvaluationConfig(_Columns, models.Model):  # type: ignore[misc]  # columns by declaration
    """Correction settings of one agent, or the defaults. **Every field may be empty = inherited**; `resolve_config` merges."""

    agent = models.OneToOneField(
        Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation_config"
    )
    is_defaults = models.BooleanField(default=False, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    history = HistoricalRecords(table_name="agent_evaluation_config_history")

    class Meta:
        db_table = "agent_evaluation_config"
        ordering: ClassVar = ["-is_defaults", "agent__display_name"]
        verbose_name = "correction configuration"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(is_defaults=True, agent__isnull=True) | Q(is_defaults=False, agent__isnull=False),
                name="config_defaults_or_agent",
                violation_error_message="A configuration is that of one agent, or the defaults.",
            ),
            models.UniqueConstraint(
                fields=["is_defaults"], condition=Q(is_defaults=True), name="config_one_defaults_row"
            ),
            *filter(None, (setting.constraint for setting in SETTINGS.values())),
        ]

    def __str__(self) -> str:
        return "defaults" if self.is_defaults else f"configuration of {self.agent}"


Provenance = Literal["override", "agent", "defaults", "built-in"]


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The values in effect for one agent, and where each came from. Both hold every name of `SETTINGS`."""

    values: Mapping[str, Any]
    provenance: Mapping[str, Provenance]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def show(self, name: str) -> str:
        """Return a value for people."""
        return SETTINGS[name].show(self.values[name])

    @property
    def gate_mode(self) -> str:
        """Return when drafts are judged; a value of `GateMode`."""
        return str(self.values["gate_mode"])

    @property
    def gate_dimensions(self) -> tuple[str, ...]:
        """Return the dimensions the gate checks: those enabled, and those that take rules where the agent's rules are checked."""
        return tuple(dimension for dimension in GATE_DIMENSIONS if self._is_checked(dimension))

    def _is_checked(self, dimension: str) -> bool:
        if self.values[f"gate_{dimension}_enabled"]:
            return True
        return dimension in DIMENSIONS_WITH_RULES and bool(self.values["gate_rules_enabled"])

    @property
    def hard_dimensions(self) -> tuple[str, ...]:
        """Return the dimensions that are judged in hard mode."""
        return tuple(dimension for dimension in GATE_DIMENSIONS if self.values.get(f"gate_{dimension}_hard"))

    @property
    def gate_is_off(self) -> bool:
        """Return whether the gate checks nothing."""
        return self.gate_mode == GateMode.OFF or not self.gate_dimensions

    @property
    def rules_if_asked(self) -> bool:
        """Return whether the agent's rules are checked where a check is asked for: always, unless a person switched them off."""
        return bool(self.values["gate_rules_enabled"]) or self.provenance["gate_rules_enabled"] == "built-in"

    @property
    def has_budget(self) -> bool:
        """Return whether a daily budget caps what checks cost."""
        return bool(self.values["budget_enabled"]) and self.values["daily_budget_usd"] is not None

    def threshold(self, dimension: str) -> Decimal:
        """Return the lowest score (0 to 9) that passes."""
        return Decimal(self.values[f"gate_{dimension}_threshold"])


def resolve_config(agent: Agent, overrides: Mapping[str, Any] | None = None) -> ResolvedConfig:
    """Return the configuration of `agent` in effect (AC-7.3.3), in one query.

    Args:
        overrides: Values for one run (`Run.overrides`); names that are no field, None, and values that are not allowed are passed over.
    """
    with sentry_sdk.start_span(op="correction.config", name="resolve config") as span:
        own, defaults = own_and_defaults(AgentEvaluationConfig.objects.filter(Q(agent=agent) | Q(is_defaults=True)))
        resolved = merge(own=own, defaults=defaults, overrides=_valid_overrides(overrides or {}))
        span.set_data("gate_mode", resolved.gate_mode)
        return resolved


def own_and_defaults(
    rows: QuerySet[AgentEvaluationConfig],
) -> tuple[AgentEvaluationConfig | None, AgentEvaluationConfig | None]:
    """Return which of these rows, one agent's and that of the defaults, is which; None for one that is not there."""
    by_kind = {row.is_defaults: row for row in rows.order_by()}
    return by_kind.get(False), by_kind.get(True)


def resolve_all(agents: Iterable[Agent]) -> list[tuple[Agent, ResolvedConfig]]:
    """Return each agent with its configuration, in one query (give a queryset with ``select_related("evaluation_config")``)."""
    defaults = AgentEvaluationConfig.objects.filter(is_defaults=True).first()
    return [(agent, merge(own=getattr(agent, "evaluation_config", None), defaults=defaults)) for agent in agents]


def resolve_defaults() -> ResolvedConfig:
    """Return the configuration of an agent that sets nothing of its own."""
    return merge(own=None, defaults=AgentEvaluationConfig.objects.filter(is_defaults=True).first())


def config_of(turn: Turn) -> ResolvedConfig:
    """Return the configuration of a turn, which is read once: an edit holds from the next turn on."""
    config: ResolvedConfig | None = turn.reports.get("config")
    if config is None:
        config = resolve_config(turn.agent, turn.overrides)
        turn.reports["config"] = config
    return config


def merge(
    *,
    own: AgentEvaluationConfig | None,
    defaults: AgentEvaluationConfig | None,
    overrides: Mapping[str, Any] | None = None,
) -> ResolvedConfig:
    """Merge the layers of a configuration without a query: of each setting the first value that is set wins.

    The layers, in this order: overrides of a run, the agent's own row, the defaults row, built-in values. None and an empty text are not
    set; an empty list is. `provenance` says from which layer each value is.

    Where no layer sets `gate_rules_enabled`, the agent's rules are checked wherever a dimension is that takes rules; where none sets
    `gate_mode`, it is ``enforce`` as soon as a check is enabled.
    """
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for name, setting in SETTINGS.items():
        values[name] = setting.built_in
        provenance[name] = "built-in"
        layers: tuple[tuple[Provenance, Any], ...] = (
            ("override", (overrides or {}).get(name)),
            ("agent", getattr(own, name, None)),
            ("defaults", getattr(defaults, name, None)),
        )
        for layer, value in layers:
            if value not in (None, ""):
                values[name] = value
                provenance[name] = layer
                break
    if values["gate_rules_enabled"] is None:
        values["gate_rules_enabled"] = any(values[f"gate_{dimension}_enabled"] for dimension in DIMENSIONS_WITH_RULES)
    if values["gate_mode"] is None:
        checks_something = values["gate_rules_enabled"] or any(values[f"gate_{d}_enabled"] for d in GATE_DIMENSIONS)
        values["gate_mode"] = str(GateMode.ENFORCE if checks_something else GateMode.OFF)
    return ResolvedConfig(values, provenance)


def _valid_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides that are fields, as the columns store them; one that is not valid is left out, for a turn must not die of it."""
    valid: dict[str, Any] = {}
    for name in SETTINGS.keys() & overrides.keys():
        with contextlib.suppress(ConfigError):
            valid[name] = SETTINGS[name].read(overrides[name])
    return valid


def read_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values, by the field's name, as the columns store them; None where a field is to inherit.

    Raises:
        ConfigError: Unknown fields, or values that are not allowed; all of them at once (of a flood, the first ones).
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, value in changes.items():
        if name in SETTINGS:
            try:
                values[name] = SETTINGS[name].read(value)
            except ConfigError as error:
                errors |= error.errors
        elif len(errors) < len(SETTINGS):
            errors[name] = _unknown_field(name)
    if errors:
        raise ConfigError(errors)
    return values


def _unknown_field(name: str) -> str:
    """Return a sentence for a name that is no setting, with the nearest ones first."""
    nearest = difflib.get_close_matches(name.lower(), SETTINGS, n=3, cutoff=0.6)
    guess = f" (did you mean {' or '.join(nearest)}?)" if nearest else ""
    return f"there is no field {short(name)!r}{guess}; allowed: {', '.join(SETTINGS)}"
