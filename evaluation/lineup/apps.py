from agents.kit import capability


class LineUpConfig(capability.Capability):
    name = "evaluation.lineup"
    verbose_name = "Voice line-ups"
    work_queues = {"line-ups": "evaluation.lineup.measuring.work_one"}
