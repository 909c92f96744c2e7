# A pool of GPUs that jobs share: kale run ctr.hcl ads.hcl -pool pool.hcl. A job that is not named here has priority 0 and is guaranteed its workers.min.

pool "main" {
  gpus = 8 # a worker takes workers.gpus of them; where that is 0 it takes one, and the pool is one of slots

  job "ctr" {
    priority  = 10 # beyond the guarantees, the higher is served first; 0 is usual
    guarantee = 2  # workers that it gets whenever it wants them; until then others may have them
    limit     = 6  # it gets no more; workers.max is usual
  }
}
