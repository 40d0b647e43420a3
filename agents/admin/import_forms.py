"""The forms of an import: how the files are read, and who each speaker is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.validators import slug_re

from agents.admin import display
from agents.adminsite import GrowingTextarea, Select, TextInput
from agents.imports.choices import READ_AS_PERSONAS, Choices, NewAgent
from agents.models import Agent
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


class OptionsForm(forms.Form):
    """How a transcript is read, and where it goes."""

    format = forms.ChoiceField(
        label="read as", widget=Select, help_text="recognised by what the file says; choose when that is wrong"
    )
    channel = forms.CharField(
        required=False, max_length=200, widget=TextInput,
        help_text="name of the channel it goes to, made when it is missing; several conversations become NAME, NAME-2 …; "
        "empty = as the file says",
    )  # fmt: skip
    tags = forms.CharField(
        required=False, max_length=1_000, widget=TextInput,
        help_text="put on every message, e.g. build=41, locale=en; evaluations can be narrowed to them",
    )  # fmt: skip
    time_zone = forms.CharField(
        required=False, max_length=64, widget=TextInput,
        help_text="for times without an offset, e.g. Europe/Berlin; empty = the TIME_ZONE setting",
    )  # fmt: skip

    def __init__(
        self, *args: Any, choices: Choices, header: Sequence[str] = (), found: str = "", **kwargs: Any
    ) -> None:
        initial = {
            "format": choices.format,
            "channel": choices.channel,
            "tags": ", ".join(f"{key}={value}" for key, value in choices.tags.items()),
            "time_zone": choices.time_zone,
            **{COLUMN + field: column for field, column in choices.columns.items()},
        }
        super().__init__(*args, **{**kwargs, "initial": initial})
        recognised = f"as recognised ({FORMAT_NAMES[found]})" if found in FORMAT_NAMES else "as recognised"
        formats = [(name, FORMAT_NAMES[name]) for name in READERS]
        field = self.fields["format"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 (for the type checker)
        field.choices = [(AUTO, recognised), *formats, (READ_AS_PERSONAS, "personas")]
        columns = [("", "by its usual names"), *((name, name) for name in dict.fromkeys(header) if name)]
        for name in FIELDS if len(columns) > 1 else ():
            self.fields[COLUMN + name] = forms.ChoiceField(
                label=f"column of “{name}”", required=False, choices=columns, widget=Select
            )

    @property
    def column_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith(COLUMN)]

    @property
    def plain_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if not name.startswith(COLUMN)]

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

    def chosen(self, speakers: Mapping[str, str], made: Mapping[str, NewAgent]) -> Choices:
        """The choices of a valid form, with these speakers."""
        given = self.cleaned_data
        columns = {name.removeprefix(COLUMN): given[name] for name in given if name.startswith(COLUMN) and given[name]}
        return Choices(
            format="csv" if columns and given["format"] == AUTO else given["format"],
            channel=given["channel"].strip(),
            agents=speakers,
            made=made,
            tags=given["tags"],
            columns=columns,
            time_zone=given["time_zone"],
        )


class SpeakerForm(forms.Form):
    """Who a speaker of the file is here."""

    who = forms.ChoiceField(widget=Select, required=False)
    agent = forms.CharField(required=False, max_length=SLUG_LIMIT, widget=TextInput(attrs={"list": "agents"}))
    slug = forms.CharField(required=False, max_length=SLUG_LIMIT, widget=TextInput)
    persona = forms.CharField(required=False, max_length=SYSTEM_PROMPT_LIMIT, widget=GrowingTextarea(attrs={"rows": 2}))

    def __init__(
        self,
        *args: Any,
        speaker: Mapping[str, Any],
        may_make: bool,
        choices: Choices,
        likely: Likely | None = None,
        **kwargs: Any,
    ) -> None:
        self.speaker = speaker
        name = str(speaker["name"])
        new = choices.made.get(name)
        self.shown = {
            **speaker,
            "name": display.visible(name),
            "why": display.visible(speaker["why"]),
            "made": new.slug if new else "",
            "likely": display.visible(likely.why) if likely else "",
        }
        slug = choices.agents.get(name)
        who = (
            "new"
            if new
            else "auto"
            if slug is None and not speaker["why"]
            else "outsider"
            if slug == ""
            else "agent"
            if slug
            else ""
        )
        if likely:  # a proposal: nothing holds before it is sent
            who = "agent" if likely.slug or not may_make else "new"
        initial = {
            "who": who,
            "agent": slug or (likely.slug if likely else ""),
            "slug": new.slug if new else slug_of(name),
            "persona": new.system_prompt if new else f"You are {printable(name)}.",
        }
        super().__init__(*args, **{**kwargs, "initial": initial})
        options = [("", "– choose –")] if speaker["why"] else [("auto", "as recognised by name")]
        options += [
            ("agent", "an agent …"),
            *([("new", "a new agent …")] if may_make else []),
            ("outsider", "no agent"),
        ]
        field = self.fields["who"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 (for the type checker)
        field.choices = options
        for key, label in (
            ("who", "who it is"),
            ("agent", "agent"),
            ("slug", "id of the new agent"),
            ("persona", "persona"),
        ):
            self.fields[key].widget.attrs["aria-label"] = f"{display.marked(name)}: {label}"


def printable(name: str) -> str:
    """A speaker's name without what could hide or reorder text."""
    return "".join(letter for letter in name if letter.isprintable()).strip() or "somebody"


