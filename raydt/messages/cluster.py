"""Errors of Ray, of its addresses and resources, and of the processes of a job."""

from raydt.messages import Sentence

_LESS = "lower cluster.shards (of an audit --shards) or cluster.resources, or add nodes"
_SOURCES = (
    "{name} on {theirs.host} has loaded raydt {theirs.version} from {theirs.path} (sources {theirs.sources:.12}), this "
    "process has loaded raydt {mine.version} from {mine.path} (sources {mine.sources:.12})"
)
_INSTALL = "Install raydt on every node, in one version, or submit the job with its working directory"
_SHOWN = "Ray's logs of the processes show the cause"

SENTENCES: dict[str, Sentence] = {
    # Resources
    "no_shard": "cluster.shards is {shards}, but at least 1 is needed",
    "unknown_resource": "cluster.resources.{role}: unknown {names}",
    "lack": "the job needs {needed:g} {resource}, the cluster has {there:g} ({free:g} free)",
    "small_nodes": "an actor runs on one node, and the largest actor needs {most_needed}",
    "node": "{needed:g} {resource} (most free on a node: {free:g})",
    "too_small": (
        "{lacking}, and nothing adds nodes to it",
        "Lower cluster.shards (of an audit --shards) or cluster.resources, start Ray with more CPUs (ray start "
        "--num-cpus), or add nodes",
    ),
    "waiting": ("{lacking}", "Waiting for up to {seconds:g} seconds; to start sooner, " + _LESS),
    "no_resources": ("{lacking}", "Waited {seconds:g} seconds; " + _LESS),
    # Addresses
    "no_address": ("{address} is not a cluster address", "Use local, auto or host:port, such as 10.0.0.1:6379"),
    "url": (
        "{address} is not the address of a cluster's head",
        "Use host:port (6379 unless chosen otherwise), or submit the job there: ray job submit --address URL -- "
        "python -m pipelines.cli COMMAND",
    ),
    "no_cluster": "no Ray cluster at {address}: {reason}",
    "no_head": (
        "no Ray cluster at {address}: what listens there is not a head of Ray",
        "Name the port of the head (6379 unless chosen otherwise; 8265 is the dashboard's). If the cluster uses TLS, "
        "set RAY_USE_TLS=1",
    ),
    "not_joined": (
        "cannot join the Ray cluster at {address}: {reason}",
        "The cluster must run the Ray version of this process ({version}). If the cluster uses token authentication, "
        "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH. The port is the head's, 6379 unless chosen otherwise",
    ),
    "other_cluster": (
        "this process is connected to the Ray cluster at {here}, not to {address}",
        "Leave the address out to use that cluster, or call ray.shutdown() first",
    ),
    "no_private_ray": "a private Ray could not be started: {reason}",
    "long_tmpdir": (
        "{name} is {folder}: there the sockets of a private Ray have names that are {excess} bytes longer than the "
        "{most} that a socket can have",
        "Set RAY_TMPDIR to a shorter folder, such as /tmp, or run with cluster.backend: in_process",
    ),
    # Metrics
    "no_endpoint": (
        "cluster.metrics_port = {port}: the endpoint needs ray[default] ({absent} not installed)",
        "Run pip install 'raydt[cluster]', or remove cluster.metrics_port",
    ),
    "taken_port": ("cluster.metrics_port = {port}: {reason}", "Choose a free port from 1024 up"),
    # Processes that have other sources, or do not start
    "changed_sources": (_SOURCES, "The files have changed since this process loaded them; start again"),
    "other_sources": (_SOURCES, _INSTALL),
    "no_start": ("{name} could not start: {reason}", _INSTALL),
    "defect": ("{name} failed with {error}: {problem}", "This is a defect of raydt; please report it"),
    # Processes that were lost; the remedy is for when the job cannot recover
    "died": ("{name} died", _SHOWN),
    "no_memory": (
        "{name} was killed because its node ran out of memory",
        "Use more shards or larger nodes, or lower cluster.memory_limit",
    ),
    "unreachable": "{name} cannot be reached: its node or the network failed",
    "no_answer": "{name} did not answer: {error}: {reason}",
    "no_progress": "{name} has shown no progress for {seconds:g} seconds: stopped, stuck or cut off",
    "task_memory": ("its process was killed because its node ran out of memory", "Use nodes with more memory per CPU"),
    "task_lost": ("its process was lost ({error})", "Run it again on its own"),
    # Sessions
    "closed": "the session is closed",
    "busy": ("batches in progress: {batches}", "Read all results of process() first, or close the session"),
    "turn": "the batch of update {update} does not start at the model's next update",
}
