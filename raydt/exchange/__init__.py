"""The exchange of a coordinator and its shards: messages, snapshots, the in-process driver, and fault points."""
