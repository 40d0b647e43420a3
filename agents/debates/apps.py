from agents.kit import capability


class DebatesConfig(capability.Capability):
    name = "agents.debates"
    verbose_name = "Debates"
    work_queues = {"debates": "agents.debates.debate.work_one"}
    offline_responders = {"debate_consensus": "agents.debates.consensus.offline"}
    conversation_tags = ["debate"]  # that name one conversation: its messages are measured although they are synthetic
    channel_indicators = {"groupthink": "agents.debates.report.groupthink_indicators"}
    seed_channel_agents = ["debate__seats__agent"]
    seed_removal_holds = ["agents.debates.examples.seated_elsewhere"]
    seed_removal_rows = ["agents.debates.examples.debates_in"]
    turn_answers = {
        "position": "agents.debates.answers.Position",
        "stanced position": "agents.debates.answers.StancedPosition",
    }
