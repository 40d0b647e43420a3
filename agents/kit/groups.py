"""The groups Viewer, Operator and Editor: made by every migrate, so that permissions need not be picked one by one."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.models import Group, Permission, User
from django.db import connections

from agents.kit.registry import homes, tables

_before: dict[tuple[str, str], tuple[set[int], set[str]]] = {}  # by database and app, until its migrations are through


def grants() -> dict[str, list[str]]:
    """Patterns of permissions of each group, beside those of the groups before it: viewing all of ours, and what the tables register.

    Users and tokens belong to other apps: only superusers may view them.
    """
    granted: dict[str, list[str]] = {
        "Viewer": [f"{home.label}.view_*" for home in homes()],
        "Operator": [],
        "Editor": [],
    }
    for model, table in tables().items():
        for group, acts in (("Operator", table.operator), ("Editor", table.editor)):
            granted[group] += [f"{model._meta.app_label}.{act}_{model._meta.model_name}" for act in acts.split()]
    return granted


def make_admin() -> User:
    """Return the user `admin` of a personal machine; one that is made now has no password until `manage.py serve` sets one."""
    user, made = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
    if made:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user


def note_what_is_there(app_config: AppConfig, using: str, **kwargs: Any) -> None:
    """Before an app's migrations: its permissions and the groups there are. What is given to a group later is only what is new."""
    if Permission._meta.db_table not in connections[using].introspection.table_names():
        return
    permissions_now = Permission.objects.using(using).filter(content_type__app_label=app_config.label)
    groups = Group.objects.using(using).values_list("name", flat=True)
    _before[using, app_config.label] = (set(permissions_now.values_list("pk", flat=True)), set(groups))


def make_groups(app_config: AppConfig, using: str, **kwargs: Any) -> None:
    """After an app's migrations: give the groups those of its permissions that are new.

    What an administrator gave a group besides stays, and what they took from it does not come back; a group that was deleted is made
    again. Once per app, because the permissions of the next one are not made yet.
    """
    registry = kwargs.get("apps", apps)  # flush names none
    try:
        group_model, permission_model = registry.get_model("auth", "Group"), registry.get_model("auth", "Permission")
    except LookupError:  # migrated back to before the tables
        return
    old, groups = _before.pop((using, app_config.label), (set(), set()))  # flush: nothing was there before
    permissions_now = permission_model.objects.using(using).filter(content_type__app_label=app_config.label)
    permissions = {
        f"{app_config.label}.{codename}": pk for pk, codename in permissions_now.values_list("pk", "codename")
    }
    may: set[int] = set()
    link = group_model.permissions.through
    links = []
    for name, patterns in grants().items():
        may = may | {pk for text, pk in permissions.items() if any(fnmatchcase(text, p) for p in patterns)}
        if may:
            group, _ = group_model.objects.using(using).get_or_create(name=name)
            given = may - old if name in groups else may
            links += [link(group_id=group.pk, permission_id=pk) for pk in sorted(given)]
    link.objects.using(using).bulk_create(links, ignore_conflicts=True)
