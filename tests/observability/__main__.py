"""`make dashboards`: writes what is made from code: Grafana's dashboards, and the tables of operator/docs/metrics.md.

python -m observability
"""

from observability import reference
from observability.dashboards.made import write

if __name__ == "__main__":
    write()
    reference.write()
