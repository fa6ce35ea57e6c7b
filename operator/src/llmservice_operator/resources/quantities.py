"""Memory as Kubernetes writes it."""

MEBIBYTE = 1024**2


def format_memory(size_bytes: int) -> str:
    """The quantity for a number of bytes, rounded up to a whole MiB, in the API server's canonical form."""
    mebibytes = -(-size_bytes // MEBIBYTE)
    if mebibytes and mebibytes % 1024 == 0:
        return f"{mebibytes // 1024}Gi"
    return f"{mebibytes}Mi"
