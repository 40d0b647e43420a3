from agents.kit import capability


class CorrectionConfig(capability.Capability):
    name = "correction"
    verbose_name = "Correcting"
    work_queues = {"observed messages": "correction.gate.observe.work_one"}
    chores = {"correction.alerts.check_alerts": 120, "correction.gate.observe_batches.submit_waiting": 60}
    rollups = ["correction.gate.statistics.GATE"]
    metrics_collectors = ["correction.gate.statistics.collect"]
    ingest_observers = ["correction.gate.observe.queue_ingested"]  # called with messages that were said elsewhere
    conversation_sampler = "correction.sampling.find_sampler"  # which of them are stored at all
    turn_request_check = "correction.api.turn_requests.problems"  # what is wrong with overrides and sessions
    turn_deadlines = "correction.api.turn_requests.deadlines"  # the overrides that a request's deadline stands for
    turn_overrides_need = "correction.change_agentevaluationconfig"  # to override the gate, besides agents.change_agent
    # Asked before an evaluation asks its judge: takes agent and judge, returns why to pause, or nothing.
    evaluation_budget = "correction.costs.evaluation_over_budget"
    seed_steps = ["correction.examples.seed_configs"]
    seed_removal_steps = ["correction.examples.remove_logs"]
