"""The built-in scaling policy as an object: `python -m llmservice_operator.api.profiles` prints it."""

import sys

import yaml

from llmservice_operator.api.labels import API_VERSION, BALANCED_POLICY, POLICY_KIND
from llmservice_operator.api.scaling_policy import ScalingPolicySpec

_HEAD = """\
# Made by `python -m llmservice_operator.api.profiles`; not edited by hand.
# The built-in scaling policy with all that it says: an LLMService has it without this object. For one of your own, copy
# it under another name, keep the fields that you change, and name it in spec.scaling.policy: what is left out follows
# this policy through upgrades. `kubectl explain scalingpolicy.spec` tells what each field means.
"""


def render_balanced() -> str:
    """The policy `balanced` as YAML."""
    balanced = {
        "apiVersion": API_VERSION,
        "kind": POLICY_KIND,
        "metadata": {"name": BALANCED_POLICY},
        "spec": ScalingPolicySpec().model_dump(by_alias=True),
    }
    return _HEAD + yaml.safe_dump(balanced, sort_keys=False)


if __name__ == "__main__":
    sys.stdout.write(render_balanced())
