"""After a migration there are groups to put people into."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command

from agents.kit.groups import grants
from tests.console import read, signed_in

pytestmark = pytest.mark.django_db
ALL = ("Viewer", "Operator", "Editor")


def member(name: str) -> User:
    user = User.objects.create_user(f"a {name}", is_staff=True)
    user.groups.add(Group.objects.get(name=name))
    return user


def may(name: str, permission: str) -> bool:
    return member(name).has_perm(permission)


@pytest.mark.parametrize(
    ("permission", "who"),
    [
        ("agents.view_message", ALL),
        ("correction.view_historicalagentevaluationconfig", ALL),
        ("agents.add_run", ("Operator", "Editor")),
        ("evaluation.change_evaluationrun", ("Operator", "Editor")),
        ("calibration.add_scorelabel", ("Operator", "Editor")),
        ("correction.change_gatedimensionresult", ("Operator", "Editor")),
        ("correction.change_agentevaluationconfig", ("Editor",)),
        ("agents.add_agent", ("Editor",)),
        ("interventions.change_intervention", ("Editor",)),
        ("evaluation.change_proposition", ("Editor",)),
        ("auth.view_user", ()),
        ("correction.delete_correctionlog", ()),
    ],
)
def test_who_may_what(permission: str, who: tuple[str, ...]) -> None:
    app, codename = permission.split(".")
    assert Permission.objects.filter(content_type__app_label=app, codename=codename).exists()

    assert tuple(name for name in ALL if may(name, permission)) == who


def test_every_pattern_of_a_group_names_a_permission() -> None:
    names = [f"{p.content_type.app_label}.{p.codename}" for p in Permission.objects.select_related("content_type")]

    unused = [p for patterns in grants().values() for p in patterns if not any(fnmatchcase(name, p) for name in names)]

    assert unused == []


def test_a_migration_adds_what_is_new_and_keeps_what_people_changed() -> None:
    group = Group.objects.get(name="Viewer")
    added, removed = Permission.objects.get(codename="view_user"), Permission.objects.get(codename="view_llmcall")
    group.permissions.add(added)
    group.permissions.remove(removed)
    Permission.objects.get(codename="view_llmpayload").delete()  # as before the version that brought it
    Group.objects.get(name="Editor").delete()

    for _ in range(2):
        call_command("migrate", verbosity=0)

        assert added in group.permissions.all()
        assert removed not in group.permissions.all()
        assert group.permissions.filter(codename="view_llmpayload").exists()
        assert set(Group.objects.values_list("name", flat=True)) == set(ALL)
    assert may("Editor", "agents.change_agent")


@pytest.mark.parametrize("name", ALL)
def test_members_with_staff_status_find_their_way_in_the_console(name: str) -> None:
    client = signed_in(member(name))

    assert read(client, "/admin/agents/agent/")
    assert client.get("/admin/auth/user/").status_code == 403
    assert client.get("/admin/agents/agent/add/").status_code == (200 if name == "Editor" else 403)
