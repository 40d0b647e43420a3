from agents.kit import capability


class EvaluationConfig(capability.Capability):
    name = "evaluation"
    verbose_name = "Evaluation"
    work_queues = {
        "schedules": "evaluation.runs.schedules.work_one",
        "evaluations": "evaluation.runs.execute.work_one",
        "jobs": "evaluation.jobs.work_one",
    }
    swarm_guards = ["evaluation.judge.offline.rules_of"]
    offline_responders = {
        "score": "evaluation.judge.offline.score",
        "check": "evaluation.judge.offline.check",
        "ideas": "evaluation.judge.offline.list_ideas",
        "collapse": "evaluation.judge.offline.collapse",
    }
    seed_removal_steps = ["evaluation.examples.remove_jobs"]
