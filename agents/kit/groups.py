"""The groups Viewer, Operator and Editor: made by every migrate, so that permissions need not be picked one by one."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.models import Group, Permission, User
from django.db import connections

from agents.kit.registry import homes, tables


@dataclass(frozen=True, slots=True)
class _BeforeMigrations:
    """An app's permissions and all groups, as they were before the app's migrations."""

    permissions: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()


_before: dict[tuple[str, str], _BeforeMigrations] = {}  # by database and app, until its migrations are through


def grants() -> dict[str, list[str]]:
    """Return the patterns of permissions of each group, beside those of the groups before it: all viewing, and what tables register.

    For example ``agents.view_*``, ``agents.change_agent`` and, for a table that registers ``*``, ``agents.*_agent``.

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
    """Note an app's permissions and the groups there are before its migrations: a group is later given only what is new.

    Before the first migration of all there are no tables of them, and nothing is noted.
    """
    if Permission._meta.db_table not in connections[using].introspection.table_names():
        return
    permissions = Permission.objects.using(using).filter(content_type__app_label=app_config.label)
    groups = Group.objects.using(using).values_list("name", flat=True)
    _before[using, app_config.label] = _BeforeMigrations(
        permissions=frozenset(permissions.values_list("pk", flat=True)), groups=frozenset(groups)
    )


def make_groups(app_config: AppConfig, using: str, **kwargs: Any) -> None:
    """Give the groups those of an app's permissions that its migrations made.

    What an administrator gave a group besides stays, and what they took from it does not come back; a group that was deleted is made
    again. Called once per app, because the permissions of the next one are not made yet. A group that was not there before gets all
    that it may of this app.
    """
    registry = kwargs.get("apps", apps)  # flush names none
    try:
        group_model = registry.get_model("auth", "Group")
        permission_model = registry.get_model("auth", "Permission")
    except LookupError:  # migrated back to before the tables
        return
    before = _before.pop((using, app_config.label), _BeforeMigrations())  # after a flush nothing was there before
    permissions = permission_model.objects.using(using).filter(content_type__app_label=app_config.label)
    keys = {f"{app_config.label}.{codename}": key for key, codename in permissions.values_list("pk", "codename")}
    allowed: set[int] = set()  # each group may what those before it may
    link = group_model.permissions.through
    links = []
    for name, patterns in grants().items():
        for permission, key in keys.items():
            if any(fnmatchcase(permission, pattern) for pattern in patterns):
                allowed.add(key)
        if not allowed:
            continue
        group, _ = group_model.objects.using(using).get_or_create(name=name)
        was_there = name in before.groups
        added = allowed - before.permissions if was_there else allowed
        links += [link(group_id=group.pk, permission_id=key) for key in sorted(added)]
    link.objects.using(using).bulk_create(links, ignore_conflicts=True)
