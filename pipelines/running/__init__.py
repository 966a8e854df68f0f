"""One replay, from its first update to its summary.

- ``replay``: opens a run, and resumes it. ``plans`` refuses what cannot run or resume.
- ``loop``: a run over the incarnations of its learner; ``intake`` reads ahead, feeds the batches and waits for sources.
- ``checkpoint``: when one is due, how it is written, and the return to the newest; it also takes in what an update
  wrote. ``records`` are its tables and losses.
- ``ending``: signals, the last checkpoint, summary and report, and the result for the caller.
"""
