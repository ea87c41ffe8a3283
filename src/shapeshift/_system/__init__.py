"""What every room may use: the error, files, hashes, locks, seeds, threads, own modules."""
