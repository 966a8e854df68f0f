"""Messages between coordinator and shards that come out of order, and faults that are asked for."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # Order of messages
    "other_epoch": "shard {shard} is at epoch {epoch}, and the message is of epoch {sent}",
    "gap": "shard {shard} has seen message {seen}, and message {sent} arrived",
    "other_snapshot": "shard {shard} has set aside snapshot {found}, not {wanted}",
    "old_epoch": "shard {shard} is at epoch {epoch}, and cannot begin epoch {begun}",
    # Channels of shards
    "no_frame": "what arrived on a channel is no frame of arrays",
    "large_frame": "what arrived on a channel says that {bytes} bytes follow, for which this machine has no memory",
    "cut": (
        "shard {peer} is lost: its channel to shard {shard} broke ({reason})",
        "The logs of the processes show the cause",
    ),
    "no_port": (
        "shard {shard} cannot open a port at {host}, the address by which Ray knows its node ({reason})",
        "Start Ray on the node with an address of its own (ray start --node-ip-address)",
    ),
    "unreachable": (
        "shard {peer} is lost: shard {shard} could not open a channel to it at {address} ({reason})",
        "Shards connect to each other by TCP: let the nodes of the cluster reach each other on all ports",
    ),
    # Faults
    "fault_form": (
        "{variable}: {part!r} is not of the form point@n#epoch=act, n from 1",
        "Write for example coordinator.after_batch@3#1=kill or shard.before_answer/1@2#1=stop",
    ),
    "fault_name": ("{variable}: {part!r} names an unknown {what}", "Known are {known}"),
    "fault": "fault point {point}: {variable} asks for an error here",
}
