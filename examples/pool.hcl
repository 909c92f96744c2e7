# A pool of GPUs that jobs share: kale run ctr.hcl ads.hcl -pool pool.hcl. A job that is not named here has priority 0, weight 1, and is guaranteed its workers.min.

pool "main" {
  gpus     = 8    # a worker takes workers.gpus of them; where that is 0 it takes one, and the pool is one of slots
  patience = "1h" # who wants more than its guarantee, and has had no more for so long, has one worker for a turn; "0s": no turns

  # GPUs of several types, instead of gpus = 8 above. Each job then says on which it runs (type = "a100"), and its own backend block must ask for that: in Slurm
  # by gres = "gpu:a100:%d", constraint or partition, in Nomad by device = "nvidia/gpu/a100", constraint or node_pool.
  #   type "a100" {
  #     gpus = 8 # left out: the cluster is asked how many the jobs' blocks may have; a constraint is not counted in
  #   }
  #   type "l4" {
  #     gpus = 16
  #   }

  job "ctr" {
    priority  = 10 # beyond the guarantees, the higher is served first; 0 is usual
    weight    = 2  # among jobs of one priority, the lag and violations that a worker prevents count twice; 1 is usual
    guarantee = 2  # workers that it gets whenever it wants them; until then others may have them
    limit     = 6  # it gets no more; workers.max is usual
  }
}
