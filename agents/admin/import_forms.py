"""The one form of an import: how the files are read, who each speaker is, and what must be confirmed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.validators import slug_re

from agents.console import display
from agents.console.site import GrowingTextarea, Select, TextInput
from agents.imports.reading import PERSONAS, Choices, NewAgent
from agents.models import Agent, Import
from agents.models.conversations import TAG_KEY
from agents.personas_io.shape import SLUG_LIMIT, SYSTEM_PROMPT_LIMIT, slug_of
from agents.transcripts.importer import AUTO
from agents.transcripts.prepare import Likely
from agents.transcripts.readers import READERS
from agents.transcripts.readers.csv_table import FIELDS
from agents.transcripts.records import zone

FORMAT_NAMES = {
    "jsonl": "JSON Lines",
    "openai": "OpenAI chat",
    "anthropic": "Anthropic messages",
    "sharegpt": "ShareGPT",
    "hh": "Human:/Assistant: dialogues",
    "csv": "CSV",
    "chat": "chat log",
    "tinytroupe": "TinyTroupe",
}
COLUMN = "column_"
MOST_SUGGESTED = 500  # agents


def _text(limit: int, help_text: str) -> forms.CharField:
    return forms.CharField(required=False, max_length=limit, widget=TextInput, help_text=help_text)


class ImportForm(forms.Form):
    """How files are read, and where messages go; `speakers` are forms of their own. `choices` is what a valid one says."""

    format = forms.ChoiceField(
        label="read as", widget=Select, help_text="recognised by what the file says; choose when that is wrong"
    )
    channel = _text(
        200,
        "name of the channel the messages go to, made when it is missing; several conversations become NAME, NAME-2 …; "
        "empty = as the file says",
    )
    tags = _text(1_000, "put on every message, e.g. build=41, locale=en; evaluations can be narrowed to them")
    time_zone = _text(64, "for times without an offset, e.g. Europe/Berlin; empty = the TIME_ZONE setting")
    reset = forms.BooleanField(required=False, label="Overwrite personas that were edited here")
    without_agents = forms.BooleanField(required=False, label="Import it although no agent speaks in it")

    def __init__(self, data: Any, *, job: Import, may_make: bool) -> None:
        stored, contents = Choices.of(job), job.contents
        header = [name for name in dict.fromkeys(contents.get("header", ())) if name]
        initial = {
            "format": stored.format,
            "channel": stored.channel,
            "tags": ", ".join(f"{key}={value}" for key, value in stored.tags.items()),
            "time_zone": stored.time_zone,
            "reset": stored.reset,
            "tag_columns": [name for field, name in stored.columns.items() if field.startswith("tags.")],
            **{COLUMN + field: column for field, column in stored.columns.items()},
        }
        super().__init__(data, initial=initial)
        recognised = FORMAT_NAMES.get(contents.get("format", ""))
        self.fields["format"].choices = [  # type: ignore[attr-defined]
            (AUTO, f"as recognised ({recognised})" if recognised else "as recognised"),
            *((name, FORMAT_NAMES[name]) for name in READERS),
            (PERSONAS, "personas"),
        ]
        columns = [(name, name) for name in header]
        if len(columns) > 1:
            for name in FIELDS:
                self.fields[COLUMN + name] = forms.ChoiceField(
                    label=f"column of “{name}”",
                    required=False,
                    choices=[("", "by its usual names"), *columns],
                    widget=Select,
                )
            self.fields["tag_columns"] = forms.MultipleChoiceField(
                label="columns stored as tags", required=False, choices=columns, widget=forms.CheckboxSelectMultiple
            )
        undecided = not stored.agents and not stored.made
        likely = {name: Likely(*guess) for name, guess in contents.get("likely", {}).items()} if undecided else {}
        speakers = contents.get("speakers", ()) if job.kind == Import.Kind.TRANSCRIPT else ()
        self.speakers = [
            SpeakerForm(data, f"s{number}", row, stored, may_make, likely.get(str(row["name"])))
            for number, row in enumerate(speakers)
        ]
        self.choices = stored

    @property
    def plain_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("format", "channel", "tags", "time_zone")]

    @property
    def column_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith(COLUMN)]

    def clean_tags(self) -> dict[str, str]:
        tags = {}
        for part in filter(None, (part.strip() for part in self.cleaned_data["tags"].split(","))):
            key, equals, value = part.partition("=")
            if not equals or not TAG_KEY.fullmatch(key.strip()) or not value.strip():
                raise forms.ValidationError(
                    f"{part!r}: write tags as key=value, separated by commas, e.g. build=41, locale=en"
                )
            tags[key.strip()] = value.strip()
        return tags

    def clean_time_zone(self) -> str:
        name = str(self.cleaned_data["time_zone"]).strip()
        try:
            zone(name)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        return name

    def is_valid(self) -> bool:
        """Whether everything chosen is possible; then `choices` says what was chosen."""
        valid = [super().is_valid(), *(form.is_valid() for form in self.speakers)]  # all, so that each shows its errors
        agents, made = self._settle_speakers()
        if not all(valid) or any(form.errors for form in self.speakers):
            return False
        given = self.cleaned_data
        columns = {name.removeprefix(COLUMN): given[name] for name in given if name.startswith(COLUMN) and given[name]}
        columns |= {f"tags.{tag_key(name)}": name for name in given.get("tag_columns", ())}
        if given["without_agents"]:  # what was only proposed for the speakers does not count then
            agents, made = dict(self.choices.agents), dict(self.choices.made)
        self.choices = Choices(
            format="csv" if columns and given["format"] == AUTO else given["format"],
            channel=given["channel"].strip(),
            agents=agents,
            made=made,
            tags=given["tags"],
            columns=columns,
            time_zone=given["time_zone"],
            reset=given["reset"],
            without_agents=given["without_agents"],
        )
        return True

    def _settle_speakers(self) -> tuple[dict[str, str], dict[str, NewAgent]]:
        valid = [form for form in self.speakers if form.is_valid()]
        wanted = {form.cleaned_data[key] for form in valid for key in ("agent", "slug") if form.cleaned_data.get(key)}
        known = set(Agent.objects.filter(slug__in=wanted).values_list("slug", flat=True))
        agents: dict[str, str] = {}
        made: dict[str, NewAgent] = {}
        for form in valid:
            name, given = form.name, form.cleaned_data
            if given["who"] == "outsider":
                agents[name] = ""
            elif given["who"] == "agent" and given["agent"] in known:
                agents[name] = given["agent"]
            elif given["who"] == "agent":
                form.add_error(
                    "agent",
                    f"there is no agent {given['agent']!r}; allowed: an agent's id (slug), such as those proposed here",
                )
            elif given["who"] == "new":
                slug = given["slug"]
                same = next((agent for agent in made.values() if agent.slug == slug), None)
                made[name] = same or NewAgent(slug, printable(name)[:120], form.checked_persona(known))
        return agents, made


class SpeakerForm(forms.Form):
    """Who a speaker of the file is here."""

    who = forms.ChoiceField(widget=Select, required=False)
    agent = forms.CharField(required=False, max_length=SLUG_LIMIT, widget=TextInput(attrs={"list": "agents"}))
    slug = forms.CharField(required=False, max_length=SLUG_LIMIT, widget=TextInput)
    persona = forms.CharField(required=False, max_length=SYSTEM_PROMPT_LIMIT, widget=GrowingTextarea(attrs={"rows": 2}))

    def __init__(
        self, data: Any, prefix: str, row: Mapping[str, Any], choices: Choices, may_make: bool, likely: Likely | None
    ) -> None:
        self.name = name = str(row["name"])
        self.row, self.likely = row, likely
        self.made = new = choices.made.get(name)
        slug = choices.agents.get(name)
        if likely:  # a proposal, which counts when the form is sent; without a slug the person has to say which agent
            who = "agent"
        elif new or slug is not None:
            who = "new" if new else "agent" if slug else "outsider"
        else:
            who = "" if row["why"] else "auto"
        initial = {
            "who": who,
            "agent": slug or (likely.slug if likely else ""),
            "slug": new.slug if new else slug_of(name),
            "persona": new.system_prompt if new else f"You are {printable(name)}.",
        }
        super().__init__(data, prefix=prefix, initial=initial)
        self.fields["who"].choices = [  # type: ignore[attr-defined]
            ("", "– choose –") if row["why"] else ("auto", "as recognised by name"),
            ("agent", "an agent …"),
            *([("new", "a new agent …")] if may_make else []),
            ("outsider", "no agent"),
        ]
        labels = {"who": "who it is", "agent": "agent", "slug": "id of the new agent", "persona": "persona"}
        for key, label in labels.items():
            self.fields[key].widget.attrs["aria-label"] = f"{display.marked(name)}: {label}"

    def checked_persona(self, known: set[str]) -> str:
        """The persona of a new agent; adds errors where no agent can be made."""
        slug = str(self.cleaned_data["slug"])
        persona = str(self.cleaned_data["persona"]).replace("\r\n", "\n").strip()
        problem = ""
        if not slug_re.fullmatch(slug):
            problem = f"{slug!r} is no id; allowed: letters, digits, - and _, at most {SLUG_LIMIT}"
        elif slug.startswith("_"):
            problem = f"{slug!r}: an agent's id cannot begin with an underscore: _default stands for every agent"
        elif slug in known:
            problem = f"there is an agent {slug!r} already; choose it, or another id"
        if problem:
            self.add_error("slug", problem)
        if not persona:
            self.add_error("persona", "an agent needs a persona: at least a sentence that says who it is")
        return persona


class AuthorForm(forms.Form):
    """Another author for messages that are imported already."""

    author = forms.CharField(max_length=200, widget=forms.HiddenInput)
    agent = forms.CharField(
        required=False, max_length=SLUG_LIMIT, widget=TextInput(attrs={"list": "agents", "aria-label": "agent"})
    )
    outsider = forms.CharField(required=False, max_length=200, widget=TextInput(attrs={"aria-label": "name"}))


def tag_key(column: str) -> str:
    """A tag key made of a column's name."""
    key = re.sub(r"[^A-Za-z0-9_.-]+", "_", column).strip("_.-")[:64]
    return key if TAG_KEY.fullmatch(key) else f"column_{key}"[:64]


def printable(name: str) -> str:
    """A speaker's name without what could hide or reorder text."""
    return "".join(letter for letter in name if letter.isprintable()).strip() or "unnamed"


def suggested_agents() -> list[tuple[str, str]]:
    """Slug and name of agents, for a list of proposals."""
    return list(Agent.objects.order_by("slug").values_list("slug", "display_name")[:MOST_SUGGESTED])
