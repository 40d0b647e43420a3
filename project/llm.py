"""Settings of `agents.llm`: which models judge and act, where they are served, and how many calls run at once."""

from project.environment import env, number

ANTHROPIC_API_KEY = env.str("ANTHROPIC_API_KEY", default="")
ANTHROPIC_BASE_URL = env.str("ANTHROPIC_BASE_URL", default="")
JUDGE_BASE_URL = env.str("JUDGE_BASE_URL", default="") or ANTHROPIC_BASE_URL
ACTOR_BASE_URL = env.str("ACTOR_BASE_URL", default="") or ANTHROPIC_BASE_URL
DEFAULT_LLM_MODEL = "claude-haiku-5-5"
JUDGE_MODEL = env.str("JUDGE_MODEL", default="") or (
    DEFAULT_LLM_MODEL if ANTHROPIC_API_KEY or JUDGE_BASE_URL else "offline:lexical-1"
)
ACTOR_MODEL = env.str("ACTOR_MODEL", default="") or (
    DEFAULT_LLM_MODEL if ANTHROPIC_API_KEY or ACTOR_BASE_URL else "offline:scripted-1"
)
LLM_MAX_CONCURRENCY = int(number("LLM_MAX_CONCURRENCY", 20))
LLM_GATE_SLOTS = int(number("LLM_GATE_SLOTS", 4))
LLM_STORE_PAYLOADS = env.str("LLM_STORE_PAYLOADS", default="none")
LLM_EVALUATION_DEADLINE = number("LLM_EVALUATION_DEADLINE", 60)
LLM_EVALUATION_RETRIES = int(number("LLM_EVALUATION_RETRIES", 2))
LLM_BATCH_POLL_SECONDS = number("LLM_BATCH_POLL_SECONDS", 60)
OFFLINE_RESPONDERS = {
    "score": "evaluation.propositions.offline.score",
    "check": "evaluation.propositions.offline.check",
    "ideas": "evaluation.propositions.offline.list_ideas",
    "collapse": "evaluation.propositions.offline.collapse",
    "behavior_gate": "correction.behavior.patterns.gate",
    "behavior_extract": "correction.behavior.patterns.extract",
    "behavior_map": "correction.behavior.patterns.map_trait",
    "turn": "agents.turn.scripted.answer",
    "debate_consensus": "agents.debates.consensus.offline",
    "swarm_polish": "agents.swarm.polish.offline",
    "swarm_summary": "agents.swarm.memory.offline",
    "swarm_calibration": "agents.swarm.calibration.offline",
}
