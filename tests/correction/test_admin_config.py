"""The page that edits a configuration, and who may open it."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from correction.config.configure import config_history, configure
from correction.gate.thresholds import mark_result
from correction.models import AgentEvaluationConfig
from tests.console import HOSTILE, plain, queries, read
from tests.correction.config_page import filled_in, own, save, url_of
from tests.correction.judged_drafts import make_log, verdict
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def test_each_field_shows_what_it_would_inherit_and_from_where(root: Client) -> None:
    ada = make_agent()
    configure(agent=None, changes={"gate_adherence_threshold": "4.5", "gate_fluency_enabled": "on"})
    configure(agent=ada, changes={"gate_adherence_enabled": "on", "gate_adherence_threshold": "6.5"})
    html = read(root, url_of(ada))

    assert 'placeholder="inherits 4.5 (defaults)"' in html
    assert 'placeholder="inherits 12 (built-in)"' in html
    assert re.search(r'name="gate_adherence_threshold" value="6.5"', html)
    text = plain(html)
    assert "inherit: off (built-in) on off check drafts for persona adherence. In effect: on (own)." in text
    assert "inherit: on (defaults) on off check drafts for fluency. In effect: on (defaults)." in text
    assert "inherit: enforce (follows the checks)" in text


def test_saving_stores_what_was_changed_with_user_and_reason(root: Client) -> None:
    ada = make_agent()
    configure(agent=ada, changes={"gate_fluency_enabled": "on"})
    typed = {"gate_adherence_enabled": "on", "gate_adherence_threshold": "6.50", "gate_fluency_enabled": "on"}
    answer = save(root, ada, **typed, reason="too loud lately")

    assert own(ada).keys() == {"gate_adherence_enabled", "gate_adherence_threshold", "gate_fluency_enabled"}
    newest = config_history(ada)[0]
    assert (newest.user, newest.reason) == ("root", "too loud lately")
    assert newest.changes.keys() == {"gate_adherence_enabled", "gate_adherence_threshold"}
    assert "Ada: corrections saved." in plain(answer.content.decode())


def test_what_two_people_set_is_shown_as_a_conflict_and_decided(root: Client) -> None:
    ada = make_agent()
    page = filled_in(read(root, url_of(ada)))
    configure(agent=ada, changes={"variety_message_threshold": 9})

    answer = save(root, ada, **{**page, "variety_message_threshold": "4"}).content.decode()
    assert "variety_message_threshold was set to 9" in plain(answer)
    assert own(ada) == {"variety_message_threshold": 9}
    save(root, ada, **filled_in(answer))
    assert own(ada) == {"variety_message_threshold": 4}


def test_an_outdated_page_does_not_undo_another_person_s_change(root: Client) -> None:
    ada = make_agent()
    configure(agent=ada, changes={"gate_adherence_threshold": "6.5"})
    opened = filled_in(read(root, url_of(ada)))
    configure(agent=ada, changes={"gate_adherence_threshold": "7", "gate_fluency_enabled": "on"})
    save(root, ada, **{**opened, "gate_consistency_threshold": "4"})

    assert {name: str(value) for name, value in own(ada).items()} == {
        "gate_adherence_threshold": "7.0",
        "gate_consistency_threshold": "4.0",
        "gate_fluency_enabled": "True",
    }


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"gate_adherence_threshold": HOSTILE}, "allowed: 0 to 9"),
        ({"gate_adherence_threshold": "12"}, "adherence threshold '12': allowed: 0 to 9"),
        ({"reason": "x" * 101}, "at most 100 characters"),
    ],
)
def test_a_wrong_value_is_refused_beside_its_field(root: Client, typed: dict[str, str], said: str) -> None:
    ada = make_agent()
    html = save(root, ada, gate_fluency_enabled="on", **typed).content.decode()

    assert said in plain(html)
    assert "<script>alert" not in html
    assert not AgentEvaluationConfig.objects.exists()


def test_one_mechanism_is_edited_alone_and_leads_back_to_its_cell(root: Client) -> None:
    ada = make_agent()
    html = read(root, url_of(ada, query="?mechanism=variety"))
    assert 'name="variety_message_threshold"' in html
    assert 'name="gate_adherence_threshold"' not in html
    answer = root.post(url_of(ada, query="?mechanism=variety"), {"variety_message_threshold": "12"})

    assert answer["Location"].endswith(f"#cell-{ada.pk}-variety")
    assert own(ada) == {"variety_message_threshold": 12}
    assert root.get(url_of(ada, query="?mechanism=nonsense")).status_code == 404


def test_the_number_of_queries_does_not_grow_with_drafts_marks_or_changes(root: Client) -> None:
    ada, person = make_agent(), User.objects.create_user("grace")

    def live(times: int) -> None:
        for n in range(times):
            log = make_log(ada, {"adherence": 2.0, "fluency": 1.0})
            mark_result(result=verdict(log), mark="right", user=person)
            configure(agent=ada, changes={"gate_adherence_threshold": f"{n % 9}.5"}, user=person)

    live(2)
    urls = [url_of(ada), url_of(ada, "target_history")]
    few = [len(queries(root, url)) for url in urls]
    live(6)

    assert [len(queries(root, url)) for url in urls] == few


# -- history
def test_the_history_says_who_changed_what_and_goes_back(root: Client) -> None:
    ada = make_agent()
    save(root, ada, gate_adherence_enabled="on", reason=HOSTILE)
    entry = config_history(ada)[0].history_id
    save(root, ada, gate_adherence_enabled="off", gate_fluency_enabled="on")
    html = read(root, url_of(ada, "target_history"))

    text = plain(html)
    assert "root changed present state" in text
    assert "adherence enabled: on → became off" in text
    assert "adherence enabled: inherit → became on" in text
    assert "<script>alert" not in html
    answer = root.post(url_of(ada, "target_history"), {"history_id": str(entry)}, follow=True)
    assert f"Ada: back to entry {entry}." in plain(answer.content.decode())
    assert own(ada) == {"gate_adherence_enabled": True}
    assert config_history(ada)[0].user == "root"
