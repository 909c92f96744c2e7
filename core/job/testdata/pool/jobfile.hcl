gpus = 8

job "ctr" {
  workers {
    max = 4
  }
}
