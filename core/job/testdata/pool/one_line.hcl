pool "main" {
  gpus = 8
  job "a" { priority = 10 guarantee = 1 }
}
