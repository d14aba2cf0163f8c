"""The benchmark of the benchmark: are the verdicts of ``llgbench compare`` right?

    python tools/proof.py aa --trials 100 --budget 60      no difference: how many false verdicts?
    python tools/proof.py clock --trials 20 --budget 300   5% slower masks: found by the clock?
    python tools/proof.py count --trials 10 --budget 5     1% more instructions: found by --count?
    python tools/proof.py spike --trials 10 --budget 300   a spike in 1 of 500 steps: found?

Each trial prints a line of JSON and is appended to --output, so that trials of several sittings
add up; ``summary FILE`` counts them. docs/method.md has the figures and says where they were made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

# How the planted engine is set for each proof; the cases of each, those of the quick profile where
# none are given. "add" is by how much the mean TBM grows, counted in instructions. A spike that
# moves the mean by less than 1% is at most five mean steps long; it stands out where no step of the
# engine's own is, and arithmetic's dearest is twice its mean.
# A proof with several settings takes them in turn, one a trial: a count repeats itself to the
# instruction, so each of its trials plants something else.
PROOFS: dict[str, list[dict[str, Any]]] = {
    "aa": [{"planted": None}],
    "clock": [{"planted": {"PLANTED_SCALE": "5"}, "vocab": "llama-bpe",
               "cases": ("json-tool-call", "json-nested", "github-workflow")}],
    "spike": [{"planted": {"PLANTED_SHARE": "500"}, "cases": ("arithmetic",), "add": 0.008}],
    "count": [
        {"planted": {"PLANTED_IN": call, "PLANTED_SHARE": "1"}, "cases": (case,), "add": 0.01}
        for call in ("mask", "consume")
        for case in ("json-tool-call", "json-nested", "github-workflow", "large-enum", "arithmetic")
    ],
}  # fmt: skip


def metric_of(setting: dict[str, Any]) -> str:
    """Return the metric that the plant of a setting moves."""
    return "consume" if setting["planted"].get("PLANTED_IN") == "consume" else "TBM mean"


def planted(base: Path, folder: Path) -> Path:
    """Build the planted engine around a library."""
    out = folder / "planted.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", f'-DENGINE="{base}"', "-o", str(out),
         str(HERE / "planted" / "planted.c"), "-ldl"],
        check=True,
    )  # fmt: skip
    return out


def compare(base: str, head: str | None, setting: dict[str, Any], budget: float,
            extra: dict[str, str], out: Path, *, count: bool) -> dict[str, Any]:  # fmt: skip
    """Run one comparison as a user would; return its JSON with its exit status."""
    command = [sys.executable, "-m", "llgbench.commands.cli", "compare", base]
    command += [head] if head is not None else ["--self"]
    for case in setting.get("cases", ()):
        command += ["--case", case]
    command += ["--vocab", setting.get("vocab", "llama-spm")]
    command += ["--budget", str(budget), "--output", str(out), "--json"]
    if count:
        command += ["--count"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **extra}
    )
    if done.returncode not in (0, 1):
        return {"status": done.returncode, "error": done.stderr.strip()}
    return {**json.loads(done.stdout), "status": done.returncode}


def counted(
    base: str, head: str, setting: dict[str, Any], out: Path
) -> dict[str, tuple[float, float]]:
    """Return what each metric of a setting's case costs in instructions, base and bare wrapper."""
    found = compare(base, head, setting, 5, {"PLANTED_WORK": "0"}, out, count=True)
    if "rows" not in found:
        raise SystemExit(found["error"])
    return {row["metric"]: (row["base"], row["head"]) for row in found["rows"]}


def work_for(setting: dict[str, Any], costs: dict[str, tuple[float, float]]) -> int:
    """Return the rounds of a plant that, with the wrapper's own cost, add the setting's share."""
    calls, add = int(setting["planted"]["PLANTED_SHARE"]), float(setting["add"])
    base, bare = costs[metric_of(setting)]
    # The planted loop is three instructions a round.
    return max(0, round((base * (1 + add) - bare) * calls / 3))


def main() -> None:
    """Run the trials of one proof, or summarize."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("proof", choices=[*PROOFS, "summary"])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--base", default="wheel")
    parser.add_argument("--output", type=Path, default=Path("proof.jsonl"))
    given = parser.parse_args()
    if given.proof == "summary":
        summarize(given.output)
        return
    from llgbench.engines import registry

    with tempfile.TemporaryDirectory(prefix="llgbench-") as place:
        folder = Path(place)
        settings = PROOFS[given.proof]
        head = None
        if settings[0]["planted"] is not None:
            head = str(planted(registry.get(given.base).path, folder))
        costs: dict[str, dict[str, tuple[float, float]]] = {}
        for number in range(given.first, given.first + given.trials):
            setting = settings[number % len(settings)]
            extra = dict(setting["planted"] or {})
            if "add" in setting and head is not None:
                case = setting["cases"][0]
                if case not in costs:
                    costs[case] = counted(given.base, head, setting, folder / "out")
                extra["PLANTED_WORK"] = str(work_for(setting, costs[case]))
            found = compare(
                given.base, head, setting, given.budget, extra, folder / "out",
                count=given.proof == "count",
            )  # fmt: skip
            rows = [
                {k: r[k] for k in ("case", "metric", "verdict")} | {
                    k: round(r["estimate"][k], 5) for k in ("ratio", "low", "high")
                }
                for r in found.get("rows", [])
            ]  # fmt: skip
            line = {
                "proof": given.proof, "trial": number, "planted": extra, "status": found["status"],
                "verdict": found.get("verdict"), "error": found.get("error"),
                "wall_s": round(found.get("wall_s", 0)), "processes": found.get("processes"),
                "slower": [f"{r['case']} {r['metric']}" for r in rows if r["verdict"] == "slower"],
                "rows": rows,
            }  # fmt: skip
            with given.output.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps({k: v for k, v in line.items() if k != "rows"}), flush=True)


def summarize(path: Path) -> None:
    """Print, for each proof, how many trials said what."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for proof in PROOFS:
        of_proof = [line for line in lines if line["proof"] == proof]
        if not of_proof:
            continue
        words = Counter(line["verdict"] or "no result" for line in of_proof)
        rows = Counter(row["verdict"] for line in of_proof for row in line["rows"])
        seconds = sorted(line["wall_s"] for line in of_proof)
        print(f"{proof}: {len(of_proof)} trials {dict(words)}; rows {dict(rows)}; "
              f"{seconds[len(seconds) // 2]} s the middle one")  # fmt: skip


if __name__ == "__main__":
    main()
