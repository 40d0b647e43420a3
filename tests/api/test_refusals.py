"""A request that makes no sense is a 400 that names the field, its value and what is allowed, and nothing is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, Message, Run
from agents.personas.persona import TraitValue
from correction.models import CorrectionLog
from evaluation.calibration.models import ScoreLabel
from evaluation.models import EvaluationRun
from tests.agents.turn.playing import join
from tests.api_client import Program, program, refused
from tests.console import superuser
from tests.correction.behavior.proposals import proposed
from tests.correction.checking import ASKED, TRAJECTORY
from tests.correction.judged_drafts import make_log
from tests.evaluation.judged import make_run, make_score
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db
MADE = (Agent, Channel, Message, Run, EvaluationRun, ScoreLabel, CorrectionLog)
NEW_AGENT = {"slug": "cy", "display_name": "Cy", "system_prompt": "You are Cy."}
DRAFT = {"agent": "ada", "channel": "office", "text": "Good morning."}
SPOKEN: dict[str, Any] = {"external_id": "m-1", "agent": "ada", "text": "line"}
WRONG_MESSAGES: list[tuple[dict[str, Any], str, str]] = [
    ({"agent": "nobody"}, "agent", "no agent 'nobody'"),
    ({"agent": None, "user": "nobody"}, "user", "no user 'nobody'"),
    ({"outsider": "Eve"}, "agent", "exactly one of agent, user, outsider; agent and outsider given"),
    ({"agent": None}, "agent", "none given"),
    ({"sent_at": "0001-01-01T00:00:00+14:00"}, "sent_at", "allowed: a time such as 2026-11-22T14:30:00Z"),
    ({"sent_at": "2026-13-45"}, "sent_at", "sent_at '2026-13-45': allowed: a time such as"),
    ({"text": "a\x00b"}, "text", "holds a NUL character"),
    ({"external_id": " "}, "external_id", "external_id ' ': allowed: "),
    ({"channel": "no such/slug"}, "channel", "channel 'no such/slug': allowed: "),
    ({"tags": {"7": "x"}}, "tags.7", "keys of a letter"),
    ({"txt": "x"}, "txt", "there is no field 'txt'; allowed: external_id, text, channel"),
]
CSV = {"content": "speaker,text\nC,hi\n", "format": "csv"}
Case = tuple[dict[str, Any], str, str]

# Route, a body that it takes, and what is wrong: changes of the body (`...` = without it), field, sentence.
CASES: list[tuple[str, dict[str, Any], list[Case]]] = [
    ("agents/", NEW_AGENT, [
        ({"slug": "ada"}, "slug", "slug 'ada': there is another agent of that name"),
        ({"slug": "_default"}, "slug", "an agent's id cannot begin with an underscore: _default stands for every agent"),
        ({"slug": "é"}, "slug", "slug 'é': allowed: "),
        ({"display_name": ...}, "display_name", "display_name is missing"),
        ({"is_active": 1}, "is_active", "is_active 1: allowed: a valid boolean"),
        ({"max_turns": 0}, "max_turns", "max_turns 0: allowed: greater than or equal to 1"),
        ({"model_id": "replay:/etc/passwd"}, "model_id", "allowed: a model's name"),
        ({"model_id": "some-model"}, "model_id", "no key is set"),
        ({"sample_lines": ["a", ""]}, "sample_lines[1]", "sample_lines[1] '': allowed: at least 1 character"),
        ({"traits": [{"name": "a", "strength": 1e400}]}, "traits[0].strength", "strength inf: allowed: less than"),
        ({"traits": [{"name": "a"}, {"name": "A"}]}, "traits[1].name", "name 'A': allowed: a name no other trait has"),
        ({"traits": [{}]}, "traits[0].name", "traits[0].name is missing"),
        ({"title": "a\x00b"}, "title", "title holds a NUL character"),
        ({"title": "\ud800"}, "title", "title holds half of a surrogate pair"),
        ({"mood": "good"}, "mood", "there is no field 'mood'; allowed:"),
    ]),
    ("channels/", {"slug": "new", "name": "New"}, [
        ({"slug": "office"}, "slug", "another channel of that name"),
        ({"kind": "secret"}, "kind", "kind 'secret': allowed: 'public', 'private', 'dm', 'debate' or 'experiment'"),
        ({"tags": {"1st": "x"}}, "tags.1st", "tag '1st': allowed: keys of a letter"),
        ({"tags": {f"t{n}": "" for n in range(21)}}, "tags", "at most 20 items"),
        ({"agents": ["ada", "nobody"]}, "agents", "agents: there is no agent 'nobody'"),
        ({"users": ["mallory"]}, "users", "there is no user 'mallory'"),
        ({"synthetic": True}, "synthetic", "there is no field 'synthetic'"),
    ]),
    ("messages/", {"channel": "office", "text": "hello"}, [
        ({"channel": None}, "channel", "channel None: allowed: the slug of a channel"),
        ({"channel": "nowhere"}, "channel", "there is no channel 'nowhere'; channels: desk, office"),
        ({"channel": "#office"}, "channel", "there is no channel '#office'; did you mean office?"),
        ({"text": " \n"}, "text", "allowed: a text, not only white space"),
        ({"text": "x" * 100_001}, "text", "allowed: at most 100000 characters"),
        ({"parent": 99}, "parent", "parent 99: allowed: the id of a message of channel 'office'"),
        ({"user": "eve"}, "user", "there is no field 'user'"),
    ]),
    ("messages/send/", DRAFT, [
        ({"agent": "nobody"}, "agent", "there is no agent 'nobody'"),
        ({"payload": {"a": ["\x00"]}}, "payload.a[0]", "payload.a[0] holds a NUL character"),
        ({"payload": {"a": "x" * 100_000}}, "payload", "allowed: a JSON object of at most 100,000 characters"),
        ({"trigger": 77}, "trigger", "trigger 77: allowed: the id of a message of channel 'office'"),
        ({"deadline": 0}, "deadline", "deadline 0: allowed: greater than or equal to 0.1"),
        ({"session": "x"}, "session", "is not a session id"),
        ({"overrides": {"gate_mod": "off"}}, "overrides", "there is no field 'gate_mod' (did you mean gate_mode"),
        ({"overrides": {"gate_mode": "maybe"}}, "overrides", "gate_mode 'maybe': allowed: off or observe or enforce"),
        ({"overrides": {"stages": ["x"]}}, "overrides.stages[0]", "overrides.stages[0] 'x': allowed: gate"),
        ({"overrides": {"model": "replay:x"}}, "overrides.model", "'replay:x': allowed: the name of a model"),
    ]),
    ("agents/ada/turns/", {"channel": "office"}, [
        ({"trigger": 99}, "trigger", "trigger 99: allowed: the id of a message of channel 'office'"),
        ({"overrides": {"x": 1}}, "overrides", "there is no field 'x'"),
    ]),
    ("messages/ingest/", {"channel": "desk", "messages": [SPOKEN]}, [
        ({"messages": [SPOKEN] * 1001}, "messages", "1,001 of them: allowed: at most 1000 items"),
        ({"messages": [SPOKEN], "channel": ...}, "messages[0].channel", "channel is missing; allowed: a slug"),
        ({"messages": [SPOKEN, 7]}, "messages[1]", "messages[1] 7: allowed: a valid dictionary"),
        *(({"messages": [SPOKEN, {**SPOKEN, **change}]}, f"messages[1].{field}", sentence) for change, field, sentence in WRONG_MESSAGES),
    ]),
    ("transcripts/", CSV, [
        ({"content": ...}, "content", "content is missing"),
        ({"content": '{"plumbline": "transcript", "version": 1}\n{"id": 7', "format": "auto"}, "content", "line 2"),
        ({"format": "xml"}, "format", "format 'xml': allowed: 'auto', 'jsonl'"),
        ({"time_zone": "Mars/Base"}, "non_field_errors", "unknown time zone 'Mars/Base'"),
    ]),
    ("evaluations/", {"agent": "ada"}, [
        ({"agentId": "ada"}, "agentId", "there is no field 'agentId'; allowed: dimensions, window"),
        ({"agent": ...}, "agent", "exactly one of them; none is given"),
        ({"channel": "office"}, "agent", "exactly one of them; both are given"),
        ({"agent": "adda"}, "agent", "there is no agent 'adda'; did you mean ada?"),
        ({"agent": ..., "channel": "office", "dimensions": ["adherence"]}, "dimensions", "allowed for a channel: convergence"),
        ({"dimensions": ["charm"]}, "dimensions[0]", "dimensions[0] 'charm': allowed: 'adherence', 'consistency'"),
        ({"window": "yesterday"}, "window", "window 'yesterday' is not understood; allowed: all, last:N"),
        ({"history": "once"}, "history", "history 'once' is not understood"),
        ({"samples": 201, "repeats": 20}, "samples", "samples 201: at most 200 with 20 repeats"),
        ({"method": "magic"}, "method", "method 'magic': allowed: 'plumbline' or 'tinytroupe'"),
        ({"position_bins": "5-1"}, "position_bins", "allowed: up to 12 stretches of positions"),
        ({"position_bins": "1-2,3-4", "samples": 1}, "samples", "at least one for each of the 2 bins"),
        ({"additional_context": {"a": "b" * 10_000}}, "additional_context", "allowed: a JSON object of at most 10,000"),
        ({"judge": "replay:answers.jsonl"}, "judge", "judge 'replay:answers.jsonl': allowed: test-model, offline:lexical-1"),
    ]),
    ("evaluations/baselines/", {"agent": "ada"}, [
        ({"agent": ...}, "agent", "agent is missing"),
        ({"channel": "office"}, "channel", "there is no field 'channel'"),
    ]),
    ("evaluations/labels/", {"score": 1, "value": 8}, [
        ({"value": ...}, "value", "value is missing"),
        ({"value": 10}, "value", "value 10: allowed: less than or equal to 9"),
        ({"annotator": "bob"}, "annotator", "there is no field 'annotator'; allowed: score, value, note"),
        ({"score": 2**62}, "score", "there is no judgement"),
    ]),
    ("evaluations/correction-logs/{log}/results/fluency/mark/", {"mark": "right"}, [
        ({"mark": "wrong"}, "mark", "mark 'wrong': allowed: 'right', 'false_alarm'"),
    ]),
    ("behavior-requests/{request}/apply/", {"trait": {"name": "x", "strength": 0.5}}, [
        ({"trait": {"name": "x", "strength": 2}}, "trait.strength", "trait.strength 2: allowed: less than or equal to 1"),
        ({"traits": []}, "traits", "there is no field 'traits'; allowed: trait"),
    ]),
    ("behavior-requests/{request}/effect/", {"messages": 5}, [
        ({"messages": 0}, "messages", "messages 0: allowed: greater than or equal to 1"),
    ]),
    ("behavior-requests/{request}/retry/", {}, [({"why": "x"}, "why", "there is no field 'why'; allowed: none")]),
    ("quality-checks/", ASKED, [
        ({"agent": "ada"}, "persona", "exactly one of them; both"),
        ({"persona": ...}, "persona", "exactly one of them; none"),
        ({"persona": ..., "agent": "nobody"}, "agent", "there is no agent 'nobody'"),
        ({"persona": 7}, "persona", "persona 7: allowed: a text, or an object with system_prompt"),
        ({"persona": {"name": "Ada"}}, "persona.system_prompt", "persona.system_prompt is missing"),
        ({"trajectory": [{"name": "Bob", "text": "Hi", "kind": "shout"}]}, "trajectory[0].kind", "'action' or 'stimulus'"),
        ({"trajectory": [TRAJECTORY[0]] * 501}, "trajectory", "at most 500 items"),
        ({"dimensions": ["convergence"]}, "dimensions[0]", "'adherence', 'consistency' or 'fluency'"),
        ({"thresholds": {"fluency": 9.5}}, "thresholds.fluency", "thresholds.fluency 9.5: allowed: a number, 0 to 9"),
        ({"thresholds": {"charm": 5}}, "thresholds.charm", "allowed: adherence, consistency, fluency"),
        ({"session": "7"}, "session", "not a session id"),
        ({"session": "00000000-0000-4000-8000-000000000000"}, "session", "not known"),
        ({"session": "7", "attempt": 2}, "attempt", "which counts the attempts"),
        ({"propositions": 7}, "propositions", "allowed: a list of at most 20 objects with dimension and propositions"),
    ]),
]  # fmt: skip


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def ada(settings: Settings) -> Agent:
    settings.TURN_PIPELINE = ["correction.stages.ActionGate"]
    settings.JUDGE_MODEL = "test-model"
    agent = make_agent("ada", traits=[TraitValue("dry")])
    join(make_channel("office"), agent)
    return agent


@pytest.mark.parametrize(("route", "body", "cases"), CASES, ids=[route for route, _, _ in CASES])
def test_what_makes_no_sense_is_refused_by_field(
    client: Program, ada: Agent, route: str, body: dict[str, Any], cases: list[Case]
) -> None:
    rows = {"log": make_log(ada, {"fluency": 2.0}).pk, "request": proposed(ada).pk}
    if "score" in body:
        body = {**body, "score": make_score(make_run(ada), 3, raw_score=6).pk}
    before = [model.objects.count() for model in MADE]
    for changes, field, sentence in cases:
        sent = {name: value for name, value in {**body, **changes}.items() if value is not ...}
        errors = refused(
            client.generic(
                "POST",
                f"/api/{route.format(**rows)}",
                json.dumps(sent).replace("Infinity", "1e400"),
                content_type="application/json",
            )
        )
        assert sentence in errors.get(field, [""])[0], (changes, errors)
    assert [model.objects.count() for model in MADE] == before


def test_a_field_that_there_is_not_hides_no_other_fault(client: Program, ada: Agent) -> None:
    errors = refused(client.post("/api/agents/", {"mood": "good", "age": 7, "max_turns": 0, "traits": [7]}))

    assert set(errors) == {"mood", "age", "slug", "display_name", "system_prompt", "max_turns", "traits[0]"}
    assert errors["traits[0]"] == ["traits[0] 7: allowed: a valid dictionary"]


def nested(levels: int) -> str:
    """A request with an additional context of so many objects in the one it is."""
    return '{"agent": "ada", "additional_context": {"a": ' + '{"a": ' * levels + "1" + "}" * (levels + 2)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ("[]", "send a JSON object; its fields: dimensions, window"),
        ("null", "send a JSON object"),
        ("{", "JSON parse error"),
        ('{"\\ud800": 1}', "holds half of a surrogate pair"),
        ('{"agent": "ada", "additional_context": ' + "[" * 200_000 + "]" * 200_000 + "}", "nested too deeply"),
        (nested(49), "nested too deeply; allowed: at most 50 levels"),
    ],
    ids=["list", "null", "cut-off", "surrogate-name", "deep", "rather-deep"],
)
def test_bodies_that_are_none_are_a_400(client: Program, ada: Agent, raw: str, sentence: str) -> None:
    response = client.post("/api/evaluations/", raw, content_type="application/json")

    assert sentence in json.dumps(refused(response), ensure_ascii=False)
    assert client.post("/api/evaluations/", nested(48), content_type="application/json").status_code == 202


POSTS = ("agents/", "messages/send/", "agents/ada/turns/", "evaluations/", "quality-checks/")
CONFIG = "evaluations/config/ada/"  # which PATCH changes
BODIES = (  # JSON as a client may send it, some of it no JSON at all
    *("[]", "7", "{", "", '{"a": NaN}', "[" * 50_000, "\x00", '{"__proto__": {}}', '{"\\ud800": "\\u0000"}'),
    '{"channel": {"a": 1}, "agent": ["x"], "text": {"y": 2}, "slug": 1e400, "name": [], "display_name": {}}',
)
TWICE = (
    ('{"channel": "office", "additional_context": {"mood": 1, "mood": 2}}', "'mood'"),
    ('[{"id": 1, "\\ud800": 2, "\\ud800": 3}]', "'\\ud800'"),
)


@pytest.mark.parametrize("route", [*POSTS, CONFIG])
def test_a_body_nobody_means_is_a_400_and_changes_nothing(client: Program, ada: Agent, route: str) -> None:
    before, method = [model.objects.count() for model in MADE], "PATCH" if route == CONFIG else "POST"

    def send(body: str, content_type: str = "application/json") -> Any:
        return client.generic(method, f"/api/{route}", body, content_type=content_type)

    for body in BODIES:
        if (route, body) != (CONFIG, ""):  # changes nothing, which is allowed there
            assert refused(send(body)), body
    for body, name in TWICE:
        assert f"the key {name} occurs twice" in refused(send(body))["detail"][0]
    assert send("a=1", "text/plain").status_code == 415
    assert client.delete(f"/api/{route}").status_code == 405
    assert [model.objects.count() for model in MADE] == before


@pytest.mark.parametrize(
    ("method", "route", "most"),
    [("post", "messages/ingest/", 10 * 1024 * 1024), ("post", "quality-checks/", 500_000), ("patch", CONFIG, 65_536)],
)
def test_a_body_beyond_its_routes_limit_is_a_413_and_not_read(
    client: Program, ada: Agent, method: str, route: str, most: int
) -> None:
    refusal = refused(getattr(client, method)(f"/api/{route}", {"content": "x" * most}), 413)

    assert refusal["detail"] == [f"the body is too large; allowed: at most {most:,} bytes"]


@pytest.mark.parametrize("body", [{}, {"slug": "other"}, {"traits": [{"description": "x"}]}])
def test_a_change_that_makes_no_sense_changes_nothing(client: Program, ada: Agent, body: Any) -> None:
    before = client.get("/api/agents/ada/").json()

    refused(client.patch("/api/agents/ada/", body))
    refused(client.put("/api/agents/ada/", {"display_name": "Ada"}))

    assert client.get("/api/agents/ada/").json() == before
