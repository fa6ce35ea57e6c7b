"""GETs over aiohttp that take no more in than they may, from servers that may be slow, lie, or never end."""

from collections.abc import Mapping

import aiohttp

from llmservice_operator.errors import UnavailableError


async def bounded_get(
    session: aiohttp.ClientSession,
    url: str,
    *,
    name: str,
    most_bytes: int,
    error: type[UnavailableError],
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The body that a server answers; no more of it is taken in than `most_bytes`, and no redirect is followed.

    `name` is what the server is called in messages. Raises `error` for another status than 200 and a longer body, and,
    with its cause, for whatever goes wrong underneath.
    """
    try:
        # A redirect would carry headers, such as a token, to wherever it points.
        async with session.get(url, params=params, headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise error(f"{name} answered {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > most_bytes:
                    raise error(f"{name}: the answer is longer than {most_bytes} bytes")
    except (TimeoutError, aiohttp.ClientError, OSError) as cause:
        raise error(f"{name}: {str(cause) or type(cause).__name__}") from cause
    return bytes(body)
