from agents.kit import capability


class DebatesConfig(capability.Capability):
    name = "agents.debates"
    verbose_name = "Debates"
    work_queues = {"debates": "agents.debates.debate.work_one"}
    offline_responders = {"debate_consensus": "agents.debates.consensus.offline"}
    turn_answers = {
        "position": "agents.debates.answers.Position",
        "stanced position": "agents.debates.answers.StancedPosition",
    }
