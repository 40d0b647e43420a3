"""The versions of a persona in the console: what each changed, and the way back to one."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from agents.kit.console.display import word_diff
from agents.models import Agent
from agents.personas.persona import TraitValue, current_digest, save_persona
from tests.console import page_of, plain, queries, read, signed_in, viewer
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    """Two versions: dry, then one who jokes."""
    agent = make_agent(traits=[TraitValue("dry", strength=0.8), TraitValue("proud")])
    agent.system_prompt = "You are Ada, a loud and careful clerk."
    save_persona(agent=agent, traits=[TraitValue("dry", strength=0.0), TraitValue("funny")], note="more fun")
    return agent


def restore(agent: Agent, number: int) -> str:
    return reverse("admin:agents_agent_restore", args=[agent.pk, number])


def confirmed(agent: Agent) -> dict[str, str]:
    return {"opened": current_digest(agent)}


def test_each_version_says_what_it_changed_word_by_word(root: Client, ada: Agent) -> None:
    page = read(root, page_of(ada, "versions"))
    text = plain(page)

    assert "Version 2 current" in text
    assert "dry 0.8 → 0 funny new at 0.5 proud removed, was 0.5" in text
    assert "<del>dry </del><ins>loud </ins>" in page
    assert "Version 1" in text
    assert "The first version." in text
    assert restore(ada, 1) in page
    assert restore(ada, 2) not in page


def test_restoring_a_version_makes_a_new_one_with_the_old_persona(root: Client, ada: Agent) -> None:
    answer = root.post(restore(ada, 1), confirmed(ada), follow=True).content.decode()
    third, _, first = ada.persona_versions.order_by("-number")

    assert "The persona says what version 1 said" in answer
    assert (third.digest, third.note) == (first.digest, "restored version 1")
    assert third.created_by is not None
    ada.refresh_from_db()
    assert current_digest(ada) == first.digest
    assert LogEntry.objects.filter(object_id=str(ada.pk), change_message="restored version 1").exists()


def test_what_changed_since_the_page_was_opened_is_not_undone(root: Client, ada: Agent) -> None:
    opened = confirmed(ada)
    save_persona(agent=ada, traits=[TraitValue("kind")], note="behaviour request 7")
    answer = root.post(restore(ada, 1), opened, follow=True).content.decode()

    assert "Nothing was restored" in answer
    assert ada.persona_versions.count() == 3
    root.post(restore(ada, 1), confirmed(ada))
    assert ada.persona_versions.count() == 4


def test_a_persona_that_no_version_tells_of_is_noticed(root: Client, ada: Agent) -> None:
    ada.traits.update(strength=0.3)

    assert "something changed it without noting a version" in read(root, page_of(ada, "versions"))


def test_versions_of_others_and_those_that_are_not_there_are_not_found(root: Client, ada: Agent) -> None:
    assert root.post(restore(ada, 7)).status_code == 404
    assert root.get(restore(ada, 1)).status_code == 405
    assert root.get(reverse("admin:agents_agent_versions", args=[4711])).status_code == 404
    assert signed_in(viewer()).post(restore(ada, 7)).status_code == 403


def test_older_versions_stand_on_pages_of_their_own_in_as_many_queries(root: Client, ada: Agent) -> None:
    few = queries(root, page_of(ada, "versions"))
    for number in range(20):
        save_persona(agent=ada, traits=[TraitValue(f"trait {number}")], note=f"edit {number}")
    many = queries(root, page_of(ada, "versions"))
    older = plain(read(root, page_of(ada, "versions") + "?before=13"))

    assert len(many) == len(few), "\n".join(many)
    assert "Version 22 current" in plain(read(root, page_of(ada, "versions")))
    assert "Version 12" in older
    assert "Version 13" not in older
    assert "Version 2 " not in older


def test_long_prose_is_compared_word_by_word_and_endless_repetition_is_not() -> None:
    prose = " ".join(f"You keep rule {number}, and say so plainly." for number in range(120))

    assert "<ins>never</ins>" in str(word_diff(prose, prose.replace("rule 7,", "rule 7 never,")))
    assert word_diff("a b " * 500, "b a " * 500) is None
