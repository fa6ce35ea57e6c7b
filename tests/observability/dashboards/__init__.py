"""The Grafana dashboards, written with grafana-foundation-sdk. `make dashboards` writes them into the chart."""
