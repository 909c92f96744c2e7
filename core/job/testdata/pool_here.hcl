# A pool's file where a job's is wanted.
pool "ads" {
  gpus = 8
}
