"""How a coordinator and its shards talk: messages, shards, snapshots, the in-process driver, and fault points."""
