"""`spec.model`: what is served."""

import re
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from llmservice_operator.api.base import SpecModel
from llmservice_operator.api.markers import Matches, QuantityBetween, Rule, Satisfies, cel_string, rules, says
from llmservice_operator.api.names import AbsolutePath, ObjectName
from llmservice_operator.api.quantities import QUANTITY_MAX_LENGTH

URI_SCHEMES = ("hf", "pvc", "file")
URI_FORMS = {
    "hf": "^hf://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
    "pvc": "^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9._-]+)*/?$",
    "file": "^file://(/[A-Za-z0-9._-]+)+/?$",
}
URI_MEND = (
    "write hf://<organisation>/<name>, pvc://<claim>/<folder> or file:///<folder in the engine's image>"
)
_BUCKET_MEND = (
    "copy the model to a PersistentVolumeClaim and write pvc://<claim>/<folder>, or write "
    "hf://<organisation>/<name> or file:///<folder in the engine's image>"
)
_SCHEME = re.compile("^([A-Za-z0-9+.-]*)://")


def _uri_fault(uri: str) -> str | None:
    match = _SCHEME.match(uri)
    scheme = match.group(1) if match else ""
    if not scheme:
        return f"{uri[:64]!r} has no scheme; {URI_MEND}"
    if scheme not in URI_SCHEMES:
        return f"{uri[:64]!r} has the scheme {scheme}://, which is not served; {_BUCKET_MEND}"
    form = URI_FORMS[scheme].removeprefix("^").removesuffix("$")
    if re.fullmatch(form, uri) is None or ".." in uri.split("/"):
        return f"{uri[:64]!r} is no {scheme}:// address; {URI_MEND}"
    return None


_KNOWN_SCHEME = " || ".join(f"self.startsWith('{scheme}://')" for scheme in URI_SCHEMES)
_SCHEME_CEL = "self.substring(0, self.indexOf('://') + 3)"
_KNOWN_FORM = " || ".join(f"self.matches({cel_string(form)})" for form in URI_FORMS.values())

Uri = Annotated[
    str,
    Field(min_length=1, max_length=512),
    Satisfies(
        _uri_fault,
        (
            Rule(rule="self.indexOf('://') > 0", message=f"has no scheme; {URI_MEND}"),
            Rule(
                rule=f"self.indexOf('://') <= 0 || {_KNOWN_SCHEME}",
                message_expression=says(
                    f"has the scheme %s, which is not served; {_BUCKET_MEND}", _SCHEME_CEL
                ),
            ),
            Rule(
                rule=f"!({_KNOWN_SCHEME}) || (({_KNOWN_FORM}) && !self.split('/').exists(part, part == '..'))",
                message_expression=says(f"is no %s address; {URI_MEND}", _SCHEME_CEL),
            ),
        ),
    ),
]


class SecretKey(SpecModel):
    """One key of a Secret or ConfigMap in the service's namespace. The operator never reads a Secret."""

    name: ObjectName
    """Name of the Secret, or of the ConfigMap under configMapKeyRef."""
    key: str = Field(default="", max_length=253)
    """Key in it. Default under tokenSecret: token; under apiKeySecret: api-key. Required elsewhere."""


CacheSize = Annotated[str, Field(max_length=QUANTITY_MAX_LENGTH), QuantityBetween("1Gi", "64Ti")]
VolumeSize = Annotated[str, Field(max_length=QUANTITY_MAX_LENGTH), QuantityBetween("1Mi", "64Ti")]


class CacheCreate(SpecModel):
    """A PersistentVolumeClaim, `<service>-cache`, that is made for the service and deleted with it."""

    size: CacheSize
    """Size of the volume, from 1Gi to 64Ti. Twice the weights is enough. Example: 100Gi."""
    storage_class_name: ObjectName | None = None
    """Storage class. Default: the cluster's own."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = "ReadWriteOnce"
    """ReadWriteMany lets replicas on several nodes share the cache; ReadWriteOnce holds them on one node."""


class CacheEmptyDir(SpecModel):
    """A volume that lives as long as its pod."""

    size_limit: VolumeSize
    """Largest size, from 1Mi to 64Ti; the pod is evicted beyond it. Example: 50Gi."""


_CACHE_KINDS = ("claim", "create", "emptyDir", "hostPath")
_CACHE_MEND = "set exactly one of claim, create, emptyDir and hostPath"


class Cache(SpecModel):
    """Where downloaded weights and compiled kernels are kept. Exactly one of the fields is set."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule=f"[{', '.join(f'has(self.{kind})' for kind in _CACHE_KINDS)}].filter(each, each).size() == 1",
                message=_CACHE_MEND,
            )
        )
    )

    claim: ObjectName | None = None
    """A PersistentVolumeClaim that exists in the service's namespace."""
    create: CacheCreate | None = None
    """A PersistentVolumeClaim that is made for the service and deleted with it."""
    empty_dir: CacheEmptyDir | None = None
    """A volume that lives as long as its pod: every new pod downloads again."""
    host_path: AbsolutePath | None = None
    """A folder of the node, under a path that the operator's settings allow (none by default)."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(each is not None for each in (self.claim, self.create, self.empty_dir, self.host_path)) != 1:
            raise ValueError(_CACHE_MEND)
        return self


_REVISION_MEND = "is for hf:// addresses only, since others have no revisions; leave it out"
_TOKEN_MEND = "is for hf:// addresses only, since others need no hub; leave it out"  # noqa: S105 - words


class Model(SpecModel):
    """The model: where it comes from, and the name it answers to."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                rule="self.uri.startsWith('hf://') || self.revision == 'main'",
                message=_REVISION_MEND,
                field_path=".revision",
            ),
            Rule(
                rule="self.uri.startsWith('hf://') || !has(self.tokenSecret)",
                message=_TOKEN_MEND,
                field_path=".tokenSecret",
            ),
        )
    )

    uri: Uri
    """Where the model is. hf://<organisation>/<name> is read from the hub by the engine; pvc://<claim>/<folder> from
    a PersistentVolumeClaim in the service's namespace, mounted read-only; file:///<folder> from the engine's image.
    Example: hf://Qwen/Qwen3-8B."""
    revision: Annotated[
        str,
        Field(min_length=1, max_length=128),
        Matches("^[A-Za-z0-9][A-Za-z0-9._/-]*$", "must be a branch, a tag or a commit, such as main"),
    ] = "main"
    """Branch, tag or commit on the hub; it is resolved to a commit when the service is planned, and held there."""
    served_name: (
        Annotated[
            str,
            Field(min_length=1, max_length=128),
            Matches(
                "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$", "must be a model's name, such as qwen3-8b or Qwen/Qwen3-8B"
            ),
        ]
        | None
    ) = None
    """The model's name in requests. Default: the service's name."""
    config_map: ObjectName | None = None
    """A ConfigMap in the service's namespace with the model's config.json under that key, and hf_quant_config.json
    where the model has one. With it no hub is asked for sizing."""
    token_secret: SecretKey | None = None
    """The hub's token, for hf:// only. It reaches the engine's pod; the operator never reads it."""
    cache: Cache | None = None
    """Where downloaded weights and compiled kernels are kept. Default: a volume that lives as long as its pod."""

    @model_validator(mode="after")
    def _hub_only(self) -> Self:
        if not self.uri.startswith("hf://"):
            if self.revision != "main":
                raise ValueError(f"revision {_REVISION_MEND}")
            if self.token_secret is not None:
                raise ValueError(f"tokenSecret {_TOKEN_MEND}")
        return self
