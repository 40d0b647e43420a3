"""Access to the console and the API: signing in, users, groups and tokens."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.api.problems import refused_for_now
from agents.kit.api.requests import SignIns, SignInsOfUser
from agents.kit.console import display
from agents.kit.console.extensions import extensions_for_user
from agents.kit.console.site import (
    AdminPasswordChangeForm,
    ModelAdmin,
    Select,
    UserChangeForm,
    UserCreationForm,
)
from agents.kit.models import ApiToken

if TYPE_CHECKING:
    ApiTokenModelForm = forms.ModelForm[ApiToken]
else:
    ApiTokenModelForm = forms.ModelForm

admin.site.unregister([User, Group])


def user_of(request: HttpRequest) -> User:
    """Return who is signed in, for services that note who did something; the admin lets no anonymous user in."""
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


class ApiTokenForm(ApiTokenModelForm):
    expires_in = forms.TypedChoiceField(
        choices=[(30, "30 days"), (90, "90 days"), (365, "1 year"), (0, "never")],
        coerce=int,
        initial=90,
        widget=Select,
        label="expires after",
        help_text="the API refuses it from then on, with an error that says so",
    )

    class Meta:
        model = ApiToken
        fields = ("name",)


@admin.register(ApiToken)
class ApiTokenAdmin(ModelAdmin[ApiToken]):
    """Each user's own tokens; superusers see all. The key is shown once, on the answer to the form that made it."""

    form = ApiTokenForm
    actions = None

    @admin.display(description="expires", ordering="expires_at")
    def expires(self, token: ApiToken) -> SafeString | str:
        if token.expires_at is None:
            return "never"
        badge = display.badge("expired", "bad") if token.is_expired else ""
        return format_html("{} {}", display.moment(token.expires_at), badge)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        tokens = super().get_queryset(request)
        user = user_of(request)
        if user.is_superuser:
            return tokens
        return tokens.filter(user=user)

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False

    def get_fieldsets(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        if obj is None:
            return [(None, {"fields": ("name", "expires_in")})]
        return super().get_fieldsets(request, obj)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        days = form.cleaned_data["expires_in"]
        expires_at = timezone.now() + timedelta(days=days) if days else None
        token, key = ApiToken.make(user=user_of(request), name=obj.name, expires_at=expires_at)
        vars(obj).update(vars(token), key=key)  # the key lives as long as this request

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Show the key on the answer itself: a message would keep it in a cookie or a session."""
        context = {"token": obj, "sections": self.get_sections(request, obj), "list_url": self.url("changelist")}
        return self.page(request, "admin/kit/token_made.html", f"Token {obj.name}", **context)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        panels = []
        for extension in extensions_for_user(ApiToken, request):
            panels += [panel(request, None) for panel in extension.panels]
        return super().changelist_view(request, {**(extra_context or {}), "panels": panels})

    list_after_template = "admin/panels.html"


@login_not_required
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the admin site's own page; a 429 after too many wrong passwords from one address or for one user name.

    Each attempt counts before the password is looked at, and is taken back when that was right.
    """
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
