"""Writing: all or nothing, on full disks, in others' folders, through links, in one line."""

import contextlib
import errno
import os
import re
import resource
import signal
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import combutab
from benchmarks.common.results import Store
from combutab import TVAE, MLPRegressor
from combutab.core.files import whole_file, whole_files

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="of POSIX")


def _names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture(scope="module")
def model():
    X = np.linspace(0, 1, 40)[:, None]
    settings = {"hidden_layer_sizes": (64, 64), "max_iter": 1, "n_iter_no_change": np.inf}
    return MLPRegressor(**settings, random_state=0).fit(X, X[:, 0])


# ---- a disk that is full -----------------------------------------------------------------------


@contextlib.contextmanager
def limited(n_bytes):
    """Files of this process end at so many bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@POSIX
@pytest.mark.parametrize("limit", [0, 10, 5_000])
def test_full_disk_while_saving_keeps_the_old_model(limit, model, tmp_path):
    path = tmp_path / "model"
    for before in (None, b"what was there"):
        if before is not None:
            path.write_bytes(before)
        with limited(limit), pytest.raises(OSError, match=re.escape(str(path))) as error:
            model.save(path)
        assert error.value.errno == errno.EFBIG
        assert len(str(error.value).splitlines()) == 1
        assert _names(tmp_path) == ([] if before is None else ["model"])
        assert before is None or path.read_bytes() == before


def test_names_that_no_file_can_have(model, tmp_path):
    for name in ("x" * 300, "sub/" * 2000 + "model"):
        with pytest.raises(OSError, match=r"xxx|sub/sub"):
            model.save(tmp_path / name)
    model.save(tmp_path / ("x" * 250))  # there is room for this one, though not for an ending
    assert _names(tmp_path) == ["x" * 250]


def test_unwritable_checkpoint_warns_and_training_continues(tmp_path):
    path = tmp_path / "training"
    quick = {"epochs": 1, "batch_size": 20, "compress_dims": (4,), "decompress_dims": (4,)}
    X = np.random.default_rng(0).normal(size=(40, 1))
    with limited(100), pytest.warns(UserWarning, match="too large"):
        TVAE(**quick, embedding_dim=4).fit(X, checkpoint=path)
    assert _names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
@pytest.mark.parametrize("where", ["mkdir", "fsync", "replace"])
def test_errors_of_the_system_name_the_file(where, number, model, tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def refuse(*args, **options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, where, refuse)
        with pytest.raises(OSError, match=f"{os.strerror(number)}: '{path}'") as error:
            model.save(path)
    assert error.value.errno == number
    assert (path.read_bytes(), _names(tmp_path)) == (b"old", ["model"])


# ---- permissions, threads, kinds of files ------------------------------------------------------


@POSIX
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_permissions_of_any_file(mask, model, tmp_path):
    old = os.umask(mask)
    try:
        model.save(tmp_path / "model")
        with whole_files(tmp_path, ["a"]) as stage:
            (stage / "a").write_text("a")
    finally:
        os.umask(old)
    for name in ("model", "a"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o666 & ~mask
    (tmp_path / "model").chmod(0o640)
    model.save(tmp_path / "model")
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o640


@POSIX
def test_the_umask_of_the_process_is_left_alone(tmp_path, monkeypatch):
    def change(mask):
        raise AssertionError("other threads would make files that all may write")

    monkeypatch.setattr(os, "umask", change)
    with whole_file(tmp_path / "a") as place:
        place.write_text("a")
    with whole_files(tmp_path, ["b"]) as stage:
        (stage / "b").write_text("b")
    assert _names(tmp_path) == ["a", "b"]


def test_threads_may_write_to_the_same_file(tmp_path):
    faults, ends = [], time.monotonic() + 2

    def work(k):
        try:
            for i in range(40):
                with whole_file(tmp_path / "one") as place:
                    place.write_text(f"{k} {i}\n" * 1000)
                with whole_file(tmp_path / f"own {k}") as place:
                    place.write_text(f"{i}")
                lines = (tmp_path / "one").read_text().splitlines()
                assert len(lines) == 1000
                assert len(set(lines)) == 1
                if time.monotonic() > ends:
                    break
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not faults
    assert _names(tmp_path) == ["one", *(f"own {k}" for k in range(6))]


@POSIX
def test_devices_and_pipes_are_not_replaced(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(OSError, match=f"{path} is a device or pipe"):
            model.save(path)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_errors_of_the_caller_are_passed_on(tmp_path):
    for kind in (KeyError, KeyboardInterrupt, SystemExit):
        with pytest.raises(kind), whole_files(tmp_path, ["a"]) as stage:
            (stage / "a").write_text("half")
            raise kind
    with pytest.raises(FileNotFoundError, match="elsewhere"), whole_file(tmp_path / "a") as place:
        place.write_text("half")
        (tmp_path / "elsewhere").read_text()
    assert _names(tmp_path) == []
    with (
        pytest.raises(FileNotFoundError, match=str(tmp_path)),
        whole_files(tmp_path, ["a", "b"]) as s,
    ):
        (s / "a").write_text("the other is not written")
    assert _names(tmp_path) == []


# ---- studies -----------------------------------------------------------------------------------


def test_rows_outlive_a_disk_that_is_full(tmp_path, monkeypatch):
    store = Store(tmp_path / "study.csv", ["name", "score"], ["name"])
    with store.open([]) as journal:
        journal.add([{"name": f"é{i}", "score": f"{i}"} for i in range(22)])
    before = store.path.read_bytes()
    assert _names(tmp_path) == ["study.csv"]

    def full(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"), store.open([]) as journal:
        journal.add([{"name": "next", "score": "1"}])
        monkeypatch.setattr(os, "fsync", full)
    assert store.path.read_bytes() == before
    monkeypatch.undo()
    with store.open([]) as journal:
        assert list(journal.rows)[-2:] == [("é21",), ("next",)]
    assert store.path.read_bytes() == before + b"next,1\n"
    assert _names(tmp_path) == ["study.csv"]


def test_a_journal_of_another_kind_is_left_alone(tmp_path):
    store = Store(tmp_path / "study.csv", ["name", "score"], ["name"])
    store.journal.write_text('{"name": "a", "score": "1"}\n' * 50)
    before = store.journal.read_bytes()
    with pytest.raises(OSError, match=r"study\.journal"), store.open([]):
        pass
    assert store.journal.read_bytes() == before


# ---- Writing where links lead elsewhere ---------------------------------------------------------

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes others' files"
)


@POSIX
def test_links_are_not_followed_where_all_may_write(model, tmp_path):
    target = tmp_path / "mine"
    target.write_text("precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)  # as /tmp
    (shared / "model").symlink_to(target)
    with pytest.raises(PermissionError, match=f"{shared}/model is a link in a folder that others"):
        model.save(shared / "model")
    assert target.read_text() == "precious"
    with whole_files(shared, ["model"]) as stage:  # a link among several is replaced itself
        (stage / "model").write_text("new")
    assert (target.read_text(), (shared / "model").read_text()) == ("precious", "new")
    (shared / "plain").write_text("old")
    model.save(shared / "plain")
    shared.chmod(0o700)
    (shared / "model").unlink()
    (shared / "model").symlink_to(target)
    model.save(shared / "model")  # in a folder of one's own they are
    assert (shared / "model").is_symlink()
    assert combutab.load(target).n_features_in_ == 1


@needs_root
def test_linked_folders_of_other_users_are_not_followed(model, tmp_path):
    (tmp_path / "mine").mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "way").symlink_to(tmp_path / "mine")
    model.save(shared / "way" / "model")  # our own
    os.lchown(shared / "way", 12345, 12345)
    with pytest.raises(PermissionError, match="link in a folder"):
        model.save(shared / "way" / "other")
    assert _names(tmp_path / "mine") == ["model"]


def test_links_in_a_ring(model, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=str(tmp_path)):
        model.save(tmp_path / "a")


# ---- several files -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_moved", range(5))
def test_failed_move_leaves_the_old_files(n_moved, tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).write_text("old")
    replace, calls = os.replace, []

    def fail(source, target):
        calls.append(source)
        if len(calls) == n_moved + 1:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PermissionError), whole_files(tmp_path, "abc") as temporary:
        for name in "abc":
            (temporary / name).write_text("new")
    assert _names(tmp_path) == ["a", "b"]
    assert {(tmp_path / name).read_text() for name in "ab"} == {"old"}
