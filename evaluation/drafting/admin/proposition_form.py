"""The form of one proposition: each field as a person types it, what the loader says of it, and the entry of a file that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from django import forms

from agents.kit.console.site import GrowingTextarea, NumberInput, Select, TextInput
from agents.models import Agent
from evaluation.dimensions import OF_PERSONA
from evaluation.drafting.editing import (
    CannotSave,
    WrittenEntry,
    as_file,
    head_of,
    save_proposition,
    validated,
    written_as,
)
from evaluation.models import CHANNEL_DIMENSIONS, Dimension
from evaluation.propositions.entries import Entry, all_entries, free_id
from evaluation.propositions.files import DEFAULT, Loader
from evaluation.propositions.schema import (
    AGENT_NAME,
    PRECONDITIONS,
    Cues,
    Proposition,
    PropositionFile,
    PropositionSpec,
    Rule,
    resolve,
)

MAIN = ("claim", "id", "weight", "inverted", "hard")
CUES = ("supports", "contradicts")
CONTEXT = ("precondition", "trait", "trait_stopped", "include_personas", "first_n", "last_n")
ADVICE = ("recommendations_for_improvement", "source")
SWITCHES = ("inverted", "hard", "trait_stopped")
LEVELS = {"evaluation": "what was said", "action": "a draft, in the gate"}
GROUPS = (
    (
        "An exact rule instead of a judge",
        "free of cost, the same offline: 9 when all of it holds, 0 when not. A rule excludes words for or against",
        ("rule",),
    ),
    (
        "Words for and against, for the offline judge",
        "without an LLM a proposition is scored by these alone; give both, or its score can never fall",
        CUES,
    ),
    ("Where it applies, and what the judge is shown", "", CONTEXT),
)
LABELS = {
    "claim": "sentence",
    "inverted": "anti-pattern",
    "hard": "strict",
    "recommendations_for_improvement": "advice when it is low",
    "source": "from the persona",
    "trait_stopped": "the trait is to be stopped",
    "include_personas": "show the persona",
    "first_n": "first events",
    "last_n": "last events",
    "supports": "words for it",
    "contradicts": "words against it",
}


class PlainText(forms.CharField):
    """A text without what a browser makes of line ends; None where nothing is typed."""

    def to_python(self, value: Any) -> Any:
        return str(value or "").replace("\r\n", "\n").strip() or None

    def prepare_value(self, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return not self.disabled and bool(self.to_python(self.prepare_value(initial)) != self.to_python(data))


class PlainLines(PlainText):
    """A list of texts, one a line."""

    def to_python(self, value: Any) -> Any:
        lines: dict[str, None] = {}  # each once
        for line in str(value or "").splitlines():
            if line.strip():
                lines[line.strip()] = None
        return list(lines) or None

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def run_validators(self, value: Any) -> None:
        """The loader says what is wrong with a phrase."""


class PlainYaml(PlainText):
    """A mapping as YAML."""

    def to_python(self, value: Any) -> Any:
        """Return the mapping that is typed; None where nothing is.

        Raises:
            ValidationError: It is no YAML mapping.
        """
        try:
            data = yaml.load(str(value or ""), Loader=Loader)  # noqa: S506 (a safe one)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise forms.ValidationError(f"not valid YAML: {getattr(error, 'problem', None) or error}") from None
        if data is not None and not isinstance(data, dict):
            raise forms.ValidationError("Write a check and its value on each line, such as max_words: 20.")
        return data or None

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, dict) and value:
            return yaml.safe_dump(value, allow_unicode=True, sort_keys=False).strip()
        return value

    def run_validators(self, value: Any) -> None:
        """The loader says what is wrong with a check."""


class PropositionForm(forms.Form):
    """A proposition as a person types it; valid when the loader takes it. An id is made of the claim where none is typed.

    Args:
        entry: The one that is edited; None for a new one.

    Raises:
        CannotSave: Its file cannot be read.
    """

    prefix = "prop"  # a script that asks the form whether it `matches`, or for its `id`, would get a field of that name
    mark = forms.CharField(required=False, widget=forms.HiddenInput)
    dimension = forms.ChoiceField(required=False, widget=Select)
    level = forms.ChoiceField(required=False, widget=Select, choices=list(LEVELS.items()), label="Asked about")

    def __init__(
        self, data: Mapping[str, Any] | None = None, *, owner: str, agent: Agent | None, entry: Entry | None
    ) -> None:
        """Fill the form in with the proposition as its file has it; id, dimension and level of one that exists cannot be changed."""
        self.owner = owner
        self.entry = entry
        self.written = written_as(entry) if entry else WrittenEntry({}, {})
        initial = {**self.written.fields, **(self.written.fields.get("cues") or {})}
        if "include_personas" in initial:  # its choices are texts, as HTML has them
            initial["include_personas"] = str(initial["include_personas"])
        super().__init__(
            data,
            initial={"dimension": OF_PERSONA, **initial, "mark": entry.mark if entry else ""},
            label_suffix="",
        )
        self.traits = [trait.name for trait in agent.traits.all()] if agent else []
        for name in (*MAIN, "rule", *CUES, *CONTEXT, *ADVICE):
            self.fields[name] = _field(name, listed="pl-traits" if name == "trait" and self.traits else "")
        self.fields["claim"].required = True
        self.fields["id"].disabled = entry is not None
        if entry is not None:
            del self.fields["dimension"], self.fields["level"]
        else:  # dimensions of channels are only in files about every one of them
            dimensions = [one for one in Dimension if agent is None or one.value not in CHANNEL_DIMENSIONS]
            self.fields["dimension"].choices = [(one.value, one.label) for one in dimensions]  # type: ignore[attr-defined]

    def clean(self) -> None:
        """Make an id of the claim's first words where none is typed, and show what the loader says at the fields it is about."""
        super().clean()
        if self.errors:
            return
        if not self.cleaned_data["id"]:
            words = self.cleaned_data["claim"].replace(AGENT_NAME, " ").split()[:5]
            used = {entry.proposition.id for entry in all_entries()}
            self.cleaned_data["id"] = free_id(self.owner, " ".join(words), in_use=used)
        try:
            self._file()
        except CannotSave as problem:
            self.show_errors(problem.errors)

    def show_errors(self, errors: Mapping[str, str]) -> None:
        """Show the loader's errors at the fields they are about."""
        for name, text in errors.items():
            if name in self.fields:
                self.add_error(name, text)
            else:
                self.add_error(None, f"{name}: {text}" if name else text)

    def dimension_and_level(self) -> tuple[str, str]:
        """Return dimension and level: of the entry, or as they are chosen."""
        if self.entry is not None:
            return self.entry.dimension, self.entry.level
        dimension = self["dimension"].value() or OF_PERSONA
        level = self["level"].value() or "evaluation"
        return str(dimension), str(level)

    def written_entry(self, *, active: bool) -> dict[str, Any]:
        """Return all fields that would stand in the file. What was not changed stays as it was written, and in its place.

        Args:
            active: Put it in use: then it is no longer rejected or retired. In one that exists ``active: true``, which is the default, is
                written only where ``active`` stood.
        """
        fields = dict(self.written.fields)
        changed = set(self.changed_data)
        for name in (*MAIN, "rule", "cues", *CONTEXT, *ADVICE):  # in the order of a file
            if name == "cues":
                if changed.intersection(CUES):
                    _set_or_remove(fields, name, self._typed_cues())
            elif name in changed:
                _set_or_remove(fields, name, self._typed(name))
        if not self.written.fields:  # a new one
            fields.pop("id", None)
            return {"id": self.cleaned_data["id"], "active": active, **fields}
        if active:
            fields.pop("rejected", None)
            fields.pop("retired", None)
        if not active or "active" in fields:
            fields["active"] = active
        return fields

    def _typed(self, name: str) -> Any:
        """Return what is typed in a field; None where nothing is, or a switch is off."""
        value = self.cleaned_data[name]
        if value == "" or (name in SWITCHES and not value):
            return None
        return value

    def _typed_cues(self) -> dict[str, Any] | None:
        cues = {}
        for name in CUES:
            phrases = self._typed(name)
            if phrases is not None:
                cues[name] = phrases
        return cues or None

    def groups(self) -> list[tuple[str, str, list[forms.BoundField], bool]]:
        """Return heading, explanation and fields of each folded part, and whether it is open: where something is typed."""
        return [
            (title, text, [self[name] for name in names], any(self[name].value() for name in names))
            for title, text, names in GROUPS
        ]

    def proposition(self) -> Proposition:
        """Return the proposition as it is typed, to be tried."""
        file = self._file()
        return resolve(file.propositions[0], file, "as typed", for_all=self.owner == DEFAULT)

    def as_yaml(self) -> str:
        """Return a file of the proposition alone."""
        active = self.entry is None or self.entry.proposition.active
        return as_file(self._head(), [self.written_entry(active=active)])

    def save(self, *, active: bool) -> Path:
        """Store the proposition and return its file.

        Raises:
            CannotSave: It cannot be.
        """
        dimension, level = self.dimension_and_level()
        return save_proposition(
            owner=self.owner,
            dimension=dimension,
            level=level,
            entry=self.written_entry(active=active),
            mark=self.cleaned_data["mark"] if self.entry else "",
        )

    def _head(self) -> dict[str, Any]:
        """Return the head of its file."""
        dimension, level = self.dimension_and_level()
        return {**head_of(dimension, self.owner, level), **self.written.head}

    def _file(self) -> PropositionFile:
        return validated({**self._head(), "propositions": [self.written_entry(active=True)]})


