"""`make chaos-scaling`: the table of faults on a real cluster, and whether any of them took a replica away.

    python -m scaling_faults        from tests/

Writes operator/docs/reference/scaling-faults.txt. Exit code 1 if a replica was taken for a fault.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import deploy
from e2e.fleet import config_map
from scaling_faults.scenario import Scenario, table
from scaling_faults.services import IDLE

TEXT = Path(__file__).resolve().parents[2] / "operator" / "docs" / "reference" / "scaling-faults.txt"
NAMESPACE = "faults"


def main() -> int:
    """Play and write."""
    values = (f"prometheus.url={Scenario.url(NAMESPACE)}",)
    with deploy.platform(
        "faults", "fake-engine", namespace=NAMESPACE, nodes=2, gpus=8, values=values
    ) as cluster:
        deploy.provide_models(cluster, NAMESPACE, deploy.build_model())
        deploy.apply(cluster, config_map(NAMESPACE))
        scenario = Scenario(cluster, NAMESPACE)
        rows = scenario.play()
    told = table(rows)
    print(scenario.watch.dump(), file=sys.stderr)
    print(told)
    TEXT.write_text(f"$ make chaos-scaling        # {datetime.now(tz=UTC).date().isoformat()}\n{told}\n")
    return int(any(row.wrong for row in rows if row.name != IDLE))


if __name__ == "__main__":
    sys.exit(main())
