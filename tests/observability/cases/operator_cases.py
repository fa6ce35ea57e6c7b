"""The operator itself."""

from observability.cases.play import Case

_KINDS = '{kind="pods"}'
OPERATOR = (
    Case(
        alert="LLMServiceOperatorDown",
        story="no process holds the Lease",
        base={},
        series={'llmservice_leader{pod="a"}': "1x10 0x20", 'llmservice_leader{pod="b"}': "0x30"},
        at="20m",
        fires={},
    ),
    Case(alert="LLMServiceOperatorDown", story="no page at all", base={}, series={}, at="20m", fires={}),
    Case(
        alert="LLMServiceOperatorDown",
        story="the other copy takes over within a minute",
        base={},
        series={'llmservice_leader{pod="a"}': "1x10 0x20", 'llmservice_leader{pod="b"}': "0x11 1x20"},
        at="20m",
    ),
    Case(
        alert="LLMServiceOperatorFailing",
        story="every second reconcile fails",
        series={
            'llmservice_reconciles_total{result="success"}': "0+10x60",
            'llmservice_reconciles_total{result="error"}': "0+10x60",
        },
        at="40m",
        fires={},
    ),
    Case(
        alert="LLMServiceOperatorFailing",
        story="1 of 50 reconciles fails",
        series={
            'llmservice_reconciles_total{result="success"}': "0+49x60",
            'llmservice_reconciles_total{result="error"}': "0+1x60",
        },
        at="40m",
    ),
    Case(
        alert="LLMServiceOperatorBehind",
        story="a key waits longer and longer",
        series={"llmservice_workqueue_oldest_age_seconds": "0+60x40"},
        at="20m",
        fires={},
    ),
    Case(
        alert="LLMServiceOperatorBehind",
        story="keys wait some seconds",
        series={"llmservice_workqueue_oldest_age_seconds": "8x40"},
        at="20m",
    ),
    Case(
        alert="LLMServiceOperatorBlind",
        story="the last sweep is two hours old",
        base={"llmservice_leader": "1x300"},
        series={f"llmservice_store_last_sweep_timestamp_seconds{_KINDS}": "600x300"},
        at="130m",
        fires={},
    ),
    Case(alert="LLMServiceOperatorBlind", story="it sweeps", series={}, at="130m"),
    Case(
        alert="LLMServiceEnginePagesUnread",
        story="half of the reads time out",
        series={
            'llmservice_engine_scrape_failures_total{reason="timeout"}': "0+6x60",
            "llmservice_engine_scrape_duration_seconds_count": "0+12x60",
        },
        at="40m",
        fires={"reason": "timeout"},
    ),
    Case(
        alert="LLMServiceEnginePagesUnread",
        story="one read in a hundred times out",
        series={
            'llmservice_engine_scrape_failures_total{reason="timeout"}': "0+1x60",
            "llmservice_engine_scrape_duration_seconds_count": "0+100x60",
        },
        at="40m",
    ),
)
