"""The command: up, down, status, images load, kubeconfig, build, path."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from devcluster.binaries import PROGRAMS, Binaries
from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.layout import GPU_TYPES, current_state_root
from devcluster.light import LightCluster, say_on_stderr
from devcluster.state import Registry


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="devcluster", description="A real Kubernetes on this machine.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    up = command("up", "Start a cluster, or what is missing of it; changes nothing on a healthy one.", _up)
    _name(up)
    up.add_argument("--nodes", type=int, default=1, help="number of nodes (default 1)")
    up.add_argument("--gpus", type=int, default=0, help="accelerators that each node advertises (default 0)")
    up.add_argument("--gpu-type", default="nvidia-h200", help=f"one of: {', '.join(GPU_TYPES)}")
    up.add_argument(
        "--network-policies", action="store_true", help="hold pods' traffic to NetworkPolicies (kube-router)"
    )
    up.add_argument("--light", action="store_true", help="only etcd and the API server; needs no root")

    down = command("down", "End a cluster and remove all its data.", _down)
    _name(down)
    down.add_argument("--all", action="store_true", help="all clusters of this machine")
    down.add_argument("--orphans", action="store_true", help="those that killed test runs left")

    _name(command("status", "Tell how each component and node is.", _status))
    _name(command("kubeconfig", "Print the path of the administrator's kubeconfig.", _kubeconfig))

    images = command("images", "Work with images.", _load)
    load = images.add_subparsers(dest="images_command", required=True).add_parser(
        "load", help="import an archive"
    )
    load.add_argument("archive", type=Path)
    load.add_argument("--node", help="only this node (default: all)")
    _name(load)

    command("build", "Build the programs that are missing, and nothing else.", _build)
    path = command("path", "Print the path of a built program, such as kubectl or helm.", _path)
    path.add_argument("program", choices=[program.name for program in PROGRAMS])
    return top


def _name(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--name", help="the cluster's name (default: dev, or light with --light)")


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code. An error is one message on stderr, never a traceback."""
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except DevclusterError as error:
        say_on_stderr(f"devcluster: {error}")
        return 1
    except KeyboardInterrupt:
        say_on_stderr("devcluster: interrupted; the same command goes on where it was")
        return 130


def _find(name: str | None) -> LightCluster:
    """The cluster of that name as it was made."""
    chosen = name or "dev"
    spec = Registry(current_state_root()).find(chosen)
    if spec is None:
        known = ", ".join(spec.name for spec in Registry(current_state_root()).all()) or "none"
        raise DevclusterError(
            f"there is no cluster {chosen!r} (clusters: {known}); make it with `devcluster up`"
        )
    return LightCluster(chosen) if spec.light else Cluster.existing(chosen)


def _up(options: argparse.Namespace) -> int:
    cluster: LightCluster
    if options.light:
        cluster = LightCluster(options.name or "light")
    else:
        cluster = Cluster(
            options.name or "dev",
            nodes=options.nodes,
            gpus=options.gpus,
            gpu_type=options.gpu_type,
            network_policies=options.network_policies,
        )
    cluster.up()
    for label, seconds in cluster.timings.items():
        say_on_stderr(f"  {label:<16} {seconds:6.2f} s")
    say_on_stderr(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _down(options: argparse.Namespace) -> int:
    registry = Registry(current_state_root())
    if options.all or options.orphans:
        names = [spec.name for spec in (registry.all() if options.all else registry.orphans())]
    else:
        names = [options.name or "dev"]
    for name in names:
        LightCluster(name).down()
    return 0


def _status(options: argparse.Namespace) -> int:
    cluster = _find(options.name)
    answers = cluster.status()
    for name, state in answers.items():
        print(f"{name:<28} {state}")
    if answers["kube-apiserver"] == "running" and isinstance(cluster, Cluster):
        print(cluster.kubectl("get", "nodes", "-o", "wide"), end="")
    print(f"kubeconfig: {cluster.kubeconfig}")
    return 0 if set(answers.values()) == {"running"} else 1


def _kubeconfig(options: argparse.Namespace) -> int:
    print(_find(options.name).kubeconfig)
    return 0


def _load(options: argparse.Namespace) -> int:
    cluster = _find(options.name)
    if not isinstance(cluster, Cluster):
        raise DevclusterError(
            f"cluster {cluster.name!r} is the light form and has no nodes to load images into"
        )
    print(cluster.load_image(options.archive, node=options.node))
    return 0


def _build(_options: argparse.Namespace) -> int:
    Binaries(say=say_on_stderr).ensure()
    return 0


def _path(options: argparse.Namespace) -> int:
    binaries = Binaries(say=say_on_stderr)
    binaries.ensure((options.program,))
    print(binaries.path(options.program))
    return 0
