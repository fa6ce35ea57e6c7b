"""A little server in place of Prometheus that answers as it is told: rows, slowly, or something else. In a pod."""

from typing import Any

from e2e.fleet import FAKE_ENGINE, Object

NAME, SERVICE, PORT = "liar", "dcgm", 9090

SERVER = """
import http.server, json, sys, time
told = {"mode": "rows", "rows": []}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if told["mode"] == "slow":
            time.sleep(30)
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [
            {"metric": labels, "value": [time.time(), value]} for labels, value in told["rows"]]}})
        if told["mode"] == "words":
            body = "<html>Welcome</html>"
        self.answer(503 if told["mode"] == "down" else 200, body.encode())
    def do_POST(self):
        told.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(200, b"")
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""


def manifests(namespace: str) -> list[Object]:
    """The pod and the Service before it."""
    labels = {"app": NAME}
    container: dict[str, Any] = {
        "name": "server",
        "image": FAKE_ENGINE,
        "command": ["python3", "-c", SERVER, str(PORT)],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 2000, "seccompProfile": {"type": "RuntimeDefault"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels},
            "spec": {
                "containers": [container],
                "securityContext": security,
                "terminationGracePeriodSeconds": 0,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": PORT}]},
        },
    ]


def rows(namespace: str, pods: list[str], value: str) -> Object:
    """What DCGM's exporter would say of these pods' cards."""
    return {"mode": "rows", "rows": [[{"namespace": namespace, "pod": pod}, value] for pod in pods]}
