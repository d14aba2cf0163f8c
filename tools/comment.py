"""Writes a file as a comment of the job's pull request: the same comment at every push.

    TOKEN=… python tools/comment.py NAME FILE

NAME tells this comment from those of other jobs. Where the token may not comment, as in a pull
request from a fork, one line says so and the status is 0: the job's summary has the text.

Runs in any job: the standard library alone, and the variables that GitHub sets.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# What a comment holds, in characters; a longer one is refused.
LONGEST = 65_536
_PAGE = 100
_CUT = "\n\n(cut here; the job's artifact has the whole of it)\n"


class Api:
    """The comments of one pull request."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read where the job runs.

        Raises:
            KeyError: the job is not one of a pull request.
        """
        event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text())
        self._repository = (
            f"{environment['GITHUB_API_URL']}/repos/{environment['GITHUB_REPOSITORY']}/issues"
        )
        self._comments = f"{self._repository}/{event['pull_request']['number']}/comments"
        self._token = environment["TOKEN"]

    def write(self, name: str, text: str) -> str:
        """Write the comment of that name, over the earlier one; return its address.

        Raises:
            OSError: it cannot be written.
        """
        mark = f"<!-- llgbench: {name} -->"
        body = f"{mark}\n{text}"
        if len(body) > LONGEST:
            body = body[: LONGEST - len(_CUT)] + _CUT
        ours = (c["id"] for c in self._all() if c["body"].startswith(mark))
        earlier = next(ours, None)
        if earlier is None:
            written = self._ask("POST", self._comments, {"body": body})
        else:
            written = self._ask("PATCH", f"{self._repository}/comments/{earlier}", {"body": body})
        return str(written["html_url"])

    def _all(self) -> Iterator[dict[str, Any]]:
        page: list[dict[str, Any]] = [{}] * _PAGE
        number = 0
        while len(page) == _PAGE:
            number += 1
            page = self._ask("GET", f"{self._comments}?per_page={_PAGE}&page={number}")
            yield from page

    def _ask(self, method: str, url: str, content: object = None) -> Any:
        request = urllib.request.Request(
            url,
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


def main() -> None:
    """Run the command."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    name, file = sys.argv[1:]
    text = Path(file).read_text()
    try:
        print(Api(os.environ).write(name, text))
    except KeyError as error:
        print(f"::notice::No comment: the job has no {error.args[0]}; its summary has the text.")
    except urllib.error.HTTPError as error:
        why = "the token may not" if error.code in (401, 403, 404) else str(error)
        print(f"::notice::No comment: {why}; the job's summary has the text.")
    except OSError as error:
        print(f"::warning::No comment: {error}; the job's summary has the text.")


if __name__ == "__main__":
    main()
