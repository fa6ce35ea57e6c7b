"""Where the API server is and who we are: read from the pod's service account or from a kubeconfig.

`kubernetes.aio.config` does the reading. Its typed APIs are never touched: they cost 100 MB of memory.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from llmservice_operator.api import labels
from llmservice_operator.errors import InvalidInputError

MAX_LINE_BYTES = 2**22
"""One watch event is one line; etcd's limit of an object is 1.5 MiB."""


class KubeConnection:
    """Makes sessions that are already logged in. The token is read again as it rotates."""

    def __init__(self, configuration: Configuration, reload: Callable[[], Any]) -> None:
        self._configuration = configuration
        self._reload = reload
        self._reloading = asyncio.Lock()
        self.server: str = configuration.host.rstrip("/")
        self._ssl: ssl.SSLContext = RESTClientObject(configuration).ssl_context

    @classmethod
    async def open(cls, *, kubeconfig: str, in_cluster: bool) -> "KubeConnection":
        """From the pod's service account, or from a kubeconfig (empty: the default path).

        InvalidInputError tells what is missing.
        """
        configuration = Configuration()
        configuration.retries = None

        async def load() -> None:
            if in_cluster:
                load_incluster_config(client_configuration=configuration)
            else:
                await load_kube_config(
                    config_file=kubeconfig or None, client_configuration=configuration, persist_config=False
                )

        try:
            await load()
        except (ConfigException, OSError) as e:
            where = (
                "the pod's service account" if in_cluster else f"kubeconfig {kubeconfig or '~/.kube/config'}"
            )
            raise InvalidInputError(f"{where} gives no way to an API server: {e}; set KUBECONFIG") from e
        return cls(configuration, load)

    async def authorization(self) -> str | None:
        """The value of the Authorization header now."""
        value: str | None = await self._configuration.get_api_key_with_prefix("BearerToken")
        if value is None and self._configuration.username:
            value = self._configuration.get_basic_auth_token()
        return value

    async def reload(self) -> None:
        """Read the credentials again, after they were refused (an exec plugin's token has expired)."""
        async with self._reloading:
            await self._reload()

    def session(self, limit: int) -> aiohttp.ClientSession:
        """A session that adds our user agent and today's credentials to each request."""

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            value = await self.authorization()
            if value:
                request.headers["Authorization"] = value
            return await handler(request)

        secure = self.server.startswith("https")
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, ssl=self._ssl if secure else True),
            # Compressing large lists costs both sides more than the local network does.
            headers={"User-Agent": labels.FIELD_MANAGER, "Accept-Encoding": "identity"},
            middlewares=(authorize,),
            proxy=self._configuration.proxy,
            read_bufsize=MAX_LINE_BYTES,
        )
