"""Several processes at the requests of one agent, on SQLite and on PostgreSQL: every change lands, and the limit of a day holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections

from tests.correction.behavior.asking import command

PREPARE = """
import json, sys, django; django.setup()
from django.contrib.auth.models import User
from agents.models import Message
from agents.persona import TraitValue
from correction.config.configure import configure
from tests.correction.behavior.proposals import CONCISE, proposed
from tests.factories import make_agent
limit, names, status = json.loads(sys.argv[1])
agent = make_agent(traits=[TraitValue(f"trait {n}", f"text {n}", 0.5, 0.5) for n in range(10)])
configure(agent=agent, changes={"behavior_daily_limit": limit})
keys = [proposed(agent, f"Be {name}.", after={**CONCISE, "name": name, "strength": 0.0}, status=status, confidence="high",
                 lease_owner="host:1:test").pk for name in names]
Message.objects.update(user=User.objects.create(username="zoe"), outsider="")
print(json.dumps(keys))
"""
LOOK = """
import json, django; django.setup()
from agents.models import PersonaVersion, Trait
from correction.models import BehaviorRequest
print(json.dumps({
    "traits": {t.name: t.strength for t in Trait.objects.all()},
    "versions": list(PersonaVersion.objects.order_by("number").values_list("number", flat=True)),
    "statuses": sorted(BehaviorRequest.objects.values_list("status", flat=True)),
    "last": {t["name"]: t["strength"] for t in PersonaVersion.objects.latest("number").traits},
}))
"""
Run = Callable[..., Any]


ON_POSTGRESQL = [pytest.mark.service, pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=ON_POSTGRESQL)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{request.getfixturevalue('database_file')}"
        return
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL")
    known = connections["default"].settings_dict
    yield f"postgres://{known['USER']}:{known['PASSWORD']}@{known['HOST']}:{known['PORT']}/{known['NAME']}"


@pytest.fixture
def environment(url: str) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "project.settings"}


def answer(code: str, environment: dict[str, str], *args: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def at_once(environment: dict[str, str], *commands: list[str]) -> list[list[str]]:
    """What each process said; all begin together."""
    processes = [
        subprocess.Popen(
            line, env=environment, cwd=settings.BASE_DIR, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for line in commands
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        said.append(out.splitlines())
    return said


def test_requests_for_different_traits_all_land(environment: dict[str, str]) -> None:
    names = [f"trait {n}" for n in range(10)] + [f"new {n}" for n in range(6)]
    keys = answer(PREPARE, environment, json.dumps([1000, names, "running"]))

    said = at_once(environment, *(command("settle", *keys[part::3]) for part in range(3)))

    assert {status for lines in said for status in lines} == {"applied"}
    found = answer(LOOK, environment)
    assert found["traits"] == found["last"] == dict.fromkeys(names, 0.0)
    assert found["versions"] == list(range(1, 18)), "one version per change, none twice"


def test_the_limit_of_a_day_is_not_run_over(environment: dict[str, str]) -> None:
    keys = answer(PREPARE, environment, json.dumps([5, [f"new {n}" for n in range(12)], "running"]))

    at_once(environment, *(command("settle", *keys[part::3]) for part in range(3)))

    found = answer(LOOK, environment)
    assert found["statuses"] == ["applied"] * 5 + ["pending_review"] * 7
    assert len(found["traits"]) == 15


def test_two_people_who_apply_the_same_requests_apply_each_once(environment: dict[str, str]) -> None:
    keys = answer(PREPARE, environment, json.dumps([10, [f"new {n}" for n in range(8)], "pending_review"]))

    said = at_once(environment, command("apply", *keys), command("apply", *keys))

    assert sorted(line for lines in said for line in lines if line == "applied") == ["applied"] * 8
    found = answer(LOOK, environment)
    assert len(found["versions"]) == 9
    assert found["statuses"] == ["applied"] * 8


@pytest.mark.parametrize(
    ("status", "acts", "ends"),
    [
        ("pending_review", ("reject", "reject"), {"rejected"}),
        ("pending_review", ("apply", "reject"), {"applied", "rejected"}),
        ("failed", ("retry", "retry"), {"queued"}),
    ],
    ids=["both reject", "one applies", "both try again"],
)
def test_two_people_who_decide_the_same_requests_are_each_told(
    environment: dict[str, str], status: str, acts: tuple[str, str], ends: set[str]
) -> None:
    """Nobody meets an error that is none of a decision: the second is told what it is by now."""
    keys = answer(PREPARE, environment, json.dumps([10, [f"new {n}" for n in range(8)], status]))

    said = [line for lines in at_once(environment, *(command(act, *keys) for act in acts)) for line in lines]

    assert len(said) == 16
    assert set(answer(LOOK, environment)["statuses"]) <= ends
    assert sum(line in ends for line in said) >= 8
    assert all(line in ends or line.startswith("behaviour request ") for line in said), said


def test_requests_for_the_same_new_trait_make_one(environment: dict[str, str]) -> None:
    keys = answer(
        PREPARE, environment, json.dumps([1000, ["Brevity", "BREVITY", "brevity", "ßharp", "SSharp"], "running"])
    )

    said = at_once(environment, *(command("settle", key) for key in keys))

    assert sorted(line for lines in said for line in lines) == [
        "applied",
        "applied",
        "detected",
        "detected",
        "detected",
    ]
    assert len(answer(LOOK, environment)["traits"]) == 12
