"""Dashboards, alerts and the metrics page: made from code, and held against a real Prometheus."""
