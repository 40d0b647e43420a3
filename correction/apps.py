from agents.kit import capability


class CorrectionConfig(capability.Capability):
    name = "correction"
    verbose_name = "Correcting"
    work_queues = {"observed messages": "correction.gate.observe.work_one"}
    chores = {"correction.alerts.look": 120}
    rollups = ["correction.gate.statistics.GATE"]
    metrics_collectors = ["correction.gate.statistics.collect"]
    seed_steps = ["correction.examples.seed_configs"]
    seed_removal_steps = ["correction.examples.remove_logs"]
