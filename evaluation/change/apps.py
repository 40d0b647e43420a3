from agents.kit import capability


class ChangeConfig(capability.Capability):
    name = "evaluation.change"
    verbose_name = "Change"
    alert_observers = {"drift": "evaluation.change.over_time.follow_alerts"}
    alert_evidence = {"drift": "evaluation.change.admin.alerts.evidence_of_alert"}
    evaluation_completed = ["evaluation.change.evidence.store_completed"]
    evaluation_ended = ["evaluation.change.stored.store_ended"]
    evaluation_alerts = ["evaluation.change.over_time.look_for_sharp_fall"]
    schedule_fired = ["evaluation.change.sentinel.plan_checks"]
    work_queues = {"sentinels": "evaluation.change.sentinel.work_one"}
    after_schedules = ["evaluation.change.over_time.look_at_next"]
    chores = {"evaluation.change.stored.refresh_changes": 60}
