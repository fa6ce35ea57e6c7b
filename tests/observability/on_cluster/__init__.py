"""Faults on a real cluster, and the alerts that a real Prometheus raises of what it scrapes there."""
