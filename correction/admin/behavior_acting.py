"""What a person can do with a behaviour request: apply it, as it is or edited, reject it, revert it, have it tried again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

from agents.console.site import GrowingTextarea, NumberInput, TextInput
from agents.persona import TraitValue
from correction.behavior.applying import BehaviorError, apply_request, reject_request, retry_request, revert_request
from correction.models import BehaviorRequest

DECIDING = ("correction.change_behaviorrequest", "agents.change_agent")  # it changes a persona
Post = Mapping[str, str]


class TraitForm(forms.Form):
    """The trait as it is to be. Prefilled with what was proposed."""

    name = forms.CharField(
        max_length=120, widget=TextInput, help_text="as the persona calls it; at most 120 characters"
    )
    description = forms.CharField(
        max_length=4000, required=False, widget=GrowingTextarea, help_text="what it means and how it shows"
    )
    strength = forms.FloatField(
        min_value=0, max_value=1, widget=NumberInput, help_text="0 = stop doing this, 0.5 = usual, 1 = always"
    )
    sentiment = forms.FloatField(
        min_value=-1, max_value=1, required=False, widget=NumberInput,
        help_text="how the persona feels about it: -1 hates it, 1 loves it; empty = 0",
    )  # fmt: skip

    prefix = "trait"


class Act(NamedTuple):
    """One way to decide: what it does, and what is said when it is done."""

    carry_out: Callable[[BehaviorRequest, AbstractBaseUser, Post], object]
    done: str


def may_decide(request: HttpRequest) -> bool:
    """Whether the user may decide about requests: the rights to change them, and to change agents."""
    return request.user.has_perms(DECIDING)


def trait_form(row: BehaviorRequest, post: Post | None = None) -> TraitForm:
    """The form of the proposed trait; of an empty one where none was proposed."""
    proposed = row.trait_after if isinstance(row.trait_after, dict) else {"strength": 0.5}
    return TraitForm(post, initial=proposed)


def refused_by(act: Act, row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> str:
    """Do it; why it could not be done, or nothing."""
    try:
        act.carry_out(row, user, post)
    except BehaviorError as error:
        return f"Nothing was changed: {error}"
    return ""


def _apply(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return apply_request(request=row, user=user)


def _apply_edited(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    form = trait_form(row, post)
    if not form.is_valid():
        raise BehaviorError("; ".join(f"{name}: {' '.join(map(str, said))}" for name, said in form.errors.items()))
    given = form.cleaned_data
    trait = TraitValue(
        name=given["name"],
        description=given["description"],
        sentiment=given["sentiment"] or 0.0,
        strength=given["strength"],
    )
    return apply_request(request=row, user=user, trait=trait)


def _reject(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return reject_request(request=row, user=user, why=post.get("why", "").strip()[:1000])


def _revert(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return revert_request(request=row, user=user, anyway=post.get("anyway") == "1")


def _retry(row: BehaviorRequest, user: AbstractBaseUser, post: Post) -> object:
    return retry_request(request=row)


ACTS: dict[str, Act] = {
    "apply": Act(_apply, "is applied"),
    "apply_edited": Act(_apply_edited, "is applied as you wrote it"),
    "reject": Act(_reject, "is rejected"),
    "revert": Act(_revert, "is reverted: the trait is what it was before"),
    "retry": Act(_retry, "is queued again: a worker (manage.py work) takes it"),
}
