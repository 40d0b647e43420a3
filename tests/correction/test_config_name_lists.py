"""Settings that are lists of names, wherever they are set: a form, the API, a terminal; with their history, and taken back."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Agent
from correction.config.configure import config_history, configure, copy_config, revert
from correction.config.settings import CONFIG_FIELDS, ConfigError, read_names, resolve_config, show_names
from correction.models import AgentEvaluationConfig
from correction.models.config import validate_names
from tests.api_client import program
from tests.console import plain, read, superuser
from tests.correction.config_page import own, save, url_of
from tests.factories import make_agent

PROTECTED, NAMED = "behavior_protected_traits", "behavior_named_requesters"
FIELD = CONFIG_FIELDS[PROTECTED]


@pytest.fixture
def ada(db: None) -> Agent:
    return make_agent()


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("dry wit", ["dry wit"]), ("a, b ,c", ["a", "b", "c"]), ("a\r\nb\nc, d", ["a", "b", "c", "d"]),
        ('"short, sharp", b', ["short, sharp", "b"]), ('"say ""yes"""', ['say "yes"']), ("a,,b,", ["a", "b"]),
        ("a, a, A", ["a", "A"]), ("  two   words  ", ["two words"]), ("none", []), (" NONE ", []), ('"none"', ["none"]),
        (["x", " y "], ["x", "y"]), ([], []),
    ],
)  # fmt: skip
def test_names_are_separated_by_commas_or_lines(written: Any, names: list[str]) -> None:
    assert FIELD.read(written) == names


@pytest.mark.parametrize("nothing", [None, "", "  ", "inherit", "INHERIT"])
def test_nothing_written_inherits(nothing: str | None) -> None:
    assert FIELD.read(nothing) is None


@pytest.mark.parametrize(
    "wrong", [7, True, {"a": 1}, ["a", 7], [None], '"open', ["x" * 151], [f"n{n}" for n in range(101)], ["a\x00b"], [" "]]
)  # fmt: skip
def test_what_is_no_list_of_names_is_refused_with_what_is_allowed(wrong: object) -> None:
    with pytest.raises(ConfigError, match=f"{PROTECTED} .*: allowed: up to 100 names of at most 150 characters"):
        FIELD.read(wrong)


@pytest.mark.parametrize("wrong", ["a", [1], ["a", "a"], ["a "], [""], ["x" * 151], ["a\nb"]])
def test_the_column_takes_names_only(wrong: object) -> None:
    with pytest.raises(ValidationError):
        validate_names(wrong)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)))
def test_what_is_shown_can_be_typed_again(names: list[str]) -> None:
    known = list(dict.fromkeys(names))

    assert read_names(show_names(known)) == known


def test_nobody_is_not_the_same_as_inheriting(ada: Agent) -> None:
    configure(agent=None, changes={PROTECTED: "oath"})
    assert resolve_config(ada)[PROTECTED] == ["oath"]

    configure(agent=ada, changes={PROTECTED: "none"})
    assert (resolve_config(ada)[PROTECTED], resolve_config(ada).provenance[PROTECTED]) == ([], "agent")

    configure(agent=ada, changes={PROTECTED: "inherit"})
    assert AgentEvaluationConfig.objects.get(agent=ada).behavior_protected_traits is None
    assert resolve_config(ada)[PROTECTED] == ["oath"]


def test_a_list_has_a_history_can_be_taken_back_and_copied(ada: Agent) -> None:
    configure(agent=ada, changes={PROTECTED: "oath"})
    configure(agent=ada, changes={PROTECTED: ["oath", "dry wit"]})
    configure(agent=ada, changes={PROTECTED: ["oath", "dry wit"]})
    newest, earlier = config_history(ada)[:2]
    assert newest.changes == {PROTECTED: (["oath"], ["oath", "dry wit"])}

    revert(agent=ada, history_id=earlier.history_id)
    assert resolve_config(ada)[PROTECTED] == ["oath"]
    configure(agent=ada, changes={PROTECTED: "none"})
    emptied = config_history(ada)[0]
    configure(agent=ada, changes={PROTECTED: "inherit"})
    revert(agent=ada, history_id=emptied.history_id)
    assert resolve_config(ada)[PROTECTED] == []

    bob = make_agent("bob")
    configure(agent=ada, changes={NAMED: "zoe, ann"})
    copy_config(source=ada, targets=[bob])
    assert (resolve_config(bob)[PROTECTED], resolve_config(bob)[NAMED]) == ([], ["zoe", "ann"])


def test_a_terminal_sets_and_shows_it(ada: Agent) -> None:
    def run(*args: str) -> str:
        out = io.StringIO()
        call_command("configure", *args, stdout=out, no_color=True)
        return out.getvalue()

    assert f"{PROTECTED}: none (built-in) → oath, dry wit (agent)" in run("ada", f"{PROTECTED}=oath, dry wit")
    assert json.loads(run("ada", "--json"))["config"][PROTECTED] == ["oath", "dry wit"]
    assert "oath, dry wit" in run("ada", "--history")
    assert "behavior_requesters is named, but behavior_named_requesters is empty" in " ".join(
        run("ada", "behavior_requesters=named").split()
    )
    with pytest.raises(CommandError, match="allowed: up to 100 names"):
        run("ada", f'{PROTECTED}="open')


def test_the_api_takes_and_gives_lists(ada: Agent) -> None:
    client = program(superuser("eve"))
    url = "/api/evaluations/config/ada/"

    changed = client.patch(url, {PROTECTED: ["oath", "short, sharp"], "behavior_requesters": "anyone"})
    assert changed.status_code == 200
    assert changed.json()["config"][PROTECTED] == ["oath", "short, sharp"]
    assert client.get(url).json()["fields"][PROTECTED]["kind"] == "list of names"
    assert client.patch(url, {PROTECTED: []}).json()["config"][PROTECTED] == []
    assert client.patch(url, {PROTECTED: None}).json()["provenance"][PROTECTED] == "built-in"
    refused = client.patch(url, {PROTECTED: [1]})
    assert refused.status_code == 400
    assert "up to 100 names" in refused.content.decode()


def test_a_person_writes_names_line_by_line_and_sees_what_is_inherited(root: Client, ada: Agent) -> None:
    configure(agent=None, changes={PROTECTED: "oath"})
    html = read(root, url_of(ada))
    assert 'placeholder="inherits oath (defaults)"' in html
    assert "inherit: members (built-in) anyone, outsiders too users who are members" in plain(html).replace("  ", " ")

    save(root, ada, **{PROTECTED: "dry wit\r\nshort words", "behavior_auto_apply": "never"})
    assert own(ada) == {PROTECTED: ["dry wit", "short words"], "behavior_auto_apply": "never"}
    assert "dry wit, short words</textarea>" in read(root, url_of(ada))

    save(root, ada, **{f"seen-{PROTECTED}": "dry wit, short words", PROTECTED: "none"})
    assert own(ada)[PROTECTED] == []
    answer = save(root, ada, **{PROTECTED: '"open'})
    assert "allowed: up to 100 names" in plain(answer.content.decode())


def test_the_matrix_has_a_column_that_turns_requests_off(root: Client, ada: Agent) -> None:
    configure(agent=ada, changes={"behavior_daily_limit": 3})

    text = plain(read(root, "/admin/correction/agentevaluationconfig/"))

    assert "behaviour requests" in text
    assert "≤ 3" in text
