"""Writing where links lead elsewhere, and what runs that were killed have left."""

import errno
import os

import numpy as np
import pytest

import combutab
from combutab import MLPRegressor
from combutab.core.files import check_writable, finish_leftovers, whole_file, whole_files

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes others' files"
)
POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="of POSIX")


def _names(folder):
    return sorted(os.listdir(folder))


@pytest.fixture(scope="module")
def model():
    X = np.linspace(0, 1, 40)[:, None]
    settings = {"hidden_layer_sizes": (4,), "max_iter": 1, "n_iter_no_change": np.inf}
    return MLPRegressor(**settings, random_state=0).fit(X, X[:, 0])


# ---- links -------------------------------------------------------------------------------------


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
def test_folders_that_are_links_of_others_are_not_followed(model, tmp_path):
    (tmp_path / "mine").mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "way").symlink_to(tmp_path / "mine")
    model.save(shared / "way" / "model")  # our own
    os.lchown(shared / "way", 12345, 12345)
    with pytest.raises(PermissionError, match="is a link in a folder that others may write to"):
        model.save(shared / "way" / "other")
    assert _names(tmp_path / "mine") == ["model"]


def test_links_in_a_ring(model, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=str(tmp_path)):
        model.save(tmp_path / "a")


# ---- leftovers ---------------------------------------------------------------------------------


def test_leftovers_are_removed_but_not_what_is_being_written(tmp_path):
    with whole_file(tmp_path / "alive") as place:
        place.write_text("alive")
        dead = tmp_path / ".combutab-0000dead.stage"
        (dead / "new").mkdir(parents=True)
        (dead / "new" / "x").write_text("half")
        young, old = tmp_path / ".combutab-young", tmp_path / ".combutab-old_form"
        for each in (young, old):
            each.mkdir()
        os.utime(old, (1, 1))
        with whole_file(tmp_path / "other") as second:
            second.write_text("second")
        assert place.read_text() == "alive"
    assert _names(tmp_path) == [".combutab-young", "alive", "other"]


def test_a_set_that_was_to_be_moved_is_moved_by_the_next_run(tmp_path):
    for moved_out, moved_in in ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2)):
        home = tmp_path / f"{moved_out}{moved_in}"
        whole = home / ".combutab-12345678.whole"
        (whole / "new").mkdir(parents=True)
        (whole / "old").mkdir()
        for i, name in enumerate("ab"):
            (home / name if i >= moved_out else whole / "old" / name).write_text("old")
            (home / name if i < moved_in else whole / "new" / name).write_text("new")
        check_writable(home)
        assert _names(home) == ["a", "b"]
        assert {(home / name).read_text() for name in "ab"} == {"new"}


def test_a_set_that_cannot_be_moved_leaves_the_old_one(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).write_text("old")
    replace, calls, fails_at = os.replace, [], [0]

    def fail(source, target):
        calls.append(source)
        if len(calls) == fails_at[0]:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    for fails_at[0] in (1, 2, 4, 5, 6):
        calls.clear()
        with pytest.raises(PermissionError), whole_files(tmp_path, "abc") as stage:
            for name in "abc":
                (stage / name).write_text("new")
        assert _names(tmp_path) == ["a", "b"]
        assert {(tmp_path / name).read_text() for name in "ab"} == {"old"}


@needs_root
def test_leftovers_of_other_users_are_not_moved_over_ours(tmp_path):
    planted = tmp_path / ".combutab-12345678.whole"
    (planted / "new").mkdir(parents=True)
    (planted / "old").mkdir()
    (planted / "new" / "model").write_text("planted")
    os.chown(planted, 12345, 12345)
    (tmp_path / "model").write_text("ours")
    finish_leftovers(tmp_path)
    assert (tmp_path / "model").read_text() == "ours"
    (tmp_path / ".combutab-link.whole").symlink_to(planted)
    finish_leftovers(tmp_path)
    assert (tmp_path / "model").read_text() == "ours"
