"""The light form's API server: requests counted by its audit log, and faults by the proxy in front of it."""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import LightCluster
from devcluster.api import Api
from devcluster.errors import CommandError
from devcluster.proxy import ApiProxy, Rule

pytest_plugins = ("devcluster.fixtures",)
pytestmark = pytest.mark.light


@pytest.fixture
def proxy(light_cluster: LightCluster) -> Iterator[ApiProxy]:
    with ApiProxy(light_cluster) as running:
        yield running


def token(cluster: LightCluster) -> str:
    return str(json.loads(cluster.kubeconfig.read_text())["users"][0]["user"]["token"])


def client(proxy: ApiProxy, cluster: LightCluster) -> Api:
    return Api(server=proxy.server, token=token(cluster), ca=certificate(cluster))


def certificate(cluster: LightCluster) -> Path:
    return cluster.layout.folder / "pki" / "apiserver.crt"


def test_audit_counts_requests_by_user_and_verb(light_cluster: LightCluster) -> None:
    """Each request is there once it is answered, with who sent it."""
    mark = light_cluster.audit.mark()
    for index in range(3):
        light_cluster.kubectl("create", "configmap", f"audit-{index}", "--validate=false")

    counts = light_cluster.audit.counts(since=mark, user="admin", user_agent="kubectl")

    assert counts["admin", "create"] == 3


def test_audit_tells_the_resource(light_cluster: LightCluster) -> None:
    """Group, subresource, namespace and name are told apart."""
    mark = light_cluster.audit.mark()
    path = "/apis/apps/v1/namespaces/default/deployments/none/scale"
    with pytest.raises(Exception, match="not found"):
        light_cluster.api.request("GET", path)

    seen = [
        request for request in light_cluster.audit.requests(since=mark) if request.user_agent == "devcluster"
    ]

    assert [(r.verb, r.resource, r.namespace, r.name, r.code) for r in seen] == [
        ("get", "apps/deployments/scale", "default", "none", 404)
    ]


def test_proxy_passes_what_no_rule_matches(light_cluster: LightCluster, proxy: ApiProxy) -> None:
    """Kubectl works through it."""
    through = ["--server", proxy.server]
    light_cluster.kubectl("create", "configmap", "passed", *through)

    assert light_cluster.kubectl("get", "configmap", "passed", "-o", "name", *through) == "configmap/passed\n"


def test_kubeconfig_of_the_proxy_leads_to_it(light_cluster: LightCluster, proxy: ApiProxy) -> None:
    """A program that gets this file talks to the proxy."""
    light_cluster.kubectl("get", "namespaces", f"--kubeconfig={proxy.kubeconfig}")

    assert proxy.requests["GET"] > 0


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_proxy_answers_with_a_status(light_cluster: LightCluster, proxy: ApiProxy, status: int) -> None:
    """As often as the rule says; then requests pass again."""
    rule = proxy.add(Rule(path="/namespaces/default$", status=status, times=2))
    api = client(proxy, light_cluster)

    for _ in range(2):
        with pytest.raises(Exception, match=f"{status}: .*by the fault proxy"):
            api.request("GET", "/api/v1/namespaces/default")
    answer = api.request("GET", "/api/v1/namespaces/default")

    assert answer["metadata"]["name"] == "default"
    assert rule.hits == 2


def test_proxy_says_when_to_retry(light_cluster: LightCluster, proxy: ApiProxy) -> None:
    """A 429 carries Retry-After."""
    proxy.add(Rule(status=429, retry_after_seconds=7))
    request = urllib.request.Request(
        f"{proxy.server}/version", headers={"Authorization": token(light_cluster)}
    )

    tls = ssl.create_default_context(cafile=str(certificate(light_cluster)))

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=5, context=tls)

    assert caught.value.headers["Retry-After"] == "7"
    caught.value.close()


def test_proxy_is_slow_by_rule(light_cluster: LightCluster, proxy: ApiProxy) -> None:
    """The answer comes, after the delay."""
    proxy.add(Rule(method="GET", delay_seconds=0.4))
    started = time.monotonic()

    client(proxy, light_cluster).request("GET", "/api/v1/namespaces/default")

    assert 0.4 <= time.monotonic() - started < 5


def test_proxy_resets_before_the_request(light_cluster: LightCluster, proxy: ApiProxy) -> None:
    """The connection breaks and nothing has happened."""
    proxy.add(Rule(method="POST", reset=True))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never"}}

    with pytest.raises(OSError, match=r"reset|closed|EOF"):
        client(proxy, light_cluster).request("POST", "/api/v1/namespaces/default/configmaps", body)

    with pytest.raises(CommandError, match="NotFound"):
        light_cluster.kubectl("get", "configmap", "never")


def test_proxy_loses_the_answer(light_cluster: LightCluster, proxy: ApiProxy) -> None:
    """The connection breaks after the API server did the work: the hard case for a client."""
    proxy.add(Rule(method="POST", reset=True, after=True))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "done-anyway"}}

    with pytest.raises(OSError, match=r"reset|closed|EOF"):
        client(proxy, light_cluster).request("POST", "/api/v1/namespaces/default/configmaps", body)

    assert light_cluster.kubectl("get", "configmap", "done-anyway", "-o", "name") == "configmap/done-anyway\n"


def test_proxy_drops_a_watch(light_cluster: LightCluster, proxy: ApiProxy) -> None:
    """An open watch ends when connections are dropped; a new one can be opened."""
    api = client(proxy, light_cluster)
    there = [item["metadata"]["name"] for item in api.request("GET", "/api/v1/namespaces")["items"]]
    objects = api.events("/api/v1/namespaces", deadline=time.monotonic() + 30)
    assert sorted(next(objects)["metadata"]["name"] for _ in there) == sorted(there)
    light_cluster.kubectl("create", "namespace", "seen-by-watch")
    assert next(objects)["metadata"]["name"] == "seen-by-watch"

    proxy.drop_connections()

    with pytest.raises((OSError, StopIteration)):
        next(objects)
    assert next(api.events("/api/v1/namespaces", deadline=time.monotonic() + 30))["metadata"]["name"] != ""
