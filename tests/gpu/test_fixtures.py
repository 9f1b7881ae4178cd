"""Every example in `fixtures/` on a GPU: bad ones fail or are wrong at replay, as they say; good ones agree with eager.

    python -m pytest -m gpu tests/gpu [--evidence rules/evidence]

run_fixtures.py does the same without pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from run_fixtures import Result, all_examples, name_of, running, write_evidence

EXAMPLES = all_examples()


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[dict[Path, Future[Result]]]:
    """Those examples whose tests were asked for, run side by side; the table of all, where that was asked for."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    chosen = [item.callspec.params["example"] for item in items]
    table = request.config.getoption("--evidence")
    if table and set(chosen) != set(EXAMPLES):
        pytest.fail("--evidence writes a whole table: run all examples")
    with running(chosen) as futures:
        yield futures
        if table:
            write_evidence([future.result() for future in futures.values()], table)


@pytest.mark.gpu
@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_example_on_the_gpu(example: Path, results: dict[Path, Future[Result]]) -> None:
    result = results[example].result()
    assert result.outcome.outcome == result.wanted, str(result)
