"""What a form with files may hold before anybody knows whether its sender may hand in any."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.files.uploadhandler import StopUpload
from django.test import RequestFactory

from agents.imports.uploads import MOST_OF_STRANGERS, LimitedUploads


def hand_in(user: User | AnonymousUser, files: int) -> None:
    request = RequestFactory().post("/admin/login/")
    request.user = user
    handler = LimitedUploads(request)
    for number in range(files):
        handler.new_file("files", f"{number}.yaml", "text/yaml", None, None, None)


def test_of_a_stranger_s_form_a_few_files_are_kept_and_no_more() -> None:
    hand_in(AnonymousUser(), MOST_OF_STRANGERS)
    with pytest.raises(StopUpload):
        hand_in(AnonymousUser(), MOST_OF_STRANGERS + 1)


def test_who_is_signed_in_may_hand_in_many_personas_at_once() -> None:
    hand_in(User(username="ann"), 100)
