from agents.kit import capability


class BehaviorConfig(capability.Capability):
    name = "correction.behavior"
    verbose_name = "Requests to behave differently"
    dev_commands = {"bench_behavior": "correction.behavior.bench.Command"}
    work_queues = {
        "behavior requests": "correction.behavior.work.work_one",
        "behavior effects": "correction.behavior.effects.work_one",
        "descriptions": "correction.behavior.description.work_one",
    }
    chores = {"correction.behavior.postponing.resume_paused": 60}
    manners_of = "correction.behavior.scope.manners_of"  # what a judge of adherence is shown after the persona
    persona_change_origins = ["correction.behavior.applying.origins_of"]
    offline_responders = {
        "behavior_gate": "correction.behavior.offline.answer_gate",
        "behavior_extract": "correction.behavior.offline.answer_extract",
        "behavior_map": "correction.behavior.offline.answer_map",
    }
    seed_removal_steps = ["correction.behavior.examples.remove_requests"]
