"""The model hub: what planning needs to know of a checkpoint, without reading its weights.

The hub's address and the one token come from the operator's settings only: an LLMService can neither send the
operator to another host nor make it show the token to one.
"""

import asyncio
import contextlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

import httpx

from llmservice_operator.clients.hub_headers import read_checkpoint
from llmservice_operator.errors import LLMServiceError
from llmservice_operator.perfmodel.checkpoint import (
    INDEX_NAME,
    Checkpoint,
    CheckpointError,
    index_total,
    weight_files,
)

_MAX_CONFIG_BYTES = 4 * 1024 * 1024
_MAX_INDEX_BYTES = 16 * 1024 * 1024
"""The largest index known (DeepSeek-R1's) has 9 MB; reading JSON stops the whole operator for that long."""
_MAX_WEIGHTS_BYTES = 1 << 50
_INDEX_TOLERANCE = 0.001
"""An index that is made by hand counts a tied head twice at most; by more than this it speaks of other files."""
_REPOSITORY = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$")
_REVISION = re.compile(r"^[\w][\w./-]{0,199}$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """A checkpoint on the hub at one commit."""

    repository: str
    commit: str
    config: Mapping[str, Any]
    """config.json; hf_quant_config.json stands under `quantization_config` where the config has none."""
    weights_bytes: int | None
    """Bytes of the checkpoint's safetensors; None where it has none."""
    checkpoint: Checkpoint | None = None
    """What the headers of its safetensors files list, where all of them could be read."""
    weights_problem: str = ""
    """Why `weights_bytes` is less sure than it could be. Without a checkpoint it is asked for again after a while."""


class ModelHubError(LLMServiceError):
    """The hub gave no model. `reason` is a condition's reason; `permanent` tells "cannot" from "not now"."""

    def __init__(self, reason: str, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.permanent = permanent

    def again(self) -> "ModelHubError":
        """The same without its traceback, which holds all that was read; one that is kept must not."""
        return ModelHubError(self.reason, self.message, permanent=self.permanent)


class ModelHub(Protocol):
    """Reads checkpoints' descriptions."""

    async def model(self, repository: str, revision: str) -> HubModel:
        """The checkpoint `org/name` at a branch, tag or commit.

        Raises ModelHubError: ModelNotFound, ModelAccessDenied, ModelInvalid, or HubUnavailable.
        """


class HttpModelHub:
    """ModelHub over httpx, in the layout of the Hugging Face hub's API.

    Answers are kept: a commit's for ever, or for `unsure_ttl_seconds` where the weights' headers could not be read
    (a network may let the hub through and not its storage), a branch's for `branch_ttl_seconds`, a no for
    `refusal_ttl_seconds`, at most `max_entries` in all. Many who ask for the same model at once wait for one answer.
    """

    def __init__(
        self,
        *,
        endpoint: str,
        token: str | None,
        monotonic: Callable[[], float],
        timeout_seconds: float = 10.0,
        file_timeout_seconds: float = 60.0,
        headers_timeout_seconds: float = 20.0,
        branch_ttl_seconds: float = 300.0,
        refusal_ttl_seconds: float = 15.0,
        unsure_ttl_seconds: float = 3600.0,
        max_entries: int = 256,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._host = urlsplit(self._endpoint).netloc
        self._file_timeout_seconds = file_timeout_seconds
        self._headers_timeout_seconds = headers_timeout_seconds
        self._token = token
        self._monotonic = monotonic
        self._branch_ttl_seconds = branch_ttl_seconds
        self._refusal_ttl_seconds = refusal_ttl_seconds
        self._unsure_ttl_seconds = unsure_ttl_seconds
        self._max_entries = max_entries
        self._answers: OrderedDict[tuple[str, str], tuple[float, HubModel | ModelHubError]] = OrderedDict()
        self._asking: dict[tuple[str, str], asyncio.Lock] = {}
        self._http = httpx.AsyncClient(timeout=timeout_seconds, transport=transport, follow_redirects=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def model(self, repository: str, revision: str) -> HubModel:
        """See ModelHub.model."""
        if not _REPOSITORY.match(repository):
            raise ModelHubError(
                "ModelNotFound",
                f'"{repository}" is no model name; expected hf://<organisation>/<name>',
                permanent=True,
            )
        if not _REVISION.match(revision) or ".." in revision:
            raise ModelHubError(
                "ModelNotFound",
                f'spec.model.revision "{revision}" is no branch, tag or commit',
                permanent=True,
            )
        key = (repository, revision)
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:
            answer = self._known(key)
            if answer is None:
                answer = await self._ask(repository, revision)
                if isinstance(answer, HubModel):
                    # A service asks for the commit from its second look on.
                    self._answers[repository, answer.commit] = (self._monotonic(), answer)
                self._answers[key] = (self._monotonic(), answer)
            self._answers.move_to_end(key)
        self._forget_oldest()
        if isinstance(answer, ModelHubError):
            raise answer.again()
        return answer

    def _known(self, key: tuple[str, str]) -> HubModel | ModelHubError | None:
        """The answer that is kept, while it is fresh enough."""
        kept = self._answers.get(key)
        if kept is None:
            return None
        age_seconds = self._monotonic() - kept[0]
        if isinstance(kept[1], ModelHubError):
            return kept[1] if age_seconds < self._refusal_ttl_seconds else None
        if _COMMIT.match(key[1]) is None:
            return kept[1] if age_seconds < self._branch_ttl_seconds else None
        unsure = kept[1].checkpoint is None and kept[1].weights_problem
        return kept[1] if not unsure or age_seconds < self._unsure_ttl_seconds else None

    def _forget_oldest(self) -> None:
        while len(self._answers) > self._max_entries:
            key, _ = self._answers.popitem(last=False)
            lock = self._asking.get(key)
            if lock is not None and not lock.locked():
                del self._asking[key]

    async def _ask(self, repository: str, revision: str) -> HubModel | ModelHubError:
        try:
            return await self._read(repository, revision)
        except ModelHubError as error:
            return error.again()

    async def _read(self, repository: str, revision: str) -> HubModel:
        name = f"{repository}@{revision}"
        described = await self._json(
            f"/api/models/{repository}/revision/{quote(revision, safe='')}",
            name,
            _MAX_INDEX_BYTES,
            blobs=True,
        )
        if described is None:
            raise ModelHubError(
                "ModelNotFound",
                f"the hub {self._host} has no {name}; correct spec.model.uri or spec.model.revision",
                permanent=True,
            )
        commit = described.get("sha")
        if not isinstance(commit, str) or not _COMMIT.match(commit):
            raise ModelHubError(
                "HubUnavailable", f"the hub {self._host} named no commit for {name}", permanent=False
            )
        known = self._known((repository, commit))
        if isinstance(known, HubModel):
            return known  # the branch stands where it stood
        sizes = _file_sizes(described.get("siblings"))
        config = await self._file(repository, commit, "config.json", _MAX_CONFIG_BYTES)
        if config is None:
            raise ModelHubError(
                "ModelInvalid",
                f"{name} has no config.json, so its memory cannot be known; "
                "put one in a ConfigMap and name it in spec.model.configMap",
                permanent=True,
            )
        if "quantization_config" not in config and "hf_quant_config.json" in sizes:
            quantization = await self._file(repository, commit, "hf_quant_config.json", _MAX_CONFIG_BYTES)
            if quantization is not None:
                config = {**config, "quantization_config": quantization}
        weights_bytes, checkpoint, problem = await self._weights(repository, commit, sizes, config)
        return HubModel(
            repository=repository,
            commit=commit,
            config=config,
            weights_bytes=weights_bytes,
            checkpoint=checkpoint,
            weights_problem=problem,
        )

    async def _weights(
        self, repository: str, commit: str, sizes: Mapping[str, int | None], config: Mapping[str, Any]
    ) -> tuple[int | None, Checkpoint | None, str]:
        """Bytes of the weights, the tensors that they are made of, and what stands against either.

        The files' headers are exact; else what the index says counts, else the files' sizes.
        """
        index = None
        if INDEX_NAME in sizes:
            # One that is too long or no JSON is no reason to know nothing of the model.
            with contextlib.suppress(ModelHubError):
                index = await self._file(repository, commit, INDEX_NAME, _MAX_INDEX_BYTES)
        files = weight_files(sizes, index)
        checkpoint, problem = await read_checkpoint(
            partial(self._first_bytes, f"{repository}/resolve/{commit}"),
            files,
            sizes,
            config,
            timeout_seconds=self._headers_timeout_seconds,
        )
        told = index_total(index)
        if checkpoint is not None:
            exact = checkpoint.total_bytes
            if told is not None and abs(told - exact) > _INDEX_TOLERANCE * exact:
                problem = f"{INDEX_NAME} tells of {told:,} bytes, and the headers of the files of {exact:,}"
            return exact, checkpoint, problem
        by_size = [sizes.get(name) for name in files]
        whole = sum(size for size in by_size if size) if by_size and None not in by_size else None
        return told or whole, None, problem

    async def _first_bytes(self, path: str, name: str, count: int) -> bytes:
        body = await self._get(f"{self._endpoint}/{path}/{quote(name)}", name, count, part=True)
        if body is None:
            raise CheckpointError("it is in the hub's list and not there")
        return body

    async def _file(self, repository: str, commit: str, path: str, limit: int) -> dict[str, Any] | None:
        return await self._json(f"/{repository}/resolve/{commit}/{path}", f"{repository}/{path}", limit)

    async def _json(self, path: str, name: str, limit: int, *, blobs: bool = False) -> dict[str, Any] | None:
        """The JSON object at this path of the hub; None when there is none (404)."""
        url = self._endpoint + path + ("?blobs=true" if blobs else "")
        body = await self._get(url, name, limit)
        if body is None:
            return None
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise ModelHubError(
                "ModelInvalid", f"{name} on {self._host} is not a JSON object", permanent=True
            )
        return data

    async def _get(self, url: str, name: str, limit: int, *, part: bool = False) -> bytes | None:
        """The page; a hub that goes on for ever, a few bytes at a time, is given up too.

        With `part` no more than the first `limit` bytes, which may be less than all.
        """
        try:
            async with asyncio.timeout(self._file_timeout_seconds):
                return await self._follow(url, name, limit, part=part)
        except TimeoutError as error:
            raise ModelHubError(
                "HubUnavailable",
                f"the hub {self._host} did not send {name} within {self._file_timeout_seconds:g} s",
                permanent=False,
            ) from error

    async def _follow(self, url: str, name: str, limit: int, *, part: bool) -> bytes | None:
        for _redirect in range(4):
            # The token is shown to the configured hub alone, also when it sends us to its storage.
            at_hub = url.startswith(f"{self._endpoint}/")
            token = {"Authorization": f"Bearer {self._token}"} if self._token and at_hub else {}
            # A few packed bytes can be gigabytes.
            headers = {"Accept-Encoding": "identity", **token}
            if part:
                headers["Range"] = f"bytes=0-{limit - 1}"
            try:
                async with self._http.stream("GET", url, headers=headers) as response:
                    location = response.headers.get("location")
                    if response.is_redirect and location:
                        url = str(httpx.URL(url).join(location))
                        continue
                    if response.status_code == 404:
                        return None
                    # Who does not know ranges sends the whole with 200: it is left after the first bytes.
                    self._raise_for(
                        200 if part and response.status_code == 206 else response.status_code, name
                    )
                    return await _read_at_most(response, limit, name, part=part)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                words = str(error) or type(error).__name__
                raise ModelHubError(
                    "HubUnavailable", f"the hub {self._host} did not answer: {words}", permanent=False
                ) from error
        raise ModelHubError("HubUnavailable", f"the hub {self._host} redirects in circles", permanent=False)

    def _raise_for(self, status: int, name: str) -> None:
        if status in (401, 403):
            shown = (
                "the operator's hub token has no access" if self._token else "the operator has no hub token"
            )
            raise ModelHubError(
                "ModelAccessDenied",
                f"the hub {self._host} refuses {name} ({status}): it is gated, private or not there, "
                f"and {shown}; give it a token with access, or put config.json in a ConfigMap and name it in "
                "spec.model.configMap",
                permanent=False,
            )
        if status != 200:
            raise ModelHubError(
                "HubUnavailable", f"the hub {self._host} answered {status} for {name}", permanent=False
            )


async def _read_at_most(response: httpx.Response, limit: int, name: str, *, part: bool) -> bytes:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ModelHubError(
            "HubUnavailable",
            f"the hub sent {name} packed ({encoding[:64]}), though it was asked not to",
            permanent=False,
        )
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if part and len(body) >= limit:
            return bytes(body[:limit])
        if len(body) > limit:
            raise ModelHubError("ModelInvalid", f"{name} is larger than {limit} bytes", permanent=True)
    return bytes(body)


def _file_sizes(siblings: Any) -> dict[str, int | None]:
    rows = siblings if isinstance(siblings, list) else []
    return {
        row["rfilename"]: _size(row.get("size"))
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("rfilename"), str)
    }


def _size(value: Any) -> int | None:
    """A size in bytes, if it is one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value < _MAX_WEIGHTS_BYTES else None
