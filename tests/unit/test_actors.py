"""What the Ray edge does without a Ray: environment, addresses, resources, boundaries, errors."""

import importlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ray import exceptions

import raydt
from actors import cluster
from actors import cluster as environment
from actors.cluster import Cluster, bundles, connect, starts_ray, without_idle_services
from actors.liveness import Peer, Watch, translate
from actors.session import RaySession
from actors.shard import Progress, Pulse, identity, own, require_same
from raydt.batches.rows_on_shards import RowBlock
from raydt.errors import ConfigError, ProcessLostError, RaydtError, UpdateError
from raydt.examples.updates import UpdateBatch
from raydt.exchange.messages import Barrier
from raydt.learners.fudyadt import LEARNER
from raydt.messages import message
from tests.refusals import refused


@pytest.fixture
def variables(monkeypatch, tmp_path):
    """An environment without any of the variables, and an empty home."""
    for name in list(os.environ):
        if name.startswith(("RAY_", "NUMBA_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return os.environ


class TestEnvironment:
    def test_importing_actors_imports_neither_ray_nor_numba(self):
        program = "import actors.cluster, sys; print(sorted({'ray', 'numba', 'raydt.learners'} & sys.modules.keys()))"
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "[]"

    def test_kernel_cache(self, variables, tmp_path):
        assert environment.set_numba_cache_dir() == tmp_path / ".cache" / "raydt" / "numba"
        assert environment.of_actors() == {"NUMBA_NUM_THREADS": "1", "NUMBA_CACHE_DIR": variables["NUMBA_CACHE_DIR"]}
        variables.update(NUMBA_CACHE_DIR="/mine", NUMBA_NUM_THREADS="4")
        assert environment.set_numba_cache_dir() == Path("/mine")
        assert environment.of_actors() == {"NUMBA_NUM_THREADS": "4", "NUMBA_CACHE_DIR": "/mine"}
        del variables["NUMBA_CACHE_DIR"]
        variables["XDG_CACHE_HOME"] = "/cache"
        assert environment.set_numba_cache_dir() == Path("/cache/raydt/numba")
        variables["NUMBA_CACHE_DIR"] = "relative"  # to where this process began, whatever it changes to
        assert environment.set_numba_cache_dir() == Path.cwd() / "relative"
        assert variables["NUMBA_CACHE_DIR"] == str(Path.cwd() / "relative")

    def test_a_private_ray_has_a_token_of_its_own(self, variables, monkeypatch):
        monkeypatch.delitem(sys.modules, "ray")
        environment.before_local_ray()
        assert variables["RAY_USAGE_STATS_ENABLED"] == "0"
        assert variables["RAY_AUTH_MODE"] == "token"
        token = variables["RAY_AUTH_TOKEN"]
        assert len(token) == 64
        environment.before_local_ray()
        assert variables["RAY_AUTH_TOKEN"] == token

    def test_an_imported_ray_has_read_the_mode(self, variables):
        environment.before_local_ray()
        assert "RAY_AUTH_MODE" not in variables
        assert "RAY_AUTH_TOKEN" in variables

    @pytest.mark.parametrize(
        "mine", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "x"}, {"RAY_AUTH_TOKEN_PATH": "/x"}]
    )
    def test_what_the_user_has_set_is_kept(self, variables, mine):
        variables.update(mine)
        environment.before_local_ray()
        assert {name: variables.get(name) for name in mine} == mine
        assert mine.get("RAY_AUTH_TOKEN") == variables.get("RAY_AUTH_TOKEN")

    def test_a_token_file_is_used(self, variables, tmp_path):
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("x")
        environment.before_local_ray()
        assert "RAY_AUTH_TOKEN" not in variables

    def test_what_children_inherit_is_not_kept(self, variables):
        variables["NUMBA_CACHE_DIR"] = "/mine"
        with environment.inherited({"NUMBA_CACHE_DIR": "/theirs", "NUMBA_NUM_THREADS": "1"}):
            assert variables["NUMBA_CACHE_DIR"] == "/theirs"
            assert variables["NUMBA_NUM_THREADS"] == "1"
        assert variables["NUMBA_CACHE_DIR"] == "/mine"
        assert "NUMBA_NUM_THREADS" not in variables

    def test_workers_import_from_where_the_driver_did(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        root = Path(raydt.__file__).resolve().parents[1]
        with environment.importing_from_driver():
            assert Path.cwd() == root
        assert Path.cwd() == tmp_path
        # An installed copy is found without help, and site-packages must not come before the standard library.
        monkeypatch.setattr("sysconfig.get_path", lambda name: str(root))
        with environment.importing_from_driver():
            assert Path.cwd() == Path("/")


class TestCluster:
    def test_bundles(self):
        assert bundles(2) == [{"CPU": 1.0}] * 3
        resources = {
            "coordinator": {"num_cpus": 2},
            "shard": {"num_cpus": 0.5, "memory": 10**9, "resources": {"ssd": 1}},
        }
        assert bundles(1, resources) == [{"CPU": 2.0}, {"CPU": 0.5, "memory": 1e9, "ssd": 1}]

    @pytest.mark.parametrize(
        ("shards", "resources", "said", "parameters"),
        [
            (0, None, "cluster.no_shard", {"shards": 0}),
            (1, {"shard": {"num_gpu": 1}}, "cluster.unknown_resource", {"role": "shard", "names": "num_gpu"}),
        ],
    )
    def test_requests_that_make_no_sense(self, shards, resources, said, parameters):
        with refused(said, ConfigError, **parameters):
            bundles(shards, resources)

    @pytest.mark.parametrize(
        ("address", "said"),
        [
            ("http://127.0.0.1:8265", "cluster.url"),
            ("ray://10.0.0.1:10001", "cluster.url"),
            ("somewhere", "cluster.no_address"),
            ("somewhere:port", "cluster.no_address"),
            ("127.0.0.1:1", "cluster.no_cluster"),
        ],
    )
    def test_addresses_that_lead_nowhere(self, variables, monkeypatch, address, said):
        monkeypatch.setattr("ray.is_initialized", lambda: False)
        with refused(said, ConfigError, address=address):
            connect(address)
        variables["RAY_ADDRESS"] = address
        with refused(said, ConfigError, address=address):
            connect(None)

    def test_what_starts_ray_is_known_beforehand(self, variables, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
        assert starts_ray()
        assert starts_ray("local")
        assert not starts_ray("10.0.0.1:6379")
        variables["RAY_ADDRESS"] = "auto"
        assert not starts_ray()
        assert starts_ray("local")
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
        assert not starts_ray("local")

    def test_an_actor_that_asks_for_no_cpu_takes_none(self, monkeypatch):
        """Ray refuses a bundle of nothing; others that take all CPUs there are have room beside this one."""
        placed = []
        module = importlib.import_module("ray.util.placement_group")

        def group(bundles, strategy):
            placed.extend(bundles)
            return SimpleNamespace(wait=lambda seconds: True)

        monkeypatch.setattr(module, "placement_group", group)
        Cluster(started=False).reserve([{"CPU": 0.0}, {"CPU": 2.0}, {"CPU": 0.0, "memory": 5.0}])
        assert [bundle["CPU"] for bundle in placed] == [0.0, 2.0, 0.0]
        assert all(sum(bundle.values()) > 0 for bundle in placed)

    @pytest.mark.parametrize(
        ("has", "free", "on_no_node"),
        [(2, [1.0], False), (4, [0.5, 0.5, 0.0], False), (4, [1.0, 1.5, 1.5], True)],
        ids=["too small", "in use", "on no node"],
    )
    def test_a_cluster_without_the_resources_is_told_at_once_and_an_error_later(
        self, monkeypatch, caplog, has, free, on_no_node
    ):
        lacking = message("cluster.lack", needed=3, resource="CPUs", there=has, free=sum(free))
        if on_no_node:
            node = message("cluster.node", needed=2, resource="CPUs", free=1.5)
            lacking += "; " + message("cluster.small_nodes", most_needed=node)
        waits, removed = [], []

        def wait(seconds):
            assert len(caplog.messages) == len(waits)  # it is said before the long wait
            waits.append(seconds)
            return False

        group = SimpleNamespace(wait=wait)
        module = importlib.import_module("ray.util.placement_group")  # a function of that name hides it
        monkeypatch.setattr(module, "placement_group", lambda bundles, strategy: group)
        monkeypatch.setattr(module, "remove_placement_group", removed.append)
        monkeypatch.setattr("ray.cluster_resources", lambda: {"memory": 0.0, "CPU": float(has)})
        nodes = {f"node {index}": {"CPU": cpus, "memory": 1e9} for index, cpus in enumerate(free)}
        monkeypatch.setattr("ray._private.state.available_resources_per_node", lambda: nodes)
        monkeypatch.setattr("ray.nodes", lambda: [{"NodeID": "a1", "Alive": True, "Resources": {"CPU": float(has)}}])
        reported = {}
        monkeypatch.setattr("ray.experimental.internal_kv._internal_kv_get", lambda key: json.dumps(reported).encode())
        cluster = Cluster(started=False)
        cluster.reserve_seconds = 5.0
        with refused("cluster.no_resources", ConfigError, lacking=lacking, seconds=5.0):
            cluster.reserve([{"CPU": 1.0}, {"CPU": 2.0}])
        assert removed == [group]
        assert waits == [2.0, 3.0]
        assert caplog.messages == [message("cluster.waiting", lacking=lacking, seconds=5.0)]
        # An autoscaler names types of its config, and a node that was there may come back.
        for active, had_room in (("ray.worker", False), ("node_a1", True)):
            reported["autoscaler_report"], cluster._had_room = {"active_nodes": {active: 1}}, had_room
            caplog.clear()
            waits.clear()
            with refused("cluster.no_resources", ConfigError, lacking=lacking, seconds=5.0):
                cluster.reserve([{"CPU": 1.0}, {"CPU": 2.0}])
        # Nothing adds nodes: what is too small stays so, and what is in use may become free.
        cluster._had_room = False
        caplog.clear()
        waits.clear()
        with refused("cluster.too_small" if has < 3 else "cluster.no_resources", ConfigError, lacking=lacking):
            cluster.reserve([{"CPU": 1.0}, {"CPU": 2.0}])
        assert waits == ([2.0] if has < 3 else [2.0, 3.0])
        assert removed == [group] * 4

    @pytest.mark.parametrize(
        ("nodes", "requested", "too_small"),
        [
            ([{"CPU": 4.0}], [{"CPU": 1.0}, {"CPU": 1.0}], False),
            ([{"CPU": 1.0}], [{"CPU": 1.0}, {"CPU": 1.0}], True),
            ([{"CPU": 3.0}, {"CPU": 3.0}], [{"CPU": 0.0}, *[{"CPU": 2.0}] * 3], True),  # enough, in pieces
            ([{"CPU": 3.0}, {"CPU": 4.0}], [{"CPU": 0.0}, *[{"CPU": 2.0}] * 3], False),
            ([{"CPU": 8.0, "memory": 10.0}], [{"CPU": 1.0, "memory": 6.0}, {"CPU": 1.0, "memory": 6.0}], True),
            ([{"CPU": 8.0}, {"CPU": 8.0, "disk": 1.0}], [{"CPU": 1.0}, *[{"CPU": 1.0, "disk": 1.0}] * 2], True),
            ([{"CPU": 0.3}], [{"CPU": 0.1}] * 3, False),
            ([], [{"CPU": 0.0}], True),
        ],
    )
    def test_what_no_node_can_hold_is_too_small(self, monkeypatch, nodes, requested, too_small):
        alive = [{"NodeID": str(i), "Alive": True, "Resources": node} for i, node in enumerate(nodes)]
        gone = {"NodeID": "gone", "Alive": False, "Resources": {"CPU": 99.0, "disk": 99.0, "memory": 99.0}}
        monkeypatch.setattr("ray.nodes", lambda: [*alive, gone])
        assert cluster._is_too_small(requested) == too_small

    @pytest.mark.parametrize(
        ("report", "fixed"),
        [
            ({"autoscaler_report": {"active_nodes": {"node_a1": 1, "node_b2": 1}}}, True),
            ({"autoscaler_report": {"active_nodes": {"node_a1": 1}}}, True),  # the other one has just come, or gone
            ({"autoscaler_report": {"active_nodes": {"ray.head.default": 1}}}, False),  # ray up
            ({"autoscaler_report": {"active_nodes": {"headgroup": 1, "workergroup": 2}}}, False),  # KubeRay
            ({"autoscaler_report": {"active_nodes": {"node_a1": 1, "ray.worker.default": 1}}}, False),
            ({"autoscaler_report": {"active_nodes": {"local.cluster.node": 2}}}, False),
            ({"autoscaler_report": {"active_nodes": {}}}, False),  # no node has reported yet
            ({"autoscaler_report": None}, False),
            ({"load_metrics_report": {}}, False),
            ([], False),
            (None, False),  # no monitor, or one of the second generation
        ],
    )
    def test_a_cluster_is_fixed_if_the_monitor_names_its_nodes_only(self, monkeypatch, report, fixed):
        written = None if report is None else json.dumps(report).encode()
        monkeypatch.setattr("ray.experimental.internal_kv._internal_kv_get", lambda key: written)
        nodes = [{"NodeID": "a1", "Alive": True}, {"NodeID": "b2", "Alive": False}]
        monkeypatch.setattr("ray.nodes", lambda: nodes)
        assert cluster._is_fixed() == fixed

    def test_the_monitor_of_this_ray_names_nodes_as_is_expected(self):
        from ray.autoscaler._private.util import format_readonly_node_type

        assert format_readonly_node_type("a1") == "node_a1"


class TestSession:
    @pytest.fixture
    def session(self, monkeypatch):
        """A session whose coordinator answers as the test says; nothing is started."""
        monkeypatch.setattr("actors.session.compile_missing", lambda *given: None)
        monkeypatch.setattr("actors.starting.ray", SimpleNamespace(kill=lambda handle: None))
        monkeypatch.setattr(RaySession, "_open", lambda session, *_: None)
        applied = SimpleNamespace(remote=lambda *_: "reply")
        handle = SimpleNamespace(apply=applied, digest=applied)
        peer = SimpleNamespace(name="the coordinator", handle=handle, pid=None)
        monkeypatch.setattr(RaySession, "_start", lambda session, *_: session._peers.append(peer))
        cluster = SimpleNamespace(started=True, answers=lambda: True)
        session = RaySession(cluster, LEARNER, LEARNER.Options(), None, shards=1)
        monkeypatch.setattr(session._watch, "collect", lambda replies, peers: [[None] for _ in replies])
        return session

    def test_the_first_batch_is_sent_at_once_and_later_ones_together(self, session, monkeypatch):
        """A message ends with enough updates, or with a batch that a snapshot is to follow."""
        empty, sent = np.empty(0), []

        def apply(batches, skip_refused):
            sent.append([batch.start for batch, _ in batches])
            return [SimpleNamespace(applied=len(batch), snapshot=None) for batch, _ in batches]

        def batch(start):
            barrier = Barrier({}) if start == 14 else None
            ids, op = np.arange(2), np.zeros(2, np.int8)
            return UpdateBatch(start, op, ids, np.ones((2, 1)), empty, 2, empty, barrier=barrier)

        monkeypatch.setattr("actors.session.TOGETHER", 6)
        monkeypatch.setattr(session._peers[0].handle, "apply", SimpleNamespace(remote=apply))
        monkeypatch.setattr(session._watch, "collect", lambda replies, peers: replies)
        results = list(session.process(map(batch, range(0, 20, 2))))
        assert sent == [[0], [2, 4, 6], [8, 10, 12], [14], [16, 18]]
        assert [taken.start for taken, _ in results] == list(range(0, 20, 2))
        assert session.under_way == 0


class TestBoundary:
    def test_read_only_arrays_are_copied_and_others_are_not(self):
        mine, theirs = np.arange(3.0), np.asfortranarray(np.ones((2, 3)))
        theirs.flags.writeable = False
        result = own({"a": mine, "b": [theirs, (theirs, "text", None)], "c": 3})
        assert result["a"] is mine
        copy = result["b"][1][0]
        assert copy.flags.writeable
        assert copy.flags.f_contiguous
        assert (copy == theirs).all()
        assert result["b"][1][1:] == ("text", None)

    def test_dataclasses_keep_their_type(self):
        ids = np.arange(2)
        ids.flags.writeable = False
        empty = np.empty(0)
        batch = UpdateBatch(3, np.zeros(2, np.int8), ids, np.ones((2, 1)), empty, 2, empty, warmup=5)
        result = own(batch)
        assert type(result) is UpdateBatch
        assert (result.start, result.warmup) == (3, 5)
        assert result.id.flags.writeable
        assert result.X is batch.X
        assert own(UpdateBatch) is UpdateBatch

    def test_a_named_tuple_stays_one(self):
        rows = RowBlock.of(np.arange(6.0).reshape(3, 2))
        rows.X.flags.writeable = False
        result = own({"rows": rows})["rows"]
        assert type(result) is RowBlock
        assert result.X.flags.writeable
        assert np.array_equal(result.X, rows.X)


class TestIdentity:
    def test_same_sources(self):
        mine = identity()
        assert mine.version == raydt.__version__
        assert mine.pid == os.getpid()
        require_same(mine, replace(mine, pid=1, host="elsewhere", path="/copy"), "shard 0")

    def test_other_sources_name_both_places(self):
        mine = identity()
        theirs = replace(mine, sources="f" * 64, path="/opt/raydt", host="node-7", version="0.0.9")
        with refused("cluster.other_sources", RaydtError, name="shard 0", theirs=theirs, mine=mine) as caught:
            require_same(mine, theirs, "shard 0")
        assert "0.0.9 from /opt/raydt" in str(caught.value)

    def test_files_that_were_edited_meanwhile(self):
        with refused("cluster.changed_sources", RaydtError):
            require_same(identity(), replace(identity(), sources="f" * 64), "shard 0")


class TestWatch:
    def test_a_ray_that_is_gone_is_noticed_before_it_ends_this_process(self, monkeypatch):
        clock, there = [100.0], [True, False]
        monkeypatch.setattr("actors.liveness.time", SimpleNamespace(monotonic=lambda: clock[-1]))
        monkeypatch.setattr("actors.liveness.ray", SimpleNamespace(get=lambda replies, timeout: replies))
        watch = Watch(20.0, lambda: there.pop(0))
        for now in (100.1, 104.9, 105.0, 109.9):
            clock.append(now)
            assert watch.collect([7], []) == [7]
        assert there == [False]
        clock.append(110.1)
        with refused("cluster.died", ProcessLostError):
            watch.collect([7], [])

    def test_a_cluster_of_others_is_not_looked_at(self, monkeypatch):
        monkeypatch.setattr("actors.liveness.ray", SimpleNamespace(get=lambda replies, timeout: replies))
        monkeypatch.setattr("actors.liveness.RAY_SECONDS", 0.0)
        assert Watch(20.0).collect([7], []) == [7]


class TestWaiting:
    """A shard that waits for others is not the one that is lost."""

    @pytest.fixture
    def lost(self, monkeypatch):
        def named(progress, seconds=30):
            """Who is lost, given what each peer says of itself: seconds and whether it waits; None: it says nothing."""
            clock = [0.0]

            def get(asked, timeout=None):
                if isinstance(asked, list):
                    clock[0] += 1.0
                    assert clock[0] < seconds
                    raise exceptions.GetTimeoutError
                return progress[asked]

            def wait(asked, num_returns=1, timeout=0):
                there = [one for one in asked if one in progress and progress[one] is not None]
                return there, [one for one in asked if one not in there]

            class Handle:
                def __init__(self, name):
                    self.progress = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: name))

            monkeypatch.setattr("actors.liveness.time", SimpleNamespace(monotonic=lambda: clock[0]))
            monkeypatch.setattr("actors.liveness.ray", SimpleNamespace(get=get, wait=wait))
            peers = [Peer(name, Handle(name), shard=index) for index, name in enumerate(progress)]
            with pytest.raises(ProcessLostError) as caught:
                Watch(5.0).collect([f"reply of {name}" for name in progress], peers)
            return caught.value.shard

        return named

    def test_the_one_that_is_stopped_is_lost(self, lost):
        assert lost({"a": Progress(1.0, True), "b": None, "c": Progress(1.0, True)}) == 1

    def test_the_one_that_is_stuck_is_lost(self, lost):
        assert lost({"a": Progress(1.0, True), "b": Progress(2.0, True), "c": Progress(2.0, False)}) == 2

    def test_if_all_wait_for_each_other_the_wait_ends(self, lost):
        assert lost({"a": Progress(1.0, True), "b": Progress(2.0, True)}) == 0

    def test_nobody_is_lost_while_one_works(self, lost):
        class Works(dict):
            def __getitem__(self, name):
                self[name] = (
                    super().__getitem__(name)._replace(seconds=super().__getitem__(name).seconds + (name == "b"))
                )
                return super().__getitem__(name)

        with pytest.raises(AssertionError):
            lost(Works(a=Progress(1.0, True), b=Progress(2.0, False)))

    @pytest.mark.parametrize("said", [None, Progress(1.0, False)])
    def test_who_has_waited_long_is_not_lost_by_one_answer(self, lost, said):
        """It comes late, or is of the moment in which the wait ends."""

        class Once(dict):
            def __getitem__(self, name):
                asked[name] += 1
                if name == "a":
                    return said if asked[name] in (41, 42) else Progress(1.0, True)
                return Progress(float(asked[name]))

        asked = Counter()
        with pytest.raises(AssertionError):
            lost(Once(a=0, b=0), seconds=60)
        assert asked["a"] > 60


