"""What is measured of the running agent; `bench.py` runs it. Each module's `main` is one story."""
