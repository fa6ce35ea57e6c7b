"""A fake of vLLM for tests: its command line, HTTP API, metrics and log lines, without a model behind them.

Only the standard library (Python ≥ 3.11). `python3 -m vllm.entrypoints.openai.api_server …` runs it, so that a test
needs no command of its own. Latencies, sizes and faults come from the environment: see `fake/parameters.py` and
`fake/faults.py`.
"""

__version__ = "0.32.0"