class TestPulse:
    def test_each_thread_that_works_shows_while_the_other_waits_and_waiting_does_not(self):
        pulse, turns, end = Pulse(), [threading.Event(), threading.Event()], threading.Event()
        done = [threading.Event(), threading.Event()]

        def work(turn, done):
            pulse.beat()
            done.set()
            turn.wait()
            until = time.thread_time() + 0.05
            while time.thread_time() < until:
                pass
            done.set()
            end.wait()

        threads = [threading.Thread(target=work, args=pair) for pair in zip(turns, done, strict=True)]
        for thread, begun in zip(threads, done, strict=True):
            thread.start()
            begun.wait()
            begun.clear()
        for turn, worked in zip(turns, done, strict=True):
            before = pulse.seconds()
            turn.set()
            worked.wait()
            assert pulse.seconds() >= before + 0.05
        time.sleep(0.02)
        waiting = pulse.seconds()
        time.sleep(0.05)
        assert pulse.seconds() == waiting
        end.set()
        for thread in threads:
            thread.join()


class TestFaults:
    def test_our_own_errors_arrive_as_they_are(self):
        original = UpdateError("no such example", row=3)
        assert translate(exceptions.RayTaskError("f", "traceback", original), "shard 0") is original

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (exceptions.ActorDiedError(), "cluster.died"),
            (exceptions.OutOfMemoryError("killed"), "cluster.no_memory"),
            (exceptions.ActorUnavailableError("gone", None), "cluster.unreachable"),
            (exceptions.ObjectLostError("00" * 28, None, ""), "cluster.no_answer"),
        ],
    )
    def test_rays_errors_become_one_of_ours(self, error, said):
        ours = translate(error, "shard 0")
        assert type(ours) is ProcessLostError
        assert ours.exit_code == 1
        assert "\n" not in str(ours)
        assert (ours.message.id, ours.message.parameters["name"]) == (said, "shard 0")

    def test_a_process_that_cannot_start_is_no_lost_one(self):
        ours = translate(exceptions.RuntimeEnvSetupError("no pip\ndetails"), "shard 0")
        assert type(ours) is RaydtError
        assert ours.message.id == "cluster.no_start"
        assert str(ours).endswith("no pip details")

    def test_advice_travels_with_a_loss(self):
        ours = pickle.loads(pickle.dumps(translate(exceptions.OutOfMemoryError("killed"), "shard 0")))
        assert ours.advice == message("cluster.no_memory", name="shard 0").remedy
        assert str(ours) == message("cluster.no_memory", name="shard 0").problem

    def test_a_defect_is_called_one(self):
        ours = translate(exceptions.RayTaskError("f", "traceback", KeyError("node")), "shard 0")
        assert type(ours) is RaydtError
        assert str(ours) == message("cluster.defect", name="shard 0", error="KeyError", problem="'node'")


