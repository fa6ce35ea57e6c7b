"""`make demo`: a real cluster, the operator in it, a real model served, an answer printed, each step timed."""

import json
import sys
import time
from pathlib import Path

import deploy
from devcluster.fixtures import AnyCluster

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "crds" / "samples" / "smollm2.yaml"
NAMESPACE = "default"
SERVICE = "smollm2"
QUESTION = "What is the capital of France?"
READY_WITHIN_SECONDS = 900


def say(text: str) -> None:
    print(f"\n▸ {text}", flush=True)


def follow_until_ready(cluster: AnyCluster) -> None:
    """Print what the service says of itself whenever that changes, until it is Ready."""
    line_before = ""
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    for service in deploy.watch(cluster, deploy.llmservice_path(NAMESPACE, SERVICE), deadline=deadline):
        conditions = {c["type"]: c for c in service.get("status", {}).get("conditions", [])}
        ready = conditions.get("Ready", {})
        line = f"  Ready={ready.get('status', '')} {ready.get('reason', '')}: {ready.get('message', '')}"
        if line != line_before:
            print(line[:300], flush=True)
            line_before = line
        if conditions.get("Stalled", {}).get("status") == "True":
            sys.exit(f"The service is stalled: {conditions['Stalled'].get('message')}")
        if ready.get("status") == "True":
            return
    sys.exit(f"The service was not Ready within {READY_WITHIN_SECONDS} s.")


def main() -> int:
    began = time.monotonic()
    figures: list[tuple[str, float]] = []

    def timed(what: str, since: float) -> float:
        now = time.monotonic()
        figures.append((what, now - since))
        return now

    say("images and model (built once, then kept in the cache)")
    images = deploy.build_images("operator", "vllm-cpu")
    models = deploy.build_model()
    mark = timed("images and model", began)

    say("cluster")
    cluster = deploy.demo_cluster()
    cluster.up()
    mark = timed("cluster up", mark)

    say("images into the cluster, operator by Helm")
    deploy.load_images(cluster, images)
    deploy.install_operator(cluster, images["operator"])
    deploy.provide_models(cluster, NAMESPACE, models)
    mark = timed("images loaded, operator installed", mark)

    say(f"kubectl apply -f {SAMPLE.relative_to(ROOT)}")
    applied = time.monotonic()
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", str(SAMPLE))
    deploy.wait_for_pod(cluster, NAMESPACE, SERVICE)
    created = timed("apply → pod created", applied)
    follow_until_ready(cluster)
    ready = timed("pod created → Ready", created)

    say(QUESTION)
    answer = deploy.ask(cluster, NAMESPACE, SERVICE, QUESTION)
    timed("Ready → first answer", ready)
    timed("apply → first answer", applied)
    timed("in all", began)
    print(f"  {answer}")

    print()
    print(cluster.kubectl("get", "llmsvc", "-n", NAMESPACE))
    print(json.dumps({what: round(seconds, 2) for what, seconds in figures}, indent=2, ensure_ascii=False))
    print(f"\nLook around: export KUBECONFIG={cluster.kubeconfig}\nEnd it:      make cluster-down")
    return 0 if "Paris" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
