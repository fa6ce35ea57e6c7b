"""The rights that the security page tells are those that the chart gives."""

import re
from typing import Any

from integration.chart.releases import NAME, ROOT, of_kind, render

PAGE = ROOT / "operator" / "docs" / "security.md"
ROW = re.compile(
    r"^\| `(?P<group>[a-z0-9.]+)` \| (?P<resources>[^|]+) \| (?P<verbs>[a-z, ]+) \| [^|]+ \|$", re.MULTILINE
)

Rights = set[tuple[str, str, str]]


def documented() -> Rights:
    """(group, resource, verb) of every row of the page's tables of rights."""
    return {
        (row["group"], resource, verb)
        for row in ROW.finditer(PAGE.read_text())
        for resource in re.findall(r"`([^`]+)`", row["resources"])
        for verb in row["verbs"].split(", ")
    }


def given(rules: list[dict[str, Any]]) -> Rights:
    """The same of rules of RBAC."""
    return {
        (group or "core", resource, verb.strip())
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_page_tells_all_rights_and_no_others() -> None:
    (role,) = (each for each in of_kind(render(), "ClusterRole") if each["metadata"]["name"] == NAME)

    assert documented() == given(role["rules"])
