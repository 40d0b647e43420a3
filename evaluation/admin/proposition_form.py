"""The form of one proposition: each field as a person types it, what the loader says of it, and the entry of a file that comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.site import GrowingTextarea, NumberInput, Select, TextInput
from agents.models import Agent
from agents.persona import render_persona
from evaluation.admin.proposition_cards import path_shown, quoted_in, state_badge
from evaluation.models import Dimension
from evaluation.propositions.editing import (
    NO_FOLDER,
    CannotSave,
    as_file,
    head_of,
    place_for,
    save_proposition,
    validated,
    written_as,
)
from evaluation.propositions.files import DEFAULT, LoadedFile
from evaluation.propositions.library import Entry, all_entries, free_id
from evaluation.propositions.rules import PRECONDITIONS, Rule
from evaluation.propositions.schema import (
    AGENT_NAME,
    ENVIRONMENT_DIMENSIONS,
    Cues,
    Proposition,
    PropositionFile,
    PropositionSpec,
    resolve,
)

MAIN = ("claim", "id", "weight", "inverted", "hard")
RULE_NUMBERS = ("max_sentences", "min_sentences", "max_words", "min_words", "max_characters")
RULE_PATTERNS = ("matches", "not_matches")
RULE_LISTS = ("contains_any", "contains_all", "contains_none")
RULE_SWITCHES = ("lowercase", "no_emoji")
RULE = (*RULE_NUMBERS, *RULE_PATTERNS, *RULE_LISTS, *RULE_SWITCHES)
CUES = ("supports", "contradicts")
CONTEXT = ("precondition", "trait", "trait_stopped", "include_personas", "first_n", "last_n")
ADVICE = ("recommendations_for_improvement", "source")
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
_YES_NO = [("", "as its file says"), ("yes", "yes"), ("no", "no")]
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
        for name in (*MAIN, *RULE, *CUES, *CONTEXT, *ADVICE):
            self.fields[name] = _field(name, list(traits))
        self.fields["claim"].required = True
        if written:
            self.fields["id"].disabled = True

    def blame(self, errors: Mapping[str, str]) -> None:
        """Show the loader's errors at the fields they are about."""
        for name, text in errors.items():
            self.add_error(
                name if name in self.fields else None, text if name in self.fields or not name else f"{name}: {text}"
            )

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


def _field(name: str, traits: list[str]) -> forms.Field:
    """The form field of a field of a file, with the description it has in the schema."""
    schema = next(model.model_fields[name] for model in (PropositionSpec, Rule, Cues) if name in model.model_fields)
    common: dict[str, Any] = {
        "required": False,
        "label": _LABELS.get(name, name.replace("_", " ")),
        "help_text": schema.description,
    }
    if name in ("inverted", "hard", "trait_stopped", *RULE_SWITCHES):
        return forms.BooleanField(**common)
    if name == "weight":
        return forms.FloatField(
            widget=NumberInput(attrs={"step": "any", "min": 0, "max": 5, "placeholder": "1"}), **common
        )
    if name in (*RULE_NUMBERS, "first_n", "last_n"):
        return forms.IntegerField(min_value=0, widget=NumberInput(attrs={"step": 1}), **common)
    if name == "precondition":
        choices = [("", "always")] + [(known, known.replace("_", " ")) for known in sorted(PRECONDITIONS)]
        return forms.ChoiceField(choices=choices, widget=Select, **common)
    if name == "include_personas":
        return forms.ChoiceField(choices=_YES_NO, widget=Select, **common)
    if name in ("id", "trait", *RULE_PATTERNS):
        attrs = {"list": "pl-traits"} if name == "trait" and traits else {}
        attrs |= {"placeholder": "made from the sentence"} if name == "id" else {}
        return forms.CharField(widget=TextInput(attrs=attrs), max_length=2000, **common)
    hints = {"claim": "{{agent_name}} …"} | dict.fromkeys((*RULE_LISTS, *CUES), "one phrase or /regex/ a line")
    widget = GrowingTextarea(attrs={"rows": 3 if name == "claim" else 2, "placeholder": hints.get(name, "")})
    return forms.CharField(widget=widget, max_length=20_000, **common)


