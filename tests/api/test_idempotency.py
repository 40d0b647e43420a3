"""A POST sent twice with the same key acts once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from rest_framework.exceptions import APIException, NotFound, Throttled
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from agents.kit.api.headers import LONGEST_RUN, IdempotentPosts, Sent, StillRunning, begin, store_answer
from agents.kit.api.problems import Conflict
from agents.kit.models import IdempotentRequest, owner_name
from tests.console import superuser

pytestmark = pytest.mark.django_db

SENT = Sent("POST", "/api/there/", "0" * 64)
BODY = {"amount": 3, "to": "ada"}


class Till(IdempotentPosts, APIView):
    """Takes money; says how often it did."""

    permission_classes = (IsAuthenticated,)
    taken: ClassVar[list[Any]] = []  # each till has its own
    fails: ClassVar[list[Exception]] = []

    def post(self, request: Request) -> Response:
        if self.fails:
            raise self.fails.pop()
        self.taken.append(request.data)
        return Response({"number": len(self.taken)}, status=201, headers={"Location": f"/paid/{len(self.taken)}"})


@pytest.fixture
def eve() -> User:
    return superuser("eve")


def till(*fails: Exception) -> Callable[..., Any]:
    """Sends to one till: ``send(user, body, key)``."""
    view = Till.as_view(taken=[], fails=list(fails))

    def send(user: User, body: Any = BODY, key: str | None = "k1", **headers: str) -> Any:
        named = {} if key is None else {"Idempotency-Key": key}
        request = APIRequestFactory().post("/till/", body, format="json", headers={**named, **headers})
        force_authenticate(request, user=user)
        return view(request).render()

    return send


def test_the_same_again_gets_the_first_answer_and_nothing_is_done_twice(eve: User) -> None:
    send = till()

    first, again = send(eve), send(eve)

    assert (first.status_code, first.data, first.headers.get("Idempotency-Replayed")) == (201, {"number": 1}, None)
    assert (again.status_code, again.content) == (201, first.content)
    assert (again["Idempotency-Replayed"], again["Location"]) == ("true", "/paid/1")


def test_sender_and_key_count_and_the_spelling_of_the_json_does_not(eve: User) -> None:
    send = till()

    assert [send(eve, key=key).data["number"] for key in (None, None, "k1", "k2")] == [1, 2, 3, 4]
    assert send(eve, dict(reversed(BODY.items())))["Idempotency-Replayed"] == "true"
    assert send(superuser("bob")).data == {"number": 5}


def test_another_body_under_the_same_key_is_a_422_that_says_so(eve: User) -> None:
    send = till()
    send(eve)

    refused = send(eve, {"amount": 4})

    assert refused.status_code == 422
    assert refused.data["title"] == "Unprocessable Entity"
    assert "one key per request" in refused.data["detail"]


@pytest.mark.parametrize("key", ["two words", "k" * 256, "Schlüssel"])
def test_an_invalid_key_is_a_400_that_says_what_is_allowed(eve: User, key: str) -> None:
    refused = till()(eve, key=key)

    assert refused.status_code == 400
    assert "1 to 255 printable characters" in refused.data["errors"]["Idempotency-Key"][0]


def test_a_refusal_is_kept_like_any_answer(eve: User) -> None:
    send = till(NotFound("no such till"))

    first, again = send(eve), send(eve)

    assert (first.status_code, first.data) == (again.status_code, again.data)
    assert (again.status_code, again["Idempotency-Replayed"]) == (404, "true")
    assert again["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("error", [Throttled(wait=1), Conflict("busy"), APIException("broken"), RuntimeError("a bug")])
def test_an_answer_that_says_to_try_again_is_not_kept_nor_is_a_crash(eve: User, error: Exception) -> None:
    send = till(error)

    with suppress(RuntimeError):
        assert send(eve).status_code in (409, 429, 500)
    assert not IdempotentRequest.objects.exists()
    assert send(eve).data == {"number": 1}


def test_while_the_first_still_runs_the_second_is_a_409(eve: User) -> None:
    send = till()
    send(eve)
    IdempotentRequest.objects.update(status=None, lease_owner=owner_name())

    refused = send(eve)

    assert refused.status_code == 409
    assert "still running" in refused.data["detail"]


def test_a_lease_of_a_process_that_died_is_taken_over(eve: User) -> None:
    row, _ = begin(user_id=eve.pk, key="k", sent=SENT)
    host, _, rest = row.lease_owner.partition(":")
    IdempotentRequest.objects.update(
        lease_owner=f"{host}:{2**22 + 1}:{rest.rpartition(':')[2]}"
    )  # no process has this id

    taken, act = begin(user_id=eve.pk, key="k", sent=SENT)

    assert (act, taken.pk) == (True, row.pk)
    assert not store_answer(row, status=201, answer="{}", headers={}), "one that lost the lease stores nothing"
    assert store_answer(taken, status=201, answer="{}", headers={})


def test_a_lease_from_another_machine_is_taken_over_after_ten_minutes(eve: User) -> None:
    begin(user_id=eve.pk, key="k", sent=SENT)
    long_ago = timezone.now() - LONGEST_RUN - timedelta(seconds=1)
    IdempotentRequest.objects.update(lease_owner="elsewhere:1:a", leased_at=long_ago)

    assert begin(user_id=eve.pk, key="k", sent=SENT)[1]


def test_after_a_day_a_key_is_new_again(eve: User) -> None:
    send = till()
    for key in ("k1", "k2", "k3"):
        send(eve, key=key)
    IdempotentRequest.objects.update(created_at=timezone.now() - IdempotentRequest.KEPT - timedelta(seconds=1))

    assert send(eve, {"amount": 9}).data == {"number": 4}
    assert IdempotentRequest.objects.filter(key="k1").count() == 1


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_acts(eve: User) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: set DATABASE_URL")
    start = threading.Barrier(8)
    outcomes: list[bool | str] = []

    def send() -> None:
        try:
            start.wait(10)
            outcomes.append(begin(user_id=eve.pk, key="k", sent=SENT)[1])
        except StillRunning as error:
            outcomes.append(type(error).__name__)
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert sorted(outcomes, key=str) == ["StillRunning"] * 7 + [True]
