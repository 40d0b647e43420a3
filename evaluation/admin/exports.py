"""What was measured, as files; columns are named as in the API and in ``manage.py export_scores``."""

from __future__ import annotations

from agents.console.logs import Export, export_of, same
from evaluation.runs.export import COLUMNS, TEXTS, score_rows

SCORES = Export(columns=COLUMNS, rows=score_rows, texts=TEXTS)
RUNS: Export = export_of(
    {
        "id": "pk",
        "agent": "agent.slug",
        "channel": "channel.slug",
        **same(
            *("status", "dimensions", "overall_score", "judge", "is_heuristic", "procedure", "repeats"),
            *("is_baseline", "window", "window_start", "window_end", "where", "history", "history_where"),
            *("samples", "sample_size", "seed", "simulated", "actor_model", "batch", "token_usage", "error"),
            *("persona_digest", "proposition_digest", "created_at", "started_at", "finished_at"),
        ),
    },
    select=("agent", "channel"),
)
