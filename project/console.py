"""The console's settings: what stands in its sidebar, and its theme."""

# The sidebar: group, then (model, icon of Material Symbols) or (URL name, icon, title, permission); what a user may not view is left out.
CONSOLE_MENU: list[tuple[str, list[tuple[str, ...]]]] = [
    (
        "Agents",
        [
            ("admin:evaluation_drift_overview", "trending_down", "Drift overview", "evaluation.view_baseline"),
            ("agents.Agent", "groups"),
            ("agents.Channel", "forum"),
            ("agents.Message", "chat_bubble"),
            ("agents.Import", "upload_file"),
        ],
    ),
    (
        "Measuring",
        [
            ("evaluation.EvaluationRun", "straighten"),
            ("evaluation.EvaluationScore", "fact_check"),
            ("evaluation.Baseline", "flag"),
            ("evaluation.EvaluationSchedule", "schedule"),
            ("evaluation.DriftAlert", "trending_down"),
            ("evaluation.LabelSet", "rate_review"),
            (
                "admin:evaluation_proposition_changelist",
                "edit_note",
                "Propositions",
                "evaluation.view_proposition",
            ),
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
    (
        "Help",
        [
            ("admin:help", "help", "Help", ""),
            ("admin:glossary", "menu_book", "Glossary", ""),
            ("admin:settings", "settings", "Settings", "auth.view_user"),
        ],
    ),
]
# Every setting in effect, for the page "Settings": dotted path of a callable.
EFFECTIVE_SETTINGS = "project.effective.groups"
# What an empty list says: what fills it, and what to do next. Every list has one (held by a test).
CONSOLE_EMPTY = {
    "agents.agent": (
        "Import personas (Imports in the sidebar, or manage.py import_agents FILE), load the examples with "
        "manage.py seed, or write one here."
    ),
    "agents.channel": (
        "Importing a transcript makes its channels (Imports in the sidebar, or manage.py import_transcript FILE);"
        " agents speak in those you make here."
    ),
    "agents.message": (
        "Import a transcript (Imports in the sidebar, or manage.py import_transcript FILE), or let an agent "
        "speak: manage.py turn AGENT --channel CHANNEL."
    ),
    "agents.import": (
        "Transcripts and personas that are uploaded here, with the + above, are checked, shown, and then imported."
    ),
    "agents.run": (
        "Ask an agent for a turn: Run a turn on its page, manage.py turn AGENT, or write to it. manage.py work "
        "carries it out."
    ),
    "agents.llmcall": (
        "Every call of a model leaves one. Without a key (ANTHROPIC_API_KEY) everything runs offline, at no cost."
    ),
    "agents.llmbatch": (
        "Evaluations at half the price make them: manage.py capture_baseline --batch, or a schedule that asks in "
        "batches."
    ),
    "agents.modelprice": (
        "manage.py migrate adds the shipped prices. Add one for each model the ledger calls unpriced."
    ),
    "agents.workerheartbeat": "No worker has run: manage.py work starts one.",
    "evaluation.evaluationrun": (
        "Choose Evaluate now or Capture baseline on an agent's page, or run manage.py capture_baseline --agents all."
    ),
    "evaluation.evaluationscore": (
        "Evaluations make them: choose Evaluate now on an agent's page, or run manage.py evaluate."
    ),
    "evaluation.baseline": (
        "Choose Capture baseline on an agent's page, or run manage.py capture_baseline --agents all; --dry-run "
        "shows the cost first."
    ),
    "evaluation.evaluationschedule": (
        "Add one to measure every day and be told of drift, or run manage.py schedule add nightly --every 1d."
    ),
    "evaluation.driftalert": (
        "A schedule makes one when a score fell and stayed down; from its ninth measurement on it can tell. None "
        "is good news once schedules run."
    ),
    "evaluation.labelset": (
        "Draw judgements for people to score here, or with manage.py calibrate_judge --draw 80 --name first "
        "--dimension adherence. It takes evaluations by a model."
    ),
    "evaluation.lineuprun": "Choose Measure voices on a channel's page, or run manage.py lineup --channel CHANNEL.",
    "evaluation.proposition": (
        "Write what to measure of an agent here. With a model, manage.py draft_propositions --agents all suggests it from the personas."
    ),
    "correction.agentevaluationconfig": (
        "Every agent inherits the defaults. Switch something on in the matrix, or run manage.py configure AGENT."
    ),
    "correction.correctionlog": (
        "Every draft the gate judges leaves one. Switch it on for an agent, best in observe mode first: manage.py"
        " configure AGENT gate_mode=observe gate_adherence_enabled=on."
    ),
    "correction.behaviorrequest": (
        "They come of what users write to an agent directly or by its @name, such as “be more concise”; manage.py"
        " work looks at it."
    ),
    "correction.intervention": (
        "Add one to tell agents something when a conversation calls for it. Two are built in and are switched on "
        "per agent."
    ),
    "correction.interventionlog": (
        "Every look at an intervention before a turn leaves one: switch one on in an agent's configuration, or "
        "add one of your own."
    ),
    "correction.observedmessage": (
        "Nothing waits. Where an agent's gate observes, the messages to be judged afterwards wait here until "
        "manage.py work has judged them."
    ),
    "auth.user": "manage.py createsuperuser makes the first account.",
    "auth.group": "manage.py migrate makes Viewer, Operator and Editor.",
    "authtoken.tokenproxy": (
        "A program needs one to use the API: add it here, or run manage.py drf_create_token USER."
    ),
}
UNFOLD = {
    "SITE_TITLE": "Plumbline",
    "SITE_HEADER": "Plumbline",
    "SITE_SUBHEADER": "Keeping personas in character",
    "SITE_SYMBOL": "straighten",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"navigation": "agents.console.home.navigation"},
    "DASHBOARD_CALLBACK": "agents.console.home.dashboard",
    "STYLES": ["agents.console.site.stylesheet"],
    "SCRIPTS": ["agents.console.site.script", "agents.console.site.chart_script"],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "agents.console.site.favicon"}],
}
