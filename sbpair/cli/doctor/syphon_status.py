"""Is the syphon alive? Asked at its own status page (`sbpair syphon --status-port`)."""

from __future__ import annotations

from .facts import SyphonSeen

TIMEOUT = 5.0  # seconds
LARGEST = 1_048_576  # bytes of an answer


async def asked(url: str) -> SyphonSeen:
    """What the syphon says of itself. Never raises: who does not answer is a finding."""
    import httpx

    page = url.rstrip("/")
    page = page if page.endswith("/state") else f"{page}/state"
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT, follow_redirects=False) as client:
            answer = await client.get(page)
            said = answer.json() if answer.status_code == 200 and len(answer.content) <= LARGEST else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return SyphonSeen(trouble=f"{page}: {str(error) or type(error).__name__}")
    if not isinstance(said, dict) or said.get("role") != "syphon":
        return SyphonSeen(trouble=f"{page} is not the status page of a syphon (status {answer.status_code})")
    backlogs = said.get("backlogs")
    return SyphonSeen(
        state=str(said.get("state")),
        reason=str(said["reason"]) if said.get("reason") else None,
        backlogs=tuple(map(str, backlogs)) if isinstance(backlogs, list) else (),
    )
