"""PromQL over the engines' own series, whatever their release calls them."""

from llmservice_operator.engines.metric_names import NAMES, Series

OF_SERVICE = 'namespace="$namespace",llmservice="$service"'
"""Engines' and supervisors' series of the chosen service; `llmservice` is given by the scrape's relabelling."""


def names(series: Series) -> list[str]:
    """The exposed names of a series, newest first."""
    return [each.name for each in NAMES if each.series is series]


def newest(series: Series, template: str) -> str:
    """`template` with each of the series' names for `@`; what a newer name has wins."""
    return " or ".join(f"({template.replace('@', name)})" for name in names(series))


def summed(series: Series, by: str = "", *, where: str = OF_SERVICE) -> str:
    """The sum of a gauge over engines."""
    return newest(series, f"sum{_by(by)} (@{{{where}}})")


def rate(series: Series, by: str = "", *, where: str = OF_SERVICE, window: str = "$__rate_interval") -> str:
    """A counter's increase per second, summed over engines."""
    return newest(series, f"sum{_by(by)} (rate(@{{{where}}}[{window}]))")


def quantile(share: float, series: Series, *, where: str = OF_SERVICE) -> str:
    """A quantile of a histogram over all engines of the service."""
    return newest(
        series, f"histogram_quantile({share}, sum by (le) (rate(@_bucket{{{where}}}[$__rate_interval])))"
    )


def mean(series: Series, by: str = "", *, where: str = OF_SERVICE) -> str:
    """The mean of a histogram's observations."""
    sums = f"sum{_by(by)} (rate(@_sum{{{where}}}[$__rate_interval]))"
    return newest(series, f"{sums} / sum{_by(by)} (rate(@_count{{{where}}}[$__rate_interval]))")


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""
