"""The one form of an import: how the file is read, and who each speaker is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django import forms

from agents.kit.console import display
from agents.kit.console.site import Select, TextInput
from agents.kit.files.times import zone
from agents.kit.text.tags import TAG_KEY
from agents.models import Agent, Import
from agents.personas.shape import SLUG_LIMIT
from agents.transcripts.importer import AUTO, DAY_FIRST, MONTH_FIRST, ReadOptions
from agents.transcripts.readers import FORMATS
from agents.transcripts.readers.csv_table import FIELDS, usual_tag

COLUMN = "column_"
NO_COLUMN = " "  # no column has this name: names are stripped
COLUMN_WORDS = {"sent_at": "time", "id": "message's id", "reply_to": "id replied to", "channel": "conversation"}
MOST_SUGGESTED = 500  # agents


def _text(limit: int, help_text: str) -> forms.CharField:
    return forms.CharField(required=False, max_length=limit, widget=TextInput, help_text=help_text)


class ImportForm(forms.Form):
    """How the file is read, and where messages go; `speakers` are forms of their own. `options` is what a valid one says."""

    format = forms.ChoiceField(
        label="read as", widget=Select, help_text="recognised by what the file says; choose when that is wrong"
    )
    channel = _text(
        200,
        "name of the channel the messages go to, made when it is missing; several conversations become NAME, NAME-2 …; "
        "empty = as the file says",
    )
    tags = _text(1_000, "put on every message, e.g. build=41, locale=en; evaluations can be narrowed to them")
    dates = forms.ChoiceField(
        label="dates such as 01/02/2026",
        required=False,
        choices=[("", "as the file suggests"), (DAY_FIRST, "day first"), (MONTH_FIRST, "month first")],
        widget=Select,
        help_text="for chat logs",
    )
    time_zone = _text(64, "for times without an offset, e.g. Europe/Berlin; empty = the TIME_ZONE setting")

    def __init__(self, data: Any, *, job: Import) -> None:
        stored, contents = ReadOptions(**job.choices), job.contents
        header = [name for name in dict.fromkeys(contents.get("header", ())) if name]
        initial = {
            "format": stored.format,
            "channel": stored.channel,
            "tags": ", ".join(f"{key}={value}" for key, value in stored.tags.items()),
            "time_zone": stored.time_zone,
            "dates": stored.dates,
            "tag_columns": [name for field, name in stored.columns.items() if field.startswith("tags.")],
            **{COLUMN + field: column or NO_COLUMN for field, column in stored.columns.items()},
        }
        super().__init__(data, initial=initial)
        recognised = FORMATS.get(contents.get("format", ""))
        self.fields["format"].choices = [  # type: ignore[attr-defined]
            (AUTO, f"as recognised ({recognised.label})" if recognised else "as recognised"),
            *((name, form.label) for name, form in FORMATS.items()),
        ]
        columns = [(name, name) for name in header]
        none = [(NO_COLUMN, "none: it is one conversation")]
        if len(columns) > 1:
            for name in FIELDS:
                self.fields[COLUMN + name] = forms.ChoiceField(
                    label=f"column of the {COLUMN_WORDS.get(name, name)}",
                    required=False,
                    choices=[("", "by its usual names"), *(none if name == "channel" else []), *columns],
                    widget=Select,
                )
            self.fields["tag_columns"] = forms.MultipleChoiceField(
                label="columns stored as tags", required=False, choices=columns, widget=forms.CheckboxSelectMultiple
            )
        self.speakers = [
            SpeakerForm(data, f"s{number}", row, stored) for number, row in enumerate(contents.get("speakers", ()))
        ]
        self.options = stored

    @property
    def plain_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("format", "channel", "tags", "time_zone", "dates")]

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
        """Whether everything chosen is possible; then `options` says what was chosen."""
        if not all(
            [super().is_valid(), *(form.is_valid() for form in self.speakers)]
        ):  # all, so that each shows its errors
            return False
        given = self.cleaned_data
        columns = {name.removeprefix(COLUMN): given[name] for name in given if name.startswith(COLUMN) and given[name]}
        if columns.get("channel") == NO_COLUMN:
            columns["channel"] = ""
        columns |= {f"tags.{usual_tag(name) or tag_key(name)}": name for name in given.get("tag_columns", ())}
        chosen = ((form.name, form.cleaned_data) for form in self.speakers)
        self.options = ReadOptions(
            format="csv" if columns and given["format"] == AUTO else given["format"],
            channel=given["channel"].strip(),
            speaker_map={
                name: one["agent"] if one["who"] == "agent" else ""
                for name, one in chosen
                if one["who"] in ("agent", "outsider")
            },
            tags=given["tags"],
            columns=columns,
            time_zone=given["time_zone"],
            dates=given["dates"],
        )
        return True


class SpeakerForm(forms.Form):
    """Who a speaker of the file is here."""

    who = forms.ChoiceField(widget=Select, required=False)
    agent = forms.CharField(required=False, max_length=SLUG_LIMIT, widget=TextInput(attrs={"list": "agents"}))

    def __init__(self, data: Any, prefix: str, row: Mapping[str, Any], options: ReadOptions) -> None:
        self.name = name = str(row["name"])
        self.row = row
        slug = options.speaker_map.get(name)
        who = ("" if row["why"] else "auto") if slug is None else "agent" if slug else "outsider"
        super().__init__(data, prefix=prefix, initial={"who": who, "agent": slug or ""})
        self.fields["who"].choices = [  # type: ignore[attr-defined]
            ("", "– choose –") if row["why"] else ("auto", "as recognised by name"),
            ("agent", "an agent …"),
            ("outsider", "no agent"),
        ]
        for key, label in {"who": "who it is", "agent": "agent"}.items():
            self.fields[key].widget.attrs["aria-label"] = f"{display.marked(name)}: {label}"

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        slug = given.get("agent", "")
        if given.get("who") == "agent" and not Agent.objects.filter(slug=slug).exists():
            self.add_error(
                "agent", f"there is no agent {slug!r}; allowed: an agent's id (slug), such as those proposed here"
            )
        return given


def tag_key(column: str) -> str:
    """A tag key made of a column's name."""
    key = re.sub(r"[^A-Za-z0-9_.-]+", "_", column).strip("_.-")[:64]
    return key if TAG_KEY.fullmatch(key) else f"column_{key}"[:64]


def suggested_agents() -> list[tuple[str, str]]:
    """Slug and name of agents, for a list of proposals."""
    return list(Agent.objects.listed().order_by("slug").values_list("slug", "display_name")[:MOST_SUGGESTED])
