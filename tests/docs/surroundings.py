"""Where the commands of the documentation run: a real API server, the pinned kubectl and helm, a copy of the checkout.

What has nothing to run on here is checked by the program itself: `kubectl logs` and its like need a kubelet, so their
words and flags are read by kubectl and no more; `make TARGET` is read by make, since each target has its own proof.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from devcluster.light import LightCluster
from docs.pages import ROOT, Block
from integration.chart import monitoring_crds

PLACEHOLDERS = {
    "NAMESPACE": "default",
    "NAME": "qwen3-8b",
    "DIR": "tests/data/models/meta-llama--Meta-Llama-3.1-8B",
    "FILE": "crds/samples/qwen3-8b.yaml",
    "POD": "qwen3-8b-0",
}
"""What a reader would put for a word in capitals."""

SAMPLE = "crds/samples/qwen3-8b.yaml"
RELEASE = ("llmservice-operator", "charts/llmservice-operator", "--namespace", "llmservice-system")
BLOCK_SECONDS = 120
SINCE = "2026-01-01T00:00:00Z"
ANY_GENERATION = 1_000
READY_STATUS = {
    "status": {
        "replicas": 1,
        "readyReplicas": 1,
        "observedGeneration": ANY_GENERATION,
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "reason": reason,
                "lastTransitionTime": SINCE,
                "observedGeneration": ANY_GENERATION,
            }
            for type_, reason in (
                ("Ready", "Ready"),
                ("Planned", "Planned"),
                ("Available", "ReplicasAvailable"),
            )
        ],
    }
}
"""What the operator writes of a service that serves: no operator and no kubelet run here."""

TENANT = "team-a"
"""The namespace of users that pages on policies speak of."""
CHILDREN = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: qwen3-8b, namespace: default, labels: &labels {llmservice.dev/service: qwen3-8b}}
spec:
  selector: {matchLabels: *labels}
  template:
    metadata: {labels: *labels}
    spec: {containers: [{name: engine, image: vllm}]}
---
apiVersion: v1
kind: Service
metadata: {name: qwen3-8b, namespace: default, labels: {llmservice.dev/service: qwen3-8b}}
spec: {ports: [{port: 8000}]}
"""
"""What commands look at of all that the operator makes; without controllers no pod follows."""

_KUBECTL = """#!/usr/bin/env bash
set -euo pipefail
real=({program} --kubeconfig={kubeconfig} --cache-dir={cache})
every='jsonpath={{range .items[*]}}{{.metadata.namespace}} {{.metadata.name}}{{"\\n"}}{{end}}'
serve() {{
  "${{real[@]}}" get llmsvc -A -o "$every" |
    while read -r namespace name; do
      "${{real[@]}}" patch llmsvc "$name" -n "$namespace" --subresource=status --type=merge -p '{status}' >/dev/null
    done
}}
read_only() {{
  local words=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do words+=("$1"); shift; done
  exec "${{real[@]}}" "${{words[@]}}" --help "$@"
}}
verb="" value=""
for word; do
  if [ "$value" ]; then value=""; continue; fi
  case "$word" in
    -n | --namespace | --context) value=next ;;
    -*) ;;
    *) verb=$word; break ;;
  esac
done
if [ "${{ONLY_READ-}}" ]; then read_only "$@"; fi
case "$verb" in
  attach | cp | debug | drain | exec | logs | port-forward | rollout | run | top) read_only "$@" ;;
  wait) serve ;;
esac
for word; do
  case "$word" in
    */proxy/*) read_only "$@" ;;
    -w | --watch) timeout 1 "${{real[@]}}" "$@" || test $? = 124; exit ;;
    --) break ;;
  esac
done
exec "${{real[@]}}" "$@"
"""
_HELM = """#!/usr/bin/env bash
set -euo pipefail
words=()
for word; do
  # Nothing gets ready without controllers, so nothing can be waited for.
  case "$word" in --wait | --wait-for-jobs | --atomic | --rollback-on-failure) ;; *) words+=("$word") ;; esac
done
case "${{1-}}" in
  test | repo | pull | push | search) exec {program} "$1" --help "${{words[@]:1}}" ;;
esac
exec {program} "${{words[@]}}"
"""
_LLMSERVICE = """#!/usr/bin/env bash
case "${{1-}}" in run) exec {program} run --help ;; esac
exec {program} "$@"
"""
_MAKE = """#!/usr/bin/env bash
exec {program} --dry-run "$@" > /dev/null
"""
_ABSENT = """#!/usr/bin/env bash
echo "$(basename "$0") has nothing to talk to here: mark the block with <!-- not run: WHY -->" >&2
exit 1
"""


