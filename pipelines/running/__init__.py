"""One replay, from its first update to its summary.

- ``job``: replay and resume. ``interruption``: signals stop the intake.
- ``preparation``: refuses configs that cannot run or resume, reads the previous run, restores a checkpoint.
- ``loop``: ``run`` over ``incarnations``; in each, ``intake`` reads ahead and ``feeding`` applies the batches.
- ``records``: ``tally`` counts, ``recorder`` writes the tables, ``checkpointing`` saves, ``recoveries`` lists losses.
- ``outcome``: last checkpoint, summary and report, and the result for the caller.
"""
