"""Files and command lines of components; audit events; HTTP heads of the proxy."""

import asyncio
import json
from pathlib import Path

import pytest

from devcluster import control_plane, network, node
from devcluster.audit import AuditLog, counts_once, parse
from devcluster.kind import kind_config
from devcluster.layout import Layout, Spec
from devcluster.proxy import Rule
from devcluster.proxy_http import Head, read_head, relay_body

LAYOUT = Layout(root=Path("/state"), spec=Spec(name="dev", slot=2, nodes=2, gpus=4, gpu_type="nvidia-l4"))


def head(first_line: str, **headers: str) -> Head:
    return Head(b"", first_line, {name.replace("_", "-"): value for name, value in headers.items()})


def test_labels_are_those_of_gpu_feature_discovery() -> None:
    labels = node.node_labels(LAYOUT)

    assert labels["nvidia.com/gpu.product"] == "NVIDIA-L4"
    assert labels["nvidia.com/gpu.count"] == "4"
    assert labels["nvidia.com/gpu.memory"] == "23034"


def test_node_without_accelerators_has_no_such_label() -> None:
    plain = Layout(root=Path("/state"), spec=Spec(name="dev", slot=2))

    assert not [label for label in node.node_labels(plain) if label.startswith("nvidia.com/")]


def test_loaded_images_are_never_collected() -> None:
    """They cannot be pulled again."""
    assert node.kubelet_config(LAYOUT, LAYOUT.nodes[0])["imageGCHighThresholdPercent"] == 100


def test_the_enforcer_takes_no_pod_for_a_service() -> None:
    """It lets anything to Services' addresses; its own default range has all pods' in it."""
    enforcer = node.policy_enforcer(LAYOUT, LAYOUT.nodes[0])

    assert "--service-cluster-ip-range=10.152.0.0/20" in enforcer.arguments


def test_nodes_know_the_way_to_each_others_pods() -> None:
    first, second = LAYOUT.nodes

    assert f"route add {second.pod_cidr} via {second.address}" in network.inner_commands(LAYOUT, first)


def test_node_tokens_are_in_the_nodes_group() -> None:
    assert (
        control_plane.token_file({"system:node:node-1": "t"})
        == 't,system:node:node-1,system:node:node-1,"system:nodes"\n'
    )


def test_certificate_is_cut_from_its_key() -> None:
    """The key never gets into a kubeconfig."""
    pem = "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\ny\n"

    assert control_plane.certificate_of(pem) == "-----BEGIN CERTIFICATE-----\ny\n"


@pytest.mark.parametrize("build", [*control_plane.CONTROL_PLANE, *control_plane.CONTROLLERS])
def test_every_component_can_be_waited_for(build: control_plane.BuildComponent) -> None:
    assert (build(LAYOUT).readiness or "").startswith("http")


def test_kind_nodes_share_the_models_folder() -> None:
    config = kind_config(2, Path("/models"))

    assert [entry["role"] for entry in config["nodes"]] == ["control-plane", "worker", "worker"]
    assert config["nodes"][1]["extraMounts"] == [{"hostPath": "/models", "containerPath": "/models"}]


def test_audit_event_is_read() -> None:
    event = {
        "verb": "patch",
        "user": {"username": "system:serviceaccount:ns:op"},
        "userAgent": "llmservice-operator",
        "objectRef": {
            "apiGroup": "llmservice.dev", "resource": "llmservices", "subresource": "status",
            "namespace": "ns", "name": "a",
        },
        "responseStatus": {"code": 200},
    }  # fmt: skip

    request = parse(event)

    assert (request.resource, request.mutating, request.code) == (
        "llmservice.dev/llmservices/status",
        True,
        200,
    )


@pytest.mark.parametrize(
    ("verb", "stage", "code", "counts"),
    [
        ("get", "ResponseComplete", 200, True),
        ("get", "ResponseStarted", 200, False),
        ("watch", "ResponseStarted", 200, True),
        ("watch", "ResponseComplete", 200, False),
        ("watch", "ResponseComplete", 403, True),
    ],
)
def test_each_request_is_counted_once(verb: str, stage: str, code: int, counts: bool) -> None:
    """A watch when it starts, or when it is refused; a log that is followed when it ends."""
    assert counts_once({"verb": verb, "stage": stage, "responseStatus": {"code": code}}) is counts


def test_half_written_audit_line_is_left_for_later(tmp_path: Path) -> None:
    line = json.dumps({"verb": "get", "user": {"username": "a"}})
    (tmp_path / "audit.log").write_text(f"{line}\n{line[:10]}")

    assert len(list(AuditLog(tmp_path / "audit.log").requests())) == 1


def test_audit_counts_from_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    line = json.dumps({"verb": "get", "user": {"username": "a"}}) + "\n"
    path.write_text(line * 3)
    mark = AuditLog(path).mark()
    path.write_text(line * 5)

    assert AuditLog(path).counts(since=mark) == {("a", "get"): 2}


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(), True),
        (Rule(method="PATCH"), True),
        (Rule(method="GET"), False),
        (Rule(path=r"/status\b"), True),
        (Rule(path="/scale"), False),
        (Rule(user_agent="llmservice"), True),
        (Rule(user_agent="kubectl"), False),
        (Rule(times=0), False),
    ],
)
def test_rule_matches_by_all_its_conditions(rule: Rule, matches: bool) -> None:
    request = head("PATCH /apis/x/a/status?fieldManager=y HTTP/1.1", user_agent="llmservice-operator")

    assert rule.matches(request) is matches


class Sink:
    """Collects what is written."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> None:
        self.content += data

    async def drain(self) -> None:
        pass


async def relayed(body: bytes, message: Head) -> bytes:
    reader = asyncio.StreamReader()
    reader.feed_data(body)
    reader.feed_eof()
    sink = Sink()
    await relay_body(reader, sink, message)  # type: ignore[arg-type]
    return sink.content


async def test_chunked_body_ends_at_its_last_chunk() -> None:
    body = b"5;x=y\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n"

    assert await relayed(body + b"GET /next", head("POST / HTTP/1.1", transfer_encoding="chunked")) == body


async def test_body_of_known_length_ends_there() -> None:
    assert await relayed(b"helloGET /next", head("POST / HTTP/1.1", content_length="5")) == b"hello"


async def test_answer_without_length_ends_with_the_connection() -> None:
    assert await relayed(b"all of it", head("HTTP/1.1 200 OK")) == b"all of it"


@pytest.mark.parametrize("status", [204, 304])
async def test_answer_without_body_has_none(status: int) -> None:
    assert await relayed(b"HTTP/1.1 200 OK", head(f"HTTP/1.1 {status} x")) == b""


async def test_cut_body_is_an_error() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await relayed(b"hel", head("POST / HTTP/1.1", content_length="5"))


async def test_head_is_read_with_names_in_lower_case() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"GET /api HTTP/1.1\r\nUser-Agent: a: b\r\n\r\nrest")

    found = await read_head(reader)

    assert found is not None
    assert (found.method, found.target, found.headers) == ("GET", "/api", {"user-agent": "a: b"})


async def test_closed_connection_has_no_head() -> None:
    reader = asyncio.StreamReader()
    reader.feed_eof()

    assert await read_head(reader) is None
