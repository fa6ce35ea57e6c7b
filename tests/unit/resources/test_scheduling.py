"""Nodes: which ones a pod may run on, and which it would rather."""

from llmservice_operator.resources.types import Manifest
from unit.resources.samples import CPU_PLAN, pod

PRODUCT = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H200", "NVIDIA-H200-SHARED"]}
GKE = {"key": "cloud.google.com/gke-accelerator", "operator": "In", "values": ["nvidia-h200-141gb"]}
ZONE_A = {"key": "zone", "operator": "In", "values": ["a"]}
ZONE_B = {"key": "zone", "operator": "In", "values": ["b"]}


def required(template: Manifest) -> list[Manifest]:
    node_affinity = template["spec"]["affinity"]["nodeAffinity"]
    terms: list[Manifest] = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return terms


def with_terms(*terms: Manifest) -> Manifest:
    required_terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required_terms}}


def test_any_label_of_the_row_makes_a_node_fit() -> None:
    assert required(pod()) == [{"matchExpressions": [PRODUCT]}, {"matchExpressions": [GKE]}]


def test_the_cpu_row_fits_every_node() -> None:
    assert "affinity" not in pod(plan=CPU_PLAN)["spec"]


def test_own_terms_hold_beside_the_rows() -> None:
    own = with_terms({"matchExpressions": [ZONE_A]}, {"matchExpressions": [ZONE_B]})

    assert required(pod(podTemplate=own)) == [
        {"matchExpressions": [ZONE_A, PRODUCT]},
        {"matchExpressions": [ZONE_A, GKE]},
        {"matchExpressions": [ZONE_B, PRODUCT]},
        {"matchExpressions": [ZONE_B, GKE]},
    ]


def test_own_match_fields_are_kept() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}

    assert required(pod(podTemplate=with_terms({"matchFields": [field]})))[0] == {
        "matchFields": [field],
        "matchExpressions": [PRODUCT],
    }


def test_own_empty_term_still_matches_nothing() -> None:
    assert required(pod(podTemplate=with_terms({}))) == [{}]


def test_other_affinity_of_the_user_is_kept() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [ZONE_A]}}]
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
    own = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
        "podAntiAffinity": anti,
    }
    affinity = pod(podTemplate={"affinity": own})["spec"]["affinity"]

    assert affinity["podAntiAffinity"] == anti
    assert affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred


def test_replicas_spread_softly_over_hosts() -> None:
    assert pod()["spec"]["topologySpreadConstraints"] == [
        {
            "labelSelector": {"matchLabels": {"llmservice.dev/service": "qwen3-8b"}},
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
        }
    ]


def test_own_spread_over_hosts_replaces_ours() -> None:
    own = {"maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    (constraint,) = pod(podTemplate={"topologySpreadConstraints": [own]})["spec"]["topologySpreadConstraints"]

    assert constraint["maxSkew"] == 2


def test_own_spread_over_zones_stands_beside_ours() -> None:
    own = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    constraints = pod(podTemplate={"topologySpreadConstraints": [own]})["spec"]["topologySpreadConstraints"]

    assert constraints[0] == own
    assert constraints[1]["topologyKey"] == "kubernetes.io/hostname"


def test_the_accelerators_own_taint_is_tolerated() -> None:
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod()["spec"][
        "tolerations"
    ]


def test_no_toleration_without_an_accelerator() -> None:
    assert "tolerations" not in pod(plan=CPU_PLAN)["spec"]


def test_own_tolerations_are_kept() -> None:
    own = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}

    assert pod(plan=CPU_PLAN, podTemplate={"tolerations": [own]})["spec"]["tolerations"] == [own]
