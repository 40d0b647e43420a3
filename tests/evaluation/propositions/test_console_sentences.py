"""Rules by filling in blanks: each sentence makes a rule, is counted while it is typed, and is offered from the persona."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents.admin.transcript import transcript_url
from evaluation.drafting.admin.propositions import propositions_url
from evaluation.drafting.sentences import BY_NAME, NotFilledIn, Sentence, sentence_in
from evaluation.propositions.files import load_file
from evaluation.propositions.rules import Rule, check_rule
from evaluation.propositions.schema import AGENT_NAME
from tests.console import HOSTILE, plain, queries, read, signed_in, staff
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import make_ada
from tests.evaluation.propositions.console import EDITOR, ada, change, filled_in, named, url_of
from tests.factories import talk

pytestmark = pytest.mark.django_db
COUNTER = (*EDITOR, "agents.view_message")


def count(client: Client, owner: str = "ada", **typed: str) -> str:
    return client.post(url_of("count", owner), named(typed)).content.decode()


@pytest.mark.parametrize(
    ("kind", "filled", "claim", "rule", "of_ten"),
    [
        ("never", {"words": "sorry, as an AI"}, "never says “sorry”, “as an AI”",
         {"contains_none": ["sorry", "as an AI"]}, None),
        ("never", {"words": '“yes, but”; "no"'}, "never says “yes, but”, “no”", {"contains_none": ["yes, but", "no"]}, None),
        ("never", {"words": "{{action}}"}, "never says “{ {action} }”", {"contains_none": ["{{action}}"]}, None),
        ("says", {"words": "ahoy", "of_ten": "6"}, "says one of “ahoy” in at least 6 of 10 messages",
         {"contains_any": ["ahoy"]}, 6),
        ("says", {"words": "ahoy", "of_ten": "10"}, "says one of “ahoy” in at least 10 of 10 messages",
         {"contains_any": ["ahoy"]}, None),
        ("sentences", {"number": "2"}, "writes at most 2 sentences", {"max_sentences": 2}, None),
        ("sentences", {"number": "1"}, "writes at most 1 sentence", {"max_sentences": 1}, None),
        ("words", {"number": "40"}, "writes at most 40 words", {"max_words": 40}, None),
        ("emoji", {}, "uses no emoji", {"no_emoji": True}, None),
        ("lowercase", {}, "writes without capital letters", {"lowercase": True}, None),
    ],
)  # fmt: skip
def test_a_sentence_makes_its_rule_and_is_read_back(
    kind: str, filled: dict[str, str], claim: str, rule: dict[str, Any], of_ten: int | None
) -> None:
    fields = Sentence(BY_NAME[kind], filled).fields()

    assert fields == {"claim": f"{AGENT_NAME} {claim}", "rule": rule} | ({"of_ten": of_ten} if of_ten else {})
    again = sentence_in({"id": "x", **fields})
    assert again is not None
    assert again.fields() == fields


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("Why?", True),
        ("Is it 'so?' ", True),
        ("Why?!", False),
        ("Why? Because.", False),
        ("No.", False),
        ("为什么？", True),
    ],
)
def test_a_message_ends_with_a_question_or_not(text: str, is_kept: bool) -> None:
    rule = Rule(**Sentence(BY_NAME["question"], {}).fields()["rule"])
    assert (check_rule(rule, text) == []) is is_kept


@pytest.mark.parametrize(
    ("kind", "filled"),
    [("never", {"words": " , "}), ("sentences", {"number": "0"}), ("words", {"number": "²"}), ("words", {"number": "9" * 5000}),
     ("says", {"words": "a", "of_ten": "11"}), ("says", {"words": "a"})],
)  # fmt: skip
def test_an_empty_blank_or_a_number_out_of_range_is_refused(kind: str, filled: dict[str, str]) -> None:
    with pytest.raises(NotFilledIn, match=r"Type the words|whole number from 1 to"):
        Sentence(BY_NAME[kind], filled).fields()


@pytest.mark.parametrize(
    "more",
    [
        {"inverted": True},
        {"precondition": "is_reply"},
        {"rule": {"max_words": 3, "no_emoji": True}},
        {"rule": {"min_words": 3}},
    ],
)
def test_what_no_sentence_says_stays_yaml(more: dict[str, Any]) -> None:
    assert sentence_in({"id": "x", "claim": "c", "rule": {"max_words": 3}, **more}) is None


# -- saving
def test_a_sentence_is_saved_and_leads_to_an_evaluation_of_the_newest_builds(
    root: Client, team: PropositionFolder
) -> None:
    talk(ada(), ["Ahoy."], tags={"build": "40"})
    talk(ada(), ["Hello."], tags={"build": "41"})
    html = change(root, url_of("new"), kind="says", says_words="ahoy, avast", says_of_ten="6")

    [saved] = load_file(team.path / "adherence" / "ada.yaml").propositions
    assert saved.rule is not None
    assert saved.rule.checks() == {"contains_any": ["ahoy", "avast"]}
    assert saved.of_ten == 6
    assert "Ada Lund says one of “ahoy”, “avast” in at least 6 of 10 messages" in plain(html)
    assert (
        f"{reverse('admin:evaluation_agent_evaluate', args=[ada().pk])}?tag=build%3D41&amp;against=build%3D40" in html
    )


def test_a_blank_that_is_left_empty_is_said_and_nothing_is_saved(root: Client, team: PropositionFolder) -> None:
    assert "Type the words" in plain(change(root, url_of("new"), kind="never"))
    assert "Choose a sentence" in plain(change(root, url_of("new")))
    assert not list(team.path.rglob("*.yaml"))


def test_a_claim_in_other_words_stays_until_its_blank_is_changed(root: Client, team: PropositionFolder) -> None:
    text = "propositions:\n- {id: brief, claim: 'brief {{agent_name}}', rule: {max_words: 5}, weight: 2}\n"
    path = team.write("adherence/ada.yaml", text)
    change(root, url_of("edit", name="brief"))
    assert path.read_text() == text
    change(root, url_of("edit", name="brief"), words_number="7")

    [brief] = load_file(path).propositions
    assert (brief.claim, brief.weight) == ("{{agent_name}} writes at most 7 words", 2)


def test_what_is_typed_goes_along_from_tab_to_tab(root: Client, team: PropositionFolder) -> None:
    as_yaml = change(root, url_of("new"), "_yaml", kind="never", never_words="sorry")
    typed = filled_in(as_yaml)
    assert "contains_none" in typed["prop-yaml"]
    back = root.post(url_of("new"), {**typed, "_sentence": ""}).content.decode()
    with_weight = f"{typed['prop-yaml']}weight: 2\n"
    stays = root.post(url_of("new"), {"prop-yaml": with_weight, "_sentence": ""}).content.decode()

    assert filled_in(back)["prop-never_words"] == "sorry"
    assert filled_in(back)["prop-kind"] == "never"
    assert filled_in(stays)["prop-yaml"] == with_weight.strip(), "the sentence does not say the weight"
    assert not list(team.path.rglob("*.yaml"))


# -- the live count
def test_the_count_quotes_the_newest_messages_that_break_the_rule_and_links_to_them(team: PropositionFolder) -> None:
    said = talk(
        ada(), [*["Sorry, that is too old to count."] * 3, *["Good."] * 46, *[f"Sorry {n} {HOSTILE}" for n in range(4)]]
    )
    talk(make_ada("bob", display_name="Bob"), ["Sorry."])
    html = count(signed_in(staff(*COUNTER)), kind="never", never_words="sorry")

    assert "Holds in 46 of Ada Lund ’s last 50 messages." in plain(html)
    assert [f"Sorry {n}" in html for n in range(4)] == [False, True, True, True]
    assert transcript_url(said[-1]) in html
    assert "<script>alert" not in html
    assert not list(team.path.rglob("*.yaml"))


def test_a_rate_is_counted_over_the_messages_together(team: PropositionFolder) -> None:
    talk(ada(), [*["Ahoy there."] * 7, *["Hello."] * 3])
    client = signed_in(staff(*COUNTER))
    kept = plain(count(client, kind="says", says_words="ahoy", says_of_ten="7"))
    broken = plain(count(client, kind="says", says_words="ahoy", says_of_ten="8"))

    for page in (kept, broken):
        assert "In 7 of Ada Lund ’s last 10 messages" in page
    assert "it asks for 7 of 10" in kept
    assert "it asks for 8 of 10" in broken
    assert ("broken" in kept, "broken" in broken) == (False, True)


def test_what_cannot_be_counted_says_why(root: Client, team: PropositionFolder) -> None:
    assert "has said nothing yet" in plain(count(root, kind="question"))
    assert "Type the words" in plain(count(root, kind="never"))
    assert "a judge scores it" in plain(count(root, yaml="claim: c"))
    talk(ada(), ["a" * 5000 + "!"] * 3)
    assert "3 could not be decided" in plain(count(root, yaml=r"{claim: c, rule: {matches: '(a|a)*\b\b$'}}"))


@pytest.mark.parametrize("more", ["inverted: true", "precondition: is_reply"])
def test_a_rule_that_means_more_than_its_check_is_not_counted(root: Client, team: PropositionFolder, more: str) -> None:
    talk(ada(), ["Sorry.", "Fine."])
    html = count(root, yaml=f"{{claim: c, rule: {{contains_any: [sorry]}}, {more}}}")

    assert "last 2 messages" not in plain(html)
    assert "Try it on 10 messages" in plain(html)


def test_only_who_may_read_messages_and_change_propositions_counts(team: PropositionFolder) -> None:
    talk(ada(), ["The secret."])
    half = signed_in(staff(*EDITOR, username="half"))
    reader = signed_in(staff("evaluation.view_proposition", "agents.view_message", username="reader"))

    for client in (half, reader):
        assert client.post(url_of("count"), named({"kind": "emoji"})).status_code == 403
    assert "pl-holds" not in read(half, url_of("new"))
    assert "of the last" not in read(half, propositions_url("ada"))
    assert "pl-offered" not in read(reader, propositions_url("ada"))
    assert signed_in(staff(*COUNTER, username="other")).get(url_of("count")).status_code == 405


# -- what the persona says itself
def test_what_the_persona_says_never_to_say_is_offered_counted_and_added_with_one_button(
    root: Client, team: PropositionFolder
) -> None:
    talk(ada(), ["Fine!", "Fine."])
    before = plain(read(root, propositions_url("ada")))
    assert (
        "Ada Lund uses no emoji You never use emoji or exclamation marks. holds in 2 of the last 2 messages" in before
    )
    assert "Ada Lund never says “!”" in before
    assert "Ada Lund writes at most 2 sentences" in before
    assert "Ada Lund writes without capital letters" not in before, "that is Cyd"
    html = read(root, propositions_url("ada"))
    form = html.partition(f'action="{url_of("new")}"')[2].partition("</form>")[0]
    after = plain(root.post(url_of("new"), _hidden(form) | {"_save": ""}, follow=True).content.decode())

    [added] = load_file(team.path / "adherence" / "ada.yaml").propositions
    assert added.claim == "{{agent_name}} writes at most 2 sentences"
    assert added.quote == "You answer in two sentences at most."
    assert "Ada Lund writes at most 2 sentences Add" not in after
    assert before.count(" Add ") == after.count(" Add ") + 1


def test_a_hostile_persona_is_text_and_no_pattern(root: Client, team: PropositionFolder) -> None:
    prompt = f'You never say "{HOSTILE}". Never say \'/(a+)+$/\' or "{{{{action}}}}". You often say “ahoy" onfocus=x”.'
    make_ada("eve", display_name=HOSTILE, system_prompt=prompt)
    talk(make_ada("eva", system_prompt=prompt), ["a" * 5000])
    html = read(root, propositions_url("eve")) + read(root, url_of("new", "eve"))

    assert "<script>alert" not in html
    assert "(a+)+$" not in plain(html.partition("pl-offered")[2]).replace("Never say '/(a+)+$/'", "")
    assert "never says “{ {action} }”" in plain(html)


def test_a_page_with_offered_sentences_reads_the_messages_once(root: Client, team: PropositionFolder) -> None:
    talk(ada(), ["Fine."] * 5)
    few = len(queries(root, url_of("new")))
    talk(ada(), ["Fine."] * 45)

    assert len(queries(root, url_of("new"))) == few


def _hidden(form: str) -> dict[str, str]:
    return filled_in(f'<form id="pl-proposition">{form}</form>')
