"""Arrays and what works on them: compiled kernels, mapped memory, ragged and sparse rows, random numbers, digests."""
