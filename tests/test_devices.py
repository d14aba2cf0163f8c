"""Devices: what ggml knows, what is refused, and that the work of a device lies on it.

What needs a device other than the CPU runs where LLGBENCH_TEST_DEVICE names one;
``make device-test`` sets it to Mesa's software device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import faulty_engine
import numpy as np
import pytest
from conftest import Lab

from llgbench.decode import loop, recording
from llgbench.decode.loop import Run
from llgbench.decode.modes import MODES
from llgbench.decode.plan import Plan
from llgbench.engines import engine
from llgbench.engines.engine import Tokenizer
from llgbench.errors import UnavailableError
from llgbench.inputs import case_file, variant
from llgbench.llama import bridge, device
from llgbench.llama.model import Context, Model
from llgbench.llama.synthetic import synthesize
from llgbench.measure.doctor import examine
from llgbench.measure.replay import with_end

SPM = "llama-spm"
TEXT = b'{"colour": "umber", "count": 7}'
DEVICE = os.environ.get("LLGBENCH_TEST_DEVICE", "")
on_device = pytest.mark.skipif(
    not DEVICE, reason="LLGBENCH_TEST_DEVICE names no device; run: make device-test"
)


@pytest.fixture(scope="module")
def nano(lab: Lab) -> Path:
    return synthesize("nano", lab.vocab(SPM))


@pytest.fixture(scope="module")
def contexts(nano: Path) -> Iterator[dict[str, Context]]:
    names = ["cpu", DEVICE] if DEVICE else ["cpu"]
    models = {name: Model(nano, name, "nano") for name in names}
    opened = {name: Context(one, 256, 4, threads=1) for name, one in models.items()}
    yield opened
    for handle in (*opened.values(), *models.values()):
        handle.close()


def run(lab: Lab, context: Context, mode: str = "mask-first", free: bool = False, n: int = 1,
        tokenizer: Tokenizer | None = None) -> Run:  # fmt: skip
    tokenizer = tokenizer or lab.tokenizer(SPM, "greedy_tokenize")
    trace = None if free else with_end(lab.vocab(SPM).trace(TEXT), tokenizer)
    plan = Plan(sequences=n, free=free, max_tokens=48)
    grammar = case_file.load("json-enum").lark()
    return loop.run(context, tokenizer, grammar, trace, plan, MODES[mode])


# ---- on any machine ----


def test_ggml_names_its_devices() -> None:
    found = device.devices()
    [cpu] = [one for one in found if one.name == "CPU"]
    assert (cpu.kind, cpu.backend) == ("CPU", "CPU")
    assert cpu.memory_mib > 0
    assert len({one.name for one in found}) == len(found)
    assert [one.index for one in found] == list(range(len(found)))
    assert device.find("CPU").index == device.find("cpu").index == cpu.index
    assert device.find("cpu").facts() == {"kind": "cpu"}


@pytest.mark.parametrize("name", ["cuda", "CUDA0", "sycl", "Metal", "none", "", "vulkan7"])
def test_a_device_that_is_not_there_is_refused_in_one_line(name: str, nano: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no such device, only .*CPU.*docs/cuda\.md") as why:
        Model(nano, name)
    assert "\n" not in str(why.value)


def test_the_doctor_lists_every_device() -> None:
    found = {finding.what: finding for finding in examine()}
    for one in device.devices():
        line = found[f"device {one.name}"]
        assert line.status == "ok"
        assert one.description in line.detail
        assert f"{one.memory_mib} MiB" in line.detail
    alone = all(one.kind == "CPU" for one in device.devices())
    assert ("devices" in found) == alone


def test_where_the_work_lies_is_seen(contexts: dict[str, Context]) -> None:
    loaded = contexts["cpu"].model
    products, elsewhere = device.elsewhere(loaded.pointer, loaded.device)
    # Per layer: q, k, v, output, gate, up, down; attention itself may be one operation.
    assert products >= 7 * 4 + 1
    assert elsewhere == []
    # Asked for another device, the same model has all of it elsewhere.
    other = replace(loaded.device, name="CUDA0", kind="GPU")
    count, elsewhere = device.elsewhere(loaded.pointer, other)
    assert len(elsewhere) == count == products


def test_a_device_that_is_not_there_makes_no_model(tmp_path: Path, lab: Lab) -> None:
    request = recording.Request(("json-enum",), (SPM,), shape="llama-3.1-8b", device="cuda9")
    with pytest.raises(UnavailableError, match="--device cuda9"):
        recording.record(request, tmp_path)
    assert not list(tmp_path.rglob("*"))


# ---- on a device ----


@on_device
def test_the_device_is_found_by_its_kind() -> None:
    found = device.find(DEVICE)
    assert found.kind != "CPU"
    assert device.find(found.backend.lower()).backend == found.backend
    assert found.memory_mib > 0
    facts = found.facts()
    assert facts["kind"] == found.backend.lower()
    assert found.name in facts["name"]
    assert facts["driver"] != "unknown"


@on_device
def test_the_layers_lie_on_the_device(contexts: dict[str, Context]) -> None:
    loaded = contexts[DEVICE].model
    products, elsewhere = device.elsewhere(loaded.pointer, loaded.device)
    assert products >= 7 * 4 + 1
    assert elsewhere == []
    assert loaded.facts()["device"]["name"].startswith(DEVICE)


@on_device
@pytest.mark.parametrize("layers", [0, 1, 4])
def test_layers_that_stay_behind_are_found(nano: Path, layers: int) -> None:
    # Four layers and the output: the fifth.
    with pytest.raises(UnavailableError, match="matrix products do not lie on it"):
        Model(nano, DEVICE, "nano", layers=layers)
    Model(nano, DEVICE, "nano", layers=5).close()


@on_device
def test_on_the_cpu_nothing_goes_to_the_device(contexts: dict[str, Context]) -> None:
    loaded = contexts["cpu"].model
    assert device.elsewhere(loaded.pointer, loaded.device)[1] == []


@on_device
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_commits_the_same_as_on_the_cpu(
    lab: Lab, contexts: dict[str, Context], mode: str, n: int
) -> None:
    here, there = (run(lab, contexts[name], mode, n=n) for name in ("cpu", DEVICE))
    assert [t.tolist() for t in there.committed] == [t.tolist() for t in here.committed]
    for name in ("n_batch", "n_committed", "n_forced", "n_constrained", "n_refused"):
        assert np.array_equal(here.steps[name], there.steps[name])
    assert (there.drops, there.errors, there.lost_at) == (0, 0, None)


@on_device
@pytest.mark.parametrize("mode", MODES)
def test_free_text_is_in_the_language(lab: Lab, contexts: dict[str, Context], mode: str) -> None:
    # The sums of a device are rounded in another order, so the text may be another one; both are
    # the grammar's.
    for context in contexts.values():
        for tokens in run(lab, context, mode, free=True, n=2).committed:
            vocab, subject = lab.vocab(SPM), case_file.load("json-enum")
            of = variant.get("greedy_tokenize")
            said = loop.check(lab.engine, vocab, subject, of, tokens, vocab.eos)
            assert said in ("complete", "unfinished")


_SLEEP_NS = 150_000_000


@pytest.fixture(scope="module")
def sleeping(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    """Return a tokenizer whose masks sleep: they take their time and no core's."""
    folder = tmp_path_factory.mktemp("sleeping")
    library = faulty_engine.build(
        folder, "llg_matcher_compute_mask", f"usleep({_SLEEP_NS // 1000});"
    )
    built = bridge.build(engine.load(library), lab.vocab(SPM), variant.get("greedy_tokenize"))
    yield built
    built.close()


