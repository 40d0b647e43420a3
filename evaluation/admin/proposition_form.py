"""The form of one proposition: each field as a person types it, what the loader says of it, and the entry of a file that comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django import forms
from django.http import HttpRequest

from agents.console.site import GrowingTextarea, NumberInput, Select, TextInput
from agents.models import Agent
from evaluation.models import Dimension
from evaluation.propositions.editing import (
    CannotSave,
    as_file,
    head_of,
    save_proposition,
    validated,
    written_as,
)
from evaluation.propositions.files import DEFAULT, Entry, LoadedFile, all_entries, free_id
from evaluation.propositions.schema import (
    AGENT_NAME,
    ENVIRONMENT_DIMENSIONS,
    PRECONDITIONS,
    Cues,
    Proposition,
    PropositionFile,
    PropositionSpec,
    Rule,
    resolve,
)

MAIN = ("claim", "id", "weight", "inverted", "hard")
NUMBERS = ("max_sentences", "min_sentences", "max_words", "min_words", "max_characters")
LISTS = ("contains_any", "contains_all", "contains_none")
RULE = (*NUMBERS, "matches", "not_matches", *LISTS, "lowercase", "no_emoji")
CUES = ("supports", "contradicts")
CONTEXT = ("precondition", "trait", "trait_stopped", "include_personas", "first_n", "last_n")
ADVICE = ("recommendations_for_improvement", "source")
FIELDS = (*MAIN, *RULE, *CUES, *CONTEXT, *ADVICE)
LEVELS = {"evaluation": "what was said", "action": "a draft, in the gate"}
GROUPS = (
    (
        "An exact rule instead of a judge",
        "free of cost, the same offline: 9 when all of it holds, 0 when not. A rule excludes words for or against",
        RULE,
    ),
    (
        "Words for and against, for the offline judge",
        "without an LLM a proposition is scored by these alone; give both, or its score can never fall",
        CUES,
    ),
    ("Where it applies, and what the judge is shown", "", CONTEXT),
)
_LABELS = {
    "claim": "sentence",
    "inverted": "anti-pattern",
    "hard": "strict",
    "recommendations_for_improvement": "advice when it is low",
    "source": "from the persona",
    "trait_stopped": "the trait is to be stopped",
    "include_personas": "show the persona",
    "first_n": "first events",
    "last_n": "last events",
    "lowercase": "in lower case only",
    "supports": "words for it",
    "contradicts": "words against it",
}


class PropositionForm(forms.Form):
    """A proposition as a person types it. What the loader says of it is added with `blame`.

    Args:
        written: The entry that is edited, as it stands in its file; empty for a new one.
        traits: Names of the agent's traits.
    """

    prefix = "prop"  # a script that asks the form whether it `matches`, or for its `id`, would get a field of that name

    def __init__(
        self, data: Mapping[str, Any] | None = None, *, written: Mapping[str, Any], traits: Iterable[str] = ()
    ) -> None:
        super().__init__(data, initial=_typed(written), label_suffix="")
        self.written = dict(written)
        for name in FIELDS:
            self.fields[name] = _field(name, list(traits))
        self.fields["claim"].required = True
        self.fields["id"].disabled = bool(written)

    def blame(self, errors: Mapping[str, str]) -> None:
        """Show the loader's errors at the fields they are about."""
        for name, text in errors.items():
            known = name in self.fields
            self.add_error(name if known else None, text if known or not name else f"{name}: {text}")

    def entry(self, *, active: bool) -> dict[str, Any]:
        """All that would stand in the file. What says the same as before stays as it was written."""
        before, now = _parts(_typed(self.written)), _parts(self.cleaned_data)
        entry = dict(self.written)
        for name in (*MAIN, "rule", "cues", *CONTEXT, *ADVICE):
            if now[name] is None and before[name] is not None:
                entry.pop(name, None)
            elif now[name] != before[name]:
                entry[name] = now[name]
        if not self.written:
            return {"id": entry.pop("id", ""), "active": active, **entry}
        if active:
            entry = {name: value for name, value in entry.items() if name not in ("rejected", "retired")}
        if not active or "active" in entry:
            entry["active"] = active
        return entry

    def groups(self) -> list[tuple[str, str, list[forms.BoundField], bool]]:
        """Heading, explanation and fields of each folded part, and whether it is open: where something is typed."""
        typed = set(_typed(self.written)) | {name for name in self.fields if self.is_bound and self[name].value()}
        return [
            (title, text, [self[name] for name in names], bool(typed & set(names))) for title, text, names in GROUPS
        ]

    def advice(self) -> list[forms.BoundField]:
        return [self[name] for name in ADVICE]


