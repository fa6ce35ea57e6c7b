"""The container's memory is the card: the real engine on the CPU row at given limits, to the block and to the byte.

Services are started two at a time: as many as a small machine has cores, and memory, for.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import deploy
from e2e.conftest import Platform
from e2e.fleet import Fleet, Object, config_map

pytestmark = [pytest.mark.cluster, pytest.mark.real_engine]

GIB = 1 << 30
LIMITS_GIB = {"small": 3, "middle": 4, "large": 6}
START_SECONDS = 420.0
NEIGHBOUR_BYTES = 900 << 20
"""What a plan knows nothing of. With it the planned KV cache isn't free in 4 GiB, and half of it is."""

NEIGHBOUR = f"python3 -c 'held = b\"x\" * {NEIGHBOUR_BYTES}; import time; time.sleep(3600)' & "
ENGINE = 'exec python3 -m vllm.entrypoints.openai.api_server "$@"'

LOAD = """
import concurrent.futures, json, sys, urllib.request
def ask(**body):
    data = json.dumps({"model": sys.argv[2], "ignore_eos": True, **body}).encode()
    request = urllib.request.Request(sys.argv[1], data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=200))["usage"]["completion_tokens"]
with concurrent.futures.ThreadPoolExecutor() as pool:
    prompts = [[start + at % 300 for at in range(1900)] for start in (100, 500, 900)]
    long = pool.map(lambda prompt: ask(prompt=prompt, max_tokens=2), prompts)
    short = pool.map(lambda at: ask(prompt="Once", max_tokens=8, logprobs=3, temperature=1, top_p=0.9), range(8))
    print(sum(long) + sum(short))
"""
"""More than a whole batch of prompt tokens, and then log-probabilities and top-p, whose kernels are compiled."""
LOAD_TOKENS = 3 * 2 + 8 * 8

PEAK = "cat /sys/fs/cgroup/memory.peak || cat /sys/fs/cgroup/memory/memory.max_usage_in_bytes"
KILLS = "cat /sys/fs/cgroup/memory.events || cat /sys/fs/cgroup/memory/memory.oom_control"
STAT = "cat /sys/fs/cgroup/memory.stat || cat /sys/fs/cgroup/memory/memory.stat"


@pytest.fixture(scope="module")
def fleet(platform: Platform, namespace: str) -> Iterator[Fleet]:
    """The services of this file; none yet."""
    fleet = Fleet(cluster=platform.cluster, namespace=namespace)
    deploy.apply(platform.cluster, config_map(namespace))
    yield fleet
    fleet.remove_all()


@pytest.fixture(scope="module")
def outer(platform: Platform, fleet: Fleet) -> Iterator[dict[str, Object]]:
    """The least and the most: 3 and 6 GiB, served and loaded."""
    yield serve(platform, fleet, "small", "large")
    fleet.remove_all()


@pytest.fixture(scope="module")
def inner(platform: Platform, fleet: Fleet, outer: dict[str, Object]) -> dict[str, Object]:
    """4 GiB, served and loaded, and 4 GiB in which something else holds memory."""
    fleet.remove_all()
    start(platform, fleet, "crowded", limit_gib=4, command=["sh", "-c", NEIGHBOUR + ENGINE, "sh"])
    served = serve(platform, fleet, "middle")
    return served | {"crowded": fleet.wait("crowded", ready, timeout_seconds=START_SECONDS)}


@pytest.fixture(scope="module", params=["small", "large", "middle"])
def loaded(request: pytest.FixtureRequest, fleet: Fleet) -> Object:
    """A service under load, with what its container had taken."""
    services = request.getfixturevalue("inner" if request.param == "middle" else "outer")
    service: Object = services[request.param]
    return service


def test_the_engine_holds_the_planned_tokens(loaded: Object) -> None:
    """To the block: the engine's own count."""
    status = loaded["status"]

    assert status["engine"]["kvCacheTokens"] == status["plan"]["kvCacheTokens"]


def test_the_plan_is_found_true(loaded: Object) -> None:
    assert deploy.condition(loaded, "PlanAccurate").get("reason") == "WithinTolerance"


def test_the_limit_is_used_and_kept(loaded: Object) -> None:
    """At least four fifths of it at the peak; all of it would be no harm, as file pages are given back."""
    limit = LIMITS_GIB[loaded["metadata"]["name"]] * GIB

    assert 0.8 * limit <= loaded["memory"]["peak_bytes"] <= limit