def _set_or_remove(fields: dict[str, Any], name: str, value: Any) -> None:
    """Set a field of a file; None removes it."""
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value


def _field(name: str, *, listed: str) -> forms.Field:
    """Return the form field of a field of a file, with the description it has in the schema.

    Args:
        listed: Id of the list of values that are offered; empty = none.
    """
    common: dict[str, Any] = {
        "required": False,
        "label": LABELS.get(name, name.replace("_", " ")),
        "help_text": _description(name),
    }
    if name in SWITCHES:
        return forms.BooleanField(**common)
    if name == "weight":
        weight_attrs = {"step": "any", "min": 0, "max": 5, "placeholder": "1"}
        return forms.FloatField(widget=NumberInput(attrs=weight_attrs), **common)
    if name in ("first_n", "last_n"):
        return forms.IntegerField(min_value=0, widget=NumberInput(attrs={"step": 1}), **common)
    if name == "precondition":
        preconditions = [(known, known.replace("_", " ")) for known in sorted(PRECONDITIONS)]
        return forms.ChoiceField(choices=[("", "always"), *preconditions], widget=Select, **common)
    if name == "include_personas":
        choices = [("", "as its file says"), ("True", "yes"), ("False", "no")]
        return forms.TypedChoiceField(
            choices=choices, coerce=lambda value: value == "True", empty_value=None, widget=Select, **common
        )
    if name in ("id", "trait"):
        placeholder = "made from the sentence" if name == "id" else ""
        widget = TextInput(attrs={"list": listed, "placeholder": placeholder})
        return PlainText(widget=widget, max_length=2000, **common)
    if name == "rule":
        common["help_text"] = f"a check a line, as YAML: {', '.join(Rule.model_fields)}"
        return PlainYaml(widget=_growing(2, "max_sentences: 2\nno_emoji: true"), max_length=20_000, **common)
    if name in CUES:
        return PlainLines(widget=_growing(2, "one phrase or /regex/ a line"), max_length=20_000, **common)
    if name == "claim":
        return PlainText(widget=_growing(3, "{{agent_name}} …"), max_length=20_000, **common)
    return PlainText(widget=_growing(2, ""), max_length=20_000, **common)


def _description(name: str) -> str | None:
    for model in (PropositionSpec, Cues):
        if name in model.model_fields:
            return model.model_fields[name].description
    raise KeyError(name)


def _growing(rows: int, placeholder: str) -> forms.Widget:
    return GrowingTextarea(attrs={"rows": rows, "placeholder": placeholder})
