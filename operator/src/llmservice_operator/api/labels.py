"""Names that stand on objects: labels, annotations, ports, the field manager."""

GROUP = "llmservice.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LLMService"
PLURAL = "llmservices"
POLICY_KIND = "ScalingPolicy"
POLICY_PLURAL = "scalingpolicies"
BALANCED_POLICY = "balanced"
"""The policy that is built in; an object of that name takes its place."""

FIELD_MANAGER = "llmservice-operator"
"""Field manager of every apply, and the user agent of every request."""

SERVICE_LABEL = f"{GROUP}/service"
"""On every child and pod: the LLMService it belongs to. The Service and the Deployment select by it."""
REVISION_LABEL = f"{GROUP}/revision"
"""On pods: the ControllerRevision that the pod was rendered from."""

PAUSED_ANNOTATION = f"{GROUP}/paused"
"""`"true"` on an LLMService: nothing is written for it but its status."""
REFRESH_ANNOTATION = f"{GROUP}/refresh"
"""Any changed text takes a newer possible template or plan."""
RESTART_ANNOTATION = f"{GROUP}/restart"
"""Any changed text rolls the pods once."""
INPUTS_HASH_ANNOTATION = f"{GROUP}/inputs-hash"
"""On a ControllerRevision: the hash of what the user said when it was planned."""

ENGINE_CONTAINER = "engine"
SUPERVISOR_CONTAINER = "supervisor"
HTTP_PORT_NAME = "http"
HTTP_PORT = 8000
SUPERVISOR_PORT_NAME = "supervisor"
SUPERVISOR_PORT = 9410


def child_labels(service_name: str) -> dict[str, str]:
    """The labels of every child of the service of this name."""
    return {
        "app.kubernetes.io/name": "llmservice",
        "app.kubernetes.io/instance": service_name,
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        SERVICE_LABEL: service_name,
    }
