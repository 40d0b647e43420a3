"""Who may enter: signing in, users, groups and the tokens of the API."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from rest_framework.authtoken.admin import TokenAdmin
from rest_framework.authtoken.models import TokenProxy

from agents.api.problems import refused_for_now
from agents.api.requests import SignIns, SignInsOfUser
from agents.console import display
from agents.console.site import AdminPasswordChangeForm, ModelAdmin, UserChangeForm, UserCreationForm

admin.site.unregister([User, Group, TokenProxy])


def user_of(request: HttpRequest) -> User:
    """Who is signed in, for services that note who did something; the admin lets no anonymous user in."""
    assert isinstance(request.user, User)  # noqa: S101 (for the type checker)
    return request.user


@admin.register(User)
class ThemedUserAdmin(UserAdmin, ModelAdmin[User]):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class ThemedGroupAdmin(GroupAdmin, ModelAdmin[Group]):
    ordering: ClassVar = ["name"]


def shortened(token: TokenProxy) -> str:
    """Enough of a token to tell it from others, and too little to use it."""
    return f"{token.key[:4]}…{token.key[-4:]}"


TokenProxy.__str__ = shortened  # type: ignore[method-assign,assignment]  # titles and breadcrumbs name a token by it


def _may_see(request: HttpRequest, token: TokenProxy | None) -> bool:
    return token is None or request.user.pk == token.user_id or user_of(request).is_superuser


@admin.register(TokenProxy)
class ThemedTokenAdmin(TokenAdmin, ModelAdmin[TokenProxy]):
    """Tokens of the API. A program with one acts as its user, so it is shown once, when it is made; later only its ends are.

    Its page is for its user and superusers only, and no log or message holds it.
    """

    list_display = ("user", "shown", "created")
    list_display_links = ("user",)
    list_filter = ()
    autocomplete_fields = ("user",)

    def has_view_permission(self, request: HttpRequest, obj: TokenProxy | None = None) -> bool:
        return super().has_view_permission(request, obj) and _may_see(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: TokenProxy | None = None) -> bool:
        return super().has_change_permission(request, obj) and _may_see(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: TokenProxy | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_see(request, obj)

    shown = display.column("Token", shortened)

    def get_fields(self, request: HttpRequest, obj: TokenProxy | None = None) -> Any:
        return ("user",) if obj is None else ("user", "created", "shown")

    def get_readonly_fields(self, request: HttpRequest, obj: TokenProxy | None = None) -> Any:
        return () if obj is None else ("user", "created", "shown")

    def log_addition(self, request: HttpRequest, obj: TokenProxy, message: Any) -> Any:
        return self._note(request, obj, ADDITION, message)

    def log_change(self, request: HttpRequest, obj: TokenProxy, message: Any) -> Any:
        return self._note(request, obj, CHANGE, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        return [self._note(request, token, DELETION, []) for token in queryset]

    def response_add(self, request: HttpRequest, obj: TokenProxy, post_url_continue: str | None = None) -> HttpResponse:
        """Show the token on the answer itself: a message would keep it in a cookie or a session."""
        return self.page(request, "admin/agents/token_made.html", f"{obj.user} has a token now", token=obj)

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: Any) -> HttpResponse:
        self.message_user(request, "The token is deleted: it cannot be used any more.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:authtoken_tokenproxy_changelist"))

    def _note(self, request: HttpRequest, token: TokenProxy, flag: int, message: Any) -> LogEntry:
        """Django's own entry is called after the object, which is the key."""
        return LogEntry.objects.create(
            user=user_of(request),
            content_type=ContentType.objects.get_for_model(TokenProxy, for_concrete_model=False),
            object_id=str(token.user_id),
            object_repr=f"token of {token.user}"[:200],
            action_flag=flag,
            change_message=json.dumps(message) if isinstance(message, list) else message,
        )


@login_not_required
def sign_in(request: HttpRequest) -> HttpResponse:
    """The admin site's own page; 429 after too many wrong passwords from one address or for one user name."""
    limits = [SignIns(), SignInsOfUser()] if request.method == "POST" else []
    for limit in limits:
        if not limit.allow_request(request):
            text = f"Too many attempts to sign in. Wait {limit.seconds()} seconds, then try again."
            return refused_for_now(request, HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=limit.seconds())
    response = admin.site.login(request)
    if response.status_code == HTTPStatus.FOUND:  # the password was right
        for limit in limits:
            limit.forgive()
    return response
