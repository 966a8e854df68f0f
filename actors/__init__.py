"""The Ray edge: shard and coordinator actors, and the session that runs a learner on them.

Invariant: results are those of :class:`raydt.sessions.session.InProcessSession`, bit for bit; Ray decides where
work is done. Importing this package imports neither Ray nor Numba: both read their environment when they are
imported, and :mod:`actors.cluster` sets it first.
"""