@pytest.mark.parametrize("name", ["cpu", pytest.param(DEVICE, marks=on_device)])
def test_each_clock_holds_its_own(
    lab: Lab, contexts: dict[str, Context], sleeping: Tokenizer, name: str
) -> None:
    context = contexts[name]
    plain, slow = run(lab, context), run(lab, context, tokenizer=sleeping)
    n = len(plain.steps)
    assert len(slow.steps) == n
    assert (slow.sound["mask_ns"] >= _SLEEP_NS).all()
    # The sleep is the mask's alone: what the device does is not in it, nor is it in the decode's.
    ours = slow.steps
    rest = ours["wall_ns"].astype(np.int64) - ours["mask_ns"].astype(np.int64)
    assert (rest >= ours["decode_ns"].astype(np.int64) - 2).all()
    assert float(np.median(ours["decode_ns"])) < float(np.median(ours["wall_ns"])) - _SLEEP_NS / 2
    # Were the device not waited for, its time would hide in the sleep: a decode would cost nothing.
    assert float(np.median(ours["decode_ns"])) > float(np.median(plain.steps["decode_ns"])) / 5


@pytest.mark.parametrize("name", ["cpu", pytest.param(DEVICE, marks=on_device)])
def test_overlap_really_overlaps(
    lab: Lab, contexts: dict[str, Context], sleeping: Tokenizer, name: str
) -> None:
    # A loaded machine wakes the waiting thread later than a short decode takes. Without an overlap
    # nothing is ever hidden, so that one run of several is enough.
    for _ in range(5):
        steps = run(lab, contexts[name], "overlap", tokenizer=sleeping).sound
        assert (steps["mask_ns"] >= _SLEEP_NS).all()
        total = {k: int(steps[f"{k}_ns"].sum()) for k in ("wall", "decode", "mask", "wait")}
        # What of the masks is not waited for is hidden: most of the shorter one's time.
        hidden = total["mask"] - total["wait"]
        if hidden > min(total["decode"], total["mask"]) / 2:
            break
    assert hidden > min(total["decode"], total["mask"]) / 2
    assert total["wall"] < total["decode"] + total["mask"]


@on_device
def test_the_command_decodes_there_in_another_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "llgbench.commands.cli", "decode", "--vocab", SPM, "--case"]
    command += ["json-enum", "--variant", "greedy_tokenize", "--mode", "mask-first", "--mode"]
    command += ["overlap", "--device", DEVICE.lower(), "--rounds", "1", "--sequences", "2"]
    done = subprocess.run(
        [*command, "--results", str(tmp_path), "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {e["verdict"] for e in found["entries"]} == {"", "right"}
    lines = Path(found["record"]).read_text().splitlines()
    devices = {json.loads(line)["facts"]["model"]["device"]["name"] for line in lines[1:-1]}
    assert len(devices) == 1
    assert devices.pop().startswith(DEVICE)