class Surroundings:
    """A light cluster that was just started, and a folder that looks like a checkout."""

    def __init__(self, cluster: LightCluster, folder: Path) -> None:
        self._checkout = folder / "checkout"
        self._programs = folder / "bin"
        self._kubeconfig = cluster.kubeconfig
        self._checkout.mkdir()
        self._programs.mkdir()
        for path in ROOT.iterdir():
            (self._checkout / path.name).symlink_to(path)
        kubectl = _KUBECTL.format(
            program=cluster.program("kubectl"),
            kubeconfig=cluster.kubeconfig,
            cache=folder / "cache",
            status=json.dumps(READY_STATUS),
        )
        self._install("kubectl", kubectl)
        self._install("helm", _HELM.format(program=cluster.program("helm")))
        self._install("make", _MAKE.format(program=shutil.which("make")))
        self._install("llmservice", _LLMSERVICE.format(program=Path(sys.executable).with_name("llmservice")))
        for absent in ("curl", "docker", "git", "kind", "vllm"):
            self._install(absent, _ABSENT)

        # As in most clusters: the chart's monitors and rules are there to be looked at.
        crds = " ".join(f"-f {path}" for path in monitoring_crds.files())
        self._must(f"kubectl apply --server-side {crds}")

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a shell text as a reader would, with stdout and stderr together."""
        environ = {
            **{name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ},
            "KUBECONFIG": str(self._kubeconfig),
            "NO_PROXY": "127.0.0.0/8,10.0.0.0/8",
            "PATH": f"{self._programs}:/usr/local/bin:/usr/bin:/bin",
        }
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._checkout,
            env=environ,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=BLOCK_SECONDS,
        )

    def read(self, command: str) -> subprocess.CompletedProcess[str]:
        """Let kubectl read the words and flags of one of its commands, and do nothing."""
        return self.run(f"export ONLY_READ=yes\n{filled_in(command)} > /dev/null")

    def install(self) -> None:
        """The chart's release and one service that serves."""
        self._must(f"helm upgrade --install {' '.join(RELEASE)} --create-namespace")
        self.add_service()

    def add_service(self) -> None:
        """The service that pages speak of: once the operator is installed, readers have one."""
        self._must("kubectl wait --for=condition=Established crd/llmservices.llmservice.dev")
        # Discovery follows a moment after the condition, and nothing tells of it.
        self._must(f"for try in $(seq 50); do kubectl apply -f {SAMPLE} && break || sleep 0.2; done")
        self._must("kubectl wait --for=condition=Ready llmsvc/qwen3-8b")
        self._must(f"kubectl apply -f - <<'END'\n{CHILDREN}END\n")
        self._must(f"kubectl get namespace {TENANT} || kubectl create namespace {TENANT}")

    def clean(self) -> None:
        """As before the first release, but for what stays of one on purpose."""
        self.run("kubectl delete llmsvc --all --all-namespaces")
        self.run("kubectl delete deployment,service -l llmservice.dev/service --all-namespaces")
        self.run("helm uninstall llmservice-operator --namespace llmservice-system --ignore-not-found")

    def _must(self, text: str) -> None:
        done = self.run(text)
        if done.returncode:
            raise RuntimeError(f"{text}\n{done.stdout}")

    def _install(self, name: str, text: str) -> None:
        path = self._programs / name
        path.write_text(text.format() if text is _ABSENT else text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def script_of(block: Block) -> str:
    """The commands of a block: without prompts and their answers, with something for each word in capitals."""
    lines = block.text.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return filled_in("\n".join(lines).replace(".venv/bin/", ""))


def filled_in(text: str) -> str:
    """The text with something for each word in capitals."""
    for placeholder, value in PLACEHOLDERS.items():
        text = re.sub(rf"(?<![\w$-]){placeholder}(?![\w=-])", value, text)
    return text
