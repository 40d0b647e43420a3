"""The groups Viewer, Operator and Editor: there after every migrate, so that nobody has to pick permissions one by one."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings


def make_groups(app_config: AppConfig, using: str, **kwargs: Any) -> None:
    """After an app's migrations: give the groups of settings that app's permissions. What they have besides stays.

    Once per app, because the permissions of the next one are not made yet.
    """
    registry = kwargs.get("apps", apps)  # flush names none
    try:
        group_model, permission_model = registry.get_model("auth", "Group"), registry.get_model("auth", "Permission")
    except LookupError:  # migrated back to before the tables
        return
    found = permission_model.objects.using(using).filter(content_type__app_label=app_config.label)
    permissions = {f"{app_config.label}.{codename}": pk for pk, codename in found.values_list("pk", "codename")}
    may: set[int] = set()
    link = group_model.permissions.through
    links = []
    for name, patterns in settings.GROUPS.items():
        may = may | {pk for text, pk in permissions.items() if any(fnmatchcase(text, p) for p in patterns)}
        if may:
            group, _ = group_model.objects.using(using).get_or_create(name=name)
            links += [link(group_id=group.pk, permission_id=pk) for pk in sorted(may)]
    link.objects.using(using).bulk_create(links, ignore_conflicts=True)