class Speakers:
    """The speakers of a file, each with its form."""

    def __init__(
        self,
        data: Any,
        *,
        speakers: Sequence[Mapping[str, Any]],
        choices: Choices,
        may_make: bool,
        likely: Mapping[str, Likely],
    ) -> None:
        self.forms = [
            SpeakerForm(
                data,
                prefix=f"s{number}",
                speaker=speaker,
                may_make=may_make,
                choices=choices,
                likely=likely.get(str(speaker["name"])),
            )
            for number, speaker in enumerate(speakers)
        ]
        self.agents: dict[str, str] = {}
        self.made: dict[str, NewAgent] = {}

    def is_valid(self) -> bool:
        """Whether every choice can be carried out; then `agents` and `made` say what was chosen."""
        valid = [form.is_valid() for form in self.forms]  # all of them, so that each shows what is wrong
        wanted = {
            form.cleaned_data[key] for form in self.forms for key in ("agent", "slug") if form.cleaned_data.get(key)
        }
        there = dict(Agent.objects.filter(slug__in=wanted).values_list("slug", "pk"))
        for form in self.forms:
            if form.is_valid():
                self._settle(form, there)
        return all(valid) and not any(form.errors for form in self.forms)

    def _settle(self, form: SpeakerForm, there: Mapping[str, int]) -> None:
        name, given = str(form.speaker["name"]), form.cleaned_data
        if given["who"] == "outsider":
            self.agents[name] = ""
        elif given["who"] == "agent":
            if given["agent"] not in there:
                form.add_error(
                    "agent",
                    f"there is no agent {given['agent']!r}; allowed: an agent's id (slug), such as those proposed here",
                )
            else:
                self.agents[name] = given["agent"]
        elif given["who"] == "new":
            self._settle_new(form, name, there)

    def _settle_new(self, form: SpeakerForm, name: str, there: Mapping[str, int]) -> None:
        slug, persona = form.cleaned_data["slug"], form.cleaned_data["persona"].replace("\r\n", "\n").strip()
        if not slug_re.fullmatch(slug):
            form.add_error("slug", f"{slug!r} is no id; allowed: letters, digits, - and _, at most {SLUG_LIMIT}")
        elif slug.startswith("_"):
            form.add_error(
                "slug", f"{slug!r}: an agent's id cannot begin with an underscore: _default stands for every agent"
            )
        elif slug in there:
            form.add_error("slug", f"there is an agent {slug!r} already; choose it, or another id")
        if not persona:
            form.add_error("persona", "an agent needs a persona: at least a sentence that says who it is")
        same = next((agent for agent in self.made.values() if agent.slug == slug), None)
        self.made[name] = same or NewAgent(slug, printable(name)[:120], persona)


def suggested_agents() -> list[tuple[str, str]]:
    """Slug and name of agents, for a list of proposals."""
    return list(Agent.objects.order_by("slug").values_list("slug", "display_name")[:MOST_SUGGESTED])


def options_of(data: Any, *, choices: Choices, found: Mapping[str, Any]) -> OptionsForm:
    """The form of the options, for what the check found."""
    return OptionsForm(data, choices=choices, header=found.get("header", ()), found=found.get("format", ""))
