"""What every room stands on: files, errors, signals, devices, threads, randomness, versions."""