def test_what_cannot_be_given_back_stays_within_the_limit_with_room(loaded: Object) -> None:
    """Anonymous memory once the load is over: where it nears the limit, the kernel kills."""
    limit = LIMITS_GIB[loaded["metadata"]["name"]] * GIB

    assert 0.8 * limit <= loaded["memory"]["anonymous_bytes"] <= 0.99 * limit


def test_the_kernel_kills_nothing(loaded: Object) -> None:
    assert (loaded["memory"]["kills"], loaded["run"].restarts) == (0, 0)


def test_a_plan_that_is_too_large_is_corrected_once_and_serves(inner: dict[str, Object]) -> None:
    """A quarter of the container is held by what no plan knows of: half the cache finds room beside it."""
    crowded, middle = inner["crowded"]["status"], inner["middle"]["status"]
    (record,) = [each for each in crowded["start"]["revisions"] if each.get("corrected")]

    assert record["proven"]
    assert crowded["engine"]["kvCacheTokens"] == crowded["plan"]["kvCacheTokens"]
    assert crowded["plan"]["kvCacheTokens"] < middle["plan"]["kvCacheTokens"]


def test_what_cannot_fit_never_has_a_pod(platform: Platform, fleet: Fleet) -> None:
    start(platform, fleet, "tiny", limit_gib=1)
    refused = fleet.wait("tiny", lambda each: deploy.condition(each, "Planned").get("status") == "False")
    fleet.touch("tiny", "looked at once more")

    left = fleet.kubectl(
        "get", "deployment,replicaset,pod", "-l", "llmservice.dev/service=tiny", "-o", "name"
    )
    assert deploy.condition(refused, "Planned")["reason"] == "DoesNotFit"
    assert left.strip() == ""


def start(
    platform: Platform, fleet: Fleet, name: str, *, limit_gib: int, command: Sequence[str] = ()
) -> None:
    """Apply a service of the real engine with this memory limit."""
    engine: Object = {"version": "0.32.0", "args": {"enforce-eager": "true"}}
    fleet.apply(
        name,
        engine=engine | ({"command": list(command)} if command else {}),
        podTemplate={
            "nodeSelector": {"kubernetes.io/hostname": platform.engine_node},
            "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": f"{limit_gib}Gi"}},
        },
        drain={"timeout": "5s"},
    )


def serve(platform: Platform, fleet: Fleet, *names: str) -> dict[str, Object]:
    """The services, started together and loaded one after the other: status, `memory` and `run` as they are then."""
    for name in names:
        start(platform, fleet, name, limit_gib=LIMITS_GIB[name])
    served = {name: fleet.wait(name, ready, timeout_seconds=START_SECONDS) for name in names}
    for name, service in served.items():
        assert load(fleet, name) == LOAD_TOKENS
        service |= {"memory": memory(fleet, name), "run": fleet.run(name)}
        print(f"\n{name}: {service['status']['plan']['kvCacheTokens']} tokens, {service['memory']}")
    return served


def ready(service: Object) -> bool:
    """Whether it serves and its engine has reported."""
    return deploy.condition(service, "Ready").get("status") == "True" and bool(
        service["status"].get("engine", {}).get("kvCacheTokens")
    )


def load(fleet: Fleet, name: str) -> int:
    """Ask the service for the load's tokens, from the operator's pod: a client inside would count as the engine's."""
    address = f"http://{name}.{fleet.namespace}.svc:8000/v1/completions"
    told = fleet.cluster.kubectl(
        "exec", "-n", deploy.OPERATOR_NAMESPACE, f"deployment/{deploy.RELEASE}", "--",
        "python3", "-c", LOAD, address, name, timeout_seconds=START_SECONDS,
    )  # fmt: skip
    return int(told)


def memory(fleet: Fleet, name: str) -> dict[str, int]:
    """What the engine's container took, by its cgroup (v2, else v1): bytes, and processes killed."""

    def read(command: str) -> str:
        return fleet.kubectl(
            "exec", f"deployment/{name}", "-c", "engine", "--", "sh", "-c", f"exec 2>/dev/null; {command}"
        )

    def table(command: str) -> dict[str, int]:
        rows = (line.split() for line in read(command).splitlines())
        return {key: int(value) for key, value in rows}

    stat: dict[str, Any] = table(STAT)
    return {
        "peak_bytes": int(read(PEAK)),
        "anonymous_bytes": stat["anon"] if "anon" in stat else stat["total_rss"],
        "file_bytes": stat["file"] if "file" in stat else stat["total_cache"],
        "kills": table(KILLS)["oom_kill"],
    }
