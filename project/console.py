"""The console's settings: what stands in its sidebar, and its theme."""

# The sidebar: group, then (model, icon of Material Symbols); what a user may not view is left out.
CONSOLE_MENU = [
    ("Cast", [("agents.Agent", "groups"), ("agents.Channel", "forum"), ("agents.Message", "chat_bubble")]),
    (
        "Measuring",
        [
            ("evaluation.EvaluationRun", "straighten"),
            ("evaluation.EvaluationScore", "fact_check"),
            ("evaluation.Baseline", "flag"),
            ("evaluation.EvaluationSchedule", "schedule"),
            ("evaluation.DriftAlert", "trending_down"),
            ("evaluation.LabelSet", "rate_review"),
            ("evaluation.PropositionDraft", "edit_note"),
        ],
    ),
    (
        "Correcting",
        [
            ("correction.AgentEvaluationConfig", "tune"),
            ("correction.CorrectionLog", "rule"),
            ("correction.BehaviorRequest", "psychology_alt"),
            ("correction.Intervention", "campaign"),
            ("correction.InterventionLog", "history_edu"),
            ("correction.ObservedMessage", "visibility"),
        ],
    ),
    (
        "Logs",
        [
            ("agents.Run", "play_circle"),
            ("agents.LLMCall", "receipt_long"),
            ("agents.LLMBatch", "stacks"),
            ("agents.ModelPrice", "sell"),
            ("agents.WorkerHeartbeat", "memory"),
        ],
    ),
    ("Access", [("auth.User", "person"), ("auth.Group", "group"), ("authtoken.TokenProxy", "key")]),
]
UNFOLD = {
    "SITE_TITLE": "Plumbline",
    "SITE_HEADER": "Plumbline",
    "SITE_SUBHEADER": "Keeping personas in character",
    "SITE_SYMBOL": "straighten",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"navigation": "agents.adminsite.navigation"},
    "STYLES": ["agents.adminsite.stylesheet"],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "agents.adminsite.favicon"}],
}
