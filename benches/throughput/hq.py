"""Runs `true` so many times on a HyperQueue of this host's, on 2 processors, and prints the seconds
from the posting of all of them to the end of the last. Package: hyperqueue, from PyPI.

    python3 hq.py COUNT
"""

import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

with tempfile.TemporaryDirectory() as folder, LocalCluster(folder) as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()

    def run(count):
        job = Job(default_workdir=folder)
        for _ in range(count):
            job.program(["true"], stdout=None, stderr=None)
        client.wait_for_jobs([client.submit(job)])

    # The worker is there when this has ended.
    run(1)
    began = time.monotonic()
    run(int(sys.argv[1]))
    print(time.monotonic() - began)
