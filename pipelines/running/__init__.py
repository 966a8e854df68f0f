"""One replay, from its first update to its summary: ``job`` opens it, then ``loop``, ``checkpoint`` and ``ending``.

- ``job``: replay and resume. ``preflight``, ``differences`` and ``previous_run`` refuse what cannot run or resume;
  ``adoption`` takes in what an update wrote; ``interruption`` has signals stop the intake.
- ``loop``: a run over ``incarnations`` of its learner; in each, ``intake`` reads ahead and feeds the batches.
- ``checkpoint``: when one is due, writing it, and going back to the newest. ``records`` are its tables and losses.
- ``ending``: last checkpoint, summary and report, and the result for the caller.
"""