class TestServices:
    """Ray's own functions, which :mod:`actors.cluster` replaces for a while."""

    #: Where Ray has moved one of them, this fails, and the start of a private Ray takes seconds longer.
    REPLACED = ("parameter.RayParams.__init__", "node.Node.start_api_server", "services.get_node")
    SMALL = "utils.get_dashboard_dependency_error"

    @staticmethod
    def now(path):
        module, *names = path.split(".")
        found = importlib.import_module(f"ray._private.{module}")
        for name in names:
            found = getattr(found, name)
        return found

    @pytest.mark.parametrize("metrics", [False, True])
    def test_they_are_replaced_inside_the_block_only(self, metrics):
        paths = [*self.REPLACED, self.SMALL]
        before = [self.now(path) for path in paths]
        with without_idle_services(metrics=metrics):
            inside = [self.now(path) for path in paths]
            parameters = importlib.import_module("ray._private.parameter").RayParams(no_monitor=False)
            assert parameters.no_monitor is True
            assert parameters.include_log_monitor is False
        assert [new is not old for new, old in zip(inside, before, strict=True)] == [True, True, True, not metrics]
        assert [self.now(path) for path in paths] == before

    def test_what_ray_has_otherwise_is_left_alone(self, monkeypatch):
        services = importlib.import_module("ray._private.services")

        def get_node(address):
            return address

        monkeypatch.setattr(services, "get_node", get_node)
        monkeypatch.delattr(importlib.import_module("ray._private.node").Node, "start_api_server")
        with without_idle_services(metrics=False):
            assert services.get_node is get_node
        assert services.get_node is get_node

    @pytest.mark.parametrize(
        ("path", "other"),
        [
            ("services.get_node", lambda gcs_address, node_id, more: None),
            ("utils.get_dashboard_dependency_error", lambda more: None),
        ],
    )
    def test_what_takes_more_is_left_alone(self, path, other, monkeypatch):
        monkeypatch.setattr(f"ray._private.{path}", other)
        with without_idle_services(metrics=False):
            assert self.now(path) is other

    def test_the_wait_for_the_node_is_bounded_over_all_calls(self, monkeypatch):
        asked = []

        class Head:
            def __init__(self, address):
                pass

            def get_all_node_info(self, timeout=None):
                asked.append(timeout)
                return {}

        monkeypatch.setattr("ray._raylet.GcsClient", Head)
        monkeypatch.setattr("ray._private.services.get_node", lambda gcs_address, node_id: "asked Ray")
        monkeypatch.setattr("actors.cluster._WAIT_SECONDS", 0.1)
        with without_idle_services(metrics=False):
            assert self.now("services.get_node")("here", "node") == "asked Ray"
            first = len(asked)
            assert self.now("services.get_node")("here", node_id="node") == "asked Ray"
        assert set(asked) == {1}
        assert len(asked) == first
