from agents.kit import capability


class AlertsConfig(capability.Capability):
    name = "agents.alerts"
    verbose_name = "Alerts"
    work_queues = {"alerts": "agents.alerts.delivery.work_one"}
    chores = {"agents.alerts.judge.look": 60}
    seed_removal_steps = ["agents.alerts.raising.remove_alerts"]