def _field(name: str, traits: list[str]) -> forms.Field:
    """The form field of a field of a file, with the description it has in the schema."""
    schema = next(model.model_fields[name] for model in (PropositionSpec, Rule, Cues) if name in model.model_fields)
    label = _LABELS.get(name, name.replace("_", " "))
    common: dict[str, Any] = {"required": False, "label": label, "help_text": schema.description}
    if name in ("inverted", "hard", "trait_stopped", "lowercase", "no_emoji"):
        return forms.BooleanField(**common)
    if name == "weight":
        attrs: dict[str, Any] = {"step": "any", "min": 0, "max": 5, "placeholder": "1"}
        return forms.FloatField(widget=NumberInput(attrs=attrs), **common)
    if name in (*NUMBERS, "first_n", "last_n"):
        return forms.IntegerField(min_value=0, widget=NumberInput(attrs={"step": 1}), **common)
    if name == "precondition":
        choices = [("", "always")] + [(known, known.replace("_", " ")) for known in sorted(PRECONDITIONS)]
        return forms.ChoiceField(choices=choices, widget=Select, **common)
    if name == "include_personas":
        choices = [("", "as its file says"), ("yes", "yes"), ("no", "no")]
        return forms.ChoiceField(choices=choices, widget=Select, **common)
    if name in ("id", "trait", "matches", "not_matches"):
        attrs = {"list": "pl-traits"} if name == "trait" and traits else {}
        attrs |= {"placeholder": "made from the sentence"} if name == "id" else {}
        return forms.CharField(widget=TextInput(attrs=attrs), max_length=2000, **common)
    hints = {"claim": "{{agent_name}} …"} | dict.fromkeys((*LISTS, *CUES), "one phrase or /regex/ a line")
    widget = GrowingTextarea(attrs={"rows": 3 if name == "claim" else 2, "placeholder": hints.get(name, "")})
    return forms.CharField(widget=widget, max_length=20_000, **common)


def _typed(written: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as its fields show it."""
    flat = {**written, **(written.get("rule") or {}), **(written.get("cues") or {})}
    typed = {name: flat[name] for name in FIELDS if name in flat}
    for name in (*LISTS, *CUES):
        if isinstance(typed.get(name), list):
            typed[name] = "\n".join(map(str, typed[name]))
    if "include_personas" in typed:
        typed["include_personas"] = "yes" if typed["include_personas"] else "no"
    for name in ("claim", *ADVICE):
        if isinstance(typed.get(name), str):
            typed[name] = typed[name].strip()
    return typed


def _parts(typed: Mapping[str, Any]) -> dict[str, Any]:
    """What is typed as the fields of an entry; None for what need not be said."""
    values = {name: _value(name, typed.get(name)) for name in FIELDS}
    for part, names in (("rule", RULE), ("cues", CUES)):
        said = {name: values.pop(name) for name in names}
        values[part] = {name: value for name, value in said.items() if value is not None} or None
    return values


def _value(name: str, value: Any) -> Any:
    """A field's value as it stands in a file; None for what need not be said."""
    if name in (*LISTS, *CUES):
        lines = [line.strip() for line in str(value or "").splitlines()]
        return list(dict.fromkeys(filter(None, lines))) or None
    if name == "include_personas":
        return {"yes": True, "no": False}.get(str(value))
    if value is None or value is False or value == "" or (name == "weight" and value == 1):
        return None
    if name == "weight":
        return float(value)
    return value.replace("\r\n", "\n").strip() or None if isinstance(value, str) else value


class Editing:
    """A form, and the proposition it is about.

    Raises:
        CannotSave: Its file cannot be read.
    """

    def __init__(
        self,
        request: HttpRequest,
        *,
        owner: str,
        agent: Agent | None,
        entry: Entry | None,
        files: Sequence[LoadedFile],
    ) -> None:
        self.owner, self.entry, self.files = owner, entry, files
        is_sent = request.method == "POST"
        asked = request.POST if is_sent else request.GET
        # Dimensions of channels are only in files about every one of them.
        self.dimensions = [name for name in Dimension.values if agent is None or name not in ENVIRONMENT_DIMENSIONS]
        self.dimension = entry.dimension if entry else _one_of(asked.get("dimension", ""), self.dimensions)
        self.level = entry.level if entry else _one_of(asked.get("level", ""), list(LEVELS))
        self.mark = request.POST.get("mark", "") if is_sent else entry.mark if entry else ""
        written, self.head = written_as(entry) if entry else ({}, {})
        self.traits = [trait.name for trait in agent.traits.all()] if agent else []
        self.form = PropositionForm(request.POST if is_sent else None, written=written, traits=self.traits)

    @property
    def id(self) -> str:
        return str(self.form.cleaned_data["id"])

    def is_valid(self) -> bool:
        """Whether the form is, and the loader would take it; an id is made of the claim where none was typed."""
        if not self.form.is_valid():
            return False
        if not self.form.cleaned_data["id"]:
            words = self.form.cleaned_data["claim"].replace(AGENT_NAME, " ").split()[:5]
            used = {entry.proposition.id for entry in all_entries(self.files)}
            self.form.cleaned_data["id"] = free_id(self.owner, " ".join(words), in_use=used)
        try:
            self._file()
        except CannotSave as problem:
            self.form.blame(problem.errors)
            return False
        return True

    def proposition(self) -> Proposition:
        """As it is typed, to be tried."""
        file = self._file()
        return resolve(file.propositions[0], file, "as typed", for_all=self.owner == DEFAULT)

    def as_yaml(self) -> str:
        """A file of it alone."""
        active = self.entry is None or self.entry.proposition.active
        return as_file(self._head(), [self.form.entry(active=active)])

    def save(self, *, active: bool) -> Path:
        """Store it.

        Raises:
            CannotSave: It cannot be.
        """
        return save_proposition(
            owner=self.owner,
            dimension=self.dimension,
            level=self.level,
            entry=self.form.entry(active=active),
            mark=self.mark if self.entry else "",
        )

    def _head(self) -> dict[str, Any]:
        return {**head_of(self.dimension, self.owner, self.level), **self.head}

    def _file(self) -> PropositionFile:
        return validated({**self._head(), "propositions": [self.form.entry(active=True)]})


def _one_of(wanted: str, allowed: Sequence[str]) -> str:
    return wanted if wanted in allowed else allowed[0]
