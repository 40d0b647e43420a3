"""The two forms of one proposition, a sentence with blanks and YAML: what the loader says of it, and how it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml
from django import forms
from django.forms.boundfield import BoundField

from agents.kit.console.site import GrowingTextarea, NumberInput, Select, TextInput
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
from evaluation.drafting.sentences import BY_NAME, KINDS, Blank, NotFilledIn, Sentence, SentenceKind, sentence_in
from evaluation.models import CHANNEL_DIMENSIONS, Dimension
from evaluation.propositions.entries import Entry, all_entries, free_id
from evaluation.propositions.files import DEFAULT, YamlProblems, read_mapping
from evaluation.propositions.schema import AGENT_NAME, Proposition, PropositionFile, resolve

LEVELS = {"evaluation": "what was said", "action": "a draft, in the gate"}
STATE = ("active", "rejected", "retired")  # fields that the buttons decide on
NEW_YAML = 'claim: "{{agent_name}} …"\n'
MOST_CHARACTERS = 20_000


class PropositionForm(forms.Form):
    """A proposition as a person types it; valid when the loader takes it. An id is made of the claim where none is typed.

    Args:
        entry: The one that is edited; None for a new one.

    Raises:
        CannotSave: Its file cannot be read.
    """

    prefix = "prop"  # a script that asks the form for its `id` would get a field of that name
    mark = forms.CharField(required=False, widget=forms.HiddenInput)
    is_yaml: ClassVar[bool]

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        owner: str,
        entry: Entry | None,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        """Fill the form in with the proposition as its file has it, or with what is `initial`."""
        self.owner = owner
        self.entry = entry
        self.written = written_as(entry) if entry else WrittenEntry({}, {})
        super().__init__(data, initial={"mark": entry.mark if entry else "", **(initial or {})}, label_suffix="")

    def typed_fields(self) -> dict[str, Any]:
        """Return the fields of the proposition as typed, as a file has them; those in `STATE` do not count.

        Raises:
            ValidationError: Something is not filled in.
        """
        raise NotImplementedError

    def show_errors(self, errors: Mapping[str, str]) -> None:
        """Show the loader's errors."""
        raise NotImplementedError

    def clean(self) -> None:
        """Make an id of the claim's first words where none is typed, and show what the loader says."""
        super().clean()
        if self.errors:
            return
        fields = {"id": "", **self.typed_fields()}
        if not fields["id"]:
            words = str(fields.get("claim") or "").replace(AGENT_NAME, " ").split()[:10]
            used = {entry.proposition.id for entry in all_entries()}
            fields["id"] = free_id(self.owner, " ".join(words), in_use=used)
        self.cleaned_data["fields"] = fields
        try:
            self._file()
        except CannotSave as problem:
            self.show_errors(problem.errors)

    def dimension_and_level(self) -> tuple[str, str]:
        """Return dimension and level: of the entry, or of a new one."""
        if self.entry is not None:
            return self.entry.dimension, self.entry.level
        return OF_PERSONA, "evaluation"

    @property
    def id(self) -> str:
        """Return the proposition's id, of a valid form."""
        return str(self.cleaned_data["fields"]["id"])

    @property
    def claim(self) -> str:
        """Return the proposition's claim, of a valid form."""
        return str(self.cleaned_data["fields"]["claim"])

    def written_entry(self, *, active: bool) -> dict[str, Any]:
        """Return all fields that would stand in the file.

        Args:
            active: Put it in use: then it is no longer rejected or retired. In one that exists ``active: true``, which is the default, is
                written only where ``active`` stood.
        """
        typed = _without(self.cleaned_data["fields"], *STATE)
        before = self.written.fields
        fields = {"id": typed.pop("id")}
        if not active or not before or "active" in before:
            fields["active"] = active
        fields.update(typed)
        if not active:
            fields.update({name: before[name] for name in ("rejected", "retired") if name in before})
        return fields

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


class SentencePart(NamedTuple):
    """A piece of a sentence: text, and the blank after it; None after the last text."""

    text: str
    field: BoundField | None


class SentenceRow(NamedTuple):
    """A sentence as the page shows it."""

    kind: SentenceKind
    is_chosen: bool
    parts: list[SentencePart]
    errors: list[str]


