"""The Grafana dashboards, written with grafana-foundation-sdk; `make dashboards` puts them into the chart."""
