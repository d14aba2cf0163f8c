from __future__ import annotations

from pathlib import Path

import pytest

from llgbench.engines import store
from llgbench.errors import EngineError, InputError


def test_what_is_kept_is_there_and_checked(tmp_path: Path) -> None:
    library = tmp_path / "folder" / "lib.so"
    assert not store.is_kept(library)
    store.keep(library, b"content", "1.6.1")
    assert store.is_kept(library)
    assert store.check(library).read_bytes() == b"content"
    assert store.release_of(library) == "1.6.1"
    store.keep(library, b"another", "1.6.2")
    assert store.check(library).read_bytes() == b"another"


@pytest.mark.parametrize("record", [b"", b"x", b"\xff\n", b"0" * 64, b"0" * 5000])
def test_what_does_not_agree_is_refused(tmp_path: Path, record: bytes) -> None:
    library = tmp_path / "lib.so"
    store.keep(library, b"content", "1")
    (tmp_path / "lib.so.sha256").write_bytes(record)
    with pytest.raises(EngineError) as caught:
        store.check(library)
    assert "\n" not in str(caught.value)


def test_half_of_it_is_not_kept(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    store.keep(library, b"content", "1")
    (tmp_path / "lib.so.sha256").unlink()
    assert not store.is_kept(library)
    (tmp_path / "lib.so.sha256").mkdir()
    assert not store.is_kept(library)
    assert not store.is_kept(Path("/x" * 3000))
    assert not store.is_kept(Path("a\0b"))


def test_a_cache_that_cannot_be_written_names_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write .*LLGBENCH_CACHE names another cache"):
        store.keep(tmp_path / "file" / "lib.so", b"", "1")
    with (
        pytest.raises(EngineError, match="as it is"),
        store.writing(tmp_path / "folder"),
    ):
        raise EngineError("as it is")
