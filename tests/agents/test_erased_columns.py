"""No column with text is forgotten when a person is: each is searched, or known to hold nothing that anybody said."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db.models import CharField, Field, JSONField, Model, TextField

from agents.ops.erasure import known_places

# Columns of the house's tables that never hold what somebody said: names that we give, ids, models, states, choices.
NOT_SPEECH = {
    "AgentEvaluationConfig": "gate_mode behavior_auto_apply behavior_requesters",
    "Agent": "slug origin display_name avatar_color description_origin model_id",
    "DescriptionUpdate": "judge",
    "BehaviorEffect": "judge",
    "BehaviorRequest": "map_digest judge confidence operation",
    "Channel": "slug kind",
    "Chore": "path last_outcome",
    "CorrectionLog": "source draft_key outcome judge",
    "EvaluationRun": "dimensions judge window history method position_bins series_points proposition_digests actor_model",
    "EvaluationSchedule": "dimensions window judge",
    "Evidence": "judge",
    "EvaluationScore": "proposition_id judge served_model evidence cause",
    "GateDimensionResult": "judge proposition_id mark",
    "Idea": "positions",
    "IdempotentRequest": "key method body_digest",
    "Import": "kind doing",
    "Intervention": "slug function nudge_type",
    "InterventionLog": "name nudge_type judge",
    "JudgeCalibration": "judge procedure figures labels_digest",
    "LabelSet": "name judge procedure population",
    "LineUpRun": "window",
    "LLMBatch": "error work_id role model base_url batch_id not_ours provider_status",
    "LLMBatchRequest": "custom_id work_id request_key request_digest label result stop_reason served_model",
    "LLMCall": "role purpose mechanism work_id provider endpoint model served_model stop_reason request_id request_digest",
    "LogEntry": "object_id",
    "MemoryBlock": "label",
    "Message": "external_id idempotency_key",
    "ModelPrice": "model source",
    "PatternTimeout": "proposition_id pattern",
    "Reaction": "emoji",
    "Run": "idempotency_key stop_reason",
    "RunMessage": "role tool_name",
    "RunStep": "kind",
    "WorkerHeartbeat": "name host kind queues doing",
}
ALWAYS = {
    "status",
    "lease_owner",
    "dimension",
    "digest",
    "persona_digest",
    "proposition_digest",
    "spec_digest",
    "procedure",
}
SUMS = {"LedgerHour", "AttemptHour", "DimensionHour", "Baseline", "DriftAlert", "LastServed", "Rollup"}


def text_columns(model: type[Model]) -> list[Field[Any, Any]]:
    return [field for field in model._meta.concrete_fields if isinstance(field, CharField | TextField | JSONField)]


def test_every_column_with_text_is_searched_or_known_to_hold_no_speech() -> None:
    searched = {(place.model.__name__, column) for place in known_places() for column in place.columns}
    forgotten = [
        f"{model.__name__}.{field.name}"
        for label in ("agents", "evaluation", "correction", "admin")
        for model in apps.get_app_config(label).get_models()
        for field in text_columns(model)
        if model.__name__ not in SUMS and not model.__name__.startswith("Historical")
        if (model.__name__, field.name) not in searched
        if field.name not in {*NOT_SPEECH.get(model.__name__, "").split(), *ALWAYS}
    ]
    assert not forgotten, (
        f"{forgotten}: name them in PLACES (see ERASURE in the settings), or here if they never hold speech"
    )


def test_what_is_known_to_hold_no_speech_is_there() -> None:
    models: dict[str, type[Model]] = {model.__name__: model for model in apps.get_models()}
    wrong = [
        f"{n}.{c}"
        for n, cs in NOT_SPEECH.items()
        for c in cs.split()
        if c not in {f.name for f in models[n]._meta.fields}
    ]
    assert wrong == []
