from agents.kit import capability


class SwarmConfig(capability.Capability):
    name = "agents.swarm"
    verbose_name = "Swarms"
    work_queues = {"summaries": "agents.swarm.summaries.work_one"}
    offline_responders = {
        "swarm_polish": "agents.swarm.polish.offline",
        "swarm_summary": "agents.swarm.summaries.offline",
        "swarm_calibration": "agents.swarm.calibration.offline",
    }
    turn_tools = {  # of the example of a role swarm
        "look_up": "agents.swarm.food.LookUp",
        "log": "agents.swarm.food.Log",
        "undo": "agents.swarm.food.Undo",
        "day": "agents.swarm.food.Day",
    }
    agent_facts = {"has_swarm": "agents.swarm.models.has_swarm"}
    chat_reports = ["agents.swarm.chat.report"]
    chat_untraced = ["agents.swarm.chat.why_untraced"]
    seed_steps = ["agents.swarm.phases.seed_swarm"]
    seed_defaults = {"swarm": "agents.swarm.phases.seed_swarm"}
