from agents.kit import capability


class ExperimentsConfig(capability.Capability):
    name = "evaluation.experiments"
    verbose_name = "Experiments"
    dev_commands = {"validity": "evaluation.experiments.validity.command.Command"}
    work_queues = {"experiments": "evaluation.experiments.play.work_one"}
