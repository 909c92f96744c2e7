pool "main" {
  gpus = 8

  job "a" {
    priority = 1
  }
  job "a" {
    weight = 0
  }
  job {
    limit = "x"
  }
  job "b" "c" {
    prioritty = 1
  }
  jobs "d" {
    guarantee = 5
    limit     = 2
  }
}
pool "two" {
  gpus     = 0
  patience = 30

  job "a" {
    weight = 2000
  }
}
