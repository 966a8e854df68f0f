"""What divides work among the cores of one process: how many there are, a pool of threads, ranges of rows.

Kernels release the GIL and work on arrays that all threads share, so nothing is copied or sent. Each task writes
arrays, or ranges of arrays, of its own; statistics are integers and ties have a total order. A result therefore has the
same bits with any number of threads, and the number is never part of options, hashes, digests or files.
"""
