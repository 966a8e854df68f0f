"""Sources that go on: tables and topics that a run follows. A further one is a module here, and no edit elsewhere."""
