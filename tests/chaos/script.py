"""What users do in a chaos run: creations, updates, scalings and deletions of 20 services, by a seed."""

import random
from dataclasses import dataclass
from typing import Any

import running
from devcluster.api import Api, ApiError

SERVICES = 20
DELETED = 8
MADE_AGAIN = 3
MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Step:
    """One thing that a user does to one service."""

    verb: str
    """`create`, `patch` or `delete`."""
    name: str
    spec: dict[str, Any]

    def do(self, api: Api, namespace: str) -> None:
        """Do it; what has been done already is no error."""
        path = running.services_path(namespace)
        if self.verb == "create":
            api.request("POST", path, running.service_manifest(self.name, **self.spec))
        elif self.verb == "patch":
            api.request("PATCH", f"{path}/{self.name}", {"spec": self.spec}, content_type=MERGE)
        else:
            try:
                api.request("DELETE", f"{path}/{self.name}")
            except ApiError as error:
                if error.status != 404:
                    raise


def make_script(seed: int, *, changes: int) -> list[Step]:
    """The steps, in an order in which each service is created before it is changed, and deleted last."""
    chance = random.Random(seed)
    names = [f"s{number:02d}" for number in range(SERVICES)]
    deleted = chance.sample(names, DELETED)
    again = chance.sample(deleted, MADE_AGAIN)
    lives = {}
    for name in names:
        life = [Step("create", name, {"replicas": chance.choice((0, 0, 1))})]
        life += [Step("patch", name, _change(chance)) for _ in range(changes)]
        if name in deleted:
            life.append(Step("delete", name, {}))
        if name in again:
            life.append(Step("create", name, {"replicas": chance.choice((0, 1))}))
        lives[name] = life
    steps = []
    while lives:
        name = chance.choice(sorted(lives))
        steps.append(lives[name].pop(0))
        if not lives[name]:
            del lives[name]
    return steps


def _change(chance: random.Random) -> dict[str, Any]:
    changes: list[dict[str, Any]] = [
        {"replicas": chance.choice((0, 1, 2, 3))},
        {"workload": {"context": {"max": chance.choice((1024, 2048, 4096))}}},
        {"service": {"port": chance.choice((8000, 9000))}},
        {"podTemplate": {"labels": {"team": chance.choice("abc")}}},
        {"engine": {"pin": {"maxNumSeqs": chance.choice((8, 16, 32))}}},
    ]
    return chance.choice(changes)
