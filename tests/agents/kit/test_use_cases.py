"""One model of what may be asked for is the options of a command, the form of a page and the body of a route."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Annotated, Any

import pytest
from django.core.management import CommandError
from django.http import QueryDict
from pydantic import AfterValidator, Field, model_validator

from agents.kit.bodies import Body, OneOf, Reads, Refused, Tags, fault, is_local, validate
from agents.kit.commands import UNUSABLE, WRONG_USAGE
from agents.kit.console.forms import RequestForm, refuse, request_form
from agents.kit.use_cases import FieldDisplay, FromFile, add_options, read_options, refusing


def words_of(source: Path | str) -> list[str]:
    text = source.read_text() if isinstance(source, Path) else source
    if not text.strip():
        raise ValueError("holds no words")
    return text.split()


def known(name: str) -> str:
    if name != "ada":
        raise LookupError(f"there is no agent {name!r}; did you mean ada?")
    return name.upper()


class TidyRequest(Body):
    who: Annotated[str, Reads(known, "a slug")] = Field("ada", validate_default=True, description="whose desk")
    samples: Annotated[int, FieldDisplay(label="Most papers")] = Field(
        20, ge=1, le=500, description="most papers, 50 % of them old (default: 20)"
    )
    share: float | None = Field(None, ge=0, le=1, description="of them thrown away")
    keep: bool = Field(False, description="keep a copy")
    wipe: bool = Field(True, description="wipe the desk")
    how: Annotated[str, OneOf("fast", "well")] = Field("fast", description="how it is done")
    rooms: list[Annotated[str, OneOf("kitchen", "office")]] = Field([], min_length=1, description="where")
    where: Tags = Field({}, description="only papers with these tags")
    words: Annotated[list[str], FromFile(words_of, longest=20), FieldDisplay(option="--list")] = Field(
        [], description="what is kept"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TidyRequest:
        if self.keep and self.samples > 100:
            raise fault("samples", f"samples {self.samples}: at most 100 where a copy is kept")
        return self


def by_command(*words: str) -> TidyRequest:
    parser = ArgumentParser(exit_on_error=False)
    add_options(parser, TidyRequest)
    return read_options(TidyRequest, vars(parser.parse_args(words)))


def by_page(typed: str) -> RequestForm:
    return request_form(TidyRequest)(QueryDict(typed))


def test_the_same_request_is_the_same_by_command_page_and_route(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("red pen")
    command = by_command(
        *("--who=ada", "--samples=7", "--share=0.5", "--keep", "--no-wipe", "--how=well", "--rooms=kitchen,office"),
        *("--where=build=41,lang=en", "--where=user=eve", f"--list={file}"),
    )
    form = by_page(
        "who=ada&samples=7&share=0.5&keep=on&how=well&rooms=kitchen&rooms=office&where=build=41, lang=en,user=eve&words=red pen"
    )
    route = validate(
        TidyRequest,
        {
            **{"who": "ada", "samples": 7, "share": 0.5, "keep": True, "wipe": False, "how": "well"},
            **{
                "rooms": ["kitchen", "office"],
                "where": {"build": "41", "lang": "en", "user": "eve"},
                "words": "red pen",
            },
        },
    )

    assert form.is_valid(), form.errors
    assert command == form.asked == route
    assert (command.who, command.words, command.samples) == ("ADA", ["red", "pen"], 7)


def test_what_is_left_out_is_the_default_of_the_model() -> None:
    form = by_page("who=&samples=&share=&how=&rooms=office&where=&words=&wipe=on")

    assert form.is_valid(), form.errors
    assert form.asked == validate(TidyRequest, {"rooms": ["office"]})
    assert by_command() == validate(TidyRequest, {})


@pytest.mark.parametrize(
    ("words", "typed", "sent", "field", "sentence"),
    [
        (["--samples=0"], "samples=0", {"samples": 0}, "samples", " 0: allowed: greater than or equal to 1"),
        (["--samples=few"], "samples=few", {"samples": "few"}, "samples", " 'few': allowed: a valid integer"),
        (["--share=2"], "share=2", {"share": 2.0}, "share", " 2.0: allowed: less than or equal to 1"),
        (["--how=ill"], "how=ill", {"how": "ill"}, "how", " 'ill': allowed: 'fast' or 'well'"),
        (["--rooms=attic"], "rooms=attic", {"rooms": ["attic"]}, "rooms", " 'attic': allowed: 'kitchen' or 'office'"),
        (["--samples=101", "--keep"], "samples=101&keep=on", {"samples": 101, "keep": True}, "samples", " 101: at most 100"),
    ],
)  # fmt: skip
def test_each_door_refuses_mistakes_in_the_same_words_after_its_name_for_the_field(
    words: list[str], typed: str, sent: dict[str, Any], field: str, sentence: str
) -> None:
    with pytest.raises(CommandError) as command:
        by_command(*words)
    form = by_page(f"rooms=office&{typed}" if field != "rooms" else typed)
    with pytest.raises(Refused) as route:
        validate(TidyRequest, sent)

    [(path, said)] = route.value.errors.items()
    assert str(command.value).startswith(f"--{field}{sentence}")
    assert str(form.errors[field][0]).startswith(f"{form[field].label}{sentence}")
    assert said.removeprefix(path).startswith(sentence)
    assert command.value.returncode == WRONG_USAGE


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("--samples 900: at most 500", "<li>Most papers 900: at most 500</li>"),
        ("samples: import some with manage.py import_agents", '<a class="pl-link" href="/admin/agents/import/add/"'),
        ("samples", "<li>samples</li>"),
    ],
)
def test_a_page_shows_what_a_service_refused_on_the_field_it_begins_with(sentence: str, shown: str) -> None:
    form = by_page("rooms=office")

    refuse(form, ValueError(sentence))

    assert shown in str(form.errors["samples"])


def test_unknown_names_and_unusable_files_end_a_command_with_their_own_code(
    tmp_path: Path,
) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    for words, said in (
        (["--who=adda"], "--who: there is no agent 'adda'"),
        ([f"--list={empty}"], "--list: holds no words"),
    ):
        with pytest.raises(CommandError) as caught:
            by_command(*words)
        assert (caught.value.returncode, said in str(caught.value)) == (UNUSABLE, True), str(caught.value)


def test_all_mistakes_of_a_request_are_said_at_once() -> None:
    with pytest.raises(CommandError) as caught:
        by_command("--samples=0", "--how=ill", "--where=build")
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["--samples", "--how", "--where"]


def test_a_route_reads_no_file_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("red pen")

    assert validate(TidyRequest, {"words": str(file)[-20:]}).words == [str(file)[-20:]]
    with pytest.raises(Refused):
        validate(TidyRequest, {"words": "x" * 21})


def test_a_validator_knows_whether_a_person_at_this_machine_asks() -> None:
    class Named(Body):
        local: Annotated[str, AfterValidator(lambda text, info: f"{text}: {is_local(info)}")] = Field(
            "", description="x"
        )

    assert read_options(Named, {"local": "file"}).local == "file: True"
    assert validate(Named, {"local": "file"}).local == "file: False"


def test_an_option_without_dashes_is_an_argument() -> None:
    class Named(Body):
        topic: Annotated[str, FieldDisplay(option="topic")] = Field(min_length=3, description="what it is about")

    parser = ArgumentParser(exit_on_error=False)
    add_options(parser, Named)
    assert read_options(Named, vars(parser.parse_args(["tea at five"]))).topic == "tea at five"
    with pytest.raises(CommandError, match="topic 't': allowed: at least 3 characters"):
        read_options(Named, vars(parser.parse_args(["t"])))


class PanelRequest(Body):
    names: list[str] = Field([], description="who sits there, in this order")
    limit: float | None = Field(0.5, ge=0, le=1, description="when it ends; off or null: never")


def test_a_typed_list_keeps_its_order_and_off_stands_for_null() -> None:
    asked = read_options(PanelRequest, {"names": "eve, ada,eve", "limit": "off"})

    assert asked == PanelRequest(names=["eve", "ada", "eve"], limit=None)
    assert read_options(PanelRequest, {"limit": "0.2"}) == PanelRequest(limit=0.2)


def test_what_a_service_refuses_is_said_of_its_option() -> None:
    with pytest.raises(CommandError, match=r"^--names: eve is away$") as caught, refusing(PanelRequest):
        raise Refused({"names": "names: eve is away"}, names_nothing=True)

    assert caught.value.returncode == UNUSABLE
