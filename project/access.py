"""What the groups made after each migrate may do, as patterns of permissions; each may also what those before it may."""

GROUPS = {
    "Viewer": ("agents.view_*", "evaluation.view_*", "correction.view_*"),  # users and tokens belong to other apps
    "Operator": (  # acts: turns, messages, evaluations, cancelling and resuming, labels, marks
        *("agents.add_run", "agents.change_run", "agents.add_message"),
        *("evaluation.add_evaluationrun", "evaluation.change_evaluationrun", "evaluation.add_lineuprun"),
        *("evaluation.add_scorelabel", "evaluation.change_driftalert"),
        *("correction.change_gatedimensionresult", "correction.add_correctionlog"),
    ),
    "Editor": (  # changes what there is to measure and how it is corrected
        *("agents.*_agent", "agents.*_trait", "agents.*_memoryblock", "agents.*_memorypassage"),
        *("agents.*_channel", "agents.*_channelmember", "agents.*_modelprice"),
        *("evaluation.*_proposition", "evaluation.*_evaluationschedule", "evaluation.*_labelset"),
        *("correction.*_agentevaluationconfig", "correction.*_intervention", "correction.change_behaviorrequest"),
    ),
}
