"""A Prometheus of our own: filled with a history, scraping live pages, asked by PromQL. Ended with its folder."""

import json
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from observability.programs import binaries
from observability.rules import RULES
from observability.stage.cluster import Target
from observability.stage.samples import labelled, line

START_LIMIT_SECONDS = 30.0


def openmetrics(history: Iterable[tuple[float, Iterable[Target]]]) -> Iterable[str]:
    """The lines of a history: (Unix time, targets) in order of time, `up` of each target beside its page."""
    for at, targets in history:
        for target in targets:
            labels = dict(target.labels)
            inside = ",".join(f'{name}="{value}"' for name, value in target.labels)
            yield f"up{{{inside}}} 1 {at:.3f}"
            for sample in labelled(target.samples, labels):
                yield line(sample, at)
    yield "# EOF"


class Prometheus:
    """One server on a free port of the loopback."""

    def __init__(self, folder: Path, *, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        self._port = port
        self._programs = binaries()
        self._programs.ensure()
        self._process: subprocess.Popen[bytes] | None = None
        self._config: dict[str, Any] = {}

    def fill(self, lines: Iterable[str]) -> None:
        """Make blocks of these lines. Before `start`, or between `stop` and `start`."""
        text = self.folder / "history.txt"
        with text.open("w") as file:
            file.writelines(f"{each}\n" for each in lines)
        self._promtool("tsdb", "create-blocks-from", "openmetrics", "-q", text, self.folder / "data")
        text.unlink()

    def record(self, begin: float, end: float, step: str = "30s") -> None:
        """Evaluate the recording rules over a history, and make blocks of it. While it runs; then start it anew."""
        self._promtool(
            *("tsdb", "create-blocks-from", "rules", "--url", self.url, "--eval-interval", step),
            *("--start", f"{begin:.0f}", "--end", f"{end:.0f}", "--output-dir", self.folder / "data", RULES),
        )

    def start(
        self,
        scrapes: Sequence[dict[str, Any]] = (),
        *,
        interval: str = "1s",
        rules_file: Path | None = RULES,
        lookback: str = "5m",
    ) -> None:
        """Serve. `scrapes`: scrape_configs. `lookback`: how long a sample counts that nothing has ended."""
        file = self.folder / "prometheus.yaml"
        self._config = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(rules_file)] if rules_file else [],
            "scrape_configs": list(scrapes),
        }
        file.write_text(yaml.safe_dump(self._config))
        command = (
            *(self._programs.path("prometheus"), f"--config.file={file}"),
            *(f"--storage.tsdb.path={self.folder / 'data'}", "--storage.tsdb.retention.time=50y"),
            f"--query.lookback-delta={lookback}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        )
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(
                    f"Prometheus did not start:\n{(self.folder / 'log.txt').read_text()[-2000:]}"
                )
            time.sleep(0.05)

    def judge(self, rules_file: Path) -> None:
        """From now on evaluate these rules. While it runs."""
        assert self._process is not None
        self._config["rule_files"] = [str(rules_file)]
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(self._config))
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """End it."""
        if self._process:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def query(self, expr: str, at: float) -> list[dict[str, Any]]:
        """An instant query's result."""
        return self._ask("query", query=expr, time=f"{at:.3f}")

    def query_range(self, expr: str, begin: float, end: float, step: float) -> list[dict[str, Any]]:
        """A range query's result."""
        return self._ask(
            "query_range", query=expr, start=f"{begin:.3f}", end=f"{end:.3f}", step=f"{step:.3f}"
        )

    def get(self, path: str) -> Any:
        """Another answer of its API."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def _ask(self, kind: str, **parameters: str) -> list[dict[str, Any]]:
        data = urllib.parse.urlencode(parameters).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{kind}", data, timeout=30) as answer:
                told = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters['query']}: {json.load(error)['error']}") from None
        if told["resultType"] == "scalar":
            return [{"metric": {}, "value": told["result"]}]
        return list(told["result"])

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _promtool(self, *arguments: object) -> None:
        command = (str(self._programs.path("promtool")), *(str(each) for each in arguments))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
