"""Where control groups may be made, read from what the kernel says of mounts and of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from callwright.envs.executors.sandbox.cgroup import Group, Parents, candidates

pytestmark = pytest.mark.unit

V1 = [
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755",
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory",
    "39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids",
]
V2 = ["30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"]
HYBRID = [*V1, "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"]
BOUND = ["35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory"]


def places(mounts: list[str], own: list[str]) -> list[tuple[int, dict[str, str]]]:
    return [(p.version, {key: str(path) for key, path in p.folders.items()}) for p in candidates(mounts, own)]


def both(path: str) -> tuple[int, dict[str, str]]:
    return 2, {"memory": path, "pids": path}


def test_version_1_has_a_folder_a_controller() -> None:
    folders = {"memory": "/sys/fs/cgroup/memory/a/b", "pids": "/sys/fs/cgroup/pids"}
    assert places(V1, ["8:pids:/", "4:memory:/a/b", "1:cpu:/"]) == [(1, folders)]


def test_version_2_is_tried_under_our_own_group_and_beside_it() -> None:
    under = "/sys/fs/cgroup/user.slice/app.slice/x.scope"
    assert places(V2, ["0::/user.slice/app.slice/x.scope"]) == [both(under), both(str(Path(under).parent))]
    assert places(V2, ["0::/"]) == [both("/sys/fs/cgroup")]


def test_both_versions_at_once() -> None:
    found = places(HYBRID, ["8:pids:/", "4:memory:/", "0::/"])
    assert [version for version, _ in found] == [1, 2]


def test_a_container_sees_its_own_part_alone() -> None:
    assert places(BOUND, ["4:memory:/docker/abc/x"]) == [(1, {"memory": "/sys/fs/cgroup/memory/x"})]


def test_there_may_be_none() -> None:
    assert places(["1 0 0:1 / / rw - ext4 /dev/vda rw"], ["0::/"]) == []


def test_a_place_that_is_no_control_group_is_refused_and_left_clean(tmp_path: Path) -> None:
    """In an ordinary folder the files of a group are not there: no limit could be set, so none is pretended."""
    with pytest.raises(FileNotFoundError, match=r"memory\.limit_in_bytes"):
        Group.make(Parents({"memory": tmp_path}, 1), memory_bytes=1, processes=1)
    assert list(tmp_path.iterdir()) == []
