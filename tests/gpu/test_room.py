"""Room for contacts: where it is too small, that is told, costs single steps, and does not happen again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.engines import GpuPool, numbers, physics, pool_of, tensor

pytestmark = pytest.mark.slow
TASK = "SafetyPointPush2-v0"
WORLDS = 4


def idle(pool: GpuPool) -> None:
    for _ in range(20):
        pool.step(tensor(np.zeros((WORLDS, 2))))
        pool.attend()


def test_room_grows_where_contacts_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = physics.capacities(pool_of(TASK, 1).physics.model)
    monkeypatch.setattr(physics, "capacities", lambda model: (8, 40))
    pool = pool_of(TASK, WORLDS)
    pool.reset()
    memory = [array.data_ptr() for array in (pool.physics.qpos, pool.physics.sensordata, pool.physics.xpos)]
    with pytest.warns(RuntimeWarning, match=r"SafetyPointPush2-v0: \d+ steps of worlds had more contacts than"):
        idle(pool)
    lost = pool.faults
    assert 0 < lost < 20 * WORLDS
    assert pool.physics.room[1] > 40
    assert pool.physics.room[1] <= 1.5 * enough[1]
    assert memory == [array.data_ptr() for array in (pool.physics.qpos, pool.physics.sensordata, pool.physics.xpos)]
    idle(pool)
    assert pool.faults == lost


def test_worlds_go_on_from_where_they_were() -> None:
    grown, other = pool_of(TASK, WORLDS, 5), pool_of(TASK, WORLDS, 5)
    for pool in (grown, other):
        pool.reset()
        pool.step(tensor(np.ones((WORLDS, 2))))
    grown.physics._lost += 1
    with pytest.warns(RuntimeWarning, match="is .* from now on"):
        grown.attend()
    assert grown.physics.room[0] > other.physics.room[0]
    for _ in range(5):
        obs, *_ = grown.step(tensor(np.ones((WORLDS, 2))))
        expected, *_ = other.step(tensor(np.ones((WORLDS, 2))))
    np.testing.assert_allclose(numbers(obs), numbers(expected), atol=1e-4)
