from agents.kit import capability


class EvaluationConfig(capability.Capability):
    name = "evaluation"
    verbose_name = "Evaluation"
    work_queues = {
        "schedules": "evaluation.runs.schedules.work_one",
        "evaluations": "evaluation.runs.execute.work_one",
        "jobs": "evaluation.jobs.work_one",
    }
    offline_responders = {
        "score": "evaluation.propositions.offline.score",
        "check": "evaluation.propositions.offline.check",
        "ideas": "evaluation.propositions.offline.list_ideas",
        "collapse": "evaluation.propositions.offline.collapse",
    }
    seed_removal_steps = ["evaluation.examples.remove_jobs"]