class SentenceForm(PropositionForm):
    """A proposition as one of the sentences, with its blanks filled in."""

    is_yaml = False
    kind = forms.ChoiceField(
        choices=[(kind.name, kind.name) for kind in KINDS],
        error_messages={"required": "Choose a sentence, and fill in its blanks."},
    )
    source = forms.CharField(required=False, max_length=1000, widget=forms.HiddenInput)

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        owner: str,
        entry: Entry | None,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        """Fill the sentence in that the entry is, if it is one."""
        super().__init__(data, owner=owner, entry=entry, initial=initial)
        self.sentence = sentence_in(self.written.fields)
        if self.sentence is not None and initial is None:
            self.initial.update(initial_of(self.sentence))
        for kind in KINDS:
            for blank in kind.blanks:
                self.fields[field_name(kind, blank)] = _field(blank)
                if blank.usual is not None:
                    self.initial.setdefault(field_name(kind, blank), blank.usual)

    def typed_fields(self) -> dict[str, Any]:
        kind = BY_NAME[self.cleaned_data["kind"]]
        filled = {blank.name: self.cleaned_data[field_name(kind, blank)] for blank in kind.blanks}
        fields = dict(self.written.fields)
        try:
            new_fields = Sentence(kind, filled).fields()
        except NotFilledIn as problem:
            raise forms.ValidationError({f"{kind.name}_{problem.blank}": str(problem)}) from None
        is_same = new_fields["rule"] == fields.get("rule") and new_fields.get("of_ten") == fields.get("of_ten")
        if not is_same:  # else its claim stays as it was written
            fields.pop("of_ten", None)
            fields.update(new_fields)
        if self.cleaned_data["source"] and not self.written.fields:
            fields["source"] = self.cleaned_data["source"]
        return fields

    def show_errors(self, errors: Mapping[str, str]) -> None:
        kind = BY_NAME[self.cleaned_data["kind"]]
        for name, text in errors.items():
            if name == kind.check and kind.blanks:
                self.add_error(field_name(kind, kind.blanks[0]), text)
            else:
                self.add_error(None, f"{name}: {text}" if name else text)

    def rows(self) -> list[SentenceRow]:
        """Return the sentences with their blanks."""
        chosen = self["kind"].value()
        rows = []
        for kind in KINDS:
            parts: list[SentencePart] = []
            errors: list[str] = []
            for text, blank in kind.parts():
                field = self[field_name(kind, blank)] if blank else None
                parts.append(SentencePart(text, field))
                if field is not None:
                    errors += map(str, field.errors)
            rows.append(SentenceRow(kind, chosen == kind.name, parts, errors))
        return rows


class YamlForm(PropositionForm):
    """A proposition as YAML: its fields as they stand in a file."""

    is_yaml = True
    dimension = forms.ChoiceField(required=False, widget=Select)
    level = forms.ChoiceField(required=False, widget=Select, choices=list(LEVELS.items()), label="Asked about")
    yaml = forms.CharField(
        label="Proposition, as YAML",
        max_length=MOST_CHARACTERS,
        strip=False,
        widget=GrowingTextarea(attrs={"rows": 8, "spellcheck": "false"}),
        help_text="Its fields, one a line; {{agent_name}} stands for the agent's name. Without an id one is made from the claim.",
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        owner: str,
        entry: Entry | None,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        """Fill in what the entry has; dimension and level of one that exists cannot be changed."""
        super().__init__(data, owner=owner, entry=entry, initial={"dimension": OF_PERSONA, **(initial or {})})
        self.initial.setdefault("yaml", as_text(self.written.fields) if entry else NEW_YAML)
        if entry is not None:
            del self.fields["dimension"], self.fields["level"]
            return
        # dimensions of channels are only in files about every dimension of them
        dimensions = [
            dimension for dimension in Dimension if owner == DEFAULT or dimension.value not in CHANNEL_DIMENSIONS
        ]
        self.fields["dimension"].choices = [(dimension.value, dimension.label) for dimension in dimensions]  # type: ignore[attr-defined]

    def clean_yaml(self) -> dict[str, Any]:
        """Return the fields that are typed.

        Raises:
            ValidationError: It is no YAML mapping.
        """
        try:
            _, fields = read_mapping(self.cleaned_data["yaml"], "claim, and what else it needs,")
        except YamlProblems as error:
            [problem] = error.problems
            line = f"line {problem.line}: " if problem.line else ""
            raise forms.ValidationError(f"{line}{problem.message}") from None
        return fields

    def typed_fields(self) -> dict[str, Any]:
        return dict(self.cleaned_data["yaml"])

    def sentence(self) -> Sentence | None:
        """Return the sentence that says all that is typed in a valid form; None where YAML says more."""
        fields = self.cleaned_data["fields"]
        other_fields = _without(fields, *STATE, "claim", "rule", "of_ten")
        saved = _without(self.written.fields, *STATE, "claim", "rule", "of_ten")
        if self.entry is None:  # its id is made, and the form of the sentence takes its source
            other_fields = _without(other_fields, "id", "source")
        is_said = other_fields == saved and self.dimension_and_level() == (OF_PERSONA, "evaluation")
        return sentence_in(fields) if is_said else None

    def show_errors(self, errors: Mapping[str, str]) -> None:
        for name, text in errors.items():
            self.add_error("yaml", f"{name}: {text}" if name else text)

    def dimension_and_level(self) -> tuple[str, str]:
        if self.entry is not None:
            return super().dimension_and_level()
        dimension = self["dimension"].value() or OF_PERSONA
        level = self["level"].value() or "evaluation"
        return str(dimension), str(level)


def as_text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a proposition as YAML, without those that the buttons decide on."""
    return yaml.safe_dump(_without(fields, *STATE), allow_unicode=True, sort_keys=False, width=100)


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def field_name(kind: SentenceKind, blank: Blank) -> str:
    """Return the form field of a blank."""
    return f"{kind.name}_{blank.name}"


def initial_of(sentence: Sentence) -> dict[str, str]:
    """Return what the form of this sentence is filled in with, by field."""
    filled = {f"{sentence.kind.name}_{name}": value for name, value in sentence.filled.items()}
    return {"kind": sentence.kind.name, **filled}


def _field(blank: Blank) -> forms.Field:
    attrs: dict[str, Any] = {"aria-label": blank.label}
    if blank.most:
        attrs |= {"step": 1, "min": 1, "max": blank.most}
        widget = NumberInput(attrs=attrs)
    else:
        attrs["placeholder"] = "words, with commas between them"
        widget = TextInput(attrs=attrs)
    return forms.CharField(required=False, max_length=MOST_CHARACTERS, widget=widget)
