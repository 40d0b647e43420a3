from agents.kit import capability


class AgentsConfig(capability.Capability):
    name = "agents"
    verbose_name = "Agents and conversations"
    work_queues = {
        "turns": "agents.turn.orchestrator.work_one",
        "imports": "agents.transcripts.imports.work_one",
    }
    chores = {"agents.transcripts.imports.uploads.drop_old": 3600}
    offline_responders = {"turn": "agents.turn.scripted.answer"}