def _typed(written: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as its fields show it."""
    flat = {**written, **(written.get("rule") or {}), **(written.get("cues") or {})}
    typed = {name: flat[name] for name in (*MAIN, *RULE, *CUES, *CONTEXT, *ADVICE) if name in flat}
    for name in (*RULE_LISTS, *CUES):
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
    values = {name: _value(name, typed.get(name)) for name in (*MAIN, *RULE, *CUES, *CONTEXT, *ADVICE)}
    rule = {name: values.pop(name) for name in RULE}
    cues = {name: values.pop(name) for name in CUES}
    for name, parts in (("rule", rule), ("cues", cues)):
        values[name] = {key: value for key, value in parts.items() if value is not None} or None
    return values


def _value(name: str, value: Any) -> Any:
    """A field's value as it stands in a file; None for what need not be said."""
    if name in (*RULE_LISTS, *CUES):
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
        self.owner, self.agent, self.entry, self.files = owner, agent, entry, files
        asked = request.POST if request.method == "POST" else request.GET
        self.dimension = entry.dimension if entry else _one_of(asked.get("dimension", ""), self._dimensions())
        self.level = entry.level if entry else _one_of(asked.get("level", ""), list(LEVELS))
        self.mark = request.POST.get("mark", "") if request.method == "POST" else entry.mark if entry else ""
        written, self.head = written_as(entry) if entry else ({}, {})
        self.traits = [trait.name for trait in agent.traits.all()] if agent else []
        typed = request.POST if request.method == "POST" else None
        self.form = PropositionForm(typed, written=written, traits=self.traits)

    @property
    def id(self) -> str:
        return str(self.form.cleaned_data["id"])

    def is_valid(self) -> bool:
        """Whether the form is, and the loader would take it; an id is made of the claim where none was typed."""
        if not self.form.is_valid():
            return False
        if not self.form.cleaned_data["id"]:
            words = self.form.cleaned_data["claim"].replace(AGENT_NAME, " ").split()[:5]
            taken = {entry.proposition.id for entry in all_entries(self.files)}
            self.form.cleaned_data["id"] = free_id(self.owner, " ".join(words), in_use=taken)
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
        head = {**head_of(self.dimension, self.owner, self.level), **self.head}
        return as_file(head, [self.form.entry(active=self.entry is None or self.entry.proposition.active)])

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

    def context(self) -> dict[str, Any]:
        """What the template shows."""
        place = place_for(owner=self.owner, dimension=self.dimension, level=self.level, entry=self.entry)
        form = self.form
        opened = set(_typed(form.written)) | {name for name in form.fields if form.is_bound and form[name].value()}
        return {
            "form": form,
            "entry": self.entry,
            "badge": state_badge(self.entry) if self.entry else "",
            "mark": self.mark,
            "traits": self.traits,
            "dimensions": [(name, Dimension(name).label) for name in self._dimensions()],
            "levels": LEVELS.items(),
            "dimension": self.dimension,
            "level": self.level,
            "place": display.visible(path_shown(place.path)) if place else "",
            "replaces": display.visible(path_shown(self.entry.path)) if place and place.replaces and self.entry else "",
            "no_folder": "" if place else NO_FOLDER,
            "groups": [
                (heading, text, [form[name] for name in names], bool(opened & set(names)))
                for heading, text, names in GROUPS
            ],
            "advice": [form[name] for name in ADVICE],
            "quoted": self._quoted(),
        }

    def _file(self) -> PropositionFile:
        head = {**head_of(self.dimension, self.owner, self.level), **self.head}
        return validated({**head, "propositions": [self.form.entry(active=True)]})

    def _dimensions(self) -> list[str]:
        """Dimensions of channels are only in files about every one of them."""
        if self.agent is None:
            return list(Dimension.values)
        return [name for name in Dimension.values if name not in ENVIRONMENT_DIMENSIONS]

    def _quoted(self) -> SafeString | str:
        quote = self.form["source"].value() or ""
        if self.agent is None or not quote:
            return ""
        persona = render_persona(system_prompt=self.agent.system_prompt, traits=self.agent.traits.all())
        return quoted_in(str(quote), persona)


def _one_of(wanted: str, allowed: Sequence[str]) -> str:
    return wanted if wanted in allowed else allowed[0]
