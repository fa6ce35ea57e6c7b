"""Names and addresses of clusters never meet."""

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from devcluster.errors import DevclusterError
from devcluster.layout import MAX_NODES, SLOTS, Layout, Spec, choose_slot, state_root, validate


def layout(slot: int, **values: object) -> Layout:
    spec = Spec(name=f"c{slot}", slot=slot, **values)  # type: ignore[arg-type]
    return Layout(root=Path("/state"), spec=spec)


def networks(cluster: Layout) -> list[IPv4Network]:
    return [IPv4Network(cluster.network), IPv4Network(cluster.service_cidr)]


def test_first_free_slot_is_chosen() -> None:
    assert choose_slot({0, 1, 3}, routed=[], loopback_is_free=lambda _: True) == 2


def test_slot_whose_network_the_machine_uses_is_passed_over() -> None:
    routed = [IPv4Network("10.100.7.0/24"), IPv4Network("10.151.0.0/16")]

    assert choose_slot(set(), routed=routed, loopback_is_free=lambda _: True) == 2


def test_slot_whose_etcd_address_is_taken_is_passed_over() -> None:
    assert choose_slot(set(), routed=[], loopback_is_free=lambda address: address != "127.77.0.1") == 1


def test_no_slot_left_says_how_to_mend() -> None:
    with pytest.raises(DevclusterError, match="devcluster down --name"):
        choose_slot(set(range(SLOTS)), routed=[], loopback_is_free=lambda _: True)


def test_networks_of_all_slots_are_apart() -> None:
    found = [network for slot in range(SLOTS) for network in networks(layout(slot))]

    overlapping = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :] if a.overlaps(b)]

    assert overlapping == []


def test_node_addresses_are_in_the_network_and_apart() -> None:
    cluster = layout(3, nodes=MAX_NODES)
    addresses = {cluster.control_plane_address} | {node.address for node in cluster.nodes}

    assert len(addresses) == MAX_NODES + 1
    assert all(IPv4Address(address) in IPv4Network("10.103.0.0/24") for address in addresses)


def test_pods_of_two_nodes_have_networks_apart() -> None:
    first, second = layout(0, nodes=2).nodes

    assert not IPv4Network(first.pod_cidr).overlaps(IPv4Network(second.pod_cidr))
    assert IPv4Address(first.pod_gateway) in IPv4Network(first.pod_cidr)


def test_interface_names_fit_the_kernel() -> None:
    """The kernel takes 15 characters."""
    cluster = layout(SLOTS - 1, nodes=MAX_NODES)

    assert all(len(node.host_interface) <= 15 for node in cluster.nodes)
    assert len(cluster.bridge) <= 15


def test_light_form_listens_on_loopback_only() -> None:
    assert layout(4, light=True).server == "https://127.77.4.1:6443"


@pytest.mark.parametrize("name", ["", "Dev", "1st", "a_b", "x" * 41, "-a", "a-", "../up"])
def test_bad_name_is_refused(name: str) -> None:
    with pytest.raises(DevclusterError, match="use 1 to 40 of a-z, 0-9 and '-'"):
        validate(name=name, nodes=1, gpus=0, gpu_type="nvidia-h200")


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(DevclusterError, match="nodes 21: must be 1 to 20"):
        validate(name="a", nodes=21, gpus=0, gpu_type="nvidia-h200")


def test_unknown_accelerator_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DevclusterError, match=r"'nvidia-h2000' is not known; known: .*nvidia-h200"):
        validate(name="a", nodes=1, gpus=1, gpu_type="nvidia-h2000")


def test_state_of_root_is_under_var() -> None:
    assert state_root({"HOME": "/root"}, is_root=True) == Path("/var/lib/llmservice/devcluster")


def test_state_of_a_user_is_in_the_home() -> None:
    assert state_root({"HOME": "/home/ann"}, is_root=False) == Path(
        "/home/ann/.local/state/llmservice/devcluster"
    )


def test_state_folder_can_be_chosen() -> None:
    assert state_root({"DEVCLUSTER_STATE": "/big/disk"}, is_root=True) == Path("/big/disk")
