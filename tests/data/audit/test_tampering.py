"""A file that is tampered with makes no red audit green, and no green one that lacks something: the short form.

All cases, on this machine and on Spark: ``python -m tests.trials.tampering``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sbpair.audit import LocalEngine, audit
from sbpair.data.audit import job
from tests.data.audit.tampering import FILES, STORIES, TAMPERINGS, Case, Told, tampered, told, what_is_wrong


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    return {story: told(story, tmp_path_factory.mktemp("told") / "journals") for story in STORIES}


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time, and nothing here is about them."""
    monkeypatch.setattr(job, "page", lambda *given: "")


@pytest.mark.spec("R-141")
def test_exactly_one_of_the_stories_is_green(originals: dict[str, Told], tmp_path: Path) -> None:
    green = {
        story for story, each in originals.items() if audit(each.directory, tmp_path / "out").is_conserved
    }
    assert green == {"healthy"}


@pytest.mark.spec("R-141")
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_no_tampered_file_makes_an_audit_green(
    originals: dict[str, Told], tmp_path: Path, tampering: str
) -> None:
    stories = list(STORIES)
    begin = list(TAMPERINGS).index(tampering)
    for number, file in enumerate(FILES):
        for story in {"healthy", stories[(begin + number) % len(stories)]}:
            case = Case(story, file, tampering, seed=1)
            journals = tmp_path / f"{number} {story}"
            expected = tampered(case, originals[story], journals)
            summary = audit(journals, tmp_path / "out", expected=expected, engine=LocalEngine(1))
            wrong = what_is_wrong(case, originals[story], summary)
            assert wrong is None, f"{case}: {wrong}"
