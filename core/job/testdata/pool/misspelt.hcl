pool "Main pool" {
  gpu  = 8
  name = "x"

  job "a" {
    prioritty = 10
    guarantee = 0
  }
  job "b" {
    priority  = "high"
    guarantee = 3
    limit     = 2
  }
  job "b" {
  }
  job {
    priority = 1
  }
  jobs "c" {
  }
}
