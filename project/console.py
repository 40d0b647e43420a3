"""The console's settings: what stands in its sidebar, and its theme."""

# The sidebar: group, then (model, icon of Material Symbols) or (URL name, icon, title, permission); what a user may not view is left out.
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
# What an empty list says fills it.
CONSOLE_EMPTY = {
    "evaluation.evaluationrun": "An evaluation is asked for on an agent's page, by manage.py capture_baseline or over the API.",
    "evaluation.evaluationscore": "Scores come of evaluations.",
    "evaluation.baseline": "manage.py capture_baseline makes them, or an agent's page.",
    "evaluation.driftalert": "A schedule that watches for drift makes one when a score fell and stayed down.",
    "evaluation.propositiondraft": "manage.py draft_propositions proposes what to measure, from the personas.",
    "correction.correctionlog": "Every message that passes the gate or is judged by it leaves one.",
    "correction.behaviorrequest": "They come of what users write to an agent directly or by its @name, such as “be more concise”.",
    "correction.interventionlog": "Every intervention that is looked at before a turn leaves one.",
    "correction.observedmessage": "Where an agent's gate observes, the messages it is to judge afterwards wait here.",
    "agents.run": "A turn is asked for on an agent's page, by manage.py turn, or by what a person says to an agent.",
    "agents.llmcall": "Every call of a model leaves one.",
    "agents.llmbatch": "Evaluations at half the price make them.",
    "agents.workerheartbeat": "No worker has run: manage.py work starts one.",
}
UNFOLD = {
    "SITE_TITLE": "Plumbline",
    "SITE_HEADER": "Plumbline",
    "SITE_SUBHEADER": "Keeping personas in character",
    "SITE_SYMBOL": "straighten",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"navigation": "agents.console_pages.navigation"},
    "DASHBOARD_CALLBACK": "agents.console_pages.dashboard",
    "STYLES": ["agents.adminsite.stylesheet"],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "agents.adminsite.favicon"}],
}
