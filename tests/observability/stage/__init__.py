"""A stage: services as a cluster would have them, whose pages a real Prometheus reads.

What is real: names, labels and buckets of the engines' pages (recorded), the operator's `Metrics` and `decide`, the
supervisor's page. What is played: the load, the engines' times (the simulator's), and DCGM's page, which is made from
its documented fields.
"""
