"""What cargo sees, and what a key holds; builds are tested where they are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgbench.engines import cargo


@pytest.fixture(autouse=True)
def rustc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a rustc on PATH that has a version and nothing else."""
    path = tmp_path / "bin" / "rustc"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho rustc 1.0.0\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLGBENCH_CACHE", str(tmp_path / "cache"))
    cargo.rustc_version.cache_clear()
    return path


@pytest.fixture(autouse=True)
def _forget_rustc() -> object:
    yield
    cargo.rustc_version.cache_clear()


def test_the_key_holds_inputs_compiler_and_configuration(tmp_path: Path, rustc: Path) -> None:
    keys = [cargo.key("a", "b"), cargo.key("ab"), cargo.key("a", b"b", "")]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[profile.release]\nopt-level = 1\n")
    keys.append(cargo.key("a", "b"))
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo" / "config.toml").write_text("[build]\nrustflags = []\n")
    keys.append(cargo.key("a", "b"))
    rustc.write_text("#!/bin/sh\necho rustc 1.0.1\n")
    cargo.rustc_version.cache_clear()
    keys.append(cargo.key("a", "b"))
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "name",
    ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_PROFILE_RELEASE_DEBUG", "CARGO_BUILD_TARGET",
     "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", "RUSTC_WRAPPER"],
)  # fmt: skip
def test_flags_reach_neither_cargo_nor_the_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cargo.key("a")
    monkeypatch.setenv(name, "x")
    assert cargo.key("a") == before
    assert name not in cargo.environment()
    assert name in cargo.dropped_flags()


@given(
    st.sampled_from(["", "CARGO_", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTRIES_", "PATH_"]),
    st.sampled_from(["TOKEN", "SECRET", "PASSWORD", "CREDENTIAL_PROVIDER", "MY_TOKEN", "KEY"]),
)
def test_no_secret_passes(prefix: str, suffix: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(prefix + suffix, "planted")
        allowed = prefix in ("CARGO_NET_", "CARGO_HTTP_") and suffix == "KEY"
        assert ("planted" in cargo.environment().values()) is allowed


def test_the_toolchain_is_stable_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUSTUP_TOOLCHAIN", raising=False)
    assert cargo.environment()["RUSTUP_TOOLCHAIN"] == "stable"
    monkeypatch.setenv("RUSTUP_TOOLCHAIN", "nightly")
    assert cargo.environment()["RUSTUP_TOOLCHAIN"] == "nightly"
