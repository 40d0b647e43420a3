"""Who may use a route: signed-in users with the model's permission, also for reading. No route is anonymous."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import DjangoModelPermissions
from rest_framework.request import Request

if TYPE_CHECKING:  # views read the settings, which name this module
    from rest_framework.views import APIView

_VIEW = ["%(app_label)s.view_%(model_name)s"]
_CHANGE = ["%(app_label)s.change_%(model_name)s"]
_READ_TOO = {**DjangoModelPermissions.perms_map, "GET": _VIEW, "HEAD": _VIEW, "OPTIONS": _VIEW}
_ACTING = {**_READ_TOO, "POST": _CHANGE}


class ModelPermissions(DjangoModelPermissions):
    """Reading needs the view permission of the model of the view's ``queryset``; Django REST framework alone leaves it open."""

    perms_map = _READ_TOO


class ActionPermissions(ModelPermissions):
    """For routes whose POST acts on what is there: it needs the change permission."""

    perms_map = _ACTING


class ReadsMessages(ModelPermissions):
    """For routes of something else that also show what was said: who may not view messages may not read them there."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return super().has_permission(request, view) and request.user.has_perm("agents.view_message")
