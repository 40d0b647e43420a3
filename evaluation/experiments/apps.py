from agents.kit import capability


class ExperimentsConfig(capability.Capability):
    name = "evaluation.experiments"
    verbose_name = "Experiments"
    work_queues = {"experiments": "evaluation.experiments.play.work_one"}
