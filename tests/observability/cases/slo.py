"""Objectives and their budgets."""

from observability.cases.play import SERVICE, Case

TTFT = SERVICE | {"objective": "ttft"}


def requests(total: str, met: str, objective: str = "ttft") -> dict[str, str]:
    labels = f'{{namespace="chat",name="qwen",objective="{objective}"}}'
    return {
        f"llmservice_slo_requests_total{labels}": total,
        f"llmservice_slo_requests_met_total{labels}": met,
    }


SLO = (
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="8 of 10 requests miss for an hour",
        series=requests("0+100x200", "0+100x100 10000+20x100"),
        at="170m",
        fires=TTFT,
    ),
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="4 of 10 requests miss for six hours: 8 times the pace, seen by the longer pair",
        series=requests("0+100x500", "0+60x500"),
        at="480m",
        fires=TTFT,
    ),
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="8 of 10 requests missed for an hour, and it is over",
        series=requests("0+100x200", "0+100x60 6000+20x60 7220+100x80"),
        at="155m",
    ),
    Case(
        alert="LLMServiceObjectiveBurnsFast",
        story="all of forty requests in an hour miss: too few to wake somebody",
        series=requests("0+0.6x300", "0x300"),
        at="170m",
    ),
    Case(
        alert="LLMServiceObjectiveBurnsSlowly",
        story="8 of 100 requests miss for three days",
        series=requests("0+1000x450", "0+920x450"),
        interval="10m",
        at="4400m",
        fires=TTFT,
    ),
    Case(
        alert="LLMServiceObjectiveBurnsSlowly",
        story="4 of 100 requests miss for three days: within the budget",
        series=requests("0+1000x450", "0+960x450"),
        interval="10m",
        at="4400m",
    ),
    Case(
        alert="LLMServiceObjectiveBurnsSlowly",
        story="no request for three days",
        series=requests("100x450", "50x450"),
        interval="10m",
        at="4400m",
    ),
)
