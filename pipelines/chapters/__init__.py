"""Chapters: a run that has no end, kept as the folders of runs that have ended, one after another.

``RUN/chapters/000001``, ``000002``, ... are run folders. All but the newest are closed: they have model, state, tables,
summary and report, and no process writes there. The newest goes on from the last state of the one before it, until it
has a checkpoint of its own. Nothing else is written in ``RUN`` but its config, ``status.json``, and the report about
all chapters, where the run ends or ``raydt report`` asks for it.

Invariant: the model, and the rows of the tables of all chapters, are those of the same run without chapters.
"""
