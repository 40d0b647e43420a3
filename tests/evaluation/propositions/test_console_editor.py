"""The proposition editor: written, changed, saved, tried on ten messages and exported in the console; and who may do so."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from agents.admin.transcript import transcript_url
from agents.kit.models import ModelPrice
from evaluation.drafting.admin.propositions import propositions_url
from evaluation.models import Proposition
from evaluation.propositions.files import load_file
from tests.console import HOSTILE, Browser, list_of, plain, read, signed_in, staff, superuser
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import make_ada
from tests.evaluation.judging import entry
from tests.evaluation.propositions.console import EDITOR, TRIAL, ada, change, filled_in, url_of, write
from tests.factories import MONDAY, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- writing and changing
def test_a_new_proposition_gets_an_id_of_its_claim_and_is_judged(root: Client, team: PropositionFolder) -> None:
    typed = "claim: '{{agent_name}} stays dry'\nweight: 1.5\ncues: {supports: [to be fair, /dry+/]}\n"
    html = write(root, url_of("new"), yaml=typed)

    path = team.path / "adherence" / "ada.yaml"
    assert "ada-stays-dry is saved to" in plain(html)
    assert "it is judged from the next evaluation on" in plain(html)
    [result] = load_file(path).propositions
    assert (result.id, result.claim, result.weight) == ("ada-stays-dry", "{{agent_name}} stays dry", 1.5)
    assert result.cues is not None
    assert result.cues.supports == ["to be fair", "/dry+/"]
    assert LogEntry.objects.get().get_change_message() == "saved: {{agent_name}} stays dry (ada-stays-dry)"


def test_saving_what_was_not_changed_leaves_the_file_byte_for_byte(root: Client, team: PropositionFolder) -> None:
    text = """\
        # ours
        propositions:
          - id: dry   # keep
            claim: >
              {{agent_name}} is dry,
              "always"
            weight: 1.0
            cues: {supports: ["to be 'fair'", '/a & b/'], contradicts: []}
            include_personas: true
            trait: concise
          - {id: kind, claim: k}
        """
    path = team.write("adherence/ada.yaml", text)
    before = path.read_text()
    html = change(root, url_of("edit", name="dry"))

    assert "dry is saved" in plain(html)
    assert path.read_text() == before


def test_yaml_is_typed_comes_back_so_and_a_rule_is_taken_away_again(root: Client, team: PropositionFolder) -> None:
    rule = "rule:\r\n  max_words: 5\r\n  only: {numbers: '9:00 to 17:30', links: ''}"
    write(root, url_of("new"), yaml=f"id: brief\r\nclaim: '{{{{agent_name}}}} is brief'\r\n{rule}\r\n")
    path = team.path / "adherence" / "ada.yaml"
    shown = filled_in(read(root, url_of("edit", name="brief")))
    write(root, url_of("edit", name="brief"), yaml=f"{shown['prop-yaml']}\nweight: 2\n")
    [proposition] = load_file(path).propositions
    assert proposition.weight == 2
    assert proposition.rule is not None
    assert proposition.rule.checks() == {"max_words": 5, "only": {"numbers": "9:00 to 17:30", "links": ""}}
    write(root, url_of("edit", name="brief"), yaml="id: brief\nclaim: '{{agent_name}} is brief'\n")

    assert load_file(path).propositions[0].rule is None


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "This field is required"),
        ("- a", "line 1: expected a mapping"),
        ("claim: &a x\nid: *a", "line 2: not valid YAML: aliases are not allowed"),
        ("claim: [", "not valid YAML"),
        ("1: 2", "claim"),
        ("claim: c\nid: [a]", "id"),
        ("claim: c\nrule: {max_words: 5}\ncues: {supports: [dry]}", "rule stands alone"),
        ("claim: c\nrule: {only: {prices: 5 dollars}}", "unknown guard 'prices'; allowed: form, links"),
        ("claim: c\nof_ten: 3", "of_ten says in how many of 10 messages a rule should hold"),
    ],
)
def test_what_the_loader_refuses_is_said_and_nothing_is_saved(
    root: Client, team: PropositionFolder, typed: str, message: str
) -> None:
    html = write(root, url_of("new"), yaml=typed)

    assert message in plain(html)
    assert 'role="alert"' in html
    assert not list(team.path.rglob("*.yaml"))
    assert not LogEntry.objects.exists()


def test_without_a_folder_of_ones_own_it_can_only_be_exported(root: Client, propositions: PropositionFolder) -> None:
    make_ada()
    html = read(root, url_of("new"))

    assert "No folder for propositions of your own is set" in plain(html)
    assert 'name="_save"' not in html
    answer = root.post(url_of("new"), {"prop-yaml": "{id: dry, claim: '{{agent_name}} is dry'}", "_export": ""})
    assert answer["Content-Disposition"] == 'attachment; filename="dry.yaml"'
    path = propositions.write("adherence/dry.yaml", answer.content.decode())
    assert [(p.id, p.active) for p in load_file(path).propositions] == [("dry", True)]
    assert load_file(path).agent_id == "ada"


# -- who may


def test_an_editor_without_the_right_to_evaluate_only_saves(team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "dry")
    editor = signed_in(staff(*EDITOR))
    assert 'name="_try"' not in read(editor, url_of("edit", name="dry"))
    assert editor.post(url_of("new"), {"prop-yaml": "claim: x", "_try": ""}).status_code == 403
    assert "is saved" in write(editor, url_of("edit", name="dry"), yaml="{id: dry, claim: bone dry}")


def test_who_may_not_view_messages_tries_nothing(team: PropositionFolder) -> None:
    talk(ada(), ["The secret."])
    team.write("adherence/ada.yaml", "propositions:\n- {id: brief, claim: c, rule: {min_words: 2}}\n")
    half = signed_in(staff(*EDITOR, TRIAL[0]))
    assert 'name="_try"' not in read(half, url_of("edit", name="brief"))
    typed = {**filled_in(read(half, url_of("edit", name="brief"))), "_try": ""}
    assert half.post(url_of("edit", name="brief"), typed).status_code == 403


def test_strangers_see_nothing_and_forms_from_elsewhere_are_refused(team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "dry")
    stranger, elsewhere = signed_in(staff("evaluation.view_evaluationrun")), Browser(enforce_csrf_checks=True)
    elsewhere.force_login(superuser())
    page = propositions_url("ada")
    urls = [page, url_of("new"), url_of("edit", name="dry")]
    urls += [list_of(Proposition), page.replace("/change/", "/history/")]

    assert {stranger.get(url).status_code for url in urls} == {403}
    for client in (stranger, elsewhere):
        sent = {"prop-yaml": "claim: x", "_save": "", "accept": "x"}
        assert {client.post(url, sent).status_code for url in urls[:3]} == {403}


@pytest.mark.parametrize("key", ["", "1/../../../etc/passwd:root", "1/adherence/ada.yaml:gone"])
def test_an_address_of_nothing_is_not_found(root: Client, team: PropositionFolder, key: str) -> None:
    team.claims("adherence/ada.yaml", "dry")
    assert root.get(f"{url_of('edit')}?at={quote(key)}").status_code == 404
    assert root.get(url_of("new", "nobody")).status_code == 404


# -- trying on ten messages
def test_trying_says_before_what_it_costs_and_after_what_it_scored(root: Client, team: PropositionFolder) -> None:
    talk(make_ada("bob", display_name="Bob"), ["not hers"])
    rule = "{max_words: 2, max_characters: 1000}"
    team.write("adherence/ada.yaml", f"propositions:\n- {{id: brief, claim: c, rule: {rule}}}\n")
    assert "has said nothing yet" in plain(read(root, url_of("edit", name="brief")))
    [message, *_] = talk(ada(), ["Hello there.", f"Far too many words {HOSTILE}"])
    before = plain(read(root, url_of("edit", name="brief")))
    assert "2 messages of Ada Lund , no call: exact rules and preconditions cost nothing." in before

    html = change(root, url_of("edit", name="brief"), "_try")
    text = plain(html)
    assert "2 scored" in text
    assert "no call was made, it cost nothing" in text
    assert "Hello there." in text
    assert text.index("Far too many") < text.index("Hello there."), "the lowest score first"
    assert transcript_url(message) in html
    assert "<script>alert" not in html


def test_what_is_typed_is_tried_and_not_saved(root: Client, team: PropositionFolder) -> None:
    talk(ada(), ["Hello there.", "One two three."])
    html = write(root, url_of("new"), "_try", yaml="claim: '{{agent_name}} is brief'\nrule: {max_words: 2}\n")

    assert "2 scored" in plain(html)
    assert "max_words: 2" in html
    assert not list(team.path.rglob("*.yaml"))
    assert not LogEntry.objects.exists()


def test_a_paid_judge_is_estimated_before_and_accounted_for_after(
    root: Client, team: PropositionFolder, llm_server: LLMServer
) -> None:
    talk(ada(), [f"line {n}" for n in range(30)])
    team.write("adherence/ada.yaml", "propositions:\n- {id: dry, claim: '{{agent_name}} is dry'}\n")
    prices = {"input_usd": 1, "output_usd": 5, "cache_write_usd": 0, "cache_read_usd": 0}
    ModelPrice.objects.create(model="test-model", effective_from=MONDAY.date(), **prices)
    before = plain(read(root, url_of("edit", name="dry")))
    assert "10 messages of Ada Lund , 10 calls of test-model , about" in before
    assert "tokens in and 1,600 out, $0." in before
    assert llm_server.calls == 0
    llm_server.respond = lambda body: {"json": entry(3, reasoning=f"Not dry at all. {HOSTILE}")}
    html = change(root, url_of("edit", name="dry"), "_try")

    assert llm_server.calls == 10
    assert "10 calls, 1,000 tokens in, 100 out, $0.0015" in plain(html)
    assert "Not dry at all." in html
    assert "Every message scores 3: this does not tell messages apart." in plain(html)
    assert "<script>alert" not in html
